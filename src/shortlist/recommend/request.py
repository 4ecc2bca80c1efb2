"""One request: from the arguments of `recommend` to scores, and from scores to lists.

`RequestOptions` are the arguments, checked. `RecommendRequest` adds the state of the model, the users, their
histories and prediction times: all that a model needs to answer. The model answers with one `Scores` object,
which `BatchRecommender` turns into lists, in batches of users, so that memory stays bounded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.io.plugins import register_io_source
from scipy.special import expit

from shortlist.core.files import atomic_write
from shortlist.core.ragged import ItemSets, no_sets, same_sets
from shortlist.cutoff.base import Cutoff, require_cutoff
from shortlist.data.columns import parse_times
from shortlist.data.history import History
from shortlist.data.ids import UNKNOWN, IdMap, id_series, is_id_list
from shortlist.data.interactions import NO_BASKET, NO_TIME, NO_WEIGHT, Interactions
from shortlist.data.items import ItemGroups, check_group_limits
from shortlist.data.lists import REASON_CODE, REASON_TEXT, REASONS, Codes, RankedLists
from shortlist.errors import ConfigError, DataError, UnknownIdError, warn
from shortlist.kernels.allocation import UserLimits
from shortlist.kernels.rows import (
    count_common,
    starts,
    take_rows,
    unite_sets,
)
from shortlist.recommend.options import RequestOptions
from shortlist.recommend.retrieval import (
    Hits,
    ItemIndexCache,
    Retriever,
    ScoredCandidates,
    SparseScores,
    dense_scores,
)
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

SHARED_EXCLUSIONS = 256  # more shared exclusions than this are removed from the candidates instead
MANY_LISTS = 10  # fewer lists may all be empty by chance
NO_DOUBT = {"unknown_user", "no_candidates"}  # reasons that say all there is to say
FALLBACK_ITEMS = 10  # length of a fallback list when nothing else limits it
LONGEST = 2**31 - 1  # a larger limit is the same as this one


@dataclass(frozen=True)
class ItemFilter:
    """The same items for all users, or items per user; an empty filter restricts nothing."""

    shared: Ints | None = None  # ascending, distinct
    per_user: Mapping[Any, Ints] | None = None  # user id → known items

    @classmethod
    def build(cls, name: str, item_ids: Any, users: pl.Series, items: IdMap) -> "ItemFilter":
        """Build from item ids for all, a mapping user id → item ids, or a list per user; skip unknown ids."""
        if item_ids is None:
            return cls()
        if isinstance(item_ids, Mapping):
            if len(users):
                for user_id in item_ids:
                    IdMap(users.head(1)).check_type(user_id, f"{name}: user id")
            return cls(per_user=_items_per_user(name, item_ids, items))
        _check_collection(name, item_ids)
        listed = item_ids if isinstance(item_ids, pl.Series) else list(item_ids)
        kinds = {type(listed[0])} if isinstance(listed, pl.Series) and len(listed) else set(map(type, listed))
        nested = [issubclass(kind, Iterable) and not issubclass(kind, (str, bytes)) for kind in kinds]
        if any(nested):
            if not all(nested):
                raise ConfigError(
                    f"{name} must be a list of item ids or a list of lists, got a mixture of both; "
                    "pass one of them."
                )
            for ids in listed:
                _check_collection(name, ids)
            if len(listed) != len(users):
                raise ConfigError(
                    f"{name} must hold one list per user ({len(users)}), got {len(listed)}; "
                    "pass a flat list to share it, or a dictionary user_id → item ids."
                )
            return cls(per_user=_items_per_user(name, dict(zip(users.to_list(), listed, strict=True)), items))
        return cls(shared=np.unique(_known_items(name, listed, items)[0]))

    def sets(self, users: pl.Series, items: IdMap) -> ItemSets | None:
        """The sets of these users; None if the filter is not per user."""
        if self.per_user is None:
            return None
        empty = np.empty(0, np.int32)
        rows = [self.per_user.get(user_id, empty) for user_id in users.to_list()]
        owner = np.repeat(np.arange(len(rows)), [row.size for row in rows])
        item = np.concatenate([empty, *rows])
        keys = np.unique(owner * len(items) + item)  # by user, then item, each once
        lengths = np.bincount(keys // max(len(items), 1), minlength=len(rows))
        return ItemSets(starts(lengths), (keys % max(len(items), 1)).astype(np.int32))


NO_FILTER = ItemFilter()


def _items_per_user(name: str, ids_by_user: Mapping[Any, Iterable[Any]], items: IdMap) -> dict[Any, Ints]:
    """User id → known items."""
    for items_of_user in ids_by_user.values():
        _check_collection(name, items_of_user)
    rows = [list(items_of_user) for items_of_user in ids_by_user.values()]
    positions, is_known = _known_items(name, list(chain.from_iterable(rows)), items)
    ends = np.append(0, np.cumsum(is_known))[np.cumsum([0, *map(len, rows)])]  # in `positions`
    return {user_id: positions[ends[at] : ends[at + 1]] for at, user_id in enumerate(ids_by_user)}


def _known_items(name: str, listed: Any, items: IdMap) -> tuple[Ints, Bools]:
    """(known items, whether each id is known); warn of unknown ids, refuse only unknown candidates."""
    positions = items.lookup(listed, f"{name}: item id")
    is_known: Bools = positions != UNKNOWN
    n_unknown = int((~is_known).sum())
    if n_unknown:
        first = listed[int(np.argmin(is_known))]
        count = f"{n_unknown:,} of {is_known.size:,} item ids in `{name}` are unknown to the model"
        if n_unknown == is_known.size and name == "candidates":
            raise UnknownIdError(f"{count}, such as {first!r:.60}; pass ids of items in the training data.")
        warn(f"{count} and are ignored, such as {first!r:.60}.")
    return positions[is_known], is_known


def _check_collection(name: str, item_ids: Any) -> None:
    """Raise ConfigError for a single id, whose characters would be read as ids, a table or a dictionary."""
    if not is_id_list(item_ids):
        kind = "string" if isinstance(item_ids, str) else type(item_ids).__name__
        got = (
            f"the {kind} {item_ids!r:.60}" if isinstance(item_ids, (str, bytes, int, float)) else f"a {kind}"
        )
        raise ConfigError(f"{name} must be a collection of item ids, got {got}; put the ids in a list.")


def join_sets(a: ItemSets, b: ItemSets) -> ItemSets:
    """The union of two sets for each user."""
    at, out = np.empty_like(a.indptr), np.empty(a.items.size + b.items.size, np.int32)
    unite_sets(a.indptr, a.items, b.indptr, b.items, at, out)
    return ItemSets(at, out[: at[-1]])


def count_candidates(
    shared: Ints | None, per_user: ItemSets | None, excluded: ItemSets, n_items: int
) -> Longs:
    """(n_users,) how many candidates are not excluded."""
    if per_user is not None:
        common = np.empty(len(excluded), np.int64)
        count_common(per_user.indptr, per_user.items, excluded.indptr, excluded.items, common)
        return per_user.lengths - common
    if shared is None:
        return n_items - excluded.lengths.astype(np.int64)
    member = np.zeros(n_items + 1, np.bool_)
    member[shared] = True
    hits = np.bincount(excluded.owner, weights=member[excluded.items], minlength=len(excluded))
    return shared.size - hits.astype(np.int64)


# ---------------------------------------------------------------------- the request and its answer
@dataclass(frozen=True, eq=False, kw_only=True)
class RequestState:
    """What a model knows of users, items and cutoffs when it answers a request."""

    history: History
    cutoff: Cutoff | None = None
    groups: ItemGroups | None = None  # for max_per_group
    fingerprint: str | None = None  # of what was learned; `observe` keeps it

    @property
    def counted(self) -> History:
        """The history that says how popular items are."""
        return self.history


S = TypeVar("S", bound=RequestState)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecommendRequest(Generic[S]):
    """The users of one call, their histories and prediction times, the candidates, and the list options."""

    state: S  # read from the model once, so that the answer cannot mix two states
    user_ids: pl.Series  # (n,)
    users: Ints  # (n,) indices of the users in `source`; -1 for unknown users
    source: History  # the model's own, or the sessions given as `history=`, over the same items
    is_session: bool = False  # True: `source` comes with the request and the model never saw it
    timestamps: Longs | None = None  # (n,) prediction times in microseconds; None: after the last event
    candidates: ItemFilter = NO_FILTER
    exclude: ItemFilter = NO_FILTER
    filter_seen: bool = True
    options: RequestOptions

    def __len__(self) -> int:
        return self.users.size

    @property
    def limit(self) -> int | None:
        """The maximum length of a list; None if nothing limits it."""
        return length_limit(self.options)

    @property
    def fallback_limit(self) -> int:
        """The maximum length of a fallback list."""
        return self.limit or min(max(self.options.min_items, FALLBACK_ITEMS), LONGEST)

    @cached_property
    def history(self) -> Interactions:
        """The rows of each user of the request, in their order, before the user's prediction time."""
        return self.source.rows_of(self.users, IdMap(self.user_ids), self.timestamps, self.state.counted)

    @cached_property
    def rows(self) -> Ints:
        """0 … n - 1: the users of `history`."""
        return np.arange(len(self), dtype=np.int32)

    def take(self, rows: npt.NDArray[np.integer] | slice) -> Self:
        """The request of these users alone, in this order."""
        times = None if self.timestamps is None else self.timestamps[rows]
        return replace(self, user_ids=self.user_ids[rows], users=self.users[rows], timestamps=times)

    def candidate_sets(self) -> ItemSets | None:
        """The candidates of each user; None if all items are candidates."""
        if self.candidates.shared is not None:
            return same_sets(self.candidates.shared, len(self))
        return self.candidates.sets(self.user_ids, self.state.history.items)

    def excluded_sets(self) -> ItemSets:
        """The items that must not be shown to each user."""
        excluded = self.history.item_sets if self.filter_seen else no_sets(len(self))
        if self.exclude.shared is not None:
            excluded = join_sets(excluded, same_sets(self.exclude.shared, len(self)))
        per_user = self.exclude.sets(self.user_ids, self.state.history.items)
        return excluded if per_user is None else join_sets(excluded, per_user)


