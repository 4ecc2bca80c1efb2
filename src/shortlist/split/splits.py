"""The three ways to cut; validation is cut from the training part in the same way, one step earlier."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.types import Bools


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of one data: choose on `valid`, refit on `train_valid`, judge once on `test`."""

    data: Interactions
    in_train: Bools  # (n_rows,) of data, as are the other three
    in_valid: Bools
    in_train_valid: Bools
    in_test: Bools
    dropped: int  # users who would have been tested but would have kept no training row

    @cached_property
    def train(self) -> Interactions:
        """What models learn from while choices are made."""
        return self.data.where(self.in_train)

    @cached_property
    def valid(self) -> Interactions:
        """The truth that choices are made on."""
        return self.data.where(self.in_valid)

    @cached_property
    def train_valid(self) -> Interactions:
        """Everything before the test: what the final model learns from."""
        return self.data.where(self.in_train_valid)

    @cached_property
    def test(self) -> Interactions:
        """The truth that is looked at once."""
        return self.data.where(self.in_test)

    def __repr__(self) -> str:
        return (
            f"Split(train {self.train.n_rows:,} rows, valid {self.valid.n_rows:,} rows of "
            f"{self.valid.active_users.size:,} users, test {self.test.n_rows:,} rows of "
            f"{self.test.active_users.size:,} users, {self.dropped:,} users without history not tested)"
        )


def last_basket(data: Interactions | Any) -> Split:
    """Test on each user's last basket; users with one basket stay in training and are not tested."""
    data = _ordered(data, "last_basket")

    def last(part: Interactions) -> tuple[Bools, int]:
        n_baskets = np.diff(part.user_baskets)
        tested = n_baskets >= 2
        final = np.zeros(part.n_baskets, np.bool_)
        final[part.user_baskets[1:][tested] - 1] = True
        return np.repeat(final, np.diff(part.baskets)), int((n_baskets == 1).sum())

    return _twice(data, last, "users with at least two baskets")


def last_items(data: Interactions | Any, n: int = 1) -> Split:
    """Test on each user's last `n` rows; users with `n` rows or fewer stay in training and are not tested."""
    data = _ordered(data, "last_items")
    if n < 1:
        raise ConfigError(f"n must be at least 1, got {n}; pass how many last items to test on.")

    def last(part: Interactions) -> tuple[Bools, int]:
        lengths = np.diff(part.indptr)
        from_end = np.repeat(part.indptr[1:], lengths) - np.arange(part.n_rows)
        return (from_end <= n) & np.repeat(lengths > n, lengths), int(((lengths > 0) & (lengths <= n)).sum())

    return _twice(data, last, f"users with more than {n} rows")


def by_time(
    data: Interactions | Any,
    cut: datetime | date | str | float,
    valid_cut: datetime | date | str | float | None = None,
) -> Split:
    """Test on what happens at or after `cut`; validate on what happens from `valid_cut` until then.

    Numbers are epoch seconds. Without `valid_cut`, validation spans as long before the cut as the test does
    after it, but at most half of the time before the cut, so that training is never empty.
    """
    data = Interactions.of(data)
    if data.time is None or not data.n_rows:
        raise DataError(
            "by_time needs timestamps, got no rows that have them; name the timestamp column when reading."
        )
    moment = _micros(cut)
    first, last = int(data.time.min()), int(data.time.max())
    half = max(first + 1, (first + moment) // 2)
    earlier = max(moment - (last + 1 - moment), half) if valid_cut is None else _micros(valid_cut)
    if not first < moment <= last:
        raise DataError(
            f"cut must lie within the data ({_show(first)} to {_show(last)}), got {_show(moment)}; "
            "choose a moment inside."
        )
    if valid_cut is not None and not first < earlier < moment:
        raise ConfigError(
            f"valid_cut must lie between the first event and the cut, got {_show(earlier)}; move it."
        )
    before = data.time < moment
    in_train = data.time < earlier
    in_valid = before & ~in_train & _with_rows(data, in_train)
    in_test = ~before & _with_rows(data, before)
    if not in_test.any():
        raise DataError(
            "the test set is empty: nobody has events on both sides of the cut; choose another cut."
        )
    dropped = np.unique(data.user[~before & ~in_test]).size
    return Split(data, in_train, in_valid, before, in_test, dropped)


def _with_rows(data: Interactions, among: Bools) -> Bools:
    """(n_rows,) whether the row's user has a row among the marked ones."""
    known = np.zeros(data.n_users, np.bool_)
    known[data.user[among]] = True
    return known[data.user]


def _twice(data: Interactions, last: Callable[[Interactions], tuple[Bools, int]], who: str) -> Split:
    """Cut the test, then cut the validation the same way from what is left."""
    in_test, dropped = last(data)
    if not in_test.any():
        raise DataError(f"the test set is empty: there are no {who}; filter less or bring more history.")
    rest = np.flatnonzero(~in_test)
    in_valid = np.zeros(data.n_rows, np.bool_)
    in_valid[rest[last(data.where(~in_test))[0]]] = True
    return Split(data, ~(in_valid | in_test), in_valid, ~in_test, in_test, dropped)


def _ordered(source: Interactions | Any, name: str) -> Interactions:
    data = Interactions.of(source)
    if data.time is None and data.n_baskets == data.active_users.size:
        raise DataError(
            f"{name} needs timestamps or baskets to know what came last, got neither; "
            "name the timestamp or basket column when reading."
        )
    return data


def _micros(moment: datetime | date | str | float) -> int:
    """Microseconds since 1970 UTC; moments without a zone are read as UTC."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise ConfigError(
                f"a moment must be ISO 8601 or epoch seconds, got {moment!r}; write 2001-02-01."
            ) from None
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1e6)
    if isinstance(moment, date):
        return _micros(datetime(moment.year, moment.month, moment.day, tzinfo=UTC))
    if not abs(moment) < 1e11:  # also what NaN fails
        raise ConfigError(
            f"a moment in epoch seconds must be below 1e11, got {moment}; divide milliseconds by 1000."
        )
    return round(moment * 1e6)


def _show(micros: int) -> str:
    return str(np.datetime64(micros, "us").astype("datetime64[s]"))
