"""How lists look."""

import numpy as np
import polars as pl
import pytest

from shortlist.cli.lists import as_json, drawn, lengths_drawn, outside_ids
from shortlist.cli.screen import show
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedList, RankedLists
from shortlist.errors import DataError

PAST = Interactions.from_tuples([("a", "i1"), ("a", "i2"), ("b", "i3")])


def one(items, scores, **rest) -> RankedList:
    told = {"probabilities": None, "boundary": None, "reason": "top_n"} | rest
    return RankedList("a", items, np.array(scores, np.float32), **told)


def lists_of(lengths) -> RankedLists:
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    users, items = IdMap.of([f"u{n}" for n in range(len(lengths))]), IdMap.of(["i1"])
    shown = int(indptr[-1])
    return RankedLists(users, items, indptr, np.zeros(shown, np.int32), np.zeros(shown, np.float32))


def printed(capsys, table) -> list[str]:
    show(table)
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_the_line_stands_between_shown_and_withheld(capsys):
    short = one(["i1"], [2.5], boundary=2.0, reason="boundary")
    lines = printed(capsys, drawn(short, one(["i1", "i3"], [2.5, 1.0]), PAST, taken={"i3"}))
    assert lines[0] == "user a: 1 item; the next item scores below this user's boundary"
    shown, line, withheld = lines[-3:]
    assert shown.split() == ["1", "i1", "2.500"]
    assert "the list ends here" in line
    assert line.endswith("2.000")
    assert withheld.split() == ["i3", "✓", "1.000"]


def test_the_boundary_is_not_drawn_where_it_did_not_decide(capsys):
    cut = one(["i1"], [2.5], boundary=2.0, reason="utility")
    assert not any("2.000" in line for line in printed(capsys, drawn(cut, cut, PAST)))


def test_long_lists_are_abridged(capsys):
    lines = printed(capsys, drawn(one(["i1", "i2", "i3"], [3, 2, 1]), one([], []), PAST, most=1))
    assert "… and 2 more" in lines
    assert not any(line.startswith("2 ") for line in lines)


def test_only_some_of_the_withheld_are_shown(capsys):
    lines = printed(capsys, drawn(one(["i1"], [3]), one(["i1", "i2", "i3"], [3, 2, 1]), PAST, withheld=1))
    assert lines[-1].split() == ["i2", "2.000"]


def test_names_stand_for_ids(capsys):
    named = PAST.with_item_names(pl.Series(["i1"]), pl.Series(["[red] apples"]))
    assert as_json(one(["i1", "i2"], [2, 1]), named)["names"] == ["[red] apples", "i2"]
    assert any(
        "[red] apples" in line for line in printed(capsys, drawn(one(["i1"], [1]), one([], []), named))
    )


def test_histogram_counts_every_list_once(capsys):
    lengths = [0, 0, 0, *range(1, 30)]
    lines = printed(capsys, lengths_drawn(lists_of(lengths)))
    assert lines[0].startswith("32 lists, 435 items shown, 91% covered")
    counts = [int(line.split()[1]) for line in lines[3:]]
    assert sum(counts) == 32
    assert lines[3].split()[0].startswith("0")


def test_histogram_of_no_lists(capsys):
    assert printed(capsys, lengths_drawn(lists_of([])))[0].startswith("0 lists")


def test_words_become_integers_where_ids_are():
    assert outside_ids(["7", "12"], IdMap.of([7, 12])) == [7, 12]
    assert outside_ids(["7"], IdMap.of(["7"])) == ["7"]
    with pytest.raises(DataError, match="ids of this model are integers, got 'x'"):
        outside_ids(["x"], IdMap.of([7]))


def test_json_has_plain_values():
    assert as_json(one(["i1"], [2.5], boundary=2.0), PAST) == {
        "user_id": "a",
        "length": 1,
        "boundary": 2.0,
        "reason": "top_n",
        "items": ["i1"],
        "names": None,
        "scores": [2.5],
        "probabilities": None,
    }
