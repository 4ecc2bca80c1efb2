"""Ragged arrays against lists of Python lists."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.core.ragged import ItemSets, Ragged, no_sets, row_lengths, row_owners, same_sets


@dataclass(frozen=True, eq=False)
class Words(Ragged):
    """Rows of numbers, with a weight per number and a name per row."""

    per_element: ClassVar[tuple[str, ...]] = ("numbers", "weights")
    per_row: ClassVar[tuple[str, ...]] = ("names",)

    indptr: np.ndarray
    numbers: np.ndarray
    weights: np.ndarray | None = None
    names: np.ndarray | None = None
    label: str = ""


ROWS = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6)


def build(rows, label="", first_name=0):
    flat = [number for row in rows for number in row]
    return Words(
        np.cumsum([0, *map(len, rows)]),
        np.array(flat, np.int32),
        np.array(flat, np.float64) / 2,
        first_name + np.arange(len(rows)),
        label,
    )


def to_rows(ragged):
    """The rows, and the names; weights must have stayed with their numbers."""
    assert ragged.weights.tolist() == [number / 2 for number in ragged.numbers.tolist()]
    edges = ragged.indptr.tolist()
    rows = [ragged.numbers[a:b].tolist() for a, b in pairwise(edges)]
    return rows, ragged.names.tolist()


@given(ROWS)
def test_lengths_owners_and_positions(rows):
    ragged = build(rows)
    assert len(ragged) == len(rows)
    assert ragged.lengths.tolist() == row_lengths(ragged.indptr).tolist() == [len(row) for row in rows]
    owners = [number for number, row in enumerate(rows) for _ in row]
    assert ragged.owner.tolist() == row_owners(ragged.indptr).tolist() == owners
    assert ragged.positions.tolist() == [position for row in rows for position in range(len(row))]


@given(ROWS, st.data())
def test_rows_in_any_order(rows, data):
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    assert to_rows(build(rows).take(numbers)) == ([rows[number] for number in numbers], numbers)


@given(ROWS, st.data())
def test_some_elements(rows, data):
    keep = data.draw(st.lists(st.booleans(), min_size=sum(map(len, rows)), max_size=sum(map(len, rows))))
    answers = iter(keep)
    expected = [[number for number in row if next(answers)] for row in rows]
    assert to_rows(build(rows).where(np.array(keep, np.bool_))) == (expected, list(range(len(rows))))


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_joined_parts(parts):
    ragged = [build(rows, f"part {k}", 10 * k) for k, rows in enumerate(parts)]
    names = [10 * k + number for k, rows in enumerate(parts) for number in range(len(rows))]
    joined = Words.concat(ragged)
    assert to_rows(joined) == ([row for rows in parts for row in rows], names)
    assert joined.label == "part 0"


def test_one_part_is_returned_as_it_is():
    part = build([[1], [2, 3]])
    assert Words.concat([part]) is part


def test_a_column_that_a_part_lacks_is_unknown_there():
    plain = Words(np.array([0, 1]), np.array([7], np.int32), None, None)
    weighted = Words(np.array([0, 2]), np.array([8, 9], np.int32), np.array([0.5, 1.0]), None)
    joined = Words.concat([plain, weighted])
    np.testing.assert_array_equal(joined.weights, [np.nan, 0.5, 1.0])
    assert joined.names is None
    assert Words.concat([plain, plain]).weights is None


def test_sets_of_users_in_any_order_and_of_users_without_a_number():
    sets = ItemSets(np.array([0, 2, 2, 3]), np.array([1, 5, 2], np.int32))
    taken = sets.take([2, -1, 0, 2])
    assert [taken.row(k).tolist() for k in range(4)] == [[2], [], [1, 5], [2]]
    assert [sets.part(slice(1, 3)).row(k).tolist() for k in range(2)] == [[], [2]]
    with pytest.raises(ValueError, match="read-only"):
        sets.items[0] = 3


def test_the_same_and_no_items_for_all_users():
    assert [same_sets(np.array([3, 4]), 2).row(k).tolist() for k in range(2)] == [[3, 4], [3, 4]]
    assert no_sets(3).lengths.tolist() == [0, 0, 0]
