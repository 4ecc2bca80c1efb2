"""RecommendRequest: one call of `recommend`, validated and translated to dense indices.

Everything a model needs to answer travels in the request: the state of the model, users, histories,
prediction times and candidates. A model answers with one `Scores` object.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.params import check_whole, warn
from shortlist.core.ragged import ItemSets, no_sets, read_only, same_sets, starts, take_rows
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.data.columns import parse_times
from shortlist.data.history import History
from shortlist.data.ids import UNKNOWN, IdMap, id_series, is_id_list
from shortlist.data.interactions import NO_BASKET, NO_TIME, NO_WEIGHT, Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError, UnknownIdError
from shortlist.kernels.rows import count_common, unite_sets
from shortlist.recommend.retrieval import ItemIndexCache, SparseScores, dense_scores
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


@dataclass(frozen=True)
class ItemFilter:
    """The same items for all users, or items per user; an empty filter restricts nothing."""

    shared: Ints | None = None  # ascending, distinct
    own: Mapping[Any, Ints] | None = None  # user id → known items

    @classmethod
    def build(cls, name: str, given: Any, users: pl.Series, items: IdMap) -> "ItemFilter":
        """Build from item ids for all, a mapping user id → item ids, or a list per user; skip unknown ids."""
        if given is None:
            return cls()
        if isinstance(given, Mapping):
            if len(users):
                for user_id in given:
                    IdMap(users.head(1)).check_type(user_id, f"{name}: user id")
            return cls(own=_own_items(name, given, items))
        _check_collection(name, given)
        listed = given if isinstance(given, pl.Series) else list(given)
        kinds = {type(listed[0])} if isinstance(listed, pl.Series) and len(listed) else set(map(type, listed))
        nested = [issubclass(kind, Iterable) and not issubclass(kind, (str, bytes)) for kind in kinds]
        if any(nested):
            if not all(nested):
                raise ConfigError(
                    f"{name} must be a list of item ids or a list of lists, got a mixture of both; "
                    "pass one of them."
                )
            for one in listed:
                _check_collection(name, one)
            if len(listed) != len(users):
                raise ConfigError(
                    f"{name} must hold one list per user ({len(users)}), got {len(listed)}; "
                    "pass a flat list to share it, or a dictionary user_id → item ids."
                )
            return cls(own=_own_items(name, dict(zip(users.to_list(), listed, strict=True)), items))
        return cls(shared=np.unique(_known_items(name, listed, items)[0]))

    def sets(self, users: pl.Series, items: IdMap) -> ItemSets | None:
        """The sets of these users; None if the filter is not per user."""
        if self.own is None:
            return None
        empty = np.empty(0, np.int32)
        rows = [self.own.get(user_id, empty) for user_id in users.to_list()]
        owner = np.repeat(np.arange(len(rows)), [row.size for row in rows])
        item = np.concatenate([empty, *rows])
        keys = np.unique(owner * len(items) + item)  # by user, then item, each once
        lengths = np.bincount(keys // max(len(items), 1), minlength=len(rows))
        return ItemSets(starts(lengths), (keys % max(len(items), 1)).astype(np.int32))


NO_FILTER = ItemFilter()


def _own_items(name: str, given: Mapping[Any, Iterable[Any]], items: IdMap) -> dict[Any, Ints]:
    """User id → known items."""
    for items_of_user in given.values():
        _check_collection(name, items_of_user)
    rows = [list(items_of_user) for items_of_user in given.values()]
    found, known = _known_items(name, list(chain.from_iterable(rows)), items)
    ends = np.append(0, np.cumsum(known))[np.cumsum([0, *map(len, rows)])]  # in `found`
    return {user_id: found[ends[at] : ends[at + 1]] for at, user_id in enumerate(given)}


def _known_items(name: str, listed: Any, items: IdMap) -> tuple[Ints, Bools]:
    """(known items, whether each id is known); warn of unknown ids, refuse only unknown candidates."""
    found = items.lookup(listed, f"{name}: item id")
    known: Bools = found != UNKNOWN
    n_unknown = int((~known).sum())
    if n_unknown:
        first = listed[int(np.argmin(known))]
        count = f"{n_unknown:,} of {known.size:,} item ids in `{name}` are unknown to the model"
        if n_unknown == known.size and name == "candidates":
            raise UnknownIdError(f"{count}, such as {first!r:.60}; pass ids of items in the training data.")
        warn(f"{count} and are ignored, such as {first!r:.60}.")
    return found[known], known


def _check_collection(name: str, given: Any) -> None:
    """Raise ConfigError for a single id, whose characters would be read as ids, a table or a dictionary."""
    if not is_id_list(given):
        kind = "string" if isinstance(given, str) else type(given).__name__
        got = f"the {kind} {given!r:.60}" if isinstance(given, (str, bytes, int, float)) else f"a {kind}"
        raise ConfigError(f"{name} must be a collection of item ids, got {got}; put the ids in a list.")


def join_sets(a: ItemSets, b: ItemSets) -> ItemSets:
    """The union of two sets for each user."""
    at, out = np.empty_like(a.indptr), np.empty(a.items.size + b.items.size, np.int32)
    unite_sets(read_only(a.indptr), read_only(a.items), read_only(b.indptr), read_only(b.items), at, out)
    return ItemSets(at, out[: at[-1]])


def count_candidates(shared: Ints | None, own: ItemSets | None, excluded: ItemSets, n_items: int) -> Longs:
    """(n_users,) how many candidates are not excluded."""
    n_users = excluded.indptr.size - 1
    if own is not None:
        common = np.empty(n_users, np.int64)
        count_common(
            read_only(own.indptr),
            read_only(own.items),
            read_only(excluded.indptr),
            read_only(excluded.items),
            common,
        )
        return np.diff(own.indptr) - common
    if shared is None:
        return n_items - np.diff(excluded.indptr)
    member = np.zeros(n_items + 1, np.bool_)
    member[shared] = True
    owner = np.repeat(np.arange(n_users), np.diff(excluded.indptr))
    hits = np.bincount(owner, weights=member[excluded.items], minlength=n_users)
    return shared.size - hits.astype(np.int64)


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
    size_dispersion: float | None = None  # of these sizes; if given, boundaries maximize the expected F1

    def take(self, numbers: Longs) -> Self:
        """The scores of these users, in this order."""
        if self.sparse is None and numbers.size == self._n_users and (np.diff(numbers) == 1).all():
            return self
        values, candidates, factors = self.values, self.candidates, self.factors
        assert self.sparse is None, "sparse scores have no boundaries, so no part of them is ever taken"
        if factors is not None:
            factors = factors._replace(vectors=factors.vectors[numbers])
        elif candidates is not None and values is not None:
            indptr, rows = take_rows(candidates.indptr, numbers)
            candidates, values = ItemSets(indptr, candidates.items[rows]), values[rows]
        elif values is not None:
            values = values[numbers]
        own = {
            name: None if (array := getattr(self, name)) is None else array[numbers]
            for name in ("boundaries", "log_odds_shift", "expected_sizes")
        }
        return replace(self, values=values, candidates=candidates, factors=factors, **own)

    @property
    def _n_users(self) -> int:
        if self.factors is not None:
            return len(self.factors.vectors)
        if self.candidates is not None:
            return self.candidates.indptr.size - 1
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
        n_users = self.candidates.indptr.size - 1
        scores = np.full((n_users, n_items), -np.inf, np.float32)
        owner = np.repeat(np.arange(n_users), np.diff(self.candidates.indptr))
        scores[owner, self.candidates.items] = self.values
        return scores


EXTRA_ITEMS = 5


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """How many lists run longer than the cutoff allows, and by how many items.

    Parameters
    ----------
    share
        Probability that a list is explored.
    extra_items
        How many of the next best candidates are added to an explored list. `max_items` still holds.
    seed
        Together with the user id and the prediction time, it decides which lists are explored. The same
        request gives the same lists.

    Raises
    ------
    ConfigError
        If a parameter is invalid.

    Examples
    --------
    >>> model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=3, explore=sl.Exploration(share=0.1, extra_items=2))
    >>> sorted(set(lists.lengths.tolist()))
    [3, 5]
    >>> sorted(set(lists.propensities.tolist()))
    [0.1, 1.0]
    """

    share: float
    extra_items: int = EXTRA_ITEMS
    seed: int = 0

    def __post_init__(self) -> None:
        share: Any = self.share
        is_number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
        if not is_number or not 0 < share <= 1:
            raise ConfigError(
                f"explore must be a share of lists above 0 and at most 1, got {share!r:.60}; "
                "pass 0.01, for example."
            )
        check_whole(1, extra_items=self.extra_items)
        check_whole(0, seed=self.seed)


def read_exploration(explore: Any) -> Exploration | None:
    """The argument `explore`: 0 for none, a share of lists, or an Exploration."""
    if isinstance(explore, Exploration):
        return explore
    is_zero = isinstance(explore, (int, float)) and not isinstance(explore, bool) and explore == 0
    return None if is_zero else Exploration(share=explore)


def draw_explored(user_ids: pl.Series, timestamps: Longs | None, exploration: Exploration) -> Bools:
    """(n,) which users get a longer list; depends on the id, the time and the seed only."""
    times = np.zeros(len(user_ids), np.int64) if timestamps is None else timestamps
    limit = int(exploration.share * 2.0**64)
    found = np.empty(len(user_ids), np.bool_)
    for row, (user_id, time) in enumerate(zip(user_ids.to_list(), times.tolist(), strict=True)):
        text = f"{exploration.seed}\0{time}\0{user_id}".encode()
        found[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) < limit
    return found


def extend_lists(lists: RankedLists, top: RankedLists, n_extra: Longs, propensity: float) -> RankedLists:
    """Each list followed by its n_extra best candidates of `top` that it does not contain yet."""
    items, scores, probabilities, propensities, sizes = [], [], [], [], []
    missing = np.full(top.items.size, np.nan) if top.probabilities is None else top.probabilities
    for row in range(len(lists)):
        own = slice(int(lists.indptr[row]), int(lists.indptr[row + 1]))
        rest = np.arange(top.indptr[row], top.indptr[row + 1])
        rest = rest[~np.isin(top.items[rest], lists.items[own])][: n_extra[row]]
        items += [lists.items[own], top.items[rest]]
        scores += [lists.scores[own], top.scores[rest]]
        if lists.probabilities is not None:
            probabilities += [lists.probabilities[own], missing[rest]]
        propensities += [np.ones(own.stop - own.start), np.full(rest.size, propensity)]
        sizes.append(own.stop - own.start + rest.size)
    return replace(
        lists,
        indptr=starts(np.array(sizes, np.int64)),
        items=np.concatenate(items),
        scores=np.concatenate(scores),
        probabilities=None if lists.probabilities is None else np.concatenate(probabilities),
        propensities=np.concatenate(propensities),
    )


Fallback = Literal["popular"] | Callable[[Any], Iterable[Any]]
CutoffChoice = Literal["auto", "boundary"] | Cutoff
FALLBACK_ITEMS = 10  # length of a fallback list when nothing else limits it
LONGEST = 2**31 - 1  # a larger limit is the same as this one


class State(Protocol):
    """The part of a fitted model's state that the request path uses."""

    @property
    def history(self) -> History:
        """The interactions that the model knows."""

    @property
    def cutoff(self) -> Cutoff | None:
        """The cutoff saved with the model."""

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of what the model learned."""


S = TypeVar("S", bound=State)


def _is_whole(value: Any, minimum: int) -> bool:
    """Whether the value is a whole number of at least `minimum`."""
    if isinstance(value, (bool, np.bool_, complex, np.complexfloating)):
        return False
    number = isinstance(value, (int, float, np.number))
    return bool(number and minimum <= value < np.inf and int(value) == value)


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """How long lists may be, and what to do with empty ones."""

    N: int | None = None
    cutoff: CutoffChoice = "auto"
    min_items: int = 0
    max_items: int | None = None
    fallback: Fallback | None = None
    explore: Exploration | None = None

    def __post_init__(self) -> None:
        for name, minimum in (("N", 1), ("max_items", 1), ("min_items", 0)):
            value = getattr(self, name)
            if value is None and name != "min_items":
                continue
            if not _is_whole(value, minimum):
                raise ConfigError(
                    f"{name} must be a whole number of at least {minimum}, got {value!r:.60}; pass "
                    f"{name}={max(minimum, 10) if name == 'N' else minimum}, or leave it out.",
                    parameter=name,
                )
            object.__setattr__(self, name, min(int(value), LONGEST))  # 3.0 is accepted as 3
        self._check_cutoff()
        if self.limit is not None and self.min_items > self.limit:
            raise ConfigError(
                f"min_items must not exceed N and max_items, got {self.min_items} and {self.limit}; "
                "lower min_items or raise the limit."
            )
        is_name = isinstance(self.fallback, str) and self.fallback == "popular"
        is_function = callable(self.fallback) and not isinstance(self.fallback, type)
        if not (self.fallback is None or is_function or is_name):
            raise ConfigError(
                "fallback must be None, 'popular' or a function from user id to item ids, "
                f"got {self.fallback!r:.60}; choose one."
            )

    def _check_cutoff(self) -> None:
        """Raise ConfigError unless the cutoff is "auto", "boundary" or a Cutoff; with N, only "auto"."""
        cutoff = self.cutoff
        if not (isinstance(cutoff, str) and cutoff in ("auto", "boundary")):
            check_cutoff(cutoff, "'auto', 'boundary' or a fitted cutoff", "().fit(lists, truth)")
        if self.N is not None and cutoff != "auto":
            raise ConfigError(
                f"N and cutoff both set the length of lists, got N={self.N} and {cutoff!r:.60}; "
                "pass one of them, or max_items for a limit."
            )

    @property
    def limit(self) -> int | None:
        """The maximum length of a list."""
        given = [n for n in (self.N, self.max_items) if n is not None]
        return min(given) if given else None

    @property
    def fallback_limit(self) -> int:
        """The maximum length of a fallback list."""
        return self.limit or max(self.min_items, FALLBACK_ITEMS)


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
    options: ListOptions
    n_threads: int = 0

    def __len__(self) -> int:
        return self.users.size

    @cached_property
    def history(self) -> Interactions:
        """The rows of each user of the request, in their order, before the user's prediction time."""
        whole = self.state.history if self.is_session else None
        return self.source.rows_of(self.users, IdMap(self.user_ids), self.timestamps, whole)

    @cached_property
    def rows(self) -> Ints:
        """0 … n - 1: the users of `history`."""
        return np.arange(len(self), dtype=np.int32)

    def take(self, numbers: npt.NDArray[np.integer]) -> Self:
        """The request of these users alone, in this order."""
        return replace(
            self,
            user_ids=self.user_ids.gather(pl.Series(numbers)),
            users=self.users[numbers],
            timestamps=None if self.timestamps is None else self.timestamps[numbers],
        )

    def part(self, rows: slice) -> Self:
        """The request of consecutive users alone."""
        return replace(
            self,
            user_ids=self.user_ids[rows],
            users=self.users[rows],
            timestamps=None if self.timestamps is None else self.timestamps[rows],
        )

    def candidate_sets(self) -> ItemSets | None:
        """The candidates of each user; None if all items are candidates."""
        if self.candidates.shared is not None:
            return same_sets(self.candidates.shared, len(self))
        return self.candidates.sets(self.user_ids, self.state.history.items)

    def excluded_sets(self) -> ItemSets:
        """The items that must not be shown to each user."""
        excluded = ItemSets(*self.history.item_sets) if self.filter_seen else no_sets(len(self))
        if self.exclude.shared is not None:
            excluded = join_sets(excluded, same_sets(self.exclude.shared, len(self)))
        own = self.exclude.sets(self.user_ids, self.state.history.items)
        return excluded if own is None else join_sets(excluded, own)


