"""MetricAccumulator: adds up the metrics of lists that are evaluated in parts, here or elsewhere."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.metrics import discounts
from shortlist.core.ragged import read_only
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.evaluation.gains import GainSums
from shortlist.evaluation.ground_truth import GroundTruth, ItemCounts, RepeatCounts
from shortlist.evaluation.report import Report
from shortlist.kernels.metrics import (
    UNIT,
    PerUserSums,
    Truth,
    count_repeated_items,
    count_shown_repeats,
    evaluate_lists,
)
from shortlist.types import Bools, Doubles, Ints

CELLS = 1024  # resolution of predicted probabilities when calibration is measured
PER_USER = ("hits", "first", "dcg", "dcg_capped", "precision_sum", "expected_hits")


class PartSums(NamedTuple):
    """The sums of one part of the lists."""

    rows: Ints  # (n,) evaluated users with a list, ascending
    sums: PerUserSums  # one row for each of them
    lengths: Ints  # (n,) of their lists
    confidence: Doubles  # (n,)
    repeats_shown: Ints  # (n,)
    repeat_hits: Ints  # (n,)
    gains: tuple[Doubles, Doubles] | None  # (n,) gains and discounted gains
    unknown_items: pl.Series | None
    n_lists: int
    has_probabilities: bool
    origin: Any  # what the lists were made from


def empty_sums(n: int, n_items: int) -> PerUserSums:
    """Sums of n users before the first list."""
    return PerUserSums(
        hits=np.zeros(n, np.int32),
        first=np.zeros(n, np.int32),
        dcg=np.zeros(n),
        dcg_capped=np.zeros(n),
        precision_sum=np.zeros(n),
        expected_hits=np.zeros(n),
        shown_of=np.zeros(n_items, np.int64),
        hits_of=np.zeros(n_items, np.int64),
        cells=np.zeros((CELLS, 3), np.int64),
    )


class MetricAccumulator:
    """Adds up metrics over parts of lists; its memory grows with users and items, not with list lengths."""

    def __init__(
        self,
        truth: GroundTruth,
        history: Interactions | None,
        max_items: int,
        gains: GainSums | None = None,
    ) -> None:
        n = truth.n_rows
        self.truth, self.max_items, self.gains = truth, max_items, gains
        self.history: Truth | None = None if history is None else truth.history(history)
        self.sums = empty_sums(n, len(truth.items))
        self.lengths: Ints = np.zeros(n, np.int32)
        self.confidence: Doubles = np.full(n, np.nan)
        self.has_list: Bools = np.zeros(n, np.bool_)
        self.repeats_shown: Ints = np.zeros(n, np.int32)
        self.repeat_hits: Ints = np.zeros(n, np.int32)
        self.unknown_items: list[pl.Series] = []
        self.n_lists = self.ignored = 0
        self.has_probabilities: bool | None = None

    def evaluate_file(self, path: Path) -> PartSums:
        """The sums of the lists in one file."""
        return self.evaluate(RankedLists.read(path))

    def evaluate(self, lists: RankedLists) -> PartSums:
        """The sums of some lists; they are not added, and can be computed anywhere."""
        chunk = self.truth.chunk(lists)
        counted = chunk.order[chunk.row[chunk.order] >= 0]
        rows, n, lengths = chunk.row[counted], counted.size, np.diff(lists.indptr)
        local = np.full(chunk.row.size, -1, np.int32)
        local[counted] = np.arange(n, dtype=np.int32)
        own, sums = chunk._replace(row=local), empty_sums(n, len(self.truth.items))
        truth = _take_rows(self.truth.truth, rows)
        p = np.asarray(np.empty(0) if lists.probabilities is None else lists.probabilities, np.float64)
        longest = discounts(int(lengths.max(initial=1)))
        evaluate_lists(own, truth, read_only(p), longest, self.max_items, sums)
        shown, hits = np.zeros(n, np.int32), np.zeros(n, np.int32)
        if self.history is not None:
            count_shown_repeats(own, truth, _take_rows(self.history, rows), shown, hits)
        confidence, filled = np.full(n, np.nan), np.flatnonzero(lengths[counted])
        known = lists.scores if lists.probabilities is None else lists.probabilities
        confidence[filled] = known[lists.indptr[counted[filled]]]
        unknown = np.empty(0, np.int32)
        if (chunk.code < 0).any():
            unknown = lists.items[np.repeat(local >= 0, lengths) & (chunk.code[lists.items] < 0)]
        return PartSums(
            rows=rows,
            sums=sums,
            lengths=lengths[counted].astype(np.int32),
            confidence=confidence,
            repeats_shown=shown,
            repeat_hits=hits,
            gains=None if self.gains is None else self.gains.evaluate(chunk, local, n),
            unknown_items=lists.item_ids.to_ids(np.unique(unknown)) if unknown.size else None,
            n_lists=len(lists),
            has_probabilities=lists.probabilities is not None,
            origin=lists.origin,
        )

    def add(self, part: PartSums) -> None:
        """Add one part."""
        rows = part.rows
        if self.has_list[rows].any():
            raise DataError("a user must have one list, got a user in two chunks; remove one of the lists.")
        if self.has_probabilities not in (None, part.has_probabilities):
            raise DataError(
                "either all chunks or none must have probabilities, got both kinds; drop the probabilities."
            )
        self.has_probabilities = part.has_probabilities
        self.has_list[rows] = True
        self.n_lists += part.n_lists
        self.ignored += part.n_lists - rows.size
        for name in PER_USER:
            getattr(self.sums, name)[rows] = getattr(part.sums, name)
        for total, one in zip(self.sums[len(PER_USER) :], part.sums[len(PER_USER) :], strict=True):
            total += one
        self.lengths[rows], self.confidence[rows] = part.lengths, part.confidence
        self.repeats_shown[rows], self.repeat_hits[rows] = part.repeats_shown, part.repeat_hits
        if self.gains is not None and part.gains is not None:
            self.gains.add(rows, *part.gains)
        if part.unknown_items is not None:
            self.unknown_items.append(part.unknown_items)

    def report(self) -> Report:
        """The report on all parts added so far."""
        truth, sums = self.truth, self.sums
        if self.n_lists and not self.has_list.any():
            raise DataError(
                f"lists must belong to the {truth.n_rows} evaluated users, got {self.n_lists} lists of other "
                "users; check that lists and truth use the same user ids."
            )
        n_unknown = pl.concat(self.unknown_items).n_unique() if self.unknown_items else 0
        plain = Report(
            user_ids=truth.user_ids,
            max_items=self.max_items,
            n_relevant=truth.sizes,
            lengths=self.lengths,
            hits=sums.hits,
            first=sums.first,
            dcg=sums.dcg,
            dcg_capped=sums.dcg_capped,
            precision_sum=sums.precision_sum,
            confidence=self.confidence,
            expected_hits=sums.expected_hits if self.has_probabilities else None,
            cells=sums.cells / (1.0, UNIT, 1.0) if self.has_probabilities else None,
            items=ItemCounts(truth.items, sums.shown_of, sums.hits_of, truth.relevant_of, n_unknown),
            unlisted=int((~self.has_list).sum()),
            ignored=self.ignored,
            repeats=self._repeats(),
        )
        return plain if self.gains is None else self.gains.report(plain)

    def _repeats(self) -> RepeatCounts | None:
        if self.history is None:
            return None
        relevant = np.zeros(self.truth.n_rows, np.int32)
        count_repeated_items(self.truth.truth, self.history, relevant)
        return RepeatCounts(
            history_lengths=(self.history.end - self.history.start).astype(np.int32),
            popularity=np.bincount(self.history.item, minlength=len(self.truth.items)),
            relevant=relevant,
            shown=self.repeats_shown,
            hits=self.repeat_hits,
        )


def _take_rows(truth: Truth, rows: Ints) -> Truth:
    """The items of some rows."""
    return Truth(truth.start[rows], truth.end[rows], truth.item, np.full_like(truth.stamp, -1))
