"""Lists and truth in, a report out. No model in sight: the lists may come from any library."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.metrics import discounts
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.ground_truth import GroundTruth, ListsOrChunks, as_chunks, frozen
from shortlist.evaluation.report import ItemCounts, Repeats, Report
from shortlist.kernels.metrics import PerUserSums, Truth, known_count, lists_judge, repeats_count
from shortlist.types import Bools, Doubles, Ints

CELLS = 1024  # how finely predicted probabilities are told apart when calibration is measured


def evaluate(
    lists: ListsOrChunks,
    truth: Interactions | Any,
    *,
    history: Interactions | Any = None,
    asked: Iterable[Any] | None = None,
    max_items: int = 20,
) -> Report:
    """Judge lists over every user with truth: one without a list counts as one with an empty list.

    `lists`: RankedLists, a table with user_id and item_id, {user_id: [item_id, …]}, or an iterable of
    RankedLists, which are judged one after the other and never held together. `truth` may also be a table
    with the usual column names or a SciPy users × items matrix. `history`, likewise, what was known when
    the lists were made, adds repeats and the slices by history and popularity. `asked`: ids of users who
    count even if they took nothing; their metrics are then 0 whether anything was shown or not. `max_items`
    is the longest list that would ever be shown: it fixes every user's normaliser of NDCG and average
    precision.
    """
    if max_items < 1:
        raise ConfigError(f"max_items must be at least 1, got {max_items}; pass the longest list allowed.")
    history = None if history is None else Interactions.of(history)
    court = MetricAccumulator(GroundTruth(truth, history, asked), history, max_items)
    for chunk in as_chunks(lists):
        court.judge(chunk)
    return court.report()


class MetricAccumulator:
    """Accumulates what chunks of lists show; memory depends on users and items, not on what is shown."""

    def __init__(self, bench: GroundTruth, history: Interactions | None, max_items: int) -> None:
        n, n_items = bench.n_rows, len(bench.items)
        self.bench, self.max_items = bench, max_items
        self.history: Truth | None = None if history is None else bench.history(history)
        self.marks = PerUserSums(
            hits=np.zeros(n, np.int32),
            first=np.zeros(n, np.int32),
            dcg=np.zeros(n),
            dcg_capped=np.zeros(n),
            precision_sum=np.zeros(n),
            expected=np.zeros(n),
            shown_of=np.zeros(n_items, np.int64),
            hits_of=np.zeros(n_items, np.int64),
            cells=np.zeros((CELLS, 3)),
        )
        self.lengths: Ints = np.zeros(n, np.int32)
        self.confidence: Doubles = np.full(n, np.nan)
        self.listed: Bools = np.zeros(n, np.bool_)
        self.repeat_shown: Ints = np.zeros(n, np.int32)
        self.repeat_hits: Ints = np.zeros(n, np.int32)
        self.strangers: list[pl.Series] = []
        self.n_lists = self.ignored = 0
        self.with_probabilities: bool | None = None

    def judge(self, lists: RankedLists) -> None:
        """Add one chunk."""
        chunk = self.bench.chunk(lists)
        mine = np.flatnonzero(chunk.row >= 0)
        rows = chunk.row[mine]
        if self.listed[rows].any():
            raise DataError("a user must have one list, got a user in two chunks; keep one of them.")
        if self.with_probabilities not in (None, lists.probabilities is not None):
            raise DataError("all chunks must carry probabilities or none, got both; leave them out of all.")
        self.with_probabilities = lists.probabilities is not None
        self.listed[rows] = True
        self.n_lists += len(lists)
        self.ignored += len(lists) - mine.size
        lengths = np.diff(lists.indptr)
        self.lengths[rows] = lengths[mine]
        longest = int(lengths.max(initial=1))
        p = frozen(np.empty(0) if lists.probabilities is None else lists.probabilities, np.float64)
        lists_judge(chunk, self.bench.truth, p, discounts(longest), self.max_items, self.marks)
        if self.history is not None:
            repeats_count(chunk, self.bench.truth, self.history, self.repeat_shown, self.repeat_hits)
        filled = mine[lengths[mine] > 0]
        top = lists.scores if lists.probabilities is None else lists.probabilities
        self.confidence[chunk.row[filled]] = top[lists.indptr[filled]]
        if (chunk.code < 0).any():
            shown = np.repeat(chunk.row >= 0, lengths) & (chunk.code[lists.items] < 0)
            self.strangers.append(lists.item_ids.to_ids(np.unique(lists.items[shown])))

    def report(self) -> Report:
        """What was seen, once all lists are in."""
        if self.n_lists and not self.listed.any():
            raise DataError(
                f"lists must belong to users who are judged, got {self.n_lists} lists and none that matches "
                f"the {self.bench.n_rows} users; check that both sides use the same user ids."
            )
        marks, bench = self.marks, self.bench
        strangers = pl.concat(self.strangers).n_unique() if self.strangers else 0
        return Report(
            user_ids=bench.user_ids,
            max_items=self.max_items,
            sizes=bench.sizes,
            lengths=self.lengths,
            hits=marks.hits,
            first=marks.first,
            dcg=marks.dcg,
            dcg_capped=marks.dcg_capped,
            precision_sum=marks.precision_sum,
            confidence=self.confidence,
            expected=marks.expected if self.with_probabilities else None,
            cells=marks.cells if self.with_probabilities else None,
            items=ItemCounts(bench.items, marks.shown_of, marks.hits_of, bench.taken_of, strangers),
            unlisted=int((~self.listed).sum()),
            ignored=self.ignored,
            repeats=self._repeats(),
        )

    def _repeats(self) -> Repeats | None:
        if self.history is None:
            return None
        known = np.zeros(self.bench.n_rows, np.int32)
        known_count(self.bench.truth, self.history, known)
        return Repeats(
            history_lengths=(self.history.end - self.history.start).astype(np.int32),
            popularity=np.bincount(self.history.item, minlength=len(self.bench.items)),
            known=known,
            shown=self.repeat_shown,
            hits=self.repeat_hits,
        )
