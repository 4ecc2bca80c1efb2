"""Is a difference between two lists of lists more than chance? Users are the unit, always paired."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.errors import ConfigError, DataError
from shortlist.kernels.metrics import means_resample
from shortlist.kernels.rng import stream
from shortlist.types import Doubles


@dataclass(frozen=True)
class Test:
    """A mean difference with its interval, and three p-values for "there is none"."""

    __test__ = False  # not a test case, whatever pytest thinks

    difference: float
    low: float
    high: float
    level: float  # of the interval
    p_bootstrap: float
    p_t: float
    p_wilcoxon: float


def paired_test(
    ours: Doubles, theirs: Doubles, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Test:
    """ours - theirs, user by user (n_users,): paired bootstrap, paired t-test, Wilcoxon signed ranks."""
    if ours.shape != theirs.shape or ours.ndim != 1 or not ours.size:
        raise DataError(
            f"a paired test needs one value per user on both sides, got shapes {ours.shape} and "
            f"{theirs.shape}; judge both on the same truth."
        )
    if resamples < 1 or not 0 < level < 1:
        raise ConfigError(
            f"resamples must be at least 1 and level between 0 and 1, got {resamples} and {level}; mend them."
        )
    change = np.ascontiguousarray(ours, np.float64) - np.ascontiguousarray(theirs, np.float64)
    means = bootstrap_means(change, resamples, seed)
    mean = float(change.mean())
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    # under the null the resampled means scatter around 0 as they now do around the observed mean
    as_far = int((np.abs(means - mean) >= abs(mean) * (1 - 1e-12)).sum())
    p_t, p_wilcoxon = _classical(change)
    return Test(mean, float(low), float(high), level, (1 + as_far) / (1 + resamples), p_t, p_wilcoxon)


def bootstrap_means(values: Doubles, resamples: int, seed: int) -> Doubles:
    """(resamples,) means of users drawn with replacement; the same seed draws the same users."""
    means = np.empty(resamples)
    means_resample(values, stream(seed, values.size), means)
    return means


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values that keep the chance of any false alarm over the whole family (Holm's step-down)."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(scaled, 1)
    return [float(value) for value in adjusted]


def _classical(change: Doubles) -> tuple[float, float]:
    """p of the t-test and of Wilcoxon's; 1 where nothing changed, and where one user is all there is."""
    from scipy import stats

    if not change.any() or change.size < 2:
        return 1.0, 1.0
    moved = change[change != 0]
    wilcoxon = float(stats.wilcoxon(moved, method="approx" if moved.size > 50 else "auto").pvalue)
    if np.ptp(change) == 0:  # every user gains the same: no scatter to divide by
        return 0.0, wilcoxon
    return float(stats.ttest_1samp(change, 0).pvalue), wilcoxon
