"""Metrics of lists: one class per metric, and one implementation for evaluation, cutoffs and training.

Lists are ragged: list k holds the positions indptr[k] … indptr[k + 1] - 1, best item first.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from shortlist.core.options import Cost, Gain, check_value, load_plugins
from shortlist.errors import ConfigError
from shortlist.kernels.list_metrics import add_at_lengths, fill_prefix_sums
from shortlist.kernels.rows import read_only, starts
from shortlist.types import Bools, Doubles, Ints, Longs

MAX_ITEMS = 20  # length of the longest list that would ever be shown, unless the caller says otherwise
AT_N = ("f1", "precision", "recall", "ndcg", "ndcg_paper", "length")  # by fixed length, in this order
BLOCK = 1 << 16  # lists whose prefixes are in memory at once
TIE = 1e-12  # means that differ by less are equal up to the order of summation


PER_USERS = 1000  # money is reported per so many users


@dataclass(frozen=True)
class Money:
    """What a shown item earns or costs: `gain` if the user takes it, minus `cost` if not."""

    gain: float
    cost: float

    @classmethod
    def of(cls, gain: Any, cost: Any) -> Self | None:
        """None without both; ConfigError for one of them alone, and for amounts that decide nothing."""
        if gain is None and cost is None:
            return None
        if gain is None or cost is None:
            missing = "gain" if gain is None else "cost"
            raise ConfigError(
                f"gain and cost belong together, got no {missing}; pass gain=1.5, cost=0.02: what a shown "
                "item earns if the user takes it, and costs if not.",
                parameter=missing,
            )
        check_value(Gain, gain=gain)
        check_value(Cost, cost=cost)
        return cls(float(gain), float(cost))

    def __str__(self) -> str:
        return f"{self.gain:g} for an item that is taken, {-self.cost + 0.0:g} for any other shown item"


class ListSums(NamedTuple):
    """What the metrics of lists are computed from; arrays have one value per list."""

    max_items: int
    n_relevant: Ints  # size of the truth
    lengths: Ints
    hits: Ints
    first: Ints  # rank of the first hit, 0 without a hit
    dcg: Doubles
    dcg_capped: Doubles  # DCG of the first max_items
    precision_sum: Doubles  # precision at every hit among the first max_items
    money: Money | None = None

    @property
    def size(self) -> Ints:
        """Relevant items; 1 without any, because then there are no hits to divide."""
        return np.maximum(self.n_relevant, 1)

    @property
    def ideal_length(self) -> Ints:
        """Length of the best list that could be shown."""
        return np.minimum(self.max_items, self.size)


class Metric:
    """A metric of one list. A subclass is available by its name everywhere as soon as it is imported."""

    name: ClassVar[str]
    title: ClassVar[str]
    larger_is_better: ClassVar[bool] = True
    is_share: ClassVar[bool] = True  # whether it lies between 0 and 1
    can_optimize: ClassVar[bool] = False  # whether `sl.fit` may maximize it
    can_choose_length: ClassVar[bool] = False  # whether FixedN and Threshold may maximize it
    needs_money: ClassVar[bool] = False  # whether it needs a gain and a cost
    scale: ClassVar[float] = 1.0  # a mean is printed times this
    digits: ClassVar[int] = 4  # of a printed mean

    registry: ClassVar[dict[str, type["Metric"]]] = {}

    def __init_subclass__(cls) -> None:
        missing = [name for name in ("name", "title") if not hasattr(cls, name)]
        if missing or cls.values is Metric.values:
            raise TypeError(
                f"the metric {cls.__name__} needs a name, a title and values(sums), "
                f"got no {', '.join(missing) or 'values'}; define it in the class."
            )
        Metric.registry[cls.name] = cls

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        """One value per list; 0 for an empty list."""
        raise NotImplementedError

    @classmethod
    def text(cls, mean: float, sign: str = "") -> str:
        """A mean over users as it is printed; `sign`: "+" also for positive numbers."""
        return f"{mean * cls.scale:{sign},.{cls.digits}f}"


class F1(Metric):
    """Harmonic mean of precision and recall."""

    name, title = "f1", "F1"
    can_optimize = can_choose_length = True

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return 2 * sums.hits / (sums.lengths + sums.size)


class NDCG(Metric):
    """DCG divided by that of the ideal list of `max_items`, so that a short list cannot gain."""

    name, title = "ndcg", "NDCG"
    can_optimize = can_choose_length = True

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        ideal = ideal_dcg(int(sums.size.max(initial=0)))
        return np.asarray(sums.dcg_capped / ideal[sums.ideal_length])


class PaperNDCG(Metric):
    """DCG divided by that of the ideal list of the same length, as in the paper."""

    name, title = "ndcg_paper", "NDCG (paper)"
    can_choose_length = True

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        ideal = ideal_dcg(int(sums.size.max(initial=0)))
        return np.asarray(sums.dcg / ideal[np.minimum(np.maximum(sums.lengths, 1), sums.size)])


class Precision(Metric):
    """Share of the shown items that are hits."""

    name, title = "precision", "precision"

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return sums.hits / np.maximum(sums.lengths, 1)


class Recall(Metric):
    """Share of the relevant items that are shown."""

    name, title = "recall", "recall"

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return sums.hits / sums.size


class AveragePrecision(Metric):
    """Mean precision at the hits, against the ideal list of `max_items`."""

    name, title = "average_precision", "average precision"

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return sums.precision_sum / sums.ideal_length


class ReciprocalRank(Metric):
    """1 / rank of the first hit."""

    name, title = "reciprocal_rank", "reciprocal rank"

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return np.divide(1, sums.first, where=sums.first > 0, out=np.zeros(sums.first.size))


class HitCount(Metric):
    """Number of hits."""

    name, title, is_share = "hits", "hits", False

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return sums.hits.astype(np.float64)


class ListLength(Metric):
    """Number of shown items."""

    name, title, is_share, larger_is_better = "length", "length", False, False

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        return sums.lengths.astype(np.float64)


class ListValue(Metric):
    """What the list earns: `gain` for each hit, minus `cost` for each other shown item."""

    name, title, is_share = "value", "earned per 1,000 users", False
    can_optimize = can_choose_length = needs_money = True
    scale, digits = float(PER_USERS), 1

    @staticmethod
    def values(sums: ListSums) -> Doubles:
        assert sums.money is not None
        return sums.money.gain * sums.hits - sums.money.cost * (sums.lengths - sums.hits)


METRICS = tuple(name for name, metric in Metric.registry.items() if not metric.needs_money)


def check_money(metric: str, gain: Any, cost: Any) -> Money | None:
    """The money of a metric that needs it, else None; ConfigError for a metric and money that contradict."""
    money = Money.of(gain, cost)
    if Metric.registry[metric].needs_money and money is None:
        raise ConfigError(
            f"metric={metric!r} needs what an item earns and costs, got none; pass gain=1.5, cost=0.02.",
            parameter="gain",
        )
    return money


def metrics_to_optimize() -> tuple[str, ...]:
    """Names of the metrics that `sl.fit` may maximize."""
    load_plugins()
    return tuple(name for name, metric in Metric.registry.items() if metric.can_optimize)


def metrics_of_length() -> tuple[str, ...]:
    """Names of the metrics for which FixedN and Threshold may choose the length."""
    load_plugins()
    return tuple(name for name, metric in Metric.registry.items() if metric.can_choose_length)


def discounts(n: int) -> Doubles:
    """(n,) gain of a hit at rank 1, 2, … n: 1 / log2(rank + 1)."""
    return 1 / np.log2(np.arange(2, n + 2))


def ideal_dcg(n: int) -> Doubles:
    """(n + 1,) DCG of a list that consists of 0, 1, … n hits."""
    return np.concatenate([[0.0], np.cumsum(discounts(n))])


def prefix_sums(
    indptr: Longs,
    relevant: Bools,
    n_relevant: Ints,
    max_items: int = MAX_ITEMS,
    money: Money | None = None,
) -> ListSums:
    """The sums of the list that ends at each position; n_relevant: (n_lists,) size of the truth."""
    lengths, n = np.diff(indptr), relevant.size
    counts = np.empty(n, np.int32), np.empty(n, np.int32)
    totals = np.empty(n), np.empty(n), np.empty(n)
    discount = discounts(int(lengths.max(initial=0)))
    fill_prefix_sums(read_only(indptr), relevant, discount, max_items, *counts, *totals)
    ranks = np.arange(1, n + 1) - np.repeat(indptr[:-1], lengths)
    return ListSums(
        max_items, np.repeat(n_relevant, lengths), ranks.astype(np.int32), *counts, *totals, money
    )


def sums_at_n(
    indptr: Longs,
    relevant: Bools,
    n_relevant: Ints,
    n_max: int,
    *,
    max_items: int = MAX_ITEMS,
    numbers: Longs | None = None,
    metrics: tuple[str, ...] = AT_N,
    money: Money | None = None,
) -> Doubles:
    """(n_max, n_metrics) sums over lists of these metrics when every list is cut after N = 1 … n_max items.

    A list shorter than N counts whole, an empty list counts as 0. `numbers`: the lists to add, in order.
    """
    sums = np.zeros((n_max, len(metrics)))
    numbers = np.arange(indptr.size - 1) if numbers is None else numbers
    for first in range(0, numbers.size, BLOCK):
        block = numbers[first : first + BLOCK]
        lengths = np.minimum(indptr[block + 1] - indptr[block], n_max)
        at = starts(lengths)
        rows = np.repeat(indptr[block] - at[:-1], lengths) + np.arange(at[-1])
        prefixes = prefix_sums(at, relevant[rows], n_relevant[block], max_items, money)
        values = [Metric.registry[name].values(prefixes) for name in metrics]
        add_at_lengths(at, np.column_stack(values), sums)
    return sums


def f1_at_n(indptr: Longs, relevant: Bools, n_relevant: Ints, n_max: int) -> Doubles:
    """(n_max,) sum over lists of F1 when every list is cut after N = 1 … n_max items."""
    return sums_at_n(indptr, relevant, n_relevant, n_max, metrics=("f1",))[:, 0]


def first_maximum(values: Doubles) -> int:
    """Index of the first value that equals the largest up to rounding."""
    return int(np.argmax(values >= values.max() - TIE * max(values.size, 1)))


def calibration_error(n: Doubles | Longs, predicted: Doubles, observed: Doubles) -> float:
    """Expected calibration error: mean |predicted - observed| over bins, weighted by their n; NaN if empty.

    All arguments are (n_bins,): number of predictions, mean prediction and observed rate of each bin.
    """
    total = n.sum()
    if not total:
        return float("nan")
    weighted = n * (1 / total) * np.abs(predicted - observed)
    return float(np.cumsum(weighted)[-1])  # cumsum adds in a fixed order
