"""BatchRecommender: answers one request in batches of users, so that memory stays bounded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source
from scipy.special import expit, logit

from shortlist.core.files import atomic_write
from shortlist.core.params import warn
from shortlist.core.ragged import ItemSets, starts
from shortlist.cutoff.base import Cutoff
from shortlist.data.ids import UNKNOWN, IdMap, is_id_list
from shortlist.data.lists import REASON_CODE, REASON_TEXT, REASONS, Codes, RankedLists
from shortlist.errors import ConfigError
from shortlist.kernels.lists import compute_independent_utilities
from shortlist.recommend.request import (
    Factors,
    ItemFilter,
    ListOptions,
    RecommendRequest,
    Scores,
    State,
    count_candidates,
    draw_explored,
    extend_lists,
)
from shortlist.recommend.retrieval import Hits, Retriever
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

MANY_LISTS = 10  # fewer lists may all be empty by chance
NO_DOUBT = {"unknown_user", "no_candidates"}  # reasons that say all there is to say


def warn_if_all_empty(model: str, codes: Codes | None, n_items: int) -> None:
    """Issue a DataWarning if the lists of many users are all empty although there were candidates."""
    if n_items or codes is None or codes.size < MANY_LISTS:
        return
    reasons = {REASONS[code] for code in np.unique(codes)} - NO_DOUBT
    if not reasons:
        return
    advice = "lower the floor or the threshold of the cutoff, or pass N=10"
    if reasons == {"value"}:
        advice = "lower the cost or raise the gain, or pass N=10"
    if "no_candidate_above_boundary" in reasons:
        advice = f"train {model} for more epochs, let sl.fit choose a cutoff, or pass N=10"
    text = "; ".join(REASON_TEXT[reason] for reason in sorted(reasons))
    warn(f"all {codes.size:,} lists of {model} are empty: {text}; {advice}.")


def same_reason(n: int, reason: str) -> Codes:
    """(n,) the same reason for all lists."""
    return np.full(n, REASON_CODE[reason], np.uint8)


def build_lists(
    users: pl.Series, item_ids: IdMap, hits: Hits, reason: Codes, scores: "Scores | None" = None
) -> RankedLists:
    """The lists of these users, with probabilities, boundaries and expected sizes from `scores`."""
    probabilities, boundary, expected_sizes = None, None, None
    if scores is not None:
        boundary, expected_sizes = scores.boundaries, scores.expected_sizes
        if scores.log_odds_shift is not None:
            shift = np.repeat(scores.log_odds_shift.astype(np.float64), np.diff(hits.indptr))
            probabilities = expit(hits.scores + shift)
    return RankedLists(
        users=IdMap(users),
        item_ids=item_ids,
        indptr=hits.indptr,
        items=hits.items,
        scores=hits.scores,
        probabilities=probabilities,
        boundary=boundary,
        reason=reason,
        expected_sizes=expected_sizes,
    )


def empty_lists(users: pl.Series, item_ids: IdMap, reason: str) -> RankedLists:
    """An empty list for each user."""
    n = len(users)
    nothing = Hits(
        np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(n, np.bool_)
    )
    return build_lists(users, item_ids, nothing, same_reason(n, reason))


def concat_lists(parts: Sequence[RankedLists]) -> RankedLists:
    """All lists, one part after the other; values that a part lacks are NaN, propensities 1."""
    if len(parts) == 1:
        return parts[0]

    def concat(name: str, n_missing: str, kind: type, missing: float = np.nan) -> Any:
        """One optional column over all parts."""
        if all(getattr(part, name) is None for part in parts):
            return None
        columns = [
            np.full(len(getattr(part, n_missing)), missing, kind)
            if (own := getattr(part, name)) is None
            else own
            for part in parts
        ]
        return np.concatenate(columns)

    return RankedLists(
        users=IdMap(pl.concat([part.users.values for part in parts])),
        item_ids=parts[0].item_ids,
        item_names=parts[0].item_names,
        indptr=starts(np.concatenate([np.diff(part.indptr) for part in parts])),
        items=np.concatenate([part.items for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        probabilities=concat("probabilities", "items", np.float64),
        boundary=concat("boundary", "users", np.float32),
        reason=np.concatenate([part.reason for part in parts if part.reason is not None]),
        expected_sizes=concat("expected_sizes", "users", np.float64),
        propensities=concat("propensities", "items", np.float64, 1.0),
        source=parts[0].source,
        origin=parts[0].origin,
    )


def replace_lists(lists: RankedLists, numbers: Longs, others: RankedLists) -> RankedLists:
    """`others` instead of the lists at `numbers`; boundaries and expected sizes stay."""
    if numbers.size == 0:
        return lists
    order = np.arange(len(lists))
    order[numbers] = len(lists) + np.arange(numbers.size)
    joined = concat_lists([lists, others]).take(order)
    return replace(joined, boundary=lists.boundary, expected_sizes=lists.expected_sizes)


def truncate_lists(lists: RankedLists, limit: int | None, truncated: Bools | None = None) -> RankedLists:
    """No list longer than `limit`; lists cut now or before (`truncated`) get the reason max_items."""
    if limit is None:
        return lists
    long = np.diff(lists.indptr) > limit
    ended = long if truncated is None else long | truncated
    if not ended.any():
        return lists
    assert lists.reason is not None
    reason = np.where(ended, np.uint8(REASON_CODE["max_items"]), lists.reason)
    return lists.head(limit, reason) if long.any() else replace(lists, reason=reason)


FIRST_CANDIDATES, GROWTH = 32, 8  # most lists end within the first; the others get more candidates
LOWEST, HIGHEST = 1e-30, 1 - 1e-12  # of the probability at the boundary

Search = Callable[["Scores", Longs, int | None], Hits]  # the best candidates of some users


def f1_boundaries(scores: "Scores", n_items: int, search: Search) -> Floats:
    """(n,) boundaries of scores, NaN for users without candidates."""
    assert scores.log_odds_shift is not None
    assert scores.expected_sizes is not None
    boundaries = np.full(scores.log_odds_shift.size, np.nan, np.float32)
    users: Longs = np.arange(boundaries.size)
    limit = FIRST_CANDIDATES
    while users.size:
        part = scores.take(users)
        hits = search(part, users, limit if limit < n_items else None)
        probability, lengths = best_f1(part, hits)
        assert part.log_odds_shift is not None
        found = (logit(probability) - part.log_odds_shift).astype(np.float32)
        boundaries[users] = np.where(np.diff(hits.indptr) > 0, found, np.nan)
        users = users[hits.truncated & (lengths == limit)]
        limit *= GROWTH
    return boundaries


def best_f1(scores: "Scores", hits: Hits) -> tuple[Doubles, Ints]:
    """((n,) probability at the boundary, (n,) length of the best list) among these candidates."""
    counts = np.diff(hits.indptr)
    shift = np.repeat(np.asarray(scores.log_odds_shift, np.float64), counts)
    p = expit(hits.scores + shift)
    curve, lengths = np.empty(p.size), np.zeros(counts.size, np.int32)
    no_ideal = np.zeros(int(counts.max(initial=0)) + 1)
    more = np.maximum(np.asarray(scores.expected_sizes) - 1, 0.0)
    compute_independent_utilities(
        hits.indptr, p, more, float(scores.size_dispersion or 0), False, no_ideal, curve, lengths
    )
    total = np.concatenate([[0.0], np.cumsum(p)])
    first = hits.indptr[:-1]
    last = np.maximum(first + lengths - 1, 0)
    best = np.where(lengths > 0, curve[last] if curve.size else 0.0, 0.0)
    # 1 / g(k) is the sum of the probabilities over the expected F1
    following = np.minimum(last + 1, max(p.size - 1, 0))
    has_next = (lengths > 0) & (lengths < counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        now = (total[last + 1] - total[first]) / best if p.size else best
        after = (total[following + 1] - total[first]) / curve[following] if p.size else best
    share = np.where(has_next & np.isfinite(after - now), after - now, 0.5)
    return np.clip(share * best, LOWEST, HIGHEST), lengths


def with_f1_boundaries(scores: "Scores", n_items: int, search: Search) -> "Scores":
    """The scores with these boundaries instead of the learned ones."""
    return replace(scores, boundaries=f1_boundaries(scores, n_items, search))


SHARED_EXCLUSIONS = 256  # more shared exclusions than this are removed from the candidates instead
S = TypeVar("S", bound=State)


class Scorer(Protocol):
    """The part of a model that the request path uses."""

    @property
    def has_boundary(self) -> bool:
        """Whether the model learns a personal boundary."""

    @property
    def proposes_candidates(self) -> bool:
        """Whether `score` selects the candidates of a request that gives none."""

    def score(self, request: RecommendRequest[Any]) -> Scores:
        """Score the candidates of a request, whose users are all known."""

    def batch_size(self, state: Any) -> int:
        """How many users to score at once."""


class BatchRecommender(Generic[S]):
    """Turn a request into lists: score, retrieve, cut, extend short lists, replace empty ones."""

    def __init__(self, model: Scorer, request: RecommendRequest[S]) -> None:
        self.model = model
        self.request = request if model.proposes_candidates else _simplify_exclusions(request)
        self.cutoff = _resolve_cutoff(model, request)
        self.item_ids = request.state.history.items
        self.retriever = Retriever(
            len(self.item_ids), self.request.candidates.shared, len(request), request.n_threads
        )

    def lists(self) -> RankedLists:
        """The lists of all users of the request."""
        request, order = self.request, self._order_by_time()
        parts = [with_propensities(part, request.options) for part in self.batches(order)]
        lists = concat_lists(parts) if parts else empty_lists(request.user_ids, self.item_ids, "top_n")
        if order is not None:
            lists = lists.take(np.argsort(order))
        state = request.state
        warn_if_all_empty(type(self.model).__name__, lists.reason, lists.items.size)
        return replace(
            lists, item_names=state.history.item_names, source=state.fingerprint, origin=state.history.base
        )

    def _order_by_time(self) -> Longs | None:
        """Positions of the users by prediction time, so that few batches need what was known at a time."""
        times = self.request.timestamps
        if times is None or times.size <= self.model.batch_size(self.request.state):
            return None
        return np.argsort(times, kind="stable")

    def batches(self, order: Longs | None = None) -> Iterator[RankedLists]:
        """The lists batch by batch, in the order of the users or in another one (n,)."""
        request = self.request if order is None else self.request.take(order)
        size, n_users = self.model.batch_size(request.state), len(request)
        if 0 < n_users <= size:
            yield self._recommend_batch(request)
            return
        for start in range(0, n_users, size):
            yield self._recommend_batch(request.part(slice(start, start + size)))

    def _recommend_batch(self, request: RecommendRequest[S]) -> RankedLists:
        """Lists of known and unknown users; the fallback replaces empty ones."""
        known = np.flatnonzero(request.users != UNKNOWN)
        if known.size == len(request):
            lists = self._recommend_known(request)
        else:
            lists = empty_lists(request.user_ids, self.item_ids, "unknown_user")
            if known.size:
                lists = _insert(lists, known, self._recommend_known(request.take(known)))
        empty = np.flatnonzero(lists.lengths == 0)
        if request.options.fallback is None or empty.size == 0:
            return lists
        others = self._recommend_fallback(request.take(empty))
        filled = np.flatnonzero(others.lengths > 0)
        return replace_lists(lists, empty[filled], others.take(filled))

    def _recommend_known(self, request: RecommendRequest[S]) -> RankedLists:
        """Lists of known users."""
        scores, own, excluded = self._score(request)
        options = request.options
        if options.N is not None:
            top = self._select_top(request, scores, own, excluded, options.limit)
            truncated = top.lengths == options.max_items if options.limit != options.N else None
            lists = truncate_lists(top, options.limit, truncated)
        elif self.cutoff is not None:
            needed = max(self.cutoff.candidates_needed(), options.min_items)
            top = self._select_top(request, scores, own, excluded, needed)
            top = replace(top, source=request.state.fingerprint)
            lists = truncate_lists(self.cutoff.apply(top, history=request.history), options.limit)
        else:
            lists = self._select_above_boundary(request, scores, own, excluded)
        lists = self._extend_short_lists(lists, request, scores, own, excluded)
        lists = self._explore(lists, request, scores, own, excluded)
        if (np.diff(lists.indptr) == 0).any():
            shared = self.request.candidates.shared
            none_left = count_candidates(shared, own, excluded, len(self.item_ids)) <= 0
            assert lists.reason is not None
            lists.reason[none_left] = REASON_CODE["no_candidates"]
        return lists

    def top_candidates(self, n: int) -> RankedLists:
        """The best n candidates of each known user, whatever the cutoff."""
        request = self.request
        return self._select_top(request, *self._score(request), n)

    def _score(self, request: RecommendRequest[S]) -> tuple[Scores, ItemSets | None, ItemSets]:
        """(scores, candidates per user, excluded items) of known users."""
        own = request.candidates.sets(request.user_ids, self.item_ids)
        scores, excluded = self.model.score(request), request.excluded_sets()
        if scores.size_dispersion is None:
            return scores, own, excluded

        def search(part: Scores, users: Longs, limit: int | None) -> Hits:
            floors = np.full(users.size, -np.inf, np.float32)
            sets = None if own is None else own.take(users)
            return self.retriever.search(part, floors, excluded.take(users), sets, limit)

        return with_f1_boundaries(scores, len(self.item_ids), search), own, excluded

    def _select_top(
        self,
        request: RecommendRequest[S],
        scores: Scores,
        own: ItemSets | None,
        excluded: ItemSets,
        limit: int | None,
        reason: str = "top_n",
    ) -> RankedLists:
        """The best `limit` candidates, whatever their score."""
        floors = np.full(len(request), -np.inf, np.float32)
        hits = self.retriever.search(scores, floors, excluded, own, limit)
        return build_lists(request.user_ids, self.item_ids, hits, same_reason(len(request), reason), scores)

    def _select_above_boundary(
        self, request: RecommendRequest[S], scores: Scores, own: ItemSets | None, excluded: ItemSets
    ) -> RankedLists:
        """The candidates above each user's boundary."""
        assert scores.boundaries is not None
        floors: Floats = scores.boundaries.astype(np.float32)
        hits = self.retriever.search(scores, floors, excluded, own, request.options.limit)
        reason = same_reason(len(request), "boundary")
        reason[np.diff(hits.indptr) == 0] = REASON_CODE["no_candidate_above_boundary"]
        lists = build_lists(request.user_ids, self.item_ids, hits, reason, scores)
        return truncate_lists(lists, request.options.limit, hits.truncated)

    def _extend_short_lists(
        self,
        lists: RankedLists,
        request: RecommendRequest[S],
        scores: Scores,
        own: ItemSets | None,
        excluded: ItemSets,
    ) -> RankedLists:
        """The lists, with those shorter than min_items extended by the next best candidates."""
        least = request.options.min_items
        short = np.flatnonzero(lists.lengths < least)
        if request.options.N is not None or short.size == 0:
            return lists
        longer = self._select_top(request, scores, own, excluded, least, "min_items").take(short)
        grown = np.flatnonzero(longer.lengths > lists.lengths[short])
        return replace_lists(lists, short[grown], longer.take(grown))

    def _explore(
        self,
        lists: RankedLists,
        request: RecommendRequest[S],
        scores: Scores,
        own: ItemSets | None,
        excluded: ItemSets,
    ) -> RankedLists:
        """The lists with propensities; those drawn to explore run a few candidates longer."""
        options = request.options
        if options.explore is None:
            return lists
        lists = replace(lists, propensities=np.ones(lists.items.size))
        drawn = np.flatnonzero(draw_explored(request.user_ids, request.timestamps, options.explore))
        if drawn.size == 0:
            return lists
        base = lists.take(drawn)
        n_extra = np.full(drawn.size, options.explore.extra_items, np.int64)
        if options.max_items is not None:
            n_extra = np.minimum(n_extra, np.maximum(options.max_items - base.lengths, 0))
        needed = int((base.lengths + n_extra).max())
        if self.cutoff is not None:
            needed = max(needed, self.cutoff.candidates_needed())
        top = self._select_top(request, scores, own, excluded, needed).take(drawn)
        if self.cutoff is not None:
            top = replace(top, source=request.state.fingerprint)
            top = self.cutoff.with_probabilities(top, history=request.history)
        longer = extend_lists(base, top, n_extra, options.explore.share)
        return replace_lists(lists, drawn, longer)

    # ------------------------------------------------------------------ fallback
    def _recommend_fallback(self, request: RecommendRequest[S]) -> RankedLists:
        """Fallback lists within the candidates and without excluded items; they may still be empty."""
        own, excluded = request.candidates.sets(request.user_ids, self.item_ids), request.excluded_sets()
        if callable(request.options.fallback):
            hits = self._call_fallback(request, own, excluded)
        else:
            hits = self._rank_by_popularity(request, own, excluded)
        return build_lists(request.user_ids, self.item_ids, hits, same_reason(len(request), "fallback"))

    def _rank_by_popularity(
        self, request: RecommendRequest[S], own: ItemSets | None, excluded: ItemSets
    ) -> Hits:
        """The most popular items; the score is their number of interactions."""
        counts = request.state.history.totals.item_counts.astype(np.float32)
        scores = Scores(factors=Factors(np.ones((len(request), 1), np.float32), counts[:, None]))
        floors, limit = np.zeros(len(request), np.float32), request.options.fallback_limit
        if own is not None:
            return self.retriever.search(scores, floors, excluded, own, limit)
        sold = np.flatnonzero(counts).astype(np.int32)
        shared = self.request.candidates.shared
        items = sold if shared is None else np.intersect1d(sold, shared, assume_unique=True)
        # no user has more excluded items than the largest set, so the top of the ranking serves all users
        needed = limit + int(np.diff(excluded.indptr).max(initial=0))
        best = np.sort(items[np.argsort(-counts[items], kind="stable")[:needed]])
        return Retriever(len(self.item_ids), best, 1, 1).search(scores, floors, excluded, None, limit)

    def _call_fallback(self, request: RecommendRequest[S], own: ItemSets | None, excluded: ItemSets) -> Hits:
        """The items that the function returns, in its order; the scores are 0, -1, -2 …"""
        fallback, rows = request.options.fallback, []
        assert callable(fallback)
        for number, user_id in enumerate(request.user_ids.to_list()):
            allowed = self.request.candidates.shared if own is None else own.row(number)
            banned = set(excluded.row(number).tolist())
            named = dict.fromkeys(self.item_ids.index(one) for one in _fallback_items(fallback, user_id))
            kept = (item for item in named if item not in banned and (allowed is None or item in allowed))
            rows.append(np.fromiter(islice(kept, request.options.fallback_limit), np.int32))
        indptr = starts(np.array([row.size for row in rows], np.int64))
        items: Ints = np.concatenate([np.empty(0, np.int32), *rows])
        order = (np.repeat(indptr[:-1], np.diff(indptr)) - np.arange(items.size)).astype(np.float32)
        return Hits(indptr, items, order, np.zeros(len(request), np.bool_))


