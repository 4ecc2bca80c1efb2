"""The report of an allocation: its sentence, its figures against counts by hand, and its command."""

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.reports.allocation_page import (
    RealOutcome,
    allocation_headline,
    list_strategies,
    most_often_bought,
    render_allocation_report,
)

TABLE = pl.DataFrame(
    {
        "user": ["ann", "ann", "bob", "bob"],
        "item": ["tea", "milk", "tea", "milk"],
        "probability": [0.5, 0.4, 0.1, 0.1],
    }
)
TRUTH = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("eve", "tea")])


def measure(allocation):
    return RealOutcome.measure(allocation, TRUTH, list_strategies(allocation, None))


def headline(allocation, truth=None, history=None):
    ways = list_strategies(allocation, history)
    real = None if truth is None else RealOutcome.measure(allocation, truth, ways)
    return allocation_headline(allocation, ways, real)


def test_the_sentence_compares_with_the_same_total():
    assert headline(sl.allocate(TABLE, budget=2)) == (
        "Expected: the same 2 items reach 50% more purchases than 1 for everyone."
    )
    money = sl.allocate(TABLE, budget=2, gain=2.0, cost=0.1)
    assert (
        headline(money) == "Expected: the same 2 items earn 60% more than 1 for everyone."
    )  # 1.6 against 1.0
    assert "No item" in headline(sl.allocate(TABLE, budget=0))
    scarce = sl.allocate(TABLE, budget=2, item_limits={"tea": 0})
    assert "fewer purchases" in headline(scarce)


def test_the_sentence_is_about_what_happened_if_that_is_known():
    allocation = sl.allocate(TABLE, budget=2)
    assert headline(allocation, TRUTH) == (
        "Measured: the same 2 items reached 100% more purchases than 1 for everyone (expected: 50% more "
        "purchases than 1 for everyone)."
    )
    nobody = sl.Interactions.from_tuples([("ann", "jam"), ("bob", "jam")])
    money = sl.allocate(TABLE, budget=2, gain=2.0, cost=0.5)
    assert headline(money, nobody) == (
        "Measured: the same 2 items earned -1 instead of -1 with 1 for everyone (expected: 300% more than 1 "
        "for everyone)."
    )


def test_real_outcomes_by_hand():
    real = measure(sl.allocate(TABLE, budget=2, gain=2.0, cost=0.1))
    ours, same = real.outcomes
    assert (ours.hits, same.hits, real.n_active) == (2.0, 1.0, 1)
    assert (ours.value, same.value) == (pytest.approx(3.8), pytest.approx(1.8))
    half = measure(sl.allocate(TABLE, budget=3))  # 1.5 for everyone
    assert [outcome.hits for outcome in half.outcomes] == [2.0, 1.5]


HISTORY = sl.Interactions.from_frame(
    pl.DataFrame(
        {
            "user": ["bob", "bob", "bob", "ann", "ann", "eve"],
            "item": ["tea", "tea", "milk", "milk", "milk", "tea"],
            "timestamp": [1, 2, 9, 3, 4, 9],
        }
    ).with_columns(pl.col("timestamp") * 86_400)
)


def test_most_often_bought_and_latest_first_is_the_same_volume():
    allocation = sl.allocate(TABLE, budget=3)
    often = most_often_bought(allocation, HISTORY)
    assert [(one.user_id, one.items) for one in often] == [("ann", ["milk"]), ("bob", ["tea", "milk"])]
    assert often.probabilities.tolist() == [0.4, 0.1, 0.1]
    one = sl.allocate(TABLE, contacts=1, max_items=2)
    assert [(one.user_id, one.items) for one in most_often_bought(one, HISTORY)] == [("ann", ["milk"])]
    assert headline(allocation, history=HISTORY) == (
        "Expected: the same 3 items reach 18% more purchases than 1.5 for everyone and 67% more purchases "
        "than what was bought most often, latest first."
    )


@pytest.mark.parametrize(
    "limits", [{}, {"max_items": 1}, {"item_limits": 1}, {"cost": 0.2, "contact_cost": 0.1}]
)
def test_the_page_has_every_part(limits):
    allocation = sl.allocate(TABLE, budget=3, **limits)
    page = render_allocation_report(
        allocation, "<shop>", list_strategies(allocation, None), measure(allocation)
    )
    assert "&lt;shop&gt;" in page
    assert "<script" not in page
    assert page.count('<svg class="chart"') == (3 if "cost" in limits else 2)
    assert "measured purchases" in page
    assert ("Scarce items" in page) == ("item_limits" in limits)
    assert ("length of a list" in page) == ("max_items" in limits)


def test_the_command_writes_lists_and_report_or_nothing(tmp_path, capsys):
    split = sl.split.last_basket(sl.load_dataset("sample"))
    cutoff = sl.cutoff.ExpectedValue(cost=0.1)
    model = sl.fit(split.train_valid, models="PersonalFrequency", cutoff=cutoff, users="buyers")
    file, out, report = model.save(tmp_path / "m.shortlist"), tmp_path / "o.parquet", tmp_path / "o.html"
    test = tmp_path / "test.parquet"
    split.test.to_frame().write_parquet(test)
    wrong = ["allocate", str(file), "--budget", "300", "--out", str(out), "--report"]
    assert main([*wrong, str(tmp_path / "o.txt")]) == 2
    assert main([*wrong, str(report), "--gain", "margin"]) == 2
    assert not out.exists()
    assert not report.exists()
    capsys.readouterr()
    assert main([*wrong, str(report), "--test", str(test)]) == 0
    headline, *notes = capsys.readouterr().out.splitlines()[1:4]
    assert headline.startswith("Measured: the same 300 items reached ")
    assert "for everyone and " in headline
    assert [note.split()[1] for note in notes] == ["--gain", "--cost"]
    lists = sl.RankedLists.read(out)
    assert lists.items.size == 300
    truth = split.test.to_frame()
    pairs = set(zip(truth["user_id"], truth["item_id"], strict=True))
    hits = sum((one.user_id, item) in pairs for one in lists for item in one.items)
    assert f"<td>{hits:,.1f}</td>" in report.read_text()
