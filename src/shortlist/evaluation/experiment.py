"""Experiments on live traffic: which arm is better, with intervals that hold at every look.

Every user belongs to one arm. A user counts once, when the window after the first list has passed; then the
outcome is final. The comparison needs only sums from the users of an arm: a matrix with the products of
(1, covariates, metrics). Sums of days and of servers can be added, so a look costs the same after a year.

The difference of two arms is adjusted for what was known of the users before the experiment (Lin, "Agnostic
notes on regression adjustments to experimental data", 2013). Its interval is an asymptotic confidence
sequence (Waudby-Smith et al., "Time-uniform central limit theory and asymptotic confidence sequences", 2021):
it may be looked at every day, and the probability that it is ever wrong stays below 1 - confidence. With a
planned number of users, most of this probability is spent until then (a constant boundary of the sums, like
that of O'Brien and Fleming, 1979). Metrics between 0 and 1 also get an exact interval, by betting
(Waudby-Smith and Ramdas, JRSS B 2024).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import gammaln, ndtri

from shortlist.core.options import AtLeast, Below, NotNegative, check_value, explain_keywords
from shortlist.core.tables import plain
from shortlist.data.columns import to_polars
from shortlist.errors import ConfigError, DataError, warn
from shortlist.types import Bools, Doubles

MIN_USERS = 200  # per arm, before the interval is used: it relies on the central limit theorem
MIN_EVENTS = 50  # per arm: users whose outcome differs from the most frequent one
TIGHTEST_AT = 5_000  # users of both arms at which the interval is tightest, if no number is planned
PLANNED_SHARE = 0.8  # of the error, spent until the planned number of users; the rest is for all sizes
SPLIT_CONCENTRATION = 200.0  # of the Dirichlet prior around the shares that were requested
SPLIT_ERROR = 0.001  # probability that a correct split is ever called wrong
RATES = ("hits_per_item", "f1", "empty")  # metrics between 0 and 1
LOWER_IS_BETTER = ("empty",)
POWER_QUANTILE = 0.8416  # of the normal distribution: a true difference is decided with probability 0.8


# ---------------------------------------------------------------------- sums and intervals
def sum_products(columns: Doubles, group: Any, n_groups: int) -> Doubles:
    """(n_groups, p, p) sums of products of all pairs of the (n, p) columns, added row by row."""
    p = columns.shape[1]
    sums = np.empty((n_groups, p, p))
    for i in range(p):
        for j in range(i, p):
            sums[:, i, j] = np.bincount(group, columns[:, i] * columns[:, j], n_groups)
            sums[:, j, i] = sums[:, i, j]
    return sums


class MeanDifference(NamedTuple):
    """The difference of two means; arrays have one value per look."""

    difference: Doubles
    variance: Doubles  # of one user's influence on the difference
    n_users: Doubles  # of both arms
    reference: Doubles  # mean of the second arm, adjusted


def mean_difference(first: Doubles, second: Doubles, metric: int, n_covariates: int) -> MeanDifference:
    """The adjusted difference first - second of a metric, from (…, p, p) sums with the columns 1, x, y."""
    arms = [_regress(sums, metric, n_covariates) for sums in (first, second)]
    total = first + second
    n = total[..., 0, 0]
    x = slice(1, n_covariates + 1)
    mean_x = total[..., 0, x] / n[..., None]
    spread = total[..., x, x] / n[..., None, None] - mean_x[..., :, None] * mean_x[..., None, :]
    adjusted = [
        arm.mean_y + ((mean_x - arm.mean_x) * arm.slope).sum(-1) for arm in arms
    ]  # what the arm's mean would be with the users of both arms
    slope = arms[0].slope - arms[1].slope
    share = first[..., 0, 0] / n
    variance = (
        np.einsum("...i,...ij,...j->...", slope, spread, slope)
        + arms[0].variance / share
        + arms[1].variance / (1 - share)
    )
    return MeanDifference(adjusted[0] - adjusted[1], variance, n, adjusted[1])


class _Regression(NamedTuple):
    """The metric of one arm as a linear function of the covariates."""

    mean_x: Doubles
    mean_y: Doubles
    slope: Doubles
    variance: Doubles  # of the residuals


def _regress(sums: Doubles, metric: int, n_covariates: int) -> _Regression:
    n = sums[..., 0, 0]
    x = slice(1, n_covariates + 1)
    mean_x, mean_y = sums[..., 0, x] / n[..., None], sums[..., 0, metric] / n
    sxx = sums[..., x, x] - n[..., None, None] * mean_x[..., :, None] * mean_x[..., None, :]
    sxy = sums[..., x, metric] - n[..., None] * mean_x * mean_y[..., None]
    syy = sums[..., metric, metric] - n * mean_y**2
    ridge = 1e-9 * (np.trace(sums[..., x, x], axis1=-2, axis2=-1) + 1)  # constant covariates have no slope
    slope = np.linalg.solve(sxx + ridge[..., None, None] * np.eye(n_covariates), sxy[..., None])[..., 0]
    residual = np.maximum(syy - (slope * sxy).sum(-1), 0)
    return _Regression(mean_x, mean_y, slope, residual / np.maximum(n - n_covariates - 1, 1))


def half_width(
    variance: Doubles, n_users: Doubles, error: float, planned_users: float | None = None
) -> Doubles:
    """Half the width of the confidence sequence of a mean after n users, valid at all n at once.

    With a plan, a sum of outcomes may not leave a constant boundary until the planned number of users. A
    Brownian motion ends beyond a boundary in half of the cases in which it reaches it.
    """
    if planned_users is None:
        return _mixture_width(variance, n_users, error)
    always = _mixture_width(variance, n_users, (1 - PLANNED_SHARE) * error)
    planned = -ndtri(PLANNED_SHARE * error / 4) * np.sqrt(variance * planned_users) / n_users
    return np.where(n_users <= planned_users, np.minimum(planned, always), always)


def _mixture_width(variance: Doubles, n_users: Doubles, error: float) -> Doubles:
    """The boundary of a normal mixture."""
    odds = -2 * np.log(error)
    rho2 = (odds + np.log(odds + 1)) / TIGHTEST_AT
    grown = n_users * rho2 + 1
    width: Doubles = np.sqrt(variance * 2 * grown / (n_users**2 * rho2) * np.log(np.sqrt(grown) / error))
    return width


def betting_interval(outcome: Doubles, is_first: Bools, share: float, error: float) -> tuple[float, float]:
    """Exact bounds for the difference of the means of two arms, for outcomes from 0 to 1 in order of arrival.

    Each user becomes one unbiased value of the difference, around predictions from earlier users only. Bets
    against a difference use the variance of earlier values; a difference that would have made someone rich,
    at any time, is excluded.
    """
    n = outcome.size
    earlier = [_mean_before(outcome, is_first), _mean_before(outcome, ~is_first)]
    chosen = np.where(is_first, (outcome - earlier[0]) / share, (earlier[1] - outcome) / (1 - share))
    largest = max(1 / share, 1 / (1 - share))
    value = (earlier[0] - earlier[1] + chosen) / (2 * largest) + 0.5  # from 0 to 1
    t = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(value)) / (t + 1)
    spread = (0.25 + np.cumsum((value - mean) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], spread[:-1]])
    bet = np.sqrt(2 * np.log(2 / error) / (before * t * np.log(1 + t)))

    def excludes(level: float, sign: float) -> bool:
        room = level if sign > 0 else 1 - level
        size = np.minimum(bet, 0.5 / max(room, 1e-9))
        return bool(np.cumsum(np.log1p(size * sign * (value - level))).max(initial=0) >= np.log(2 / error))

    def bound(sign: float) -> float:
        inside, outside = (1.0, 0.0) if sign > 0 else (0.0, 1.0)
        if not excludes(outside, sign):
            return outside
        for _ in range(40):
            middle = (inside + outside) / 2
            if excludes(middle, sign):
                outside = middle
            else:
                inside = middle
        return outside

    low, high = ((2 * bound(sign) - 1) * largest for sign in (1.0, -1.0))
    return max(low, -1.0), min(high, 1.0)


def _mean_before(outcome: Doubles, chosen: Bools) -> Doubles:
    """(n,) mean outcome of the chosen users before each user, drawn to 1/2 while there are few."""
    total = np.concatenate([[0.0], np.cumsum(outcome * chosen)[:-1]])
    count = np.concatenate([[0], np.cumsum(chosen)[:-1]])
    mean: Doubles = (total + 0.5) / (count + 1)
    return mean


def split_evidence(counts: Doubles, shares: Doubles, concentration: float = SPLIT_CONCENTRATION) -> Doubles:
    """log e-value against the claim that users were split by these shares; counts: (…, n_arms).

    Above -log(e) it is e times as probable that the split is another one, at any time one looks (Lindon and
    Malek, "Anytime-valid inference for multinomial count data", 2020).
    """
    prior = concentration * shares
    n = counts.sum(-1)
    with_prior = (
        (gammaln(prior + counts) - gammaln(prior)).sum(-1) + gammaln(prior.sum()) - gammaln(prior.sum() + n)
    )
    evidence: Doubles = with_prior - (counts * np.log(shares)).sum(-1)
    return evidence


# ---------------------------------------------------------------------- the comparison
@dataclass(frozen=True, eq=False, repr=False)
class ExperimentReport:
    """The arms of an experiment compared, valid at every look.

    Parameters
    ----------
    metric
        The metric that decides.
    control
        The arm that the others are compared with.
    confidence
        Probability that no interval of the metric is ever wrong.
    arms
        One row per arm: users and the mean of every metric.
    differences
        One row per metric and arm other than the control: the difference to the control, its interval
        (`low`, `high`), the exact interval for metrics between 0 and 1, and what follows (`verdict`).
    looks
        The difference of the deciding metric and its interval after each day.
    split_e_value
        Evidence that users were not split by the shares that were requested; above 1,000 the comparison is
        not valid.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> arm = rng.choice(["ten", "dynamic"], 4000)
    >>> hits = rng.poisson(np.where(arm == "dynamic", 1.3, 1.0))
    >>> report = sl.evaluate_experiment({"arm": arm, "hits": hits}, metric="hits", control="ten")
    >>> report.verdict
    'better'
    """

    metric: str
    control: str
    confidence: float
    arms: pl.DataFrame
    differences: pl.DataFrame
    looks: pl.DataFrame
    split_e_value: float

    @property
    def is_valid(self) -> bool:
        """Whether users were split by the requested shares, as far as the counts tell."""
        return self.split_e_value < 1 / SPLIT_ERROR

    @property
    def winner(self) -> str | None:
        """The arm that is better than the control, the best of several; None if none is, or if not valid.

        For metrics of which less is better, the best arm has the lowest difference.
        """
        better = [row for row in self._arms() if row["verdict"] == "better"] if self.is_valid else []
        sign = -1 if self.metric in LOWER_IS_BETTER else 1
        return max(better, key=lambda row: sign * row["difference"])["arm"] if better else None

    @property
    def broken_guardrails(self) -> list[str]:
        """Metrics that an arm makes worse by more than was allowed."""
        broken = self.differences.filter(pl.col("verdict") == "guardrail broken")
        return broken["metric"].unique(maintain_order=True).to_list()

    @property
    def verdict(self) -> str:
        """What was found out; of several arms, the most favorable.

        better, worse, no difference, not yet, guardrail broken or invalid split. An arm that breaks a
        guardrail has no other verdict.
        """
        if not self.is_valid:
            return "invalid split"
        found = {row["verdict"] for row in self._arms()}
        order = ("better", "not yet", "no difference", "guardrail broken", "worse")
        return next(name for name in order if name in found)

    def _arms(self) -> list[dict[str, Any]]:
        """The rows of the deciding metric; the verdict of an arm that breaks a guardrail is that."""
        broken = set(self.differences.filter(pl.col("verdict") == "guardrail broken")["arm"])
        rows = self.differences.filter(pl.col("metric") == self.metric).to_dicts()
        return [row | ({"verdict": "guardrail broken"} if row["arm"] in broken else {}) for row in rows]

    def summary(self) -> str:
        """Say in one sentence per arm what the experiment has shown.

        Returns
        -------
        str
            The verdict with the difference and its interval.

        Examples
        --------
        >>> arm = ["ten"] * 30 + ["dynamic"] * 30
        >>> report = sl.evaluate_experiment({"arm": arm, "hits": [1.0] * 60}, metric="hits", control="ten")
        >>> report.summary().split(",")[0]
        'dynamic against ten: not yet; 200 users per arm are needed before a comparison'
        """
        if not self.is_valid:
            counts = ", ".join(f"{n:,} {arm}" for arm, n in self.arms.select("arm", "users").rows())
            return (
                f"No verdict: users were not split by the requested shares ({counts}; evidence "
                f"{self.split_e_value:.3g} to 1). Find out why users of one arm are lost, and start again."
            )
        return " ".join([*map(self._sentence, self.differences.to_dicts())])

    def _sentence(self, row: Mapping[str, Any]) -> str:
        """What is known of one arm and metric."""
        if row["metric"] != self.metric:
            limits = "" if row["low"] is None else f" (between {row['low']:+.4g} and {row['high']:+.4g})"
            verdict = row["verdict"].removeprefix("guardrail ")
            return f"Guardrail {row['metric']} of {row['arm']}: {verdict}{limits}."
        name = f"{row['arm']} against {self.control}: {row['verdict']}"
        if row["low"] is None:
            return (
                f"{name}; {MIN_USERS} users per arm are needed before a comparison, {MIN_EVENTS} of them "
                "with another outcome than most."
            )
        relative = f" ({row['difference'] / abs(row['reference']):+.1%})" if row["reference"] else ""
        return (
            f"{name}. The difference in {row['metric']} per user is {row['difference']:+.4g}{relative}, "
            f"between {row['low']:+.4g} and {row['high']:+.4g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report ready for JSON.

        Returns
        -------
        dict
            Verdict, sentence, tables as lists of rows.

        Examples
        --------
        >>> table = {"arm": ["a", "b"] * 300, "hits": [0, 1, 1, 0] * 150}
        >>> sl.evaluate_experiment(table, metric="hits", control="a").to_dict()["verdict"]
        'not yet'
        """
        return {
            "metric": self.metric,
            "control": self.control,
            "confidence": self.confidence,
            "verdict": self.verdict,
            "summary": self.summary(),
            "winner": self.winner,
            "split_e_value": self.split_e_value,
            "arms": self.arms.to_dicts(),
            "differences": self.differences.to_dicts(),
            "looks": self.looks.to_dicts(),
        }

    def __repr__(self) -> str:
        users = int(self.arms["users"].sum())
        return f"ExperimentReport({self.verdict}, {self.metric}, {self.arms.height} arms, {users:,} users)"

    def __str__(self) -> str:
        return "\n".join([plain(self.arms), "", plain(self.differences), "", self.summary()])


