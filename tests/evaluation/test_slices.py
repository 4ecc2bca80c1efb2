"""Slices: by hand, and they add up."""

import numpy as np
import pytest
from hypothesis import assume, given

from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import evaluate, sliced
from tests.evaluation import cases
from tests.evaluation.cases import LISTS, TRUTH, interactions

HISTORY = {"ann": list("abcde"), "bob": ["a"], "eve": ["a", "b"]}


def test_users_by_what_they_took():
    table = sliced(evaluate(LISTS, interactions(TRUTH)), "basket_size")
    assert table.select("slice", "users", "cover_ratio").rows() == [("1", 1, 1), ("2", 2, 0), ("3–5", 1, 1)]
    assert table["f1"].to_list() == pytest.approx([1, 0, 4 / 7])
    assert table["length"].to_list() == [1, 0, 4]


def test_users_by_what_they_took_before():
    table = sliced(evaluate(LISTS, interactions(TRUTH), history=interactions(HISTORY)), "history_length")
    assert table.select("slice", "users").rows() == [("0", 2), ("1–4", 1), ("5–9", 1)]
    assert table["hits"].to_list() == [0, 1, 2]


def test_items_from_popular_to_rare():
    table = sliced(evaluate(LISTS, interactions(TRUTH), history=interactions(HISTORY)), "popularity")
    # a 3, b 2, c d e 1 each, of 8 in all; an item is where it starts: a 0, b 3/8, c 5/8, d 6/8, e 7/8
    assert table.select("slice", "items", "shown", "hits", "taken").rows() == [
        ("0–20% of history", 1, 2, 2, 3),
        ("20–40% of history", 1, 1, 1, 2),
        ("60–80% of history", 2, 0, 0, 2),
        ("80–100% of history", 1, 0, 0, 1),
    ]
    assert table["items_shown"].to_list() == [1, 1, 0, 0]
    assert table["recall"].to_list() == pytest.approx([2 / 3, 1 / 2, 0, 0])


@given(cases.shown, cases.truths, cases.truths)
def test_slices_add_up(shown, taken, before):
    assume(not shown or shown.keys() & taken.keys())
    report = evaluate(shown, interactions(taken), history=interactions(before))
    for by in ("basket_size", "history_length"):
        table = sliced(report, by)
        assert table["users"].sum() == report.n_users
        for name in ("f1", "ndcg", "hits"):
            assert np.dot(table["users"], table[name]) == pytest.approx(report.values(name).sum())
    table = sliced(report, "popularity")
    assert table["items"].sum() == len(report.items.ids)
    assert table["hits"].sum() == report.hits.sum()
    assert table["taken"].sum() == report.sizes.sum()


def test_refusals():
    report = evaluate(LISTS, interactions(TRUTH))
    for by in ("history_length", "popularity"):
        with pytest.raises(DataError, match="history="):
            sliced(report, by)
    with pytest.raises(ConfigError, match="'age'"):
        sliced(report, "age")