class Factors(NamedTuple):
    """Scores as inner products: vectors @ item_factors.T + bias."""

    vectors: Floats  # (n, n_factors)
    item_factors: Floats  # (n_items, n_factors), never modified
    bias: Floats | None = None  # (n_items,), never modified
    index_cache: ItemIndexCache | None = None  # keeps the index over the items between requests


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """A model's answer to a request: scores in one of four forms, and optional values per user.

    Dense `values` (n, n_items); ragged `values` with the `candidates` they belong to; `factors` or `sparse`
    vectors, which are multiplied out only as far as needed. NaN and -inf are never recommended.
    """

    values: Floats | None = None
    candidates: ItemSets | None = None
    factors: Factors | None = None
    sparse: SparseScores | None = None
    boundaries: Floats | None = None  # (n,) t_u
    log_odds_shift: Floats | None = None  # (n,) score + shift = log-odds of relevance
    expected_sizes: Doubles | None = None  # (n,) predicted number of items in the user's next basket

    def take(self, numbers: Longs) -> Self:
        """The scores of these users, in this order."""
        if numbers.size == self._n_users and (np.diff(numbers) == 1).all():
            return self
        values, candidates, factors, sparse = self.values, self.candidates, self.factors, self.sparse
        if sparse is not None:
            sparse = sparse.take(numbers)
        elif factors is not None:
            factors = factors._replace(vectors=factors.vectors[numbers])
        elif candidates is not None and values is not None:
            rows = take_rows(candidates.indptr, numbers)[1]
            candidates, values = candidates.take(numbers), values[rows]
        elif values is not None:
            values = values[numbers]
        per_user = {
            name: None if (array := getattr(self, name)) is None else array[numbers]
            for name in ("boundaries", "log_odds_shift", "expected_sizes")
        }
        return replace(self, values=values, candidates=candidates, factors=factors, sparse=sparse, **per_user)

    @property
    def _n_users(self) -> int:
        if self.factors is not None:
            return len(self.factors.vectors)
        if self.sparse is not None:
            return self.sparse.queries.indptr.size - 1
        if self.candidates is not None:
            return len(self.candidates)
        assert self.values is not None
        return len(self.values)

    def dense(self, n_items: int) -> Floats:
        """(n, n_items) scores; -inf for items that are not candidates."""
        if self.factors is not None:
            vectors, items, bias, _ = self.factors
            scores: Floats = vectors @ items.T
            return scores if bias is None else scores + bias
        if self.sparse is not None:
            return dense_scores(self.sparse, np.arange(n_items, dtype=np.int32))
        assert self.values is not None
        if self.candidates is None:
            return self.values
        scores = np.full((len(self.candidates), n_items), -np.inf, np.float32)
        scores[self.candidates.owner, self.candidates.items] = self.values
        return scores


