"""evaluate_over_time: lists made one after the other, each from the events before it."""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from shortlist.core.options import explain_keywords
from shortlist.data.columns import parse_duration
from shortlist.data.ids import UNKNOWN, IdMap, id_series
from shortlist.data.interactions import NO_BASKET, NO_TIME, NO_WEIGHT, Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.evaluate import evaluate
from shortlist.evaluation.report import TimedReport, step_starts
from shortlist.kernels.rows import starts
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import Recommender
from shortlist.recommend.options import CutoffChoice, RequestOptions
from shortlist.types import Bools, Ints, Longs

Baskets = Literal["all", "first"]


class UserVisits(NamedTuple):
    """Users at the times of their baskets, in order of time; baskets of one user and time are one visit."""

    users: Ints  # (n,) dense user of the events
    times: Longs  # (n,) microseconds
    first: Longs  # (n,) first row of the visit
    end: Longs  # (n,) row after the last one

    def take(self, keep: Bools | Longs) -> "UserVisits":
        """These visits alone."""
        return UserVisits(self.users[keep], self.times[keep], self.first[keep], self.end[keep])


@explain_keywords
def evaluate_over_time(
    model: Recommender,
    events: Interactions | Any,
    *,
    every: str | timedelta | None = "1d",
    horizon: str | timedelta | None = None,
    baskets: Baskets = "all",
    users: Iterable[Any] | Literal["everyone"] | None = None,
    gain: float | None = None,
    cost: float | None = None,
    N: int | None = None,
    cutoff: CutoffChoice = "auto",
    filter_seen: bool | None = None,
    max_items: int = 20,
) -> TimedReport:
    """Evaluate a fitted model on later events, as if it had been in use while they happened.

    The model learns nothing new. It observes the events in order of time, and a list is made just before
    each basket of each user, from earlier events only. The model that is passed does not change.

    Parameters
    ----------
    model
        A fitted model. All events that it knows must be before `events`.
    events
        What happened later, with times: Interactions or a table, such as `test` of a split by time.
    every
        How often the model observes: a timedelta, or a number with s, m, h, d or w. Steps start at midnight
        UTC of the first event's day; a list uses the events before the step that it belongs to. None: each
        list uses every event before it, and the model observes before each distinct time, which is slow.
    horizon
        The truth of a list is everything that the user interacts with from the time of the list until this
        much later. Lists whose horizon exceeds the last event are left out. None: the basket at that time.
    baskets
        `"all"`: one list before every basket of a user. `"first"`: only before the first one in `events`.
    users
        Ids of the users to evaluate; the events of the others are still observed. None: all users.
        `"everyone"`: one list for every known user at the start of each step, whether the user comes back
        within `horizon` or not; it needs `every` and `horizon`, and `baskets` is not used.
    gain, cost
        As in `evaluate`.
    N
        The same length for all lists, instead of a cutoff.
    cutoff, filter_seen
        As in `recommend`. By default, `filter_seen` depends on the events that the model knows at the start.
    max_items
        As in `evaluate`.

    Returns
    -------
    TimedReport
        One row per list. A user unknown at that time counts as one with an empty list.

    Raises
    ------
    DataError
        If there are no times, the model knows an event that is not before all `events`, or there is no list
        to evaluate.
    ConfigError
        If an argument is invalid.

    Examples
    --------
    >>> split = sl.split.by_time(sl.load_dataset("sample"), "2024-06-01")
    >>> model = sl.PersonalFrequency().fit(split.train_valid)
    >>> report = sl.evaluate_over_time(model, split.test, N=5)
    >>> report.user_ids.n_unique() == split.test.active_users.size
    True
    """
    if baskets not in get_args(Baskets):
        raise ConfigError(f"baskets must be 'all' or 'first', got {baskets!r}; choose one.")
    step = None if every is None else parse_duration("every", every)
    length = None if horizon is None else parse_duration("horizon", horizon)
    events = check_later(model, Interactions.of(events))
    incomplete, cases = 0, None
    if isinstance(users, str):
        events, visits = _find_cases(model, events, users, step, length)
        cases = pl.Series(np.arange(visits.times.size))
    else:
        visits = find_visits(events, baskets, users)
    if length is not None and cases is None:
        complete = visits.times + length <= events.end_time
        incomplete = int((~complete).sum())
        visits = visits.take(complete)
        visits = visits._replace(end=_rows_from(events, visits.users, visits.times + length))
    if not visits.times.size:
        raise DataError(
            "there is no list to evaluate: the users have no baskets in `events`, or the horizon exceeds "
            "the last event; pass more events, other users or a shorter horizon."
        )
    options = RequestOptions(N=N, cutoff=cutoff, filter_seen=filter_seen)
    lists = lists_over_time(model, events, visits, step, options)
    numbered = (replace(group, users=IdMap(pl.Series(numbers))) for numbers, group in lists)
    truth = _truth(events, visits)
    report = evaluate(numbered, truth, max_items=max_items, users=cases, gain=gain, cost=cost)
    return TimedReport.of(report, events.users.to_ids(visits.users), visits.times, incomplete)