@explain_keywords
def evaluate_experiment(
    users: Any,
    *,
    metric: str,
    control: str,
    shares: Mapping[str, float] | None = None,
    covariates: Sequence[str] = (),
    guardrails: Mapping[str, float] | None = None,
    smallest_effect: float | None = None,
    confidence: float = 0.95,
    planned_users: int | None = None,
) -> ExperimentReport:
    """Compare the arms of an experiment; the result holds however often one looks.

    Parameters
    ----------
    users
        A table with one row per user: `arm`, the metrics, optionally covariates, and optionally `day`, the
        number of the day or the date on which the outcome of the user was complete. Rows without `day` are
        one look. Users who got no list are left out in every arm.
    metric
        The column that decides, such as hits or value.
    control
        The arm that the others are compared with.
    shares
        Arm → share of the users that was requested; equal shares by default. The split is tested, and there
        is no verdict if it differs.
    covariates
        Columns that were known before the experiment, such as earlier purchases, counted in the same way in
        every arm. They make the interval narrower.
    guardrails
        Metric → how much worse an arm may be than the control.
    smallest_effect
        The smallest difference that matters. Once the interval is within it, the verdict is "no difference".
    confidence
        Probability that the interval of the metric is never wrong, for all arms together.
    planned_users
        Users of all arms with which the experiment is to end, as `plan_experiment` says. The interval is then
        narrower at this number, and wider long before and after it. It must be fixed before the start.

    Returns
    -------
    ExperimentReport
        Means, differences with intervals, the verdict and the test of the split.

    Raises
    ------
    DataError
        If a column is missing or has values that are not finite, or an arm has no user.
    ConfigError
        If a parameter is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(2)
    >>> before = rng.poisson(2.0, 3000)
    >>> arm = rng.choice(["ten", "dynamic"], 3000)
    >>> hits, day = rng.poisson(0.2 + 0.4 * before), np.arange(3000) // 300
    >>> table = {"arm": arm, "before": before, "hits": hits, "day": day}
    >>> report = sl.evaluate_experiment(table, metric="hits", control="ten", covariates=["before"])
    >>> report.verdict, report.looks.height
    ('not yet', 10)
    """
    guardrails = dict(guardrails or {})
    _check_options(guardrails, smallest_effect, confidence)
    check_value(Annotated[int, AtLeast(1)] | None, planned_users=planned_users)
    metrics = list(dict.fromkeys([metric, *guardrails]))
    table = _read_users(users, [*metrics, *covariates])
    shares = _check_shares(table["arm"], control, shares)
    sample = _Sample.build(table, [control, *(arm for arm in shares if arm != control)], metrics, covariates)
    error = (1 - confidence) / (len(shares) - 1)
    rows, looks = [], []
    for name in metrics:
        for arm in sample.arms[1:]:
            planned = planned_users and planned_users * (shares[control] + shares[arm])
            estimate, low, high = sample.intervals(name, arm, error, planned)
            bounds = _last_bounds(estimate, low, high, f"{arm}, {name}")
            exact = sample.exact_interval(name, arm, shares, error) if name in RATES else (None, None)
            if exact[0] is not None and np.isinf(low[-1]):  # it needs no minimum of users
                bounds = exact
            effect, margin = (smallest_effect, None) if name == metric else (None, guardrails[name])
            rows.append(
                {
                    "metric": name,
                    "arm": arm,
                    "difference": float(estimate.difference[-1]),
                    "low": _finite(bounds[0]),
                    "high": _finite(bounds[1]),
                    "exact_low": exact[0],
                    "exact_high": exact[1],
                    "reference": float(estimate.reference[-1]),
                    "verdict": _conclude(*bounds, name, effect, margin),
                }
            )
            if name == metric:
                looks += [
                    {"look": label, "arm": arm, "difference": float(d), "low": _finite(a), "high": _finite(b)}
                    for label, d, a, b in zip(sample.labels, estimate.difference, low, high, strict=True)
                ]
    counts = sample.sums[:, :, 0, 0]
    evidence = split_evidence(counts, np.array([shares[arm] for arm in sample.arms])).max()
    return ExperimentReport(
        metric=metric,
        control=control,
        confidence=confidence,
        arms=pl.DataFrame({"arm": sample.arms, "users": counts[-1].astype(np.int64), **sample.means()}),
        differences=pl.DataFrame(rows, infer_schema_length=None),
        looks=pl.DataFrame(looks, infer_schema_length=None),
        split_e_value=float(np.exp(min(evidence, 700.0))),
    )


