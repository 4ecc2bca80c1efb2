"""Splitting interactions into training, validation and test sets.

`last_basket` and `last_items` hold out the last rows of each user, as the paper does; later rows of other
users stay in training. `by_time` splits all users at one time; nothing after the cut is in training.
`last_period` holds out what happened within a horizon; users to whom nothing happened count, too.
`random_items` needs no order: it holds out items of each user at random, for a plain matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.options import Count, Seed, Several, check_value, explain_keywords
from shortlist.data.columns import parse_duration, parse_times
from shortlist.data.interactions import Interactions, in_last_basket
from shortlist.errors import ConfigError, DataError, warn
from shortlist.text import short_repr
from shortlist.types import Bools

MIN_RETURNING_RATE = 0.1  # rate of users with two baskets from which last baskets are worth predicting


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test interactions: select on `valid`, refit on `train_valid`, test once.

    Parameters
    ----------
    data
        All interactions.
    in_train, in_valid, in_train_valid, in_test
        (n_rows,) masks over the rows of `data`.
    dropped
        Number of users who are not tested because they would have no training rows.
    cuts
        When the validation lists and the test lists are made, in microseconds since 1970 UTC; then every user
        known at that time is a case, with or without later rows. None: only users with held-out rows are.
    is_random
        Whether the held-out rows were drawn at random, so that they are not later than the others.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> split.train.n_rows + split.valid.n_rows == split.train_valid.n_rows
    True
    """

    data: Interactions
    in_train: Bools
    in_valid: Bools
    in_train_valid: Bools
    in_test: Bools
    dropped: int
    cuts: tuple[int, int] | None = None
    is_random: bool = False

    @cached_property
    def train(self) -> Interactions:
        """Rows to train on while models, parameters and cutoffs are selected."""
        return self.data.where(self.in_train)

    @cached_property
    def valid(self) -> Interactions:
        """Held-out rows for selection."""
        return self.data.where(self.in_valid)

    @cached_property
    def train_valid(self) -> Interactions:
        """Rows to train the final model on: all except the test set."""
        return self.data.where(self.in_train_valid)

    @cached_property
    def test(self) -> Interactions:
        """Held-out rows for the final evaluation."""
        return self.data.where(self.in_test)

    @property
    def test_users(self) -> pl.Series:
        """Ids of the users to test: those with rows in `test`, or everyone with earlier rows."""
        rows = self.test if self.cuts is None else self.train_valid
        return rows.users.to_ids(rows.active_users)

    @property
    def test_at(self) -> Any:
        """The times of the test lists, for `recommend(at=…)`; None without times or their order."""
        if self.cuts is not None:
            return as_datetime(self.cuts[1])
        return None if self.is_random or self.test.time is None else self.test

    def __repr__(self) -> str:
        return (
            f"Split(train {self.train.n_rows:,} rows, valid {self.valid.n_rows:,} rows of "
            f"{self.valid.active_users.size:,} users, test {self.test.n_rows:,} rows of "
            f"{self.test.active_users.size:,} users, {self.dropped:,} users not tested)"
        )


def last_basket(data: Interactions | Any) -> Split:
    """Hold out the last basket of each user.

    Parameters
    ----------
    data
        Interactions with times or baskets, or a table or matrix of them. Users with a single basket stay in
        training and are not tested.

    Returns
    -------
    Split

    Raises
    ------
    DataError
        If there are neither times nor baskets, there are no times and basket ids are strings, or no user has
        two baskets.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> split.test.n_baskets == split.test.active_users.size
    True
    """
    data = _check_order(data, "last_basket")

    def last(rest: Interactions) -> tuple[Bools, int]:
        n_baskets = rest.basket_counts
        return in_last_basket(rest), int((n_baskets == 1).sum())

    return _split_twice(data, last, "users with at least two baskets")


@explain_keywords
def last_items(data: Interactions | Any, n: int = 1) -> Split:
    """Hold out the last `n` rows of each user.

    Parameters
    ----------
    data
        Interactions with times or baskets, or a table or matrix of them. Users with at most `n` rows stay in
        training and are not tested.
    n
        Number of rows to hold out.

    Returns
    -------
    Split

    Raises
    ------
    DataError
        If there are neither times nor baskets, there are no times and basket ids are strings, or no user has
        more than `n` rows.
    ConfigError
        If `n` is less than 1.

    Examples
    --------
    >>> split = sl.split.last_items(sl.load_dataset("sample"), n=3)
    >>> split.test.n_rows == 3 * split.test.active_users.size
    True
    """
    data = _check_order(data, "last_items")
    check_value(Count, n=n)

    def last(rest: Interactions) -> tuple[Bools, int]:
        lengths = rest.user_counts
        from_end = np.repeat(rest.indptr[1:], lengths) - np.arange(rest.n_rows)
        return (from_end <= n) & np.repeat(lengths > n, lengths), int(((lengths > 0) & (lengths <= n)).sum())

    return _split_twice(data, last, f"users with more than {n} rows")


