"""fit: works on whatever data there is, says what it chose, and never loses to the fixed N of validation."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import shortlist as sl
from shortlist.auto import fit as default
from shortlist.cutoff import FixedN
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import evaluate, fixed_n_curve
from shortlist.models.selection import SelectionReport
from tests.models.cases import bits, checkerboard

DAY = 86_400
QUICK = ("Popularity", "PersonalFrequency", "TIFUKNN", "EASE", "TwoStage")  # nothing to compile twice


@cache
def shoppers(n_users=40):
    """A staple of one's own in every basket, and strays; baskets of two to four."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(n_users):
        for visit in range(5):
            when = (7 * visit + int(rng.integers(3))) * DAY
            strays = rng.permutation(np.arange(20, 40))[: 1 + user % 3]
            rows += [(f"u{user:02}", f"i{i:02}", when) for i in (user % 20, *strays)]
    return Interactions.from_tuples(rows)


@pytest.fixture
def few_rankers(monkeypatch):
    monkeypatch.setattr(default, "RANKERS", QUICK)


@cache
def chosen():
    """One model for the tests that only look, every ranker tried."""
    return sl.fit(shoppers(), budget="quick")


def test_all_rankers_are_tried_and_the_best_is_taken():
    told = chosen().selection_
    assert {row["ranker"] for row in told.rankers} | told.left_out.keys() == set(default.RANKERS)
    scores = [row["f1"] for row in told.rankers]
    assert scores == sorted(scores, reverse=True)
    assert type(chosen()).__name__ == told.rankers[0]["ranker"]
    assert chosen().history.fingerprint == shoppers().fingerprint  # it has learned from everything
    params = {row["ranker"]: row["params"] for row in told.rankers}
    assert params["HRM"]["repeat_decay"] == default.MEMORY  # for people come back to what they took
    assert params["HRM"]["trend_half_life"] == default.TREND  # for it is known when
    worths = {row["decider"]: row["f1"] for row in told.deciders}
    assert told.deciders[0]["f1"] >= worths["fixed N"]


def test_it_says_what_and_why():
    text = str(chosen().selection_)
    for word in ("the last baskets of 40 users", "Popularity", "fixed N", type(chosen()).__name__):
        assert word in text
    console = Console(width=110, record=True, file=None, quiet=False)
    with console.capture() as screen:
        console.print(chosen().selection_)
    assert "F1 at its best N" in screen.get()


def test_lists_end_by_the_decider_unless_somebody_says_otherwise():
    model = chosen()
    asked = model.recommend(["u01", "u02"], cutoff=model.cutoff_)
    assert model.recommend(["u01", "u02"]).items.tolist() == asked.items.tolist()
    assert model.recommend(["u01", "u02"], N=3).lengths.tolist() == [3, 3]
    within = model.recommend(["u01", "u02"], candidates=["i01", "i02", "i25"])
    assert set(within.items.tolist()) <= set(model.items_.lookup(["i01", "i02", "i25"]).tolist())
    assert sl.evaluate(model.recommend(), shoppers()).mean("f1") > 0


def test_every_model_can_be_asked_for_a_moment():
    model = chosen()
    later = model.recommend(["u01"], at="1970-03-01")
    assert len(later["u01"].items) == len(later["u01"].scores)
    plain = sl.Popularity().fit(shoppers())
    asked = plain.recommend(["u01"], N=3, at=shoppers())
    assert asked.items.tolist() == plain.recommend(["u01"], N=3).items.tolist()


def test_saved_and_loaded_it_decides_alike(tmp_path):
    chosen().save(tmp_path / "model")
    back = sl.load_model(tmp_path / "model")
    assert back.selection_ == chosen().selection_
    ours, theirs = chosen().recommend(), back.recommend()
    assert ours.items.tolist() == theirs.items.tolist()
    assert ours.lengths.tolist() == theirs.lengths.tolist()
    assert not back.set_params().fitted()


def test_same_data_and_seed_same_choice(few_rankers):
    one, two = (sl.fit(shoppers(), budget=2, seed=3, n_threads=n) for n in (1, 2))
    assert one.selection_ == two.selection_
    assert bits(one) == bits(two)
    assert one.recommend().items.tolist() == two.recommend().items.tolist()


def test_drawn_settings_are_never_worse_than_the_ranker_as_it_comes(few_rankers):
    plain, searched = (sl.fit(shoppers(), budget=n).selection_ for n in ("quick", "default"))
    before = {row["ranker"]: row["f1"] for row in plain.rankers}
    after = {row["ranker"]: row["f1"] for row in searched.rankers}
    assert all(after[name] >= before[name] for name in before)
    assert sum(after.values()) > sum(before.values())


@pytest.mark.parametrize("ranker", ["Popularity", "PersonalFrequency", "TIFUKNN"])
@pytest.mark.parametrize("data", [shoppers, checkerboard, lambda: shoppers(5)])
def test_never_worse_than_the_best_fixed_n_of_validation(ranker, data):
    history, truth, _ = default.held_back(data(), 0)
    heads = default._best_of(ranker, (history, truth), 1, 0, 1).heads
    choice, _ = default._decide(heads, truth, history)
    ours = evaluate(choice.cutoff.apply(heads, history=history), truth).mean("f1")
    assert ours >= fixed_n_curve(heads, truth, range(1, 51))["f1"].max() - 1e-12