@dataclass(frozen=True, eq=False)
class _Sample:
    """The users of an experiment as arrays, in order of their looks, and their sums after each look."""

    arms: list[str]  # the control first
    metrics: list[str]
    n_covariates: int
    labels: list[int]  # of the looks
    arm: Any  # (n_users,) number of the arm
    look: Any  # (n_users,) number of the look, ascending
    columns: Doubles  # (n_users, 1 + n_covariates + n_metrics)
    sums: Doubles  # (n_looks, n_arms, p, p) sums up to each look

    @classmethod
    def build(
        cls, table: pl.DataFrame, arms: list[str], metrics: list[str], covariates: Sequence[str]
    ) -> "_Sample":
        numbers = {name: k for k, name in enumerate(arms)}
        arm = table["arm"].replace_strict(numbers, return_dtype=pl.Int64).to_numpy()
        days = table["day"].to_numpy()
        labels, look = np.unique(days, return_inverse=True)
        constant = np.ones(table.height)
        columns = np.column_stack(
            [constant, *(_standardize(table[x].to_numpy()) for x in covariates), *(table[m] for m in metrics)]
        )
        daily = sum_products(columns, look * len(arms) + arm, labels.size * len(arms))
        sums = daily.reshape(labels.size, len(arms), *daily.shape[1:]).cumsum(0)
        return cls(arms, metrics, len(covariates), labels.tolist(), arm, look, columns, sums)

    def place(self, metric: str) -> int:
        """The column of a metric."""
        return 1 + self.n_covariates + self.metrics.index(metric)

    def means(self) -> dict[str, Doubles]:
        """Metric → (n_arms,) mean over the users of each arm."""
        last = self.sums[-1]
        return {name: last[:, 0, self.place(name)] / last[:, 0, 0] for name in self.metrics}

    def intervals(
        self, metric: str, arm: str, error: float, planned_users: float | None
    ) -> tuple[MeanDifference, Doubles, Doubles]:
        """The difference to the control after each look, and the bounds that have held so far."""
        k = self.arms.index(arm)
        with np.errstate(divide="ignore", invalid="ignore"):  # arms without users
            estimate = mean_difference(
                self.sums[:, k], self.sums[:, 0], self.place(metric), self.n_covariates
            )
            width = half_width(estimate.variance, estimate.n_users, error, planned_users)
        usable = self.has_enough(metric, k) & self.has_enough(metric, 0)
        low = np.where(usable, estimate.difference - width, -np.inf)
        high = np.where(usable, estimate.difference + width, np.inf)
        return estimate, np.maximum.accumulate(low), np.minimum.accumulate(high)

    def has_enough(self, metric: str, k: int) -> Bools:
        """(n_looks,) whether an arm has enough users, and enough of them with an unusual outcome."""
        values = self.columns[:, self.place(metric)]
        usual, counts = np.unique(values, return_counts=True)
        unusual = (values != usual[counts.argmax()]) & (self.arm == k)
        events = np.bincount(self.look, unusual, len(self.labels)).cumsum()
        enough: Bools = (self.sums[:, k, 0, 0] >= MIN_USERS) & (events >= MIN_EVENTS)
        return enough

    def exact_interval(
        self, metric: str, arm: str, shares: Mapping[str, float], error: float
    ) -> tuple[float, float]:
        """The interval by betting, of a metric between 0 and 1."""
        k = self.arms.index(arm)
        pair = (self.arm == 0) | (self.arm == k)
        share = shares[arm] / (shares[arm] + shares[self.arms[0]])
        return betting_interval(self.columns[pair, self.place(metric)], self.arm[pair] == k, share, error)