@explain_keywords
def random_items(data: Interactions | Any, one_in: int = 5, seed: int = 0) -> Split:
    """Hold out items of each user at random, for data without times, baskets and repeats.

    Parameters
    ----------
    data
        Interactions, or a table or matrix of them. Users with a single item stay in training and are not
        tested.
    one_in
        One item in this many is held out, at least one of each user with several items.
    seed
        The same seed draws the same items.

    Returns
    -------
    Split

    Raises
    ------
    DataError
        If no user has two items.
    ConfigError
        If `one_in` is less than 2.

    Warns
    -----
    DataWarning
        If users interact with an item more than once.

    Examples
    --------
    >>> likes = [(user, item) for user in range(20) for item in range(10)]
    >>> split = sl.split.random_items(sl.Interactions.from_tuples(likes), one_in=5)
    >>> split.test.n_rows, split.train_valid.n_rows
    (40, 160)
    """
    data = Interactions.of(data)
    if data.has_repeats:
        warn(
            "random_items holds out every row of an item, so that no test item is one that the user takes "
            "again, and these data have such repeats; use sl.split.last_basket to test them."
        )
    check_value(Several, one_in=one_in)
    check_value(Seed, seed=seed)

    def drawn(rest: Interactions) -> tuple[Bools, int]:
        return draw_items(rest, one_in, seed), int((rest.item_sets.lengths == 1).sum())

    return replace(_split_twice(data, drawn, "users with at least two items"), is_random=True)


