"""The report of an allocation: its sentence, its figures against counts by hand, and its command."""

import polars as pl
import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.reports.allocation_page import RealOutcome, allocation_headline, render_allocation_report

TABLE = pl.DataFrame(
    {
        "user": ["ann", "ann", "bob", "bob"],
        "item": ["tea", "milk", "tea", "milk"],
        "probability": [0.5, 0.4, 0.1, 0.1],
    }
)
TRUTH = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("eve", "tea")])


def test_the_sentence_compares_with_the_same_total():
    assert allocation_headline(sl.allocate(TABLE, budget=2)) == (
        "The same 2 items reach 50% more purchases than 1 for everyone."
    )
    money = sl.allocate(TABLE, budget=2, gain=2.0, cost=0.1)
    assert (
        allocation_headline(money) == "The same 2 items earn 60% more than 1 for everyone."
    )  # 1.6 against 1.0
    assert "No item" in allocation_headline(sl.allocate(TABLE, budget=0))
    scarce = sl.allocate(TABLE, budget=2, item_limits={"tea": 0})
    assert "fewer purchases" in allocation_headline(scarce)


def test_the_sentence_is_about_what_happened_if_that_is_known():
    allocation = sl.allocate(TABLE, budget=2)
    assert allocation_headline(allocation, RealOutcome.measure(allocation, TRUTH)) == (
        "The same 2 items reached 100% more purchases than 1 for everyone (expected: 50% more purchases)."
    )
    nobody = sl.Interactions.from_tuples([("ann", "jam"), ("bob", "jam")])
    money = sl.allocate(TABLE, budget=2, gain=2.0, cost=0.5)
    assert allocation_headline(money, RealOutcome.measure(money, nobody)) == (
        "The same 2 items earned -1 instead of -1 with 1 for everyone (expected: 300% more)."
    )


def test_real_outcomes_by_hand():
    real = RealOutcome.measure(sl.allocate(TABLE, budget=2, gain=2.0, cost=0.1), TRUTH)
    assert (real.hits, real.hits_same, real.n_active) == (2.0, 1.0, 1)
    assert (real.value, real.value_same) == (pytest.approx(3.8), pytest.approx(1.8))
    half = RealOutcome.measure(sl.allocate(TABLE, budget=3), TRUTH)  # 1.5 for everyone
    assert (half.hits, half.hits_same) == (2.0, 1.5)


@pytest.mark.parametrize(
    "limits", [{}, {"max_items": 1}, {"item_limits": 1}, {"cost": 0.2, "contact_cost": 0.1}]
)
def test_the_page_has_every_part(limits):
    allocation = sl.allocate(TABLE, budget=2, **limits)
    page = render_allocation_report(allocation, "<shop>", RealOutcome.measure(allocation, TRUTH))
    assert "&lt;shop&gt;" in page
    assert "<script" not in page
    assert page.count('<svg class="chart"') == (3 if "cost" in limits else 2)
    assert "Expected and real" in page
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
    real, expected = capsys.readouterr().out.splitlines()[1:3]
    assert real.startswith("Real: ")
    assert expected.startswith("Expected: ")
    assert "for everyone, the same total" in real
    lists = sl.RankedLists.read(out)
    assert lists.items.size == 300
    truth = split.test.to_frame()
    pairs = set(zip(truth["user_id"], truth["item_id"], strict=True))
    hits = sum((one.user_id, item) in pairs for one in lists for item in one.items)
    assert f"<strong>{hits:,}</strong>" in report.read_text()