def _check_options(guardrails: Mapping[str, float], smallest_effect: float | None, confidence: float) -> None:
    check_value(NotNegative, **{f"guardrails[{name!r}]": value for name, value in guardrails.items()})
    if smallest_effect is not None:
        check_value(NotNegative, smallest_effect=smallest_effect)
    check_value(Annotated[float, AtLeast(0.5), Below(1)], confidence=confidence)


def _read_users(users: Any, names: Sequence[str]) -> pl.DataFrame:
    """The columns arm, day and those named, in the order of the days; finite numbers only."""
    table = to_polars(pl.DataFrame(users) if isinstance(users, dict) else users, "users")
    for name in ("arm", *names):
        if name not in table.columns:
            columns = ", ".join(map(repr, table.columns[:20]))
            raise DataError(f"users must have a column {name!r}, got {columns}; add it, or name another one.")
    if not table.height:
        raise DataError("users must have rows, got an empty table; wait until the first window has passed.")
    day = table["day"] if "day" in table.columns else pl.Series("day", [0]).new_from_index(0, table.height)
    if day.dtype.is_temporal():
        day = day.cast(pl.Date)
    try:
        numbers = [table[name].cast(pl.Float64) for name in names]
        whole = day.cast(pl.Int64)
    except pl.exceptions.PolarsError:
        raise DataError(
            "metrics, covariates and `day` must be numbers, got other types; convert them."
        ) from None
    for series in (*numbers, whole):
        if series.null_count() or not series.is_finite().all():
            raise DataError(
                f"column {series.name!r} must hold finite numbers, got others; a user without an event has 0."
            )
    return pl.DataFrame([table["arm"].cast(pl.String), whole.alias("day"), *numbers]).sort(
        "day", maintain_order=True
    )


