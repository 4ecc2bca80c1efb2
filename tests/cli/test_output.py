"""Tables of lists."""

import numpy as np
import polars as pl
import pytest

from shortlist.cli.output import (
    describe_empty,
    lengths_table,
    list_as_json,
    list_table,
    parse_words,
    plain_value,
    rows_of,
    show,
)
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedList, RankedLists
from shortlist.errors import DataError

DATA = Interactions.from_tuples([("a", "i1"), ("a", "i2"), ("b", "i3")])


def one(items, scores, **rest) -> RankedList:
    defaults = {"probabilities": None, "boundary": None, "reason": "top_n"} | rest
    return RankedList("a", items, np.array(scores, np.float32), **defaults)


def lists_of(lengths) -> RankedLists:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    users, items = IdMap.of([f"u{n}" for n in range(len(lengths))]), IdMap.of(["i1"])
    shown = int(indptr[-1])
    return RankedLists(users, items, indptr, np.zeros(shown, np.int32), np.zeros(shown, np.float32))


def printed(capsys, table) -> list[str]:
    show(table)
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_line_separates_the_list_from_the_next_candidates(capsys):
    short = one(["i1"], [2.5], boundary=2.0, reason="boundary")
    lines = printed(capsys, list_table(short, rows_of(one(["i1", "i3"], [2.5, 1.0])), DATA, relevant={"i3"}))
    assert lines[:2] == ["user a: 1 item", "the next item scores below this user's boundary"]
    shown, line, next_candidate = lines[-3:]
    assert shown.split() == ["1", "i1", "2.500"]
    assert "the list ends here" in line
    assert line.endswith("2.000")
    assert next_candidate.split() == ["i3", "✓", "1.000"]


def test_boundary_is_shown_only_if_it_ended_the_list(capsys):
    cut = one(["i1"], [2.5], boundary=2.0, reason="utility")
    assert not any("2.000" in line for line in printed(capsys, list_table(cut, rows_of(cut), DATA)))


def test_long_lists_are_shortened(capsys):
    lines = printed(capsys, list_table(one(["i1", "i2", "i3"], [3, 2, 1]), [], DATA, max_rows=1))
    assert "… and 2 more" in lines
    assert not any(line.startswith("2 ") for line in lines)


def test_next_candidates_are_limited(capsys):
    lines = printed(
        capsys,
        list_table(one(["i1"], [3]), rows_of(one(["i1", "i2", "i3"], [3, 2, 1])), DATA, max_withheld=1),
    )
    assert lines[-1].split() == ["i2", "2.000"]


def test_item_names_replace_ids(capsys):
    named = DATA.with_item_names(pl.Series(["i1"]), pl.Series(["[red] apples"]))
    assert list_as_json(one(["i1", "i2"], [2, 1]), named)["names"] == ["[red] apples", "i2"]
    assert any("[red] apples" in line for line in printed(capsys, list_table(one(["i1"], [1]), [], named)))


def test_histogram_counts_every_list_once(capsys):
    lengths = [0, 0, 0, *range(1, 30)]
    lines = printed(capsys, lengths_table(lists_of(lengths)))
    assert lines[0].startswith("32 lists, 435 items in total, coverage 91%")
    counts = [int(line.split()[1]) for line in lines[3:]]
    assert sum(counts) == 32
    assert lines[3].split()[0].startswith("0")


def test_histogram_of_no_lists(capsys):
    assert printed(capsys, lengths_table(lists_of([])))[0].startswith("0 lists")


def test_ids_become_integers_if_the_model_has_integer_ids():
    assert parse_words(["7", "12"], IdMap.of([7, 12])) == [7, 12]
    assert parse_words(["7"], IdMap.of(["7"])) == ["7"]
    with pytest.raises(DataError, match="the ids of this model are integers, got 'x'"):
        parse_words(["x"], IdMap.of([7]))


def test_json_has_plain_values():
    assert list_as_json(one(["i1"], [2.5], boundary=2.0), DATA) == {
        "user_id": "a",
        "length": 1,
        "boundary": 2.0,
        "reason": "top_n",
        "items": ["i1"],
        "names": None,
        "scores": [2.5],
        "probabilities": None,
    }


def test_arrays_are_described_by_their_shape():
    assert plain_value(np.zeros((2000, 7), np.float32)) == "array 2,000 × 7, float32"
    assert plain_value((np.zeros(3), np.zeros((4, 5)))) == "array 3, float64, array 4 × 5, float64"
    assert plain_value((1, 2)) == (1, 2)


def test_a_sample_of_users_is_named_as_such():
    assert describe_empty({}, 2000, 2971) == "checked on the first 2,000 of 2,971 users: 2,000 get a list"
    assert describe_empty({"below_floor": 1}, 3, 3).startswith("2 of 3 users get a list; 1 get none: 1 below")