def test_a_decider_that_only_wins_on_halves_is_not_taken(monkeypatch):
    data = shoppers()
    history, truth, _ = default.held_back(data, 0)
    heads = default._best_of("PersonalFrequency", (history, truth), 1, 0, 1).heads
    bad = default.CutoffChoice("bad", FixedN(N=0).fit(heads, truth), {"fixed N": 0.1, "bad": 0.2})
    monkeypatch.setattr(default, "choose_cutoff", lambda *_: bad)
    choice, because = default._decide(heads, truth, history)
    assert choice.name == "fixed N"
    assert because.startswith("fitted on all of validation, ")


# ------------------------------------------------------------------ all sorts of data
def test_without_timestamps_and_baskets(few_rankers):
    data = Interactions.from_csr(shoppers().to_csr())
    model = sl.fit(data, budget="quick")
    assert "drawn at random" in model.selection_.how
    assert model.selection_.left_out["TwoStage"] == "it learns from users who come back"
    assert (model.recommend().lengths > 0).any()


def test_baskets_without_times(few_rankers):
    visit = pl.col("timestamp").cast(pl.String).alias("basket_id")
    data = Interactions.from_frame(shoppers().to_frame().with_columns(visit).drop("timestamp"))
    assert data.time is None
    model = sl.fit(data, budget="quick")
    assert "TwoStage" in {row["ranker"] for row in model.selection_.rankers}
    assert (model.recommend().lengths > 0).any()


def test_users_with_a_single_basket(few_rankers):
    rows = [(f"u{u}", f"i{(u * k) % 11}", 100 * u) for u in range(30) for k in range(1, 6)]
    model = sl.fit(Interactions.from_tuples(rows), budget="quick")
    assert "drawn at random" in model.selection_.how
    assert (model.recommend().lengths > 0).any()


@pytest.mark.parametrize("n_users", [2, 5])
def test_a_handful_of_users(n_users):
    model = sl.fit(shoppers(n_users), budget="quick")
    assert len(model.recommend()) == n_users


def test_without_lightgbm(few_rankers, monkeypatch):
    monkeypatch.setattr(default, "find_spec", lambda name: None)
    model = sl.fit(shoppers(), budget="quick")
    assert "not installed" in model.selection_.left_out["TwoStage"]
    assert (model.recommend().lengths > 0).any()


def test_too_much_for_some_rankers(few_rankers, monkeypatch):
    monkeypatch.setattr(default, "LINEAR_ITEMS", 10)
    monkeypatch.setattr(default, "NEIGHBOUR_USERS", 10)
    left_out = sl.fit(shoppers(), budget="quick").selection_.left_out
    assert left_out == {
        "EASE": "40 items are more than 10",
        "TIFUKNN": "40 users are more than 10",
    }


def test_held_back_rows_leave_every_user_something():
    data = Interactions.from_csr(shoppers().to_csr())
    history, truth, _ = default.held_back(data, 1)
    assert history.n_rows + truth.n_rows == data.n_rows
    assert (np.diff(history.indptr)[np.diff(data.indptr) > 0] > 0).all()
    for user in truth.active_users:
        known, held = (
            set(part.item[part.indptr[user] : part.indptr[user + 1]].tolist()) for part in (history, truth)
        )
        assert not known & held  # an item is held back from a user with all its rows
        assert len(held) == max(1, (len(known) + len(held)) // default.HELD)
    assert (default.held_back(data, 1)[1].item == truth.item).all()
    assert (default.held_back(data, 2)[1].item != truth.item).any()


def test_a_table_is_as_good_as_interactions(monkeypatch):
    monkeypatch.setattr(default, "RANKERS", ("Popularity", "PersonalFrequency"))
    model = sl.fit(shoppers().to_frame().to_pandas(), budget=1)
    assert model.history.fingerprint == shoppers().fingerprint
    assert model.selection_ == sl.fit(shoppers(), budget=1).selection_


# ------------------------------------------------------------------ refusals
def test_what_cannot_be_chosen_on_is_refused():
    with pytest.raises(DataError, match="at least two users with two items each, got 1"):
        sl.fit(Interactions.from_tuples([("a", "x", 0), ("b", "y", 0), ("b", "z", 0)]))
    with pytest.raises(DataError, match=r"interactions must come as .* got ndarray"):
        sl.fit(np.eye(3))
    with pytest.raises(DataError, match="at least one interaction"):
        sl.fit(shoppers().where(np.zeros(shoppers().n_rows, bool)))


@pytest.mark.parametrize("budget", [0, -1, "long", 1.5, True, None])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(ConfigError, match=r"^budget must be quick, default or a number"):
        sl.fit(shoppers(), budget=budget)


def test_rows_stand_in_line():
    told = SelectionReport(
        how="x",
        rankers=[{"ranker": "A", "params": {"k": 1}, "N": 3, "f1": 0.5}],
        deciders=[{"decider": "d", "f1": 1.0}],
    )
    lines = str(told).split("\n")
    assert lines[0] == "A(k=1), cut by d"
    assert len({len(line) for line in lines[3:5]}) == 1