def check_later(model: Recommender, events: Interactions) -> Interactions:
    """The events, if they have times and all are later than those that the model knows."""
    history = model.history_
    if events.time is None or not events.n_rows:
        raise DataError("events must have timestamps, got none; pass the timestamp column when reading.")
    if history.time is None:
        raise DataError("the model must be fitted on data with timestamps, got none; fit it again with them.")
    if history.n_rows and int(events.time.min()) < history.end_time:
        first, last = (str(np.datetime64(int(t), "us")) for t in (events.time.min(), history.end_time - 1))
        raise DataError(
            f"events must be later than all events that the model knows, got one at {first} and a model that "
            f"knows events until {last}; fit it on `train_valid` of sl.split.by_time."
        )
    return events


def find_visits(events: Interactions, baskets: Baskets, users: Iterable[Any] | None = None) -> UserVisits:
    """The visits of these users, or their first ones, in order of time and then of user."""
    assert events.time is not None
    new = np.ones(events.n_rows, np.bool_)
    new[1:] = (events.user[1:] != events.user[:-1]) | (events.time[1:] != events.time[:-1])
    first = np.flatnonzero(new)
    user = events.user[first]
    visits = UserVisits(user, events.time[first], first, np.append(first[1:], events.n_rows))
    is_chosen = np.ones(first.size, np.bool_)
    if baskets == "first":
        is_chosen[1:] = user[1:] != user[:-1]
    if users is not None:
        is_named = np.zeros(events.n_users + 1, np.bool_)
        is_named[events.users.lookup(id_series(users))] = True  # UNKNOWN marks the last entry
        is_chosen &= is_named[user]
    visits = visits.take(is_chosen)
    return visits.take(np.argsort(visits.times, kind="stable"))


def _find_cases(
    model: Recommender, events: Interactions, users: str, every: int | None, horizon: int | None
) -> tuple[Interactions, UserVisits]:
    """The events with the ids of all known users, and each known user at the start of each step."""
    if users != "everyone" or every is None or horizon is None:
        raise ConfigError(
            f"users must be ids, or 'everyone' with every and horizon, got {users!r:.60}; pass "
            "users='everyone', every='7d', horizon='7d'."
        )
    assert events.time is not None
    known_ids = model.users_.to_ids(model.history_.active_users)
    ids, weight = events.users.union(known_ids), NO_WEIGHT if events.weight is None else events.weight
    events = Interactions.from_dense(
        ids, events.items, events.user, events.item, events.time, events.basket, weight
    )
    assert events.time is not None
    first, end = int(events.time.min()) // DAY * DAY, events.end_time
    times = np.arange(first, end - horizon + 1, every)
    times = times[times >= model.history_.end_time]
    since = np.full(len(ids), end)  # when each user becomes known
    np.minimum.at(since, events.user, events.time)
    since[ids.lookup(known_ids)] = first - 1
    time, user = (grid.ravel() for grid in np.meshgrid(times, np.arange(len(ids)), indexing="ij"))
    is_known = since[user] < time
    time, users_then = time[is_known], np.asarray(user[is_known], np.int32)
    start, stop = (_rows_from(events, users_then, times) for times in (time, time + horizon))
    return events, UserVisits(users_then, time, start, stop)


