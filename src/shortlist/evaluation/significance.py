"""Is a difference real? The one bootstrap over users, two classical tests and Holm's correction."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.core.options import explain_keywords
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.rng import stream
from shortlist.kernels.significance import resample_means
from shortlist.types import Doubles, Ints

FEW = 100  # values up to which the bootstrap compares t statistics
TINY = 1e-12  # a smaller standard deviation is one of equal values


@dataclass(frozen=True)
class PairedTest:
    """A mean difference with its interval, and p-values of three tests against "no difference".

    The result of `paired_test`.

    Parameters
    ----------
    difference
        Mean over users.
    low, high
        Bootstrap interval of the mean.
    level
        Confidence level of the interval.
    p_bootstrap, p_t, p_wilcoxon
        Two-sided p-values of the paired bootstrap, the paired t-test and Wilcoxon's signed-rank test. With up
        to 100 values the bootstrap compares t statistics, because means of few skewed values are too often
        far from 0, and takes the larger p-value of both sides together and of twice the observed side.
    resamples
        Number of bootstrap samples. `p_bootstrap` is never below 1 / (1 + resamples); then it is a bound.

    Examples
    --------
    >>> import numpy as np
    >>> from shortlist.evaluation import paired_test
    >>> test = paired_test(np.array([0.5, 0.7, 0.6]), np.array([0.4, 0.6, 0.5]))
    >>> round(test.difference, 4), round(test.low, 4), round(test.high, 4)
    (0.1, 0.1, 0.1)
    """

    difference: float
    low: float
    high: float
    level: float
    p_bootstrap: float
    p_t: float
    p_wilcoxon: float
    resamples: int = 10_000

    @property
    def is_bound(self) -> bool:
        """Whether no bootstrap sample was as far from 0, so that `p_bootstrap` is an upper bound."""
        return self.p_bootstrap * (1 + self.resamples) < 1.5


@explain_keywords
def paired_test(
    values: Doubles,
    baseline: Doubles,
    *,
    groups: Ints | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedTest:
    """Test the mean of `values - baseline` over users: paired bootstrap, paired t-test, Wilcoxon signed-rank.

    Parameters
    ----------
    values, baseline
        Shape (n_users,): one value per user, users in the same order, as `Report.values` returns them.
    groups
        Shape (n_values,): a number from 0 for each value, such as the user of each list if users have several
        lists. Values of one group are not independent: the bootstrap samples whole groups, and the other
        tests use the sum of each group. None: every value is independent.
    resamples
        Number of bootstrap samples.
    level
        Confidence level of the interval.
    seed
        The same seed gives the same bootstrap samples.

    Returns
    -------
    PairedTest
        The mean difference, its interval and three p-values.

    Raises
    ------
    DataError
        If the shapes differ or there are no users.
    ConfigError
        If `resamples` is below 1 or `level` is not between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from shortlist.evaluation import paired_test
    >>> rng = np.random.default_rng(0)
    >>> baseline = rng.random(500)
    >>> paired_test(baseline + rng.normal(0.05, 0.1, 500), baseline, resamples=1000).p_bootstrap < 0.01
    True
    """
    if values.shape != baseline.shape or values.ndim != 1 or not values.size:
        raise DataError(
            f"a paired test needs one value per user on both sides, got shapes {values.shape} and "
            f"{baseline.shape}; evaluate both on the same truth."
        )
    if resamples < 1 or not 0 < level < 1:
        raise ConfigError(
            f"resamples must be at least 1 and level between 0 and 1, got {resamples} and {level}; "
            "the usual values are 10000 and 0.95."
        )
    change = np.ascontiguousarray(values, np.float64) - np.ascontiguousarray(baseline, np.float64)
    mean = float(change.mean())
    if groups is None:
        means = bootstrap_means(change, resamples, seed)
    else:
        if groups.shape != values.shape:
            raise DataError(f"groups must hold one number per value, got {groups.size} for {values.size}.")
        counts = np.bincount(groups)
        sizes: Doubles = counts[counts > 0].astype(np.float64)
        sums: Doubles = np.bincount(groups, change)[counts > 0].astype(np.float64)
        means = bootstrap_means(sums, resamples, seed) / bootstrap_means(sizes, resamples, seed)
        change = sums / sizes.mean()
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    # under the null hypothesis the means vary around 0 as the bootstrap means vary around the observed mean
    distance, observed = (
        (means - mean) * (1 if mean >= 0 else -1),
        abs(mean),
    )  # positive: on the observed side
    is_small = change.size <= FEW and groups is None
    if is_small:
        deviation = np.sqrt(np.maximum(bootstrap_means(change * change, resamples, seed) - means**2, 0))
        far = np.where(np.abs(distance) > TINY, np.copysign(np.inf, distance), 0.0)  # samples of equal values
        distance = np.divide(distance, deviation, where=deviation > TINY, out=far)
        observed = observed / change.std() if change.std() > TINY else np.inf if observed else 0.0
    limit = observed * (1 - 1e-12)
    as_far = int((np.abs(distance) >= limit).sum())
    if is_small:  # t statistics of skewed values are skewed: the observed side may be the longer one
        as_far = max(as_far, min(2 * int((distance >= limit).sum()), resamples))
    p_t, p_wilcoxon = _classical(change)
    p_bootstrap = (1 + as_far) / (1 + resamples)
    return PairedTest(mean, float(low), float(high), level, p_bootstrap, p_t, p_wilcoxon, resamples)


def bootstrap_means(values: Doubles, resamples: int, seed: int) -> Doubles:
    """(resamples,) means of users sampled with replacement; the same seed samples the same users."""
    means = np.empty(resamples)
    resample_means(values, stream(seed, values.size), means)
    return means


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple tests by Holm's step-down method.

    Parameters
    ----------
    p_values
        p-values of all tests of one family.

    Returns
    -------
    list of float
        Corrected p-values in the same order. Rejecting those at most α keeps the probability of any false
        rejection at most α.

    References
    ----------
    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.

    Examples
    --------
    >>> from shortlist.evaluation import holm
    >>> holm([0.25, 0.125])
    [0.25, 0.25]
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(scaled, 1)
    return [float(value) for value in adjusted]


def _classical(change: Doubles) -> tuple[float, float]:
    """p-values of the t-test and of Wilcoxon's test; 1 if nothing changed or there is only one user."""
    from scipy import stats

    if not change.any() or change.size < 2:
        return 1.0, 1.0
    nonzero = change[change != 0]
    wilcoxon = float(stats.wilcoxon(nonzero, method="approx" if nonzero.size > 50 else "auto").pvalue)
    if np.ptp(change) == 0:  # the same change for every user: the variance is 0
        return 0.0, wilcoxon
    return float(stats.ttest_1samp(change, 0).pvalue), wilcoxon