def build_request(
    state: S,
    users: Any = None,
    *,
    options: ListOptions,
    candidates: Any = None,
    exclude: Any = None,
    history: Any = None,
    filter_seen: bool | None = None,
    at: Any = None,
    n_threads: int = 0,
) -> RecommendRequest[S]:
    """Validate the arguments of `recommend` against the state of a model."""
    known = state.history
    if not (filter_seen is None or isinstance(filter_seen, (bool, np.bool_))):
        raise ConfigError(
            f"filter_seen must be True, False or None, got {filter_seen!r:.60}; pass one of them."
        )
    check_whole(0, n_threads=n_threads)
    if history is None:
        user_ids = parse_users(known, users)
        rows = known.users.lookup(user_ids, "user id")
        timestamps = request_times(known, user_ids, at)
        source = known
    else:
        sessions = read_sessions(known, history, at)
        source = History.of(sessions)
        user_ids = parse_users(source, users)
        rows = sessions.users.lookup(user_ids, "history: user id")
        if (rows == UNKNOWN).any():
            other = user_ids.gather(np.flatnonzero(rows == UNKNOWN))[0]
            raise ConfigError(
                f"users must be users of `history`, got {other!r}; leave users out, or make a second call "
                "without history."
            )
        empty = np.append(np.diff(sessions.indptr) == 0, True)  # the last entry is read for unknown users
        rows[empty[rows]] = UNKNOWN  # no known item: nothing to recommend from
        timestamps = request_times(known, user_ids, at)
    return RecommendRequest(
        state=state,
        user_ids=user_ids,
        users=rows,
        source=source,
        is_session=history is not None,
        timestamps=timestamps,
        candidates=ItemFilter.build("candidates", candidates, user_ids, known.items),
        exclude=ItemFilter.build("exclude", exclude, user_ids, known.items),
        filter_seen=not known.has_repeats if filter_seen is None else bool(filter_seen),
        options=options,
        n_threads=n_threads,
    )


