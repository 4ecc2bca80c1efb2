"""RecommendRequest: one call of `recommend`, validated and translated to dense indices.

Everything a model needs to answer travels in the request: the state of the model, users, histories,
prediction times and candidates. A model answers with one `Scores` object.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.calls import warn
from shortlist.core.estimator import check_whole
from shortlist.core.ragged import ItemSets, no_sets, same_sets
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.data.grouping import NO_BASKET, NO_TIME, NO_WEIGHT
from shortlist.data.history import History
from shortlist.data.id_map import UNKNOWN, IdMap, id_series, is_id_list
from shortlist.data.interactions import Interactions
from shortlist.data.times import parse_times
from shortlist.errors import ConfigError, DataError
from shortlist.recommend.explore import Exploration
from shortlist.recommend.item_filter import NO_FILTER, ItemFilter, join_sets
from shortlist.recommend.scores import Factors as Factors
from shortlist.recommend.scores import Scores as Scores
from shortlist.types import Ints, Longs

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