def _check_shares(arms: pl.Series, control: str, shares: Mapping[str, float] | None) -> dict[str, float]:
    """Arm → share of the users; the shares add up to 1, and every arm has users."""
    present = arms.unique().sort().to_list()
    wanted = dict.fromkeys(present, 1 / len(present)) if shares is None else dict(shares)
    if control not in wanted:
        raise ConfigError(f"control must be one of the arms ({', '.join(wanted)}), got {control!r:.60}.")
    check_value(NotNegative, **{f"shares[{name!r}]": value for name, value in wanted.items()})
    if len(wanted) < 2 or min(wanted.values()) == 0 or abs(sum(wanted.values()) - 1) > 1e-9:
        raise ConfigError(
            f"shares must name at least two arms, all above 0, that add up to 1, got {wanted}; correct them."
        )
    if set(present) != set(wanted):
        raise DataError(
            f"the arms of the users must be {', '.join(wanted)}, got {', '.join(map(str, present))}; "
            "wait until every arm has users, or correct the shares."
        )
    return wanted


def _standardize(values: Doubles) -> Doubles:
    """Mean 0 and deviation 1; zeros for a constant."""
    deviation = float(values.std())
    scaled: Doubles = (values - values.mean()) / deviation if deviation > 0 else np.zeros(values.size)
    return scaled


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _last_bounds(estimate: MeanDifference, low: Doubles, high: Doubles, name: str) -> tuple[float, float]:
    """The bounds after the last look; without limits if those of different days contradict each other."""
    if low[-1] <= high[-1]:
        return float(low[-1]), float(high[-1])
    warn(f"{name}: the intervals of different days contradict each other; the difference changes over time.")
    return -np.inf, np.inf