def parse_users(known: History, users: Any) -> pl.Series:
    """Distinct user ids, from one id or many; all known users for None."""
    if users is None:
        return known.users.values
    single = isinstance(users, (str, int, np.integer))
    if not single and not is_id_list(users):
        raise DataError(
            f"users must be one user id or a list of them, got a {type(users).__name__}; "
            "pass users=['u1', 'u2'] or one column of the table."
        )
    found = id_series([users] if single else users)
    if len(found) == 0:
        return known.users.values.head(0)
    if len(found) > 1 and found.n_unique() != len(found):
        duplicate = found.filter(found.is_duplicated())[0]
        raise DataError(f"users must be distinct, got {duplicate!r} more than once; remove the repetition.")
    return found


def request_times(known: History, user_ids: pl.Series, at: Any) -> Longs | None:
    """(n,) the prediction time of each user in microseconds; None: just after the last known event.

    `at` is a date, an ISO 8601 string or an epoch number, one or one per user; or Interactions, whose first
    row of each user gives the time (a test set, for example). Users it does not name get the last event's.
    """
    if at is None or (isinstance(at, Interactions) and (at.time is None or at.n_rows == 0)):
        return None
    if not known.has_times:
        raise ConfigError(
            "at needs a model that was fitted on data with timestamps, got one without; omit at."
        )
    if isinstance(at, Interactions):
        assert at.time is not None
        rows = at.users.align(IdMap(user_ids))
        first = at.indptr[rows]
        named = (rows != UNKNOWN) & (at.indptr[rows + 1] > first)
        found: Longs = np.where(named, at.time[np.minimum(first, at.n_rows - 1)], 0)
        return found if named.all() else np.where(named, found, known.end_time)
    single = isinstance(at, (str, bytes)) or not isinstance(at, Iterable)
    try:
        given = parse_times(_time_series([at] if single else at))
    except (DataError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        got = repr(at)[:60] if single else f"a {type(at).__name__} with other values"
        raise ConfigError(
            "at must be a date, an ISO 8601 string or an epoch number, one or one per user, "
            f"got {got}; write at='2024-05-01'.",
            parameter="at",
        ) from None
    if given.size not in (1, len(user_ids)):
        raise ConfigError(
            f"at must be one time or one per user ({len(user_ids)}), got {given.size} times; pass one."
        )
    return np.ascontiguousarray(np.broadcast_to(given, len(user_ids)))


def _time_series(values: Any) -> pl.Series:
    """Times as one column; NumPy times of any unit, and no tables, mappings or durations."""
    if isinstance(values, (Mapping, pl.DataFrame)):
        raise DataError("at must not be a table")
    if not isinstance(values, pl.Series):
        values = list(values)
        if values and all(isinstance(one, np.datetime64) for one in values):
            values = np.array(values, "datetime64[us]")
    series = pl.Series("at", values)
    if series.dtype == pl.Boolean or series.dtype == pl.Duration:
        raise DataError("at must hold times")
    return series


def read_sessions(known: History, history: Any, at: Any) -> Interactions:
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
        item = known.items.lookup([one for row in rows for one in row], "history: item id")
        time = NO_TIME
        if known.has_times:
            times = request_times(known, users, at)
            end = np.full(len(rows), known.end_time) if times is None else times
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
            known.items.check_type(data.items.values[0], "history: item id")
        user, item = data.user, known.items.align(data.items)[data.item]
        time = NO_TIME if data.time is None or not known.has_times else data.time
        basket = np.repeat(np.arange(data.n_baskets, dtype=np.int32), np.diff(data.baskets))
        ids = data.users
    found = item != UNKNOWN
    if not found.all():
        warn(
            f"{int((~found).sum())} of {found.size} items in `history` are unknown to the model and skipped."
        )
    return Interactions.from_dense(
        ids,
        known.items,
        user[found],
        item[found],
        time if time.size == 0 else time[found],
        basket if basket.size == 0 else basket[found],
        NO_WEIGHT,
    )