def length_limit(options: RequestOptions) -> int | None:
    """The maximum length of a list; None if nothing limits it."""
    limits = [limit for limit in (options.N, options.max_items) if limit is not None]
    return min(*limits, LONGEST) if limits else None


def check_together(options: RequestOptions) -> None:
    """Raise ConfigError for options that contradict each other, or that no declaration can check."""
    if not isinstance(options.cutoff, str) or options.cutoff not in ("auto", "boundary"):
        require_cutoff(options.cutoff, "'auto', 'boundary' or a fitted cutoff", "().fit(lists, truth)")
    if options.N is not None and options.cutoff != "auto":
        raise ConfigError(
            f"N and cutoff both set the length of lists, got N={options.N} and {options.cutoff!r:.60}; "
            "pass one of them."
        )
    limit = length_limit(options)
    if limit is not None and options.min_items > limit:
        raise ConfigError(
            f"min_items must not exceed N and max_items, got {options.min_items} and {limit}; lower it."
        )
    if isinstance(options.fallback, type):
        raise ConfigError(f"fallback must be a function, got the class {options.fallback.__name__}; call it.")
    if options.max_per_group is not None:
        check_group_limits(options.max_per_group)


def build_request(state: S, users: Any, options: RequestOptions) -> RecommendRequest[S]:
    """Check the options of a request, and its users and ids against the state of a model."""
    check_together(options)
    stored, history = state.history, options.history
    source, filter_seen = stored, options.filter_seen
    if history is not None:
        source = History.of(read_sessions(stored, history, options.at))
    user_ids = parse_users(source, users)
    rows = source.users.lookup(user_ids, "user id" if history is None else "history: user id")
    if history is not None:
        if (rows == UNKNOWN).any():
            other = user_ids.gather(np.flatnonzero(rows == UNKNOWN))[0]
            raise ConfigError(
                f"users must be users of `history`, got {other!r}; leave users out, or make a second call "
                "without history."
            )
        empty = np.append(source.merged.user_counts == 0, True)  # the last one is for unknown users
        rows[empty[rows]] = UNKNOWN  # without an item that the model knows, nothing can be recommended
    return RecommendRequest(
        state=state,
        user_ids=user_ids,
        users=rows,
        source=source,
        is_session=history is not None,
        timestamps=request_times(stored, user_ids, options.at),
        candidates=ItemFilter.build("candidates", options.candidates, user_ids, stored.items),
        exclude=ItemFilter.build("exclude", options.exclude, user_ids, stored.items),
        filter_seen=not stored.has_repeats if filter_seen is None else bool(filter_seen),
        options=options,
    )