def _fallback_items(fallback: Callable[[Any], Any], user_id: Any) -> Iterable[Any]:
    """The item ids that the function returns for a user."""
    items: Iterable[Any] = fallback(user_id)
    if not is_id_list(items):
        raise ConfigError(
            f"fallback must return a list of item ids, got {items!r:.60} for user {user_id!r:.60}; "
            "return [] for an empty list."
        )
    return items


def with_propensities(lists: RankedLists, options: ListOptions) -> RankedLists:
    """Lists of unknown users and from a fallback are never explored: their items have propensity 1."""
    if options.explore is None or lists.propensities is not None:
        return lists
    return replace(lists, propensities=np.ones(lists.items.size))


def write_lists(
    path: str | Path, recommender: BatchRecommender[Any], progress: Callable[[int, int], None] | None = None
) -> Path:
    """Stream the lists of a request to one Parquet file; `progress(done, total)` after each batch."""
    target = Path(path)
    if target.suffix != ".parquet":
        raise ConfigError(f"path must end in .parquet, got {target.name!r}; change the suffix.")
    request = recommender.request
    nothing = empty_lists(request.user_ids.head(0), recommender.item_ids, "top_n")
    if request.options.explore is not None:
        nothing = replace(nothing, propensities=np.empty(0))
    schema = nothing.to_frame().schema

    reasons, n_items = [same_reason(0, "top_n")], [0]

    def frames(columns: Any, predicate: Any, n_rows: Any, batch: Any) -> Iterator[pl.DataFrame]:
        done = 0
        for lists in recommender.batches():
            yield with_propensities(lists, request.options).to_frame().cast(schema)
            reasons.append(same_reason(0, "top_n") if lists.reason is None else lists.reason)
            n_items.append(lists.items.size)
            done += len(lists)
            if progress is not None:
                progress(done, len(request))

    with atomic_write(target) as temporary:
        register_io_source(frames, schema=schema).sink_parquet(temporary, maintain_order=True)
    warn_if_all_empty(type(recommender.model).__name__, np.concatenate(reasons), sum(n_items))
    return target


