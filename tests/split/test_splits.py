"""Splits: small examples, and properties of every split."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, DataWarning
from shortlist.split import by_time, last_basket, last_items, last_period, random_items

DAY = 86_400
# ann: three baskets (days 1, 2, 4); bob: two (days 1, 3); cat: one (day 2); dan: one, late (day 4)
ROWS = [
    ("ann", "x", 1 * DAY),
    ("ann", "y", 1 * DAY),
    ("ann", "x", 2 * DAY),
    ("ann", "z", 4 * DAY),
    ("ann", "w", 4 * DAY),
    ("bob", "x", 1 * DAY),
    ("bob", "y", 3 * DAY),
    ("cat", "y", 2 * DAY),
    ("dan", "x", 4 * DAY),
]


def data():
    return Interactions.from_tuples(ROWS)


def rows(part):
    """(user_id, item_id, day) of every row."""
    table = part.to_frame()
    days = table["timestamp"].dt.epoch("s") // DAY
    return list(zip(table["user_id"], table["item_id"], days, strict=True))


@pytest.mark.parametrize("cut", [last_basket, last_items, lambda rows: by_time(rows, 3 * DAY)])
def test_tables_are_accepted(cut):
    assert rows(cut(data().to_frame()).test) == rows(cut(data()).test) != []
    with pytest.raises(DataError, match="interactions must be a"):
        cut(ROWS)


def test_last_basket_of_a_small_example():
    split = last_basket(data())
    assert rows(split.test) == [("ann", "w", 4), ("ann", "z", 4), ("bob", "y", 3)]
    assert rows(split.valid) == [("ann", "x", 2)]  # bob has one basket left, which stays in training
    assert rows(split.train) == [
        ("ann", "x", 1),
        ("ann", "y", 1),
        ("bob", "x", 1),
        ("cat", "y", 2),
        ("dan", "x", 4),
    ]
    assert split.dropped == 2  # cat and dan


def test_last_items_of_a_small_example():
    split = last_items(data(), n=2)
    assert rows(split.test) == [("ann", "w", 4), ("ann", "z", 4)]  # bob has only two rows
    assert rows(split.valid) == [("ann", "y", 1), ("ann", "x", 2)]
    assert split.dropped == 3
    assert rows(last_items(data()).test) == [("ann", "z", 4), ("bob", "y", 3)]


def test_by_time_of_a_small_example():
    split = by_time(data(), "1970-01-04")
    assert rows(split.test) == [("ann", "w", 4), ("ann", "z", 4), ("bob", "y", 3)]
    assert rows(split.valid) == [("ann", "x", 2)]  # cat has a row in this period, but no history
    assert rows(split.train) == [("ann", "x", 1), ("ann", "y", 1), ("bob", "x", 1)]
    assert ("cat", "y", 2) in rows(
        split.train_valid
    )  # before the test period, so the final model is trained on it
    assert split.dropped == 1  # dan


@pytest.mark.parametrize(
    "cut",
    [
        3 * DAY,
        3.0 * DAY,
        date(1970, 1, 4),
        datetime(1970, 1, 4),
        datetime(1970, 1, 4, tzinfo=UTC),
        "1970-01-04",
        "1970-01-04T00:00:00+00:00",
        "1970-01-04T01:00:00+01:00",
    ],
)
def test_all_forms_of_one_time_are_equal(cut):
    np.testing.assert_array_equal(by_time(data(), cut).in_test, by_time(data(), "1970-01-04").in_test)


def test_validation_period_is_as_long_as_the_test_period_by_default():
    days = Interactions.from_tuples([("u", f"i{day}", day * DAY) for day in range(10)])
    split = by_time(days, 8 * DAY)  # days 8 and 9: from 8.00 to the last event at 9.00
    assert [day for *_, day in rows(split.test)] == [8, 9]
    assert [day for *_, day in rows(split.valid)] == [7]


def test_long_test_period_leaves_training_rows():
    days = Interactions.from_tuples([("u", f"i{day}", day * DAY) for day in range(10)])
    split = by_time(days, 2 * DAY)
    assert [day for *_, day in rows(split.train)] == [0]
    assert [day for *_, day in rows(split.valid)] == [1]


def test_parts_share_the_id_maps():
    split = last_basket(data())
    for part in (split.train, split.valid, split.train_valid, split.test):
        assert part.users is split.data.users
        assert part.items is split.data.items


def test_repr_of_split():
    assert repr(last_basket(data())) == (
        "Split(train 5 rows, valid 1 rows of 1 users, test 3 rows of 2 users, 2 users not tested)"
    )


TIMELESS = Interactions.from_tuples([("u", "a"), ("u", "b")])


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda: last_basket(TIMELESS), "needs timestamps or baskets"),
        (lambda: last_items(TIMELESS), "needs timestamps or baskets"),
        (lambda: by_time(TIMELESS, 0), "needs timestamps"),
        (lambda: by_time(data().where(np.zeros(9, np.bool_)), 0), "needs timestamps"),
        (lambda: by_time(data(), "1969-01-01"), "within the data"),
        (lambda: by_time(data(), 5 * DAY), "within the data"),
        (
            lambda: by_time(Interactions.from_tuples([("u", "a", 0), ("v", "a", DAY)]), DAY),
            "test set is empty",
        ),
        (
            lambda: last_basket(Interactions.from_tuples([("u", "a", 0), ("v", "a", DAY)])),
            "at least two baskets",
        ),
        (lambda: last_items(data(), n=9), "more than 9 rows"),
    ],
)
def test_data_that_cannot_be_split_is_rejected(cut, message):
    with pytest.raises(DataError, match=message):
        cut()


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda: last_items(data(), n=0), "at least 1, got 0"),
        (lambda: by_time(data(), "soon"), "'soon'"),
        (lambda: by_time(data(), float("nan")), "got nan"),
    ],
)
def test_invalid_parameters_are_rejected(cut, message):
    with pytest.raises(ConfigError, match=message):
        cut()


events = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(1, 12)), min_size=2, max_size=60
)
cuts = st.sampled_from([last_basket, last_items, lambda d: last_items(d, n=3), lambda d: by_time(d, 7)])


@given(events, cuts)
def test_every_split_is_consistent(tuples, cut):
    everything = Interactions.from_tuples(tuples)
    try:
        split = cut(everything)
    except DataError:
        reject()
    np.testing.assert_array_equal(split.in_train_valid & split.in_test, False)
    np.testing.assert_array_equal(split.in_train & split.in_valid, False)
    assert split.in_test.any()
    assert not (~split.in_train_valid & (split.in_train | split.in_valid)).any()
    trained, tested = set(split.train.active_users), set(split.valid.active_users)
    assert tested <= trained
    assert set(split.test.active_users) <= set(split.train_valid.active_users)
    last_seen = dict(
        zip(split.train_valid.user, split.train_valid.time, strict=True)
    )  # times ascend, so the last one is kept
    for user, time in zip(split.test.user, split.test.time, strict=True):
        assert time >= last_seen[user]


@given(events, st.integers(2, 12))
def test_nothing_after_the_cut_is_in_training(tuples, cut):
    everything = Interactions.from_tuples(tuples)
    try:
        split = by_time(everything, cut)
    except DataError:
        reject()
    assert split.train_valid.time.max() < cut * 1_000_000 <= split.test.time.min()
    assert split.train.n_rows > 0
    if split.valid.n_rows:
        assert split.train.time.max() < split.valid.time.min()
    new_users = {u for u, _, t in tuples if t >= cut} - {u for u, _, t in tuples if t < cut}
    assert split.dropped == len(new_users)
    assert (
        split.in_test.sum()
        + split.in_train_valid.sum()
        + sum(everything.users.values[int(user)] in new_users for user in everything.user)
        == everything.n_rows
    )


@given(events)
def test_last_basket_drops_exactly_the_users_of_one_basket(tuples):
    try:
        split = last_basket(Interactions.from_tuples(tuples))
    except DataError:
        reject()
    times_of = {}
    for user, _, time in tuples:
        times_of.setdefault(user, set()).add(time)
    assert split.dropped == sum(len(times) == 1 for times in times_of.values())
    assert split.test.active_users.size == sum(len(times) > 1 for times in times_of.values())


def test_numbers_from_1e11_on_are_milliseconds():
    with pytest.raises(DataError, match="got 1973-03-03T09:46:40"):
        by_time(data(), 1e11)


def test_last_period_holds_out_what_everyone_did():
    split = last_period(data(), "1d")
    assert rows(split.test) == [("ann", "w", 4), ("ann", "z", 4)]  # dan is new
    assert rows(split.valid) == [("bob", "y", 3)]
    assert split.test_users.to_list() == ["ann", "bob", "cat"]  # bob and cat did nothing
    assert split.dropped == 1
    assert split.cuts == (2 * DAY * 10**6 + 1, 3 * DAY * 10**6 + 1)
    assert split.test_at == datetime(1970, 1, 4, 0, 0, 0, 1, tzinfo=UTC)
    assert last_basket(data()).test_users.to_list() == ["ann", "bob"]


@pytest.mark.parametrize(
    ("horizon", "error"), [("2d", DataError), ("soon", ConfigError), ("0d", ConfigError)]
)
def test_last_period_refuses_a_horizon_that_does_not_fit(horizon, error):
    with pytest.raises(error, match="horizon"):
        last_period(data(), horizon)


def test_last_period_needs_times():
    with pytest.raises(DataError, match="last_period needs timestamps"):
        last_period(Interactions.from_tuples([("ann", "x")]))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=2, max_size=60),
    st.integers(2, 6),
    st.integers(0, 3),
)
def test_random_items_holds_out_one_in_so_many_of_each_user(tuples, one_in, seed):
    everything = Interactions.from_tuples(tuples)
    try:
        split = random_items(everything, one_in=one_in, seed=seed)
    except DataError:
        assert all(len({item for user, item in tuples if user == each}) == 1 for each, _ in tuples)
        return
    assert split.is_random
    assert split.test_at is None
    for kept, held in (split.train_valid, split.test), (split.train, split.valid):
        for user in range(everything.n_users):
            kept_items, held_items = (set(rows.item[rows.user == user]) for rows in (kept, held))
            n = len(kept_items) + len(held_items)
            assert not kept_items & held_items
            assert len(held_items) == (max(1, n // one_in) if n > 1 else 0)


def test_random_items_depend_on_the_seed_alone():
    matrix = Interactions.from_tuples([(user, item) for user in range(9) for item in range(9)])
    first, again, other = (random_items(matrix, seed=seed).in_test for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_random_items_with_times_are_not_requested_for_a_time():
    with pytest.warns(DataWarning, match="such repeats"):
        assert random_items(data()).test_at is None


def test_random_items_of_data_with_repeats_warn():
    with pytest.warns(DataWarning, match="these data have such repeats; use sl.split.last_basket"):
        random_items(sl.load_dataset("sample"))


def at_microseconds(*times):
    """One user with an event at each of these microseconds of 2024."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    stamps = [start + timedelta(microseconds=time) for time in times]
    return pl.DataFrame({"user": ["ann"] * len(times), "item": [f"i{t}" for t in times], "timestamp": stamps})


def test_validation_is_as_long_as_the_test_to_the_microsecond():
    cut = datetime(2024, 1, 1, 0, 0, 0, 8, tzinfo=UTC)
    split = by_time(at_microseconds(0, 4, 5, 7, 8, 10), cut)
    parts = [part.to_frame()["item_id"].to_list() for part in (split.train, split.valid, split.test)]
    assert parts == [["i0", "i4"], ["i5", "i7"], ["i8", "i10"]]


def test_the_first_event_is_always_for_training():
    split = by_time(at_microseconds(0, 1), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    assert split.train.n_rows == 1