def parse_users(history: History, users: Any) -> pl.Series:
    """Distinct user ids, from one id or many; all known users for None."""
    if users is None:
        return history.users.values
    single = isinstance(users, (str, int, np.integer))
    if not single and not is_id_list(users):
        raise DataError(
            f"users must be one user id or a list of them, got a {type(users).__name__}; "
            "pass users=['u1', 'u2'] or one column of the table."
        )
    ids = id_series([users] if single else users)
    n = len(ids)
    if n == 0:
        return history.users.values.head(0)
    if n > 1 and ids.n_unique() != len(ids):
        duplicate = ids.filter(ids.is_duplicated())[0]
        raise DataError(f"users must be distinct, got {duplicate!r} more than once; remove the repetition.")
    return ids


def request_times(history: History, user_ids: pl.Series, at: Any) -> Longs | None:
    """(n,) the prediction time of each user in microseconds; None: just after the last known event.

    `at` is a date, an ISO 8601 string or an epoch number, one or one per user; or Interactions, whose first
    row of each user gives the time (a test set, for example). Users it does not name get the last event's.
    """
    if at is None or (isinstance(at, Interactions) and (at.time is None or at.n_rows == 0)):
        return None
    if not history.has_times:
        raise ConfigError(
            "at needs a model that was fitted on data with timestamps, got one without; omit at."
        )
    if isinstance(at, Interactions):
        assert at.time is not None
        rows = at.users.align(IdMap(user_ids))
        first = at.indptr[rows]
        named = (rows != UNKNOWN) & (at.indptr[rows + 1] > first)
        times: Longs = np.where(named, at.time[np.minimum(first, at.n_rows - 1)], 0)
        return times if named.all() else np.where(named, times, history.end_time)
    single = isinstance(at, (str, bytes)) or not isinstance(at, Iterable)
    try:
        times_at = parse_times(_time_series([at] if single else at))
    except (DataError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        got = repr(at)[:60] if single else f"a {type(at).__name__} with other values"
        raise ConfigError(
            "at must be a date, an ISO 8601 string or an epoch number, one or one per user, "
            f"got {got}; write at='2024-05-01'.",
            parameter="at",
        ) from None
    if times_at.size not in (1, len(user_ids)):
        raise ConfigError(
            f"at must be one time or one per user ({len(user_ids)}), got {times_at.size} times; pass one."
        )
    return np.ascontiguousarray(np.broadcast_to(times_at, len(user_ids)))


def _time_series(values: Any) -> pl.Series:
    """Times as one column; NumPy times of any unit, and no tables, mappings or durations."""
    if isinstance(values, (Mapping, pl.DataFrame)):
        raise DataError("at must not be a table")
    if not isinstance(values, pl.Series):
        values = list(values)
        if values and all(isinstance(value, np.datetime64) for value in values):
            values = np.array(values, "datetime64[us]")
    series = pl.Series("at", values)
    if series.dtype == pl.Boolean or series.dtype == pl.Duration:
        raise DataError("at must hold times")
    return series


def read_sessions(stored: History, history: Any, at: Any) -> Interactions:
    """Sessions as interactions over the known items; unknown items are skipped and reported.

    A mapping user id → item ids is one basket per user, just before the prediction time. A table or
    Interactions keeps its times and baskets.
    """
    if isinstance(history, Mapping):
        for user_id, items in history.items():
            if not is_id_list(items):
                raise ConfigError(
                    f"history must map each user id to a list of item ids, got {items!r:.60} for "
                    f"{user_id!r:.60}; pass {{user_id: [item_id, …]}}."
                )
        users = id_series(list(history))
        rows = [list(items) for items in history.values()]
        user = np.repeat(np.arange(len(rows), dtype=np.int32), [len(row) for row in rows])
        item = stored.items.lookup([item for row in rows for item in row], "history: item id")
        time = NO_TIME
        if stored.has_times:
            times = request_times(stored, users, at)
            end = np.full(len(rows), stored.end_time) if times is None else times
            time = (end - 1)[user]
        basket, ids = NO_BASKET, IdMap.of(users)
    else:
        if isinstance(history, (list, tuple, set, str)):
            raise ConfigError(
                "history must be a dictionary user id → item ids, Interactions or a table, "
                f"got a {type(history).__name__}."
            )
        data = Interactions.of(history)
        if data.n_items:
            stored.items.check_type(data.items.values[0], "history: item id")
        user, item = data.user, stored.items.align(data.items)[data.item]
        time = NO_TIME if data.time is None or not stored.has_times else data.time
        basket = data.basket
        ids = data.users
    is_known = item != UNKNOWN
    if not is_known.all():
        warn(
            f"{int((~is_known).sum())} of {is_known.size} items in `history` are unknown to the model and "
            "skipped."
        )
    return Interactions.from_dense(
        ids,
        stored.items,
        user[is_known],
        item[is_known],
        time if time.size == 0 else time[is_known],
        basket if basket.size == 0 else basket[is_known],
        NO_WEIGHT,
    )


# ---------------------------------------------------------------------- lists
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

    def boundary_cutoff(self, state: Any) -> Cutoff | None:
        """The cutoff that `fit` learned with the model; None: lists end at the learned boundary, if any."""

    def batch_size(self, state: Any) -> int:
        """How many users to score at once."""


class ScoredBatch(NamedTuple):
    """Users that the model knows, and the scores of what they may be shown."""

    request: RecommendRequest[Any]
    scored: ScoredCandidates


class BatchRecommender(Generic[S]):
    """Turn a request into lists: score, retrieve, cut, extend short lists, replace empty ones."""

    def __init__(self, model: Scorer, request: RecommendRequest[S]) -> None:
        self.model = model
        self.request = request if model.proposes_candidates else _simplify_exclusions(request)
        own = model.boundary_cutoff(request.state)
        self.cutoff = _resolve_cutoff(model, request, own)
        self.calibrated = next(  # its probabilities are shown: one item has one, whatever ends the list
            (c for c in (self.cutoff, request.state.cutoff, own) if c is not None and c.uses_probabilities),
            None,
        )
        by_score = request.options.N is None and self.calibrated is not self.cutoff
        self.reorders = self.calibrated is not None and self.calibrated.reorders and not by_score
        self.item_ids = request.state.history.items
        self.shared = self.request.candidates.shared
        self.limits = _resolve_groups(model, request)
        self.retriever = Retriever(len(self.item_ids), self.shared, len(request), self.limits)

    def lists(self) -> RankedLists:
        """The lists of all users of the request."""
        request, state = self.request, self.request.state
        order, times = None, request.timestamps
        if times is not None and times.size > self.model.batch_size(state):
            order = np.argsort(times, kind="stable")  # so that few batches need what was known at a time
        batches = list(self.batches(order))
        lists = (
            RankedLists.concat(batches) if batches else empty_lists(request.user_ids, self.item_ids, "top_n")
        )
        if order is not None:
            lists = lists.take(np.argsort(order))
        warn_if_all_empty(type(self.model).__name__, lists.reason, lists.items.size)
        if lists.origin is state.history.base:
            return lists
        return replace(
            lists, item_names=state.history.item_names, source=state.fingerprint, origin=state.history.base
        )

    def batches(self, order: Longs | None = None) -> Iterator[RankedLists]:
        """The lists batch by batch, in the order of the users or in another one (n,)."""
        request = self.request if order is None else self.request.take(order)
        size, n_users = self.model.batch_size(request.state), len(request)
        if 0 < n_users <= size:
            yield self._recommend_batch(request)
            return
        for start in range(0, n_users, size):
            yield self._recommend_batch(request.take(slice(start, start + size)))

    def write(self, path: str | Path, progress: Callable[[int, int], None] | None = None) -> Path:
        """Stream the lists to one Parquet file; `progress(done, total)` after each batch."""
        target, request = Path(path), self.request
        if target.suffix != ".parquet":
            raise ConfigError(f"path must end in .parquet, got {target.name!r}; change the suffix.")
        nothing = empty_lists(request.user_ids.head(0), self.item_ids, "top_n")
        schema = nothing.to_frame().schema
        reasons, n_items = [same_reason(0, "top_n")], [0]

        def frames(columns: Any, predicate: Any, n_rows: Any, batch: Any) -> Iterator[pl.DataFrame]:
            done = 0
            for lists in self.batches():
                yield lists.to_frame().cast(schema)
                reasons.append(same_reason(0, "top_n") if lists.reason is None else lists.reason)
                n_items.append(lists.items.size)
                done += len(lists)
                if progress is not None:
                    progress(done, len(request))

        with atomic_write(target) as temporary:
            register_io_source(frames, schema=schema).sink_parquet(temporary, maintain_order=True)
        warn_if_all_empty(type(self.model).__name__, np.concatenate(reasons), sum(n_items))
        return target

    def next_candidates(self, lists: RankedLists, n: int) -> RankedLists:
        """The n best candidates of each user that are not in the user's list."""
        deeper, depth = copy(self), int(lists.lengths.max(initial=0)) + n
        deeper.request = replace(self.request, options=RequestOptions(N=max(depth, 1)))
        top = deeper.lists()
        shown, ranked = (some.owner * len(self.item_ids) + some.items for some in (lists, top))
        is_left = ~np.isin(ranked, shown)
        n_before = np.concatenate([[0], np.cumsum(is_left)])
        place = n_before[1:] - np.repeat(n_before[top.indptr[:-1]], top.lengths)  # from 1, in what is left
        return top.where(is_left & (place <= n))

    def explain(self, n_withheld: int) -> tuple[pl.DataFrame, Ints]:
        """(table, items) of the request's only user: the list, and the next candidates."""
        request = self.request
        if request.users[0] == UNKNOWN:
            user_id = request.user_ids[0]
            if not request.is_session:
                request.state.history.users.index(user_id, "user id")  # raises and names similar ids
            raise UnknownIdError(
                f"the session {user_id!r} has no item that the model knows; nothing to explain."
            )
        shown = self.lists()
        parts = [shown, self.next_candidates(shown, n_withheld)]
        items = np.concatenate([lists.items for lists in parts])
        scores = np.concatenate([lists.scores for lists in parts]).astype(np.float64)
        p = [
            np.full(lists.items.size, np.nan) if lists.probabilities is None else lists.probabilities
            for lists in parts
        ]
        boundary = next((lists.boundary for lists in parts if lists.boundary is not None), [np.nan])
        limit = np.full(scores.size, boundary[0], np.float64)
        frame = pl.DataFrame(
            {
                "rank": np.arange(1, scores.size + 1),
                "item_id": self.item_ids.to_ids(items),
                "score": scores,
                "boundary": limit,
                "margin": scores - limit,
                "probability": np.concatenate(p),
                "shown": np.arange(scores.size) < shown.items.size,
            }
        ).with_columns(pl.col("boundary", "margin", "probability").fill_nan(None))
        names = request.state.history.item_names
        if names is not None:
            frame.insert_column(2, names.gather(pl.Series(items)).alias("item_name"))
        return frame, items

    # ------------------------------------------------------------------ one batch
    def _recommend_batch(self, request: RecommendRequest[S]) -> RankedLists:
        """Lists of all users; unknown users get empty ones, and the fallback replaces empty ones."""
        options, is_unknown = request.options, request.users == UNKNOWN
        if not is_unknown.any():
            lists = self._recommend_known(request)
        else:
            lists, others = empty_lists(request.user_ids, self.item_ids, "unknown_user"), ~is_unknown
            if others.any():
                numbers = np.flatnonzero(others)
                lists = _overlay(lists, numbers, self._recommend_known(request.take(numbers)))
        empty = np.flatnonzero(lists.lengths == 0) if options.fallback is not None else NO_ROWS
        if empty.size:
            replacements = self._recommend_fallback(request.take(empty))
            filled = np.flatnonzero(replacements.lengths > 0)
            lists = replace_lists(lists, empty[filled], replacements.take(filled))
        return lists

    def _recommend_known(self, request: RecommendRequest[S]) -> RankedLists:
        """Lists of known users."""
        batch, options = self._score(request), request.options
        if options.N is not None:
            top = self._rank(batch, request.limit)
            truncated = top.lengths == options.max_items if request.limit != options.N else None
            lists = truncate_lists(top, request.limit, truncated)
        elif self.cutoff is not None:
            top = self._select_top(batch, self.cutoff.candidates_needed())
            lists = self.cutoff.apply(top, history=request.history)
            if self.limits is not None:
                lists = _name_group_limit(lists, top)
            lists = truncate_lists(lists, request.limit)
        else:
            lists = self._select_above_boundary(batch)
        if options.N is None and self.calibrated is not None and self.calibrated is not self.cutoff:
            lists = self.calibrated.with_probabilities(lists, history=request.history)
        if options.N is None and options.min_items:
            lists = self._extend_short_lists(lists, batch)
        if (lists.lengths == 0).any():
            _, candidates, excluded = batch.scored
            n_left = count_candidates(self.shared, candidates, excluded, len(self.item_ids))
            assert lists.reason is not None
            lists.reason[n_left <= 0] = REASON_CODE["no_candidates"]
        return lists

    def _score(self, request: RecommendRequest[S]) -> ScoredBatch:
        """Let the model score the candidates of known users."""
        candidates = request.candidates.sets(request.user_ids, self.item_ids)
        scores = self.model.score(request)
        if not isinstance(scores, Scores):
            raise TypeError(
                f"{type(self.model).__name__}.score must return Scores, got {type(scores).__name__}; "
                "return Scores(values=…), one row per user of the request."
            )
        scored = ScoredCandidates(scores, candidates, request.excluded_sets())
        return ScoredBatch(request, scored)

    def _select_top(self, batch: ScoredBatch, limit: int | None, reason: str = "top_n") -> RankedLists:
        """The best `limit` candidates, whatever their score."""
        request, scored = batch
        hits = self.retriever.search(scored, limit)
        reasons = same_reason(len(request), reason)
        if hits.skipped is not None:
            reasons[hits.skipped] = REASON_CODE["group_limit"]
        return _build_lists(request, hits, reasons, scored.scores)

    def _rank(self, batch: ScoredBatch, limit: int | None, reason: str = "top_n") -> RankedLists:
        """The best `limit` candidates, with the probabilities of the cutoff in force or of the saved one."""
        if self.calibrated is None:
            return self._select_top(batch, limit, reason)
        needed = limit
        if limit is not None and self.reorders:
            needed = max(limit, self.calibrated.candidates_needed())
        top = self._select_top(batch, needed, reason)
        top = self.calibrated.with_probabilities(top, history=batch.request.history)
        if limit is None or needed == limit:
            return top
        assert top.reason is not None
        reasons = np.where(top.lengths > limit, np.uint8(REASON_CODE[reason]), top.reason)
        return top.head(limit, reasons)

    def _select_above_boundary(self, batch: ScoredBatch) -> RankedLists:
        """The candidates above each user's boundary."""
        request, scored = batch
        assert scored.scores.boundaries is not None
        floors, limit = scored.scores.boundaries.astype(np.float32), request.limit
        hits = self.retriever.search(scored, limit, floors)
        reason = same_reason(len(request), "boundary")
        reason[hits.indptr[1:] == hits.indptr[:-1]] = REASON_CODE["no_candidate_above_boundary"]
        if limit is not None:
            reason[hits.truncated] = REASON_CODE["max_items"]
        return _build_lists(request, hits, reason, scored.scores)

    def _extend_short_lists(self, lists: RankedLists, batch: ScoredBatch) -> RankedLists:
        """The lists, with those shorter than min_items extended by the next best candidates."""
        least = min(batch.request.options.min_items, LONGEST)
        short = np.flatnonzero(lists.lengths < least)
        if short.size == 0:
            return lists
        longer = self._rank(batch, least, "min_items").take(short)
        grown = np.flatnonzero(longer.lengths > lists.lengths[short])
        return replace_lists(lists, short[grown], longer.take(grown))

    # ------------------------------------------------------------------ fallback
    def _recommend_fallback(self, request: RecommendRequest[S]) -> RankedLists:
        """Fallback lists within the candidates and without excluded items; they may still be empty."""
        candidates = request.candidates.sets(request.user_ids, self.item_ids)
        rank = self._call_fallback if callable(request.options.fallback) else self._rank_by_popularity
        hits = rank(request, candidates, request.excluded_sets())
        return _build_lists(request, hits, same_reason(len(request), "fallback"))

    def _rank_by_popularity(
        self, request: RecommendRequest[S], candidates: ItemSets | None, excluded: ItemSets
    ) -> Hits:
        """The most popular items; the score is their number of interactions."""
        counts = request.state.history.totals.item_counts.astype(np.float32)
        scores = Scores(factors=Factors(np.ones((len(request), 1), np.float32), counts[:, None]))
        floors, limit = np.zeros(len(request), np.float32), request.fallback_limit
        if candidates is not None:
            return self.retriever.search(ScoredCandidates(scores, candidates, excluded), limit, floors)
        items = np.flatnonzero(counts).astype(np.int32)
        if self.shared is not None:
            items = np.intersect1d(items, self.shared, assume_unique=True)
        # no user has more excluded items than the largest set, so the top of the ranking serves all users
        if self.limits is None:
            needed = limit + int(excluded.lengths.max(initial=0))
            items = np.sort(items[np.argsort(-counts[items], kind="stable")[:needed]])
        retriever = Retriever(len(self.item_ids), items, 1, self.limits)
        return retriever.search(ScoredCandidates(scores, None, excluded), limit, floors)

    def _call_fallback(
        self, request: RecommendRequest[S], candidates: ItemSets | None, excluded: ItemSets
    ) -> Hits:
        """The items that the function returns, in its order; the scores are 0, -1, -2 …"""
        fallback, limit, rows = request.options.fallback, request.fallback_limit, []
        assert callable(fallback)
        for number, user_id in enumerate(request.user_ids.to_list()):
            allowed = self.shared if candidates is None else candidates.row(number)
            banned, items = set(excluded.row(number).tolist()), fallback(user_id)
            if not is_id_list(items):
                raise ConfigError(
                    f"fallback must return a list of item ids, got {items!r:.60} for user {user_id!r:.60}; "
                    "return [] for an empty list."
                )
            named = dict.fromkeys(self.item_ids.index(item_id) for item_id in items)
            shown = (item for item in named if item not in banned and (allowed is None or item in allowed))
            rows.append(np.fromiter(shown if self.limits else islice(shown, limit), np.int32))
        indptr = starts(np.array([row.size for row in rows], np.int64))
        items = np.concatenate([np.empty(0, np.int32), *rows])
        order = (np.repeat(indptr[:-1], np.diff(indptr)) - np.arange(items.size)).astype(np.float32)
        hits = Hits(indptr, items, order, np.zeros(len(request), np.bool_))
        return hits if self.limits is None else hits.within(self.limits, limit)


NO_ROWS: Longs = np.empty(0, np.int64)


def _resolve_cutoff(model: Scorer, request: RecommendRequest[S], own: Cutoff | None) -> Cutoff | None:
    """The cutoff in force; None for a fixed N or for the learned boundary. `own` is that of the model."""
    cutoff, name = request.options.cutoff, type(model).__name__
    if request.options.N is not None:
        return None
    if isinstance(cutoff, Cutoff):
        return cutoff
    if cutoff == "auto" and request.state.cutoff is not None:
        return request.state.cutoff
    if model.has_boundary:
        return own
    if cutoff == "boundary":
        raise ConfigError(f"{name} learns no boundary; use cutoff='auto' or a fitted cutoff, or pass N=10.")
    raise ConfigError(
        f"{name} learns no boundary and has no cutoff; pass N=10 for a fixed length, or a fitted cutoff "
        "such as ExpectedF1.",
        parameter="N",
    )


def _resolve_groups(model: Scorer, request: RecommendRequest[S]) -> UserLimits | None:
    """How many items of a group each list may contain; None if the request limits no group."""
    limits, groups = request.options.max_per_group, request.state.groups
    if not limits:
        return None
    if groups is None:
        raise ConfigError(
            f"max_per_group needs the groups of items, got a {type(model).__name__} without them; "
            "call model.set_groups(items), or fit it with items= (shortlist fit --items) that have "
            "categories.",
            parameter="max_per_group",
        )
    return groups.limits(check_group_limits(limits))


def _name_group_limit(lists: RankedLists, top: RankedLists) -> RankedLists:
    """The lists, with the reason group_limit if they hold all candidates that the limits of groups left."""
    assert lists.reason is not None
    assert top.reason is not None
    code = np.uint8(REASON_CODE["group_limit"])
    ended = (top.reason == code) & (lists.lengths == top.lengths) & (lists.lengths > 0)
    return replace(lists, reason=np.where(ended, code, lists.reason)) if ended.any() else lists


def _simplify_exclusions(request: RecommendRequest[S]) -> RecommendRequest[S]:
    """Remove many shared exclusions from the shared candidates once, instead of for each user."""
    shared = request.exclude.shared
    if shared is None or request.candidates.per_user is not None or shared.size <= SHARED_EXCLUSIONS:
        return request
    allowed = request.candidates.shared
    if allowed is None:
        allowed = np.arange(len(request.state.history.items), dtype=np.int32)
    candidates = np.setdiff1d(allowed, shared, assume_unique=True)
    return replace(request, candidates=ItemFilter(shared=candidates), exclude=ItemFilter())


def warn_if_all_empty(model: str, codes: Codes | None, n_items: int) -> None:
    """Issue a DataWarning if the lists of many users are all empty although there were candidates."""
    if n_items or codes is None or codes.size < MANY_LISTS:
        return
    reasons = {REASONS[code] for code in np.unique(codes)} - NO_DOUBT
    if not reasons:
        return
    advice = "lower the floor or the threshold of the cutoff, or pass N=10"
    if reasons <= {"value", "top_n"}:  # N = 0 is learned if every length loses money
        advice = "lower the cost or raise the gain, or pass N=10"
    if "no_candidate_above_boundary" in reasons:
        advice = f"train {model} for more epochs, let sl.fit choose a cutoff, or pass N=10"
    text = "; ".join(REASON_TEXT[reason] for reason in sorted(reasons))
    warn(f"all {codes.size:,} lists of {model} are empty: {text}; {advice}.")


def same_reason(n: int, reason: str) -> Codes:
    """(n,) the same reason for all lists."""
    return np.full(n, REASON_CODE[reason], np.uint8)


def _build_lists(
    request: RecommendRequest[S], hits: Hits, reason: Codes, scores: Scores | None = None
) -> RankedLists:
    """The lists of these users, with probabilities, boundaries and expected sizes from `scores`."""
    probabilities, boundary, expected_sizes = None, None, None
    if scores is not None:
        boundary, expected_sizes = scores.boundaries, scores.expected_sizes
        if scores.log_odds_shift is not None:
            probabilities = expit(hits.scores + hits.repeat(scores.log_odds_shift))
    history = request.state.history
    return RankedLists(
        users=IdMap(request.user_ids),
        item_ids=history.items,
        indptr=hits.indptr,
        items=hits.items,
        scores=hits.scores,
        probabilities=probabilities,
        boundary=boundary,
        reason=reason,
        expected_sizes=expected_sizes,
        item_names=history.item_names,
        source=request.state.fingerprint,
        origin=history.base,
    )


def empty_lists(users: pl.Series, item_ids: IdMap, reason: str) -> RankedLists:
    """An empty list for each user."""
    n = len(users)
    no_items, no_scores = np.empty(0, np.int32), np.empty(0, np.float32)
    indptr, reasons = np.zeros(n + 1, np.int64), same_reason(n, reason)
    return RankedLists(IdMap(users), item_ids, indptr, no_items, no_scores, reason=reasons)


def _overlay(lists: RankedLists, numbers: Longs, others: RankedLists) -> RankedLists:
    """`others` instead of the lists at `numbers`."""
    order = np.arange(len(lists))
    order[numbers] = len(lists) + np.arange(numbers.size)
    return RankedLists.concat([lists, others]).take(order)


def replace_lists(lists: RankedLists, numbers: Longs, others: RankedLists) -> RankedLists:
    """`others` instead of the lists at `numbers`; boundaries and expected sizes stay."""
    if numbers.size == 0:
        return lists
    joined = _overlay(lists, numbers, others)
    return replace(joined, boundary=lists.boundary, expected_sizes=lists.expected_sizes)


def truncate_lists(lists: RankedLists, limit: int | None, truncated: Bools | None = None) -> RankedLists:
    """No list longer than `limit`; lists cut now or before (`truncated`) get the reason max_items."""
    if limit is None:
        return lists
    long = lists.lengths > limit
    ended = long if truncated is None else long | truncated
    if not ended.any():
        return lists
    assert lists.reason is not None
    reason = np.where(ended, np.uint8(REASON_CODE["max_items"]), lists.reason)
    return lists.head(limit, reason) if long.any() else replace(lists, reason=reason)


Contributions = list[list[tuple[str, float]]]  # per item: (source, amount), largest first


def contributions_column(contributions: Contributions, n: int) -> pl.Series:
    """The n largest contributions of each item, as a list of (source, amount) structs."""
    rows = [[{"source": name, "amount": amount} for name, amount in of_item[:n]] for of_item in contributions]
    kind = pl.List(pl.Struct({"source": pl.String, "amount": pl.Float64}))
    return pl.Series("contributions", rows, dtype=kind)


def largest_first(names: list[str], amounts: Doubles) -> list[tuple[str, float]]:
    """Contributions other than 0, largest absolute amount first."""
    order = np.argsort(-np.abs(amounts), kind="stable")
    return [(names[at], float(amounts[at])) for at in order if amounts[at] != 0]