def _rows_from(events: Interactions, users: Ints, times: Longs) -> Longs:
    """(n,) the first row of each user that is not before the time."""
    assert events.time is not None
    first = int(events.time.min())
    span = max(events.end_time, int(times.max(initial=first))) - first + 1
    keys = events.user.astype(np.int64) * span + (events.time - first)
    return np.searchsorted(keys, users.astype(np.int64) * span + np.maximum(times - first, 0))


def lists_over_time(
    model: Recommender,
    events: Interactions,
    visits: UserVisits,
    every: int | None,
    options: RequestOptions,
) -> Iterator[tuple[Longs, RankedLists]]:
    """(numbers of visits, their lists), one list per user at a time; unknown users get none.

    A copy of the model observes the events before each step, which starts at or before the visits in it.
    """
    assert events.time is not None
    if options.filter_seen is None:
        options = replace(options, filter_seen=not model.history_.has_repeats)
    current, known_until = copy(model), int(events.time.min())
    days = visits.times if every is None else step_starts(events.time, every, visits.times)
    edges = np.flatnonzero(np.diff(days, prepend=days[0] - 1, append=days[-1] + 1))
    for low, high in pairwise(edges):
        start = int(days[low])
        current = observe_between(current, events, known_until, start)
        known_until = max(known_until, start)
        for numbers in _rounds(visits.users[low:high]):
            number = low + numbers
            ids = events.users.to_ids(visits.users[number])
            known_user = current.users_.lookup(ids) != UNKNOWN
            number, ids = number[known_user], ids.filter(pl.Series(known_user))
            if number.size:
                at = pl.Series(visits.times[number]).cast(pl.Datetime("us"))
                yield number, current.plan(ids, replace(options, at=at)).lists()


def observe_between(model: Recommender, events: Interactions, low: int, high: int) -> Recommender:
    """The model after the events from `low` to just before `high`; ids without such events stay unknown.

    Events of items that the model cannot use are left out; `observe` would warn about them at every step.
    """
    assert events.time is not None
    rows = (events.time >= low) & (events.time < high)
    if not model.uses_new_items:
        rows &= (model.items_.align(events.items) != UNKNOWN)[events.item]
    return model.observe(events.where(rows).compact()) if rows.any() else model


def _rounds(users: Ints) -> Iterator[Longs]:
    """Positions of distinct users: everybody's first position, then everybody's second, and so on."""
    order = np.argsort(users, kind="stable")
    by_user = users[order]
    new = np.flatnonzero(np.diff(by_user, prepend=-1))
    turn = np.empty(users.size, np.int64)
    turn[order] = np.arange(users.size) - np.repeat(new, np.diff(new, append=users.size))
    for number in range(int(turn.max(initial=-1)) + 1):
        yield np.flatnonzero(turn == number)


def _truth(events: Interactions, visits: UserVisits) -> Interactions:
    """The rows of each visit, as those of a user of its own."""
    lengths = visits.end - visits.first
    owner = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    rows = np.arange(owner.size) + np.repeat(visits.first - starts(lengths)[:-1], lengths)
    return Interactions.from_dense(
        IdMap(pl.Series(np.arange(lengths.size))),
        events.items,
        owner,
        events.item[rows],
        NO_TIME,
        NO_BASKET,
        NO_WEIGHT,
    )
