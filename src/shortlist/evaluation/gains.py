"""Weighted gains: a hit gains the weight of the item in the truth, such as the quantity or the rating."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np

from shortlist.core.metrics import discounts
from shortlist.errors import ConfigError
from shortlist.evaluation.ground_truth import GroundTruth
from shortlist.evaluation.report import METRICS, Report
from shortlist.kernels.metrics import Chunk
from shortlist.types import Doubles, Ints, Longs

WEIGHTED_METRICS = ("weighted_ndcg", "weighted_recall")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WeightedReport(Report):
    """Evaluation with weighted gains; the result of `evaluate(gains="weight")`.

    A `Report` with two more metrics. `weighted_recall` is the share of the weight of the user's truth that
    the list contains. `weighted_ndcg` is the DCG in which a hit gains its weight, divided by that of the
    ideal list of `max_items`: the items of the truth, heaviest first.

    Parameters
    ----------
    user_ids, max_items, n_relevant, lengths, hits, first, dcg, dcg_capped, precision_sum, confidence
        As in `Report`.
    expected_hits, cells, items, unlisted, ignored, repeats
        As in `Report`.
    gains, total_gains
        Weight of the hits, and of all items of the user's truth.
    gain_dcg, ideal_gain_dcg
        DCG of the first `max_items` with weights as gains, and that of the ideal list.

    Examples
    --------
    >>> truth = sl.Interactions.from_tuples([("ann", "tea", 1, 9.0), ("ann", "milk", 1, 1.0)])
    >>> report = sl.evaluate({"ann": ["tea", "rice"]}, truth, gains="weight")
    >>> report.mean("recall"), report.mean("weighted_recall")
    (0.5, 0.9)
    """

    metrics: ClassVar[tuple[str, ...]] = (*METRICS, *WEIGHTED_METRICS)

    gains: Doubles
    total_gains: Doubles
    gain_dcg: Doubles
    ideal_gain_dcg: Doubles

    @cached_property
    def _metrics(self) -> dict[str, Doubles]:
        return {
            **Report._metrics.func(self),  # type: ignore[attr-defined]
            "weighted_ndcg": _ratio(self.gain_dcg, self.ideal_gain_dcg),
            "weighted_recall": _ratio(self.gains, self.total_gains),
        }


def _ratio(part: Doubles, whole: Doubles) -> Doubles:
    return np.divide(part, whole, where=whole > 0, out=np.zeros(part.size))


def _sum_by(group: Ints | Longs, values: Doubles, n: int) -> Doubles:
    """(n,) the sum of the values of each group."""
    return np.asarray(np.bincount(group, values, n), np.float64)


class GainSums:
    """Adds up the gains of hits over chunks of lists."""

    def __init__(self, truth: GroundTruth, max_items: int) -> None:
        if truth.weight is None:
            raise ConfigError(
                'gains="weight" needs a truth with weights, got one without; name the column with weight=…, '
                "or leave gains out."
            )
        self.truth, self.max_items = truth, max_items
        n, start, end = truth.n_rows, truth.truth.start, truth.truth.end
        row = np.repeat(np.arange(n), end - start)
        at = np.arange(row.size) - np.repeat(np.cumsum(end - start) - (end - start), end - start)
        rows = np.repeat(start, end - start) + at  # users without truth have none
        keys, place = np.unique(self._keys(row, truth.truth.item[rows]), return_inverse=True)
        self.keys: Longs = keys
        self.gain_of_key = _sum_by(place, truth.weight[rows].astype(np.float64), keys.size)
        self.gains, self.dcg = np.zeros(n), np.zeros(n)

    def _keys(self, row: Ints | Longs, item: Ints) -> Longs:
        """One number for each pair of row and item."""
        return row.astype(np.int64) * len(self.truth.items) + item

    def evaluate(self, chunk: Chunk, local: Ints, n: int) -> tuple[Doubles, Doubles]:
        """(n,) gains and discounted gains of the lists of one part; `local` is the number of each list."""
        lengths = np.diff(chunk.indptr)
        row, place = np.repeat(chunk.row, lengths), np.repeat(local, lengths)
        rank = np.arange(row.size) - np.repeat(chunk.indptr[:-1], lengths)
        hits = np.flatnonzero(self.truth.relevant(chunk))
        row, place, rank = row[hits], place[hits], rank[hits]
        gain = self.gain_of_key[np.searchsorted(self.keys, self._keys(row, chunk.code[chunk.items[hits]]))]
        return _sum_by(place, gain, n), _sum_by(place, gain * self._discount(rank), n)

    def add(self, rows: Ints, gains: Doubles, dcg: Doubles) -> None:
        """Add what `evaluate` found for the users of these rows."""
        self.gains[rows], self.dcg[rows] = gains, dcg

    def _discount(self, rank: Longs) -> Doubles:
        """(n,) by rank from 0; 0 from `max_items` on."""
        return np.append(discounts(self.max_items), 0.0)[np.minimum(rank, self.max_items)]

    def report(self, plain: Report) -> WeightedReport:
        """The report with the metrics of weighted gains."""
        row = self.keys // len(self.truth.items)
        heaviest = np.lexsort((-self.gain_of_key, row))
        row, gain = row[heaviest], self.gain_of_key[heaviest]
        first = np.searchsorted(row, np.arange(self.gains.size))
        ideal = gain * self._discount(np.arange(row.size) - first[row])
        known = {field.name: getattr(plain, field.name) for field in fields(Report)}
        return WeightedReport(
            **known,
            gains=self.gains,
            total_gains=_sum_by(row, gain, self.gains.size),
            gain_dcg=self.dcg,
            ideal_gain_dcg=_sum_by(row, ideal, self.gains.size),
        )
