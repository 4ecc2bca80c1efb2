"""BatchRecommender: one request worked off, chunk of users by chunk of users."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.id_map import UNKNOWN, id_series
from shortlist.data.ranked_lists import REASON_CODE, RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.recommend.fallback import fallback_lists
from shortlist.recommend.item_filter import FEW, ItemFilter, alike, left_over, rows_of, union
from shortlist.recommend.lists import as_lists, codes, cut, empty_lists, overlaid, stacked
from shortlist.recommend.request import Wishes
from shortlist.recommend.retrieve import Sets, no_sets
from shortlist.recommend.retriever import Retriever
from shortlist.recommend.scorer import Scorer
from shortlist.types import Floats, Ints, Longs


def asked_users(scorer: Scorer, users: Any) -> pl.Series:
    """Distinct user ids, from one id or many; everybody where nobody is named."""
    if users is None:
        return scorer.users_.values
    single = isinstance(users, (str, int, np.integer))
    asked = id_series([users] if single else users)
    if len(asked) == 0:
        return scorer.users_.values.head(0)  # nobody, but of the right type
    if asked.n_unique() != len(asked):
        twice = asked.filter(asked.is_duplicated())[0]
        raise DataError(f"users must be distinct, got {twice!r} more than once; ask for each once.")
    return asked


@dataclass(frozen=True, eq=False)
class BatchRecommender:
    """One request: who asks for what, worked off in chunks of users so that memory stays flat."""

    scorer: Scorer
    ids: pl.Series  # (n_asked,) of users
    users: Ints  # (n_asked,) -1 where unknown
    wishes: Wishes
    candidates: ItemFilter
    exclude: ItemFilter
    finder: Retriever

    @classmethod
    def of(
        cls, scorer: Scorer, users: Any, wishes: Wishes, candidates: Any, exclude: Any, n_threads: int
    ) -> "BatchRecommender":
        """Check the request against the scorer; its own decider serves where the request names none."""
        if wishes.N is None and wishes.cutoff is None:
            wishes = replace(wishes, cutoff=getattr(scorer, "cutoff_", None))
        if wishes.N is None and wishes.cutoff is None and scorer.boundaries(np.empty(0, np.int32)) is None:
            raise ConfigError(
                f"{type(scorer).__name__} learns no boundary, got neither N nor cutoff; pass N=10 for a "
                "fixed length, or a fitted cutoff such as ExpectedF1."
            )
        asked = asked_users(scorer, users)
        choice = ItemFilter.of("candidates", candidates, asked, scorer.items_)
        excluded = ItemFilter.of("exclude", exclude, asked, scorer.items_)
        if excluded.shared is not None and choice.own is None and excluded.shared.size > FEW:
            known = choice.shared
            known = np.arange(len(scorer.items_), dtype=np.int32) if known is None else known
            choice = ItemFilter(shared=np.setdiff1d(known, excluded.shared, assume_unique=True))
            excluded = ItemFilter()
        users = scorer.users_.lookup(asked)
        finder = Retriever(scorer, choice.shared, len(asked), n_threads)
        return cls(scorer, asked, users, wishes, choice, excluded, finder)

    def chunks(self) -> Iterator[RankedLists]:
        """The lists of the users asked for, in their order."""
        size = self.finder.chunk
        for start in range(0, len(self.ids), size):
            part = slice(start, start + size)
            yield self._lists(self.ids[part], self.users[part])

    def _lists(self, ids: pl.Series, users: Ints) -> RankedLists:
        item_ids = self.scorer.items_
        own, excluded = self.candidates.sets(ids, item_ids), self._excluded(ids, users)
        known = np.flatnonzero(users != UNKNOWN)
        lists = empty_lists(ids, item_ids, "unknown_user")
        if known.size:
            names = ids.gather(pl.Series(known))
            found = self._known(names, users[known], _some(own, known), excluded.take(known))
            lists = found if known.size == users.size else _spread(found, known, lists)
        empty = np.flatnonzero(lists.lengths == 0)
        if self.wishes.fallback == "none" or empty.size == 0:
            return lists
        others = fallback_lists(
            self.scorer,
            ids.gather(pl.Series(empty)),
            self.wishes,
            self.candidates.shared,
            _some(own, empty),
            excluded.take(empty),
        )
        filled = np.flatnonzero(others.lengths > 0)
        return overlaid(lists, empty[filled], others.take(filled))

    def _excluded(self, ids: pl.Series, users: Ints) -> Sets:
        """What each user must not be shown."""
        wanted = self.wishes.filter_seen
        hide = not self.scorer.history.has_repeats if wanted is None else wanted
        excluded = rows_of(self.scorer.seen_items, users) if hide else no_sets(users.size)
        if self.exclude.shared is not None:
            excluded = union(excluded, alike(self.exclude.shared, users.size))
        own = self.exclude.sets(ids, self.scorer.items_)
        return excluded if own is None else union(excluded, own)

    def _known(self, ids: pl.Series, users: Ints, own: Sets | None, excluded: Sets) -> RankedLists:
        """Lists of known users, every one with its reason."""
        wishes, boundary = self.wishes, self.scorer.boundaries(users)
        if wishes.N is not None:
            lists = self._top(ids, users, own, excluded, wishes.limit, "top_n")
            told = lists.lengths == wishes.max_items if wishes.limit != wishes.N else None
            lists = cut(lists, wishes.limit, told)
        elif wishes.cutoff is not None:
            depth = max(wishes.cutoff.candidates_needed(), wishes.min_items)
            heads = self._top(ids, users, own, excluded, depth, "top_n")
            foretell = getattr(self.scorer, "expected_sizes", None)
            heads = heads if foretell is None else replace(heads, expected_sizes=foretell(users))
            lists = cut(wishes.cutoff.apply(heads, history=self.scorer.history), wishes.limit)
        else:
            assert boundary is not None
            lists = self._above(ids, users, own, excluded, boundary)
        lists = self._filled_up(lists, users, own, excluded)
        none = left_over(self.candidates.shared, own, excluded, len(self.scorer.items_)) <= 0
        assert lists.reason is not None
        lists.reason[none] = REASON_CODE["no_candidates"]
        return lists

    def _top(
        self, ids: pl.Series, users: Ints, own: Sets | None, excluded: Sets, limit: int | None, reason: str
    ) -> RankedLists:
        """The best `limit` whatever their score."""
        floors = np.full(users.size, -np.inf, np.float32)
        hits = self.finder.find(users, floors, excluded, own, limit)
        boundary, shift = self.scorer.boundaries(users), self.scorer.log_odds_shift(users)
        return as_lists(ids, self.scorer.items_, hits, codes(users.size, reason), boundary, shift)

    def _above(
        self, ids: pl.Series, users: Ints, own: Sets | None, excluded: Sets, boundary: Floats
    ) -> RankedLists:
        """What lies above each user's boundary."""
        floors = boundary.astype(np.float32)
        hits = self.finder.find(users, floors, excluded, own, self.wishes.limit)
        reason = codes(users.size, "boundary")
        reason[np.diff(hits.indptr) == 0] = REASON_CODE["no_candidate_above_boundary"]
        shift = self.scorer.log_odds_shift(users)
        lists = as_lists(ids, self.scorer.items_, hits, reason, floors, shift)
        return cut(lists, self.wishes.limit, hits.full)

    def _filled_up(self, lists: RankedLists, users: Ints, own: Sets | None, excluded: Sets) -> RankedLists:
        """Lists shorter than min_items, with the next best added."""
        short = np.flatnonzero(lists.lengths < self.wishes.min_items)
        if self.wishes.N is not None or short.size == 0:
            return lists
        ids = lists.users.values.gather(pl.Series(short))
        longer = self._top(
            ids, users[short], _some(own, short), excluded.take(short), self.wishes.min_items, "min_items"
        )
        grown = np.flatnonzero(longer.lengths > lists.lengths[short])
        return overlaid(lists, short[grown], longer.take(grown))


def _some(own: Sets | None, numbers: Longs) -> Sets | None:
    return None if own is None else own.take(numbers)


def _spread(lists: RankedLists, numbers: Longs, empty: RankedLists) -> RankedLists:
    """Lists at their numbers among empty ones."""
    order = np.arange(len(empty))
    order[numbers] = len(empty) + np.arange(numbers.size)
    return stacked([empty, lists]).take(order)
