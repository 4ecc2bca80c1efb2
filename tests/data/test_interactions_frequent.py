"""Filters against a plain implementation."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data.interactions import Interactions, check_trainable
from shortlist.errors import ConfigError, DataError

# a has x three times and z, b has x and y, c has y
ROWS = [
    ("a", "x", 1),
    ("a", "x", 2),
    ("a", "x", 3),
    ("a", "z", 1),
    ("b", "x", 1),
    ("b", "y", 1),
    ("c", "y", 1),
]


def rows(data):
    return sorted(data.to_frame().select("user_id", "item_id").rows())


def test_items_first_then_users_in_one_pass():
    left = Interactions.from_tuples(ROWS).keep_frequent(users_per_item=2, items_per_user=2)
    assert rows(left) == [("a", "x")] * 3 + [
        ("b", "x"),
        ("b", "y"),
    ]  # y has one user left: one pass does not check again
    assert (left.n_users, left.n_items) == (2, 2)


def test_distinct_items_count_once():
    left = Interactions.from_tuples(ROWS).keep_frequent(users_per_item=2, items_per_user=2, count="distinct")
    assert rows(left) == [("b", "x"), ("b", "y")]


def test_core_repeats_until_nothing_changes():
    chain = [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 3), ("c", 1), ("d", 3), ("d", 4)]
    left = Interactions.from_tuples(chain).keep_frequent(users_per_item=2, items_per_user=2, core=True)
    assert rows(left) == [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 1), ("c", 3)]


def test_item_repeated_by_one_user_counts_one_user():
    data = Interactions.from_tuples([("a", "x", t) for t in range(10)] + [("b", "y", 0), ("a", "y", 0)])
    assert data.keep_frequent(users_per_item=2).items.values.to_list() == ["y"]


tables = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=60)


@given(tables, st.integers(0, 3), st.integers(0, 4), st.sampled_from(["rows", "distinct"]))
def test_core_is_the_largest_subset_that_meets_both_minima(table, users, items, count):
    left = set(table)
    while True:  # drop items and users below the minimum until there are none
        n_users = Counter(item for _, item in {row[:2] for row in left})
        kept = {row for row in left if n_users[row[1]] >= users}
        sizes = Counter(user for user, *_ in (kept if count == "rows" else {row[:2] for row in kept}))
        kept = {row for row in kept if sizes[row[0]] >= items}
        if kept == left:
            break
        left = kept
    data = Interactions.from_tuples(table)
    if not left:
        with pytest.raises(DataError, match="the filter must leave some rows"):
            data.keep_frequent(users_per_item=users, items_per_user=items, count=count, core=True)
        return
    result = data.keep_frequent(users_per_item=users, items_per_user=items, count=count, core=True)
    assert rows(result) == sorted(row[:2] for row in left)


def test_error_if_nothing_is_left_states_the_parameters():
    with pytest.raises(DataError, match="got none of 3 users with users_per_item=0, items_per_user=9; lower"):
        Interactions.from_tuples(ROWS).keep_frequent(items_per_user=9)


def test_parameters_are_checked():
    data = Interactions.from_tuples(ROWS)
    with pytest.raises(ConfigError, match="users_per_item must be a whole number of at least 0, got -1"):
        data.keep_frequent(users_per_item=-1)
    with pytest.raises(ConfigError, match="count must be one of rows, distinct, got 'pairs'"):
        data.keep_frequent(count="pairs")


@pytest.mark.parametrize(("table", "what"), [([("a", 1), ("a", 2)], "user"), ([("a", 1), ("b", 1)], "item")])
def test_single_user_or_item_is_rejected(table, what):
    with pytest.raises(DataError, match=f"at least two {what}s, got 1; .*{what}_id"):
        check_trainable(Interactions.from_tuples(table))


def test_two_users_and_items_are_trainable():
    check_trainable(Interactions.from_tuples([("a", 1), ("b", 2)]))
