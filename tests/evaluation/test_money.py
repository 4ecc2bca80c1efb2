"""Money: what lists earn, against cases worked by hand."""

import json

import numpy as np
import pytest

import shortlist as sl
from shortlist.core.metrics import Money
from shortlist.cutoff import FixedN, Threshold
from shortlist.errors import ConfigError
from shortlist.evaluation import best_fixed_n, fixed_n_curve

TRUTH = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
LISTS = {"ann": ["tea", "rice", "milk"], "bob": ["salt"], "cat": ["tea", "jam"]}


def test_value_of_each_list():
    report = sl.evaluate(LISTS, TRUTH, gain=1.5, cost=0.25)
    assert report.values("value").tolist() == [1.5 - 0.25 + 1.5, -0.25]
    assert report.metrics[0] == "value"  # money comes first


def test_users_who_take_nothing_cost():
    report = sl.evaluate(LISTS, TRUTH, users=["cat", "dan"], gain=1.5, cost=0.25)
    assert dict(zip(report.user_ids, report.values("value"), strict=True)) == {
        "ann": 2.75,
        "bob": -0.25,
        "cat": -0.5,
        "dan": 0.0,
    }
    assert report.values("f1").tolist()[2:] == [0, 0]


def test_everyone_is_everyone_with_a_list_or_a_history():
    assert sl.evaluate(LISTS, TRUTH, users="everyone").n_users == 3
    history = sl.Interactions.from_tuples([("ann", "tea"), ("eve", "tea")])
    assert sl.evaluate(LISTS, TRUTH, users="everyone", history=history).user_ids.to_list() == [
        "ann",
        "bob",
        "eve",
    ]
    with pytest.raises(ConfigError, match=r"users must be ids or 'everyone'.*'all'"):
        sl.evaluate(LISTS, TRUTH, users="all")
    with pytest.raises(ConfigError, match=r"everyone.*in one piece.*pass history"):
        sl.evaluate([LISTS], TRUTH, users="everyone")


def test_report_says_what_was_earned():
    report = sl.evaluate(LISTS, TRUTH, gain=1.5, cost=0.25)
    test = report.test("value")
    assert test.difference == 1.25
    assert test.low < 1.25 < test.high
    assert "earned per 1,000 users: 1,250.0" in str(report)
    assert repr(report).startswith("Report(2 users, 1,250.0 earned per 1,000 users")
    money = report.to_dict()["money"]
    assert money["per_1000_users"] == 1250
    assert (money["gain"], money["cost"]) == (1.5, 0.25)
    assert "money" not in sl.evaluate(LISTS, TRUTH).to_dict()
    assert sl.evaluate(LISTS, TRUTH).hits_per_100 == 50


def test_test_against_another_report():
    one = sl.evaluate(LISTS, TRUTH, gain=1, cost=1)
    other = sl.evaluate({"ann": ["tea"]}, TRUTH, gain=1, cost=1)
    assert one.test("value", other).difference == pytest.approx((1 - 1) / 2 - 1 / 2)


def test_comparison_is_about_money():
    found = sl.compare({"one": {"ann": ["tea"]}, "all": LISTS}, TRUTH, gain=1, cost=0.5, resamples=200)
    assert found.metrics == ("value", "f1")
    assert found.table["earned per 1,000 users"].to_list() == [500, 500]
    assert "earned per 1,000 users" in str(found)
    assert "difference in earned per 1,000 users" in found.to_markdown()
    row = json.loads(found.to_json())["tests"][0]
    assert (row["metric"], row["difference"]) == ("value", 0)
    assert "earned per 1,000 users" in found.plot()._repr_svg_()


def test_comparison_of_everyone():
    found = sl.compare({"one": {"ann": ["tea"]}, "all": LISTS}, TRUTH, users="everyone", gain=1, cost=0.5)
    assert found.reports["one"][0].n_users == 3
    assert found.table["earned per 1,000 users"].to_list() == pytest.approx([1000 / 3, 0])


@pytest.mark.parametrize(
    ("gain", "cost", "name"),
    [
        (1, None, "cost"),
        (None, 1, "gain"),
        (0, 1, "gain"),
        (1, -1, "cost"),
        (np.nan, 1, "gain"),
        ("1", 1, "gain"),
    ],
)
def test_bad_money_is_refused(gain, cost, name):
    with pytest.raises(ConfigError, match=name) as caught:
        sl.evaluate(LISTS, TRUTH, gain=gain, cost=cost)
    assert caught.value.parameter == name
    with pytest.raises(ConfigError, match=name):
        sl.compare({"one": LISTS}, TRUTH, gain=gain, cost=cost)


def test_curve_of_every_fixed_length():
    curve = fixed_n_curve(LISTS, TRUTH, [1, 2, 3], gain=1, cost=0.5)
    assert curve["value"].to_list() == [(1 - 0.5) / 2, (0.5 - 0.5) / 2, (1.5 - 0.5) / 2]
    assert best_fixed_n(curve, "value") == 3
    everyone = fixed_n_curve(LISTS, TRUTH, [1, 2, 3], users=["cat"], gain=1, cost=0.5)
    assert everyone["value"].to_list() == pytest.approx([(1 - 0.5 - 0.5) / 3, (0.5 - 0.5 - 1) / 3, 0 / 3])
    assert "value" not in fixed_n_curve(LISTS, TRUTH, [1]).columns


def test_nothing_for_everyone_is_best_if_every_length_loses():
    curve = fixed_n_curve(LISTS, TRUTH, [1, 2, 3], gain=1, cost=9)
    assert best_fixed_n(curve, "value") == 0
    scores = np.array([[0.9, 0.8], [0.7, 0.1]])
    truth = sl.Interactions.from_tuples([(0, 1), (1, 0)])
    assert FixedN(target="value", gain=1, cost=9).fit(scores, truth).N_ == 0
    assert FixedN(target="value", gain=1, cost=0.1).fit(scores, truth).N_ == 2
    threshold = Threshold(target="value", gain=1, cost=9).fit(scores, truth)
    assert threshold.lengths(scores).tolist() == [0, 0]


def test_target_and_money_must_agree():
    scores, truth = np.array([[0.9, 0.8]]), sl.Interactions.from_tuples([(0, 0), (0, 1)])
    for kind in (FixedN, Threshold):
        with pytest.raises(ConfigError, match="metric='value' needs what an item earns and costs"):
            kind(target="value").fit(scores, truth)
        with pytest.raises(ConfigError, match="gain and cost belong to target='value', got target='f1'"):
            kind(gain=1, cost=1).fit(scores, truth)


def test_money_in_words():
    assert str(Money(1.5, 0.02)) == "1.5 for an item that is taken, -0.02 for any other shown item"
    assert str(Money(1, 0)) == "1 for an item that is taken, 0 for any other shown item"