def _conclude(
    low: float, high: float, metric: str, smallest_effect: float | None, margin: float | None
) -> str:
    """What an interval of the difference says."""
    if metric in LOWER_IS_BETTER:
        low, high = -high, -low
    if margin is not None:
        return "guardrail kept" if low > -margin else "guardrail broken" if high < -margin else "not yet"
    if low > 0 or high < 0:
        return "better" if low > 0 else "worse"
    is_small = smallest_effect is not None and low > -smallest_effect and high < smallest_effect
    return "no difference" if is_small else "not yet"


# ---------------------------------------------------------------------- before it starts
@dataclass(frozen=True)
class ExperimentPlan:
    """What an experiment will probably show, and when.

    Parameters
    ----------
    lift, reference
        Expected difference per user, and the mean of the control.
    users
        Users of both arms after which the difference is decided with probability 0.8, if this number is
        planned (`planned_users`); None if it is more than can be had in a year.
    days
        Days until then, with the window of the last users; None if it is more than a year.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(3)
    >>> now, new = rng.poisson(1.0, 5000), rng.poisson(1.2, 5000)
    >>> plan = sl.plan_experiment(now, new, users_per_day=500, window_days=7)
    >>> plan.users is not None and 500 < plan.users < 3000
    True
    """

    lift: float
    reference: float
    users: int | None
    days: int | None

    def summary(self) -> str:
        """Say in one sentence what to expect.

        Returns
        -------
        str
            The expected lift and the number of days.

        Examples
        --------
        >>> sl.plan_experiment([1.0, 2.0] * 50, [1.0, 2.0] * 50, users_per_day=10, window_days=7).summary()
        'No difference is expected: +0 per user.'
        """
        relative = f" ({self.lift / self.reference:+.1%})" if self.reference else ""
        if self.lift == 0:
            return "No difference is expected: +0 per user."
        expected = f"The expected difference is {self.lift:+.4g} per user{relative}"
        if self.users is None or self.days is None:
            return f"{expected}; it would take more than a year to decide."
        plan = f"{self.days:,} days, if {self.users:,} users are planned"
        return f"{expected}; if it is that large, it is decided after {plan}, with a probability of 80%."