def _resolve_cutoff(model: Scorer, request: RecommendRequest[S]) -> Cutoff | None:
    """The cutoff in force; None for a fixed N or for the model's boundary."""
    wanted, name = request.options.cutoff, type(model).__name__
    if request.options.N is not None:
        return None
    if isinstance(wanted, Cutoff):
        return wanted
    if wanted == "auto" and request.state.cutoff is not None:
        return request.state.cutoff
    if not model.has_boundary and wanted == "boundary":
        raise ConfigError(f"{name} learns no boundary; use cutoff='auto' or a fitted cutoff, or pass N=10.")
    if not model.has_boundary:
        raise ConfigError(
            f"{name} learns no boundary and has no cutoff; pass N=10 for a fixed length, or a fitted cutoff "
            "such as ExpectedF1.",
            parameter="N",
        )
    return None


def _simplify_exclusions(request: RecommendRequest[S]) -> RecommendRequest[S]:
    """Remove many shared exclusions from the shared candidates once, instead of for each user."""
    shared = request.exclude.shared
    if shared is None or request.candidates.own is not None or shared.size <= SHARED_EXCLUSIONS:
        return request
    allowed = request.candidates.shared
    if allowed is None:
        allowed = np.arange(len(request.state.history.items), dtype=np.int32)
    kept = np.setdiff1d(allowed, shared, assume_unique=True)
    return replace(request, candidates=ItemFilter(shared=kept), exclude=ItemFilter())


def _insert(empty: RankedLists, numbers: Any, lists: RankedLists) -> RankedLists:
    """`lists` at their numbers among empty ones."""
    order = np.arange(len(empty))
    order[numbers] = len(empty) + np.arange(numbers.size)
    return concat_lists([empty, lists]).take(order)