def draw_items(data: Interactions, one_in: int, seed: int) -> Bools:
    """(n_rows,) whether the row is held out; all rows of a held-out item are, and each user keeps an item."""
    items, owner, sizes = data.item_sets.items, data.item_sets.owner, data.item_sets.lengths
    order = np.lexsort((np.random.default_rng(seed).random(items.size), owner))
    position = np.empty(items.size, np.int64)  # in the random order of the user's items
    position[order] = data.item_sets.positions
    n_held = np.where(sizes > 1, np.maximum(sizes // one_in, 1), 0)
    keys = owner * data.n_items + items
    row = np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)
    held: Bools = (position < n_held[owner])[row]
    return held


def users_return(data: Interactions) -> bool:
    """Whether enough users have a second basket to hold out last baskets instead of random items."""
    n_baskets = data.basket_counts
    returning = int((n_baskets > 1).sum())
    return returning >= max(2, MIN_RETURNING_RATE * int((n_baskets > 0).sum()))


def by_time(data: Interactions | Any, cut: datetime | date | str | float) -> Split:
    """Hold out the rows at or after a time.

    The validation period is as long as the test period, but at most half of the time before the cut.

    Parameters
    ----------
    data
        Interactions with times, or a table of them. Users without rows before the cut are not tested.
    cut
        Start of the test period: datetime, date, ISO 8601 string or epoch number; UTC if it has no zone.

    Returns
    -------
    Split

    Raises
    ------
    DataError
        If there are no times, the cut is outside the data, or no user has rows before and after it.
    ConfigError
        If the time cannot be parsed.

    Examples
    --------
    >>> split = sl.split.by_time(sl.load_dataset("sample"), "2024-06-01")
    >>> bool(split.train.time.max() < split.valid.time.min() < split.test.time.min())
    True
    """
    data, first = _find_start(data, "by_time")
    test_start = _parse_time(cut)
    if not first < test_start < data.end_time:
        raise DataError(
            f"cut must be within the data ({_format_time(first)} to {_format_time(data.end_time - 1)}), "
            f"got {_format_time(test_start)}; choose a time inside."
        )
    half = max(first + 1, (first + test_start) // 2)
    return _split_at(data, max(test_start - (data.end_time - test_start), half), test_start)


@explain_keywords
def last_period(data: Interactions | Any, horizon: str | timedelta = "7d") -> Split:
    """Hold out what happened within the last period, for everyone who was known before it.

    A case is a user at the start of the period, with what the user interacts with until its end, possibly
    nothing. That is what a weekly mailing meets: most users buy nothing. The validation set is the period
    before.

    Parameters
    ----------
    data
        Interactions with times, or a table of them.
    horizon
        Length of the period: a timedelta, or a number with s, m, h, d or w.

    Returns
    -------
    Split
        `test_users` and `test_at` are the users to make lists for and the time to make them at.

    Raises
    ------
    DataError
        If there are no times, or the data is not longer than two periods.
    ConfigError
        If the horizon is not a duration.

    Examples
    --------
    >>> split = sl.split.last_period(sl.load_dataset("sample"), "7d")
    >>> len(split.test_users) > split.test.active_users.size
    True
    """
    data, first = _find_start(data, "last_period")
    length = parse_duration("horizon", horizon)
    cuts = data.end_time - 2 * length, data.end_time - length
    if first >= cuts[0]:
        raise DataError(
            f"horizon must be shorter than half of the data ({_format_time(first)} to "
            f"{_format_time(data.end_time)}), got {horizon}; pass a shorter one.",
            parameter="horizon",
        )
    return replace(_split_at(data, *cuts), cuts=cuts)


def _find_start(source: Interactions | Any, name: str) -> tuple[Interactions, int]:
    """(interactions, their first time); DataError without times."""
    data = Interactions.of(source)
    if data.time is None or not data.n_rows:
        raise DataError(f"{name} needs timestamps, got none; pass the timestamp column when reading.")
    return data, int(data.time.min())


def _split_at(data: Interactions, valid_start: int, test_start: int) -> Split:
    """Rows before, between and after two times; only users with earlier rows are held out."""
    assert data.time is not None
    before = data.time < test_start
    in_train = data.time < valid_start
    in_valid = before & ~in_train & _has_rows(data, in_train)
    in_test = ~before & _has_rows(data, before)
    if not in_test.any():
        raise DataError(
            "the test set is empty: no user has events before and after the cut; choose another cut."
        )
    dropped = np.unique(data.user[~before & ~in_test]).size
    return Split(data, in_train, in_valid, before, in_test, dropped)


def _has_rows(data: Interactions, mask: Bools) -> Bools:
    """(n_rows,) whether the user of each row has a row in the mask."""
    has_rows = np.zeros(data.n_users, np.bool_)
    has_rows[data.user[mask]] = True
    return has_rows[data.user]


def _split_twice(data: Interactions, last: Callable[[Interactions], tuple[Bools, int]], who: str) -> Split:
    """Hold out the test set, then the validation set from the remaining rows in the same way."""
    in_test, dropped = last(data)
    if not in_test.any():
        raise DataError(f"the test set is empty: there are no {who}; filter less or use more data.")
    rest = np.flatnonzero(~in_test)
    in_valid = np.zeros(data.n_rows, np.bool_)
    in_valid[rest[last(data.where(~in_test))[0]]] = True
    return Split(data, ~(in_valid | in_test), in_valid, ~in_test, in_test, dropped)


def _check_order(source: Interactions | Any, name: str) -> Interactions:
    """Interactions whose rows have an order."""
    data = Interactions.of(source)
    if data.time is None and not data.has_baskets:
        raise DataError(
            f"{name} needs timestamps or baskets to find the last rows, got neither; "
            "pass the timestamp or basket column when reading."
        )
    if not data.has_basket_order:
        raise DataError(
            f"{name} needs the order of the baskets, got no times and basket ids that are strings, where '9' "
            "follows '10'; pass the timestamp column, basket ids that are numbers, or basket_id=\"\" to "
            "ignore baskets.",
            parameter="timestamp",
        )
    return data


def _parse_time(cut: datetime | date | str | float) -> int:
    """Microseconds since 1970 UTC, read as the readers do."""
    try:
        return int(parse_times(pl.Series("cut", [cut]))[0])
    except (DataError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise ConfigError(
            f"cut must be a date, an ISO 8601 string or an epoch number, got {short_repr(cut)}; write "
            "'2001-02-01'.",
            parameter="cut",
        ) from None


def as_datetime(micros: int) -> datetime:
    """A time in UTC from microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _format_time(micros: int) -> str:
    return str(np.datetime64(micros, "us").astype("datetime64[s]"))


__all__ = ["Split", "by_time", "last_basket", "last_items", "last_period", "random_items"]
