"""evaluate_alerts against a case worked by hand."""

import polars as pl
import pytest

from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.evaluation.alerts import evaluate_alerts


def lists(rows):
    return RankedLists.from_frame(pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row"))


def test_two_days_by_hand():
    first = lists([("ann", "a"), ("ann", "b"), ("bob", "a"), ("cleo", None)])
    second = lists([("ann", None), ("bob", "c"), ("cleo", None)])
    truth = [
        Interactions.from_tuples([("ann", "a"), ("ann", "z")]),
        Interactions.from_tuples([("cleo", "c")]),
    ]
    report = evaluate_alerts(zip([first, second], truth, strict=True))
    assert report._asdict() == {
        "n_requests": 6, "messages": 4, "useful": 1, "relevant": 3, "lists": 3, "useless_lists": 2,
        "silent": 3, "right_silences": 2, "f1": pytest.approx((2 / 4 + 0 + 1 + 1 + 0 + 0) / 6),
    }  # fmt: skip
    assert report.useful_share == 0.25


def test_no_days_are_refused():
    with pytest.raises(DataError, match="at least one pair"):
        evaluate_alerts([])