@explain_keywords
def plan_experiment(
    control: Any,
    treatment: Any,
    *,
    users_per_day: float,
    window_days: float,
    covariates: Any = None,
    share: float = 0.5,
    confidence: float = 0.95,
) -> ExperimentPlan:
    """Say how long an experiment will take, from outcomes of both arms on held-out data.

    Parameters
    ----------
    control, treatment
        Outcome of every held-out user with the lists of each arm, in the same order.
    users_per_day
        New users per day in both arms together.
    window_days
        Days after which the outcome of a user is final.
    covariates
        (n_users, n_covariates) what is known of the users beforehand.
    share
        Share of the users who get the treatment.
    confidence
        As in `evaluate_experiment`.

    Returns
    -------
    ExperimentPlan
        The expected difference and the time until it is decided with probability 0.8.

    Raises
    ------
    DataError
        If the outcomes do not have the same length or are not finite.
    ConfigError
        If a parameter is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(3)
    >>> now, new = rng.poisson(1.0, 5000), rng.poisson(1.05, 5000)
    >>> print(sl.plan_experiment(now, new, users_per_day=1, window_days=7).summary()[:30])
    The expected difference is +0.
    """
    check_value(NotNegative, users_per_day=users_per_day, window_days=window_days)
    _check_options({}, None, confidence)
    if not 0 < share < 1 or users_per_day == 0:
        raise ConfigError(
            f"share must be between 0 and 1 and users_per_day above 0, got {share} and {users_per_day}."
        )
    outcomes = [np.asarray(values, np.float64).reshape(-1) for values in (control, treatment)]
    n = outcomes[0].size
    x = np.empty((n, 0)) if covariates is None else np.asarray(covariates, np.float64).reshape(n, -1)
    if outcomes[1].size != n or n < 10 or not all(np.isfinite(values).all() for values in (*outcomes, x)):
        raise DataError("outcomes must be finite, at least 10, and as many in both arms; check the tables.")
    variance = _planned_variance(outcomes, x, share)
    lift, error = float(outcomes[1].mean() - outcomes[0].mean()), 1 - confidence
    sizes = np.unique(np.round(users_per_day * np.arange(1, 366))).astype(np.float64)
    width = -ndtri(PLANNED_SHARE * error / 4) * np.sqrt(variance / sizes)  # at the planned number
    needed = width + POWER_QUANTILE * np.sqrt(variance / sizes)
    enough = (needed <= abs(lift)) & (np.minimum(share, 1 - share) * sizes >= MIN_USERS)
    users = int(sizes[enough.argmax()]) if enough.any() and lift else None
    days = None if users is None else int(np.ceil(users / users_per_day + window_days))
    return ExperimentPlan(lift, float(outcomes[0].mean()), users, days)


def _planned_variance(outcomes: Sequence[Doubles], x: Doubles, share: float) -> float:
    """Variance of one user's influence on the difference, if users were split by the share."""
    n = outcomes[0].size
    scaled = [_standardize(column) for column in x.T]
    sums = [
        sum_products(np.column_stack([np.ones(n), *scaled, y]), np.zeros(n, np.int64), 1)[0] for y in outcomes
    ]
    control, treatment = (_regress(m, 1 + len(scaled), len(scaled)) for m in sums)
    slope = treatment.slope - control.slope
    x_products = sums[0][1 : 1 + len(scaled), 1 : 1 + len(scaled)] / n
    between = float(np.einsum("i,ij,j->", slope, x_products, slope))
    return between + float(treatment.variance) / share + float(control.variance) / (1 - share)
