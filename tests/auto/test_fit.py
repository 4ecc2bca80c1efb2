"""sl.fit: handles all kinds of data, reports its choice, and is never worse than the best fixed N."""

from functools import cache

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import shortlist as sl
import shortlist.auto.fit as auto
from shortlist.auto import choice as choosing
from shortlist.auto.choice import choose_jointly
from shortlist.auto.validation import Validation, hold_out, hold_out_by_time
from shortlist.core.metrics import Metric, metrics_to_optimize
from shortlist.cutoff import FixedN
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, DataWarning
from shortlist.evaluation import evaluate, fixed_n_curve
from shortlist.models import ease, tifuknn
from shortlist.models.factorization import hrm
from shortlist.models.selection import SelectionReport
from shortlist.models.two_stage import two_stage
from tests.models.cases import bits, checkerboard
from tests.threads import on_threads

DAY = 86_400
QUICK = ("Popularity", "PersonalFrequency", "TIFUKNN", "EASE", "TwoStage")  # nothing to compile twice


@cache
def shoppers(n_users=40):
    """Baskets of two to four items: one regular item of each user, and random others."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(n_users):
        for visit in range(5):
            when = (7 * visit + int(rng.integers(3))) * DAY
            others = rng.permutation(np.arange(20, 40))[: 1 + user % 3]
            rows += [(f"u{user:02}", f"i{i:02}", when) for i in (user % 20, *others)]
    return Interactions.from_tuples(rows)


@pytest.fixture
def few_models(monkeypatch):
    monkeypatch.setattr(auto, "MODELS", QUICK)


@cache
def fitted():
    """One result for read-only tests, with every model tried."""
    return sl.fit(shoppers(), budget="quick")


def test_all_models_are_tried_and_the_best_is_selected():
    report = fitted().selection_
    assert {row["model"] for row in report.models} | report.skipped.keys() == set(auto.MODELS)
    served = [row.get("served_score", 0) for row in report.models]
    assert max(served) == served[0] == report.cutoffs[0]["score"]
    scores = [row["score"] for row in report.models[1:]]
    assert scores == sorted(scores, reverse=True)
    assert type(fitted()).__name__ == report.models[0]["model"]
    assert fitted().history_.fingerprint == shoppers().fingerprint  # fitted on all data
    params = {row["model"]: row["params"] for row in report.models}
    tried = sl.DKHRM(**params["DKHRM"]).fit(shoppers())
    assert tried.repeat_decay == 0.9  # the data has repeats
    assert tried.trend_half_life == 3.0  # the data has timestamps
    by_cutoff = {row["cutoff"]: row["score"] for row in report.cutoffs}
    assert report.cutoffs[0]["score"] >= by_cutoff["fixed N"]


def test_report_shows_what_was_tried_and_why():
    text = str(fitted().selection_)
    for word in ("the last baskets of 40 users", "Popularity", "fixed N", type(fitted()).__name__):
        assert word in text
    console = Console(width=110, record=True, file=None, quiet=False)
    with console.capture() as screen:
        console.print(fitted().selection_)
    assert "F1 at best N" in screen.get()
    assert fitted().selection_.reason in " ".join(screen.get().split())
    html = fitted().selection_._repr_html_()
    assert html.count("<table") == 2
    assert "the last baskets of 40 users" in html


def test_saved_cutoff_applies_unless_the_request_sets_another():
    model = fitted()
    explicit = model.recommend(["u01", "u02"], cutoff=model.cutoff_)
    assert model.recommend(["u01", "u02"]).items.tolist() == explicit.items.tolist()
    assert model.recommend(["u01", "u02"], N=3).lengths.tolist() == [3, 3]
    within = model.recommend(["u01", "u02"], candidates=["i01", "i02", "i25"])
    assert set(within.items.tolist()) <= set(model.items_.lookup(["i01", "i02", "i25"]).tolist())
    with pytest.warns(DataWarning, match="rows of truth are also in the data"):
        assert sl.evaluate(model.recommend(), shoppers()).mean("f1") > 0


def test_every_model_accepts_a_prediction_time():
    model = fitted()
    later = model.recommend(["u01"], at="1970-03-01")
    assert len(later["u01"].items) == len(later["u01"].scores)
    plain = sl.Popularity().fit(shoppers())
    timed = plain.recommend(["u01"], N=3, at=shoppers())
    assert timed.items.tolist() == plain.recommend(["u01"], N=3).items.tolist()


def test_saved_and_loaded_model_gives_the_same_lists(tmp_path):
    fitted().save(tmp_path / "model")
    back = sl.load_model(tmp_path / "model")
    assert back.selection_ == fitted().selection_
    ours, theirs = fitted().recommend(), back.recommend()
    assert ours.items.tolist() == theirs.items.tolist()
    assert ours.lengths.tolist() == theirs.lengths.tolist()
    assert not back.set_params().is_fitted


def test_same_data_and_seed_give_the_same_choice(few_models):
    one, two = on_threads(1, 2, run=lambda: sl.fit(shoppers(), budget=2, seed=3))
    assert one.selection_ == two.selection_
    assert bits(one) == bits(two)
    assert one.recommend().items.tolist() == two.recommend().items.tolist()


def test_random_settings_are_never_worse_than_the_defaults(few_models, monkeypatch):
    monkeypatch.setattr(choosing, "CLOSE", 0.0)
    plain, searched = (sl.fit(shoppers(), budget=n).selection_ for n in ("quick", "default"))
    before = {row["model"]: row["score"] for row in plain.models}
    after = {row["model"]: row["score"] for row in searched.models}
    assert all(after[name] >= before[name] for name in before)
    assert sum(after.values()) > sum(before.values())


@pytest.mark.parametrize(("share", "n_models"), [(0.95, 1), (0.0, 2), (2.0, 0)])
def test_only_models_close_to_the_best_get_more_settings(monkeypatch, share, n_models):
    """EASE reaches less than half of the F1 of PersonalFrequency here."""
    drawn, draw = [], choosing.draw

    def remember(*arguments):
        drawn.append(draw(*arguments))
        return drawn[-1]

    monkeypatch.setattr(choosing, "draw", remember)
    monkeypatch.setattr(choosing, "CLOSE", share)
    report = sl.fit(shoppers(), models=["PersonalFrequency", "EASE"], budget=3).selection_
    assert len(drawn) == 2 * n_models
    assert [row["model"] for row in report.models] == ["PersonalFrequency", "EASE"]


def validated(name, data):
    return Validation(getattr(sl, name)(), hold_out(data), 50).fit()


@pytest.mark.parametrize("model", ["Popularity", "PersonalFrequency", "TIFUKNN"])
@pytest.mark.parametrize("data", [shoppers, checkerboard, lambda: shoppers(5)])
def test_never_worse_than_the_best_fixed_n_on_validation(model, data):
    found = validated(model, data())
    (history, truth, *_), lists = found.holdout, found.candidates
    cutoff = choose_jointly([found], "auto").served.cutoff.cutoff
    ours = evaluate(cutoff.apply(lists, history=history), truth).mean("f1")
    assert ours >= fixed_n_curve(lists, truth, range(1, 51))["f1"].max() - 1e-12


# ------------------------------------------------------------------ models, metric, cutoff, progress
def test_models_restrict_the_candidates():
    model = sl.fit(shoppers(), models=["Popularity", sl.PersonalFrequency(decay=0.5)], budget=2)
    names = {row["model"]: row["params"] for row in model.selection_.models}
    assert names.keys() == {"Popularity", "PersonalFrequency"}
    assert names["PersonalFrequency"] == {"decay": 0.5}  # a model is tried as it was configured
    assert model.selection_.skipped == {}


def test_configured_model_gives_the_lists_of_its_own_steps():
    """One model and one cutoff: hold out, fit, fit the cutoff, refit, by hand."""
    data, model = shoppers(), sl.BPRMF(n_factors=4, n_epochs=6, seed=5)
    ours = sl.fit(data, models=model, cutoff=sl.cutoff.ExpectedF1())
    split = sl.split.last_basket(data)
    before = model.clone().fit(split.train_valid, valid=split.test)
    users = split.test.users.to_ids(split.test.active_users)
    lists = before.recommend(users, N=100, at=split.test)
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.test, history=split.train_valid)
    after = model.clone().set_params(n_epochs=before.n_epochs_).fit(data)
    expected = after.recommend(cutoff=cutoff)
    found = ours.recommend()
    assert found.items.tolist() == expected.items.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()
    assert ours.selection_.models[0]["params"] == {
        "n_factors": 4, "seed": 5, "n_epochs": before.n_epochs_
    }  # fmt: skip
    assert ours.selection_.reason.startswith("not compared with other cutoffs")


def test_unfitted_arguments_stay_unfitted():
    model, cutoff = sl.Popularity(), sl.cutoff.FixedN()
    sl.fit(shoppers(), models=model, cutoff=cutoff)
    assert not model.is_fitted
    assert not cutoff.fitted()


def test_no_cutoff_leaves_the_boundary_in_force():
    model = sl.fit(shoppers(), models=sl.DKBPRMF(n_factors=4, n_epochs=60, lr=0.2, negatives=1), cutoff=None)
    assert model.cutoff_ is None
    reasons = {one.reason for one in model.recommend()}
    assert reasons <= {"utility", "all_candidates"}


def test_metric_selects_model_and_cutoff():
    model = sl.fit(shoppers(), models=["Popularity", "PersonalFrequency"], metric="ndcg", budget="quick")
    found = validated("PersonalFrequency", shoppers())
    rows = {row["model"]: row for row in model.selection_.models}
    assert rows["PersonalFrequency"]["score"] == found.curve["ndcg"].max()
    assert "NDCG at best N" in str(model.selection_)
    assert any("expected NDCG" in row["cutoff"] for row in model.selection_.cutoffs)


@pytest.mark.parametrize("metric", metrics_to_optimize())
def test_the_served_n_is_the_reported_one(metric):
    """The length that is served, its score in the report, and that of `evaluate`."""
    data = sl.load_dataset("sample")
    money = {"gain": 1.0, "cost": 0.2} if Metric.registry[metric].needs_money else {}
    fixed = FixedN(target=metric, n_candidates=50, **money)
    given = {"models": "PersonalFrequency", "budget": "quick", "metric": metric, "cutoff": fixed, **money}
    model = sl.fit(data, users="buyers", **given)
    row, truth = model.selection_.models[0], hold_out(data).truth
    assert row["N"] == model.cutoff_.N_
    assert set(model.recommend(["u1", "u2", "u3"]).lengths.tolist()) == {row["N"]}
    lists = sl.PersonalFrequency().fit(hold_out(data).history)
    shown = lists.recommend(truth.users.to_ids(truth.active_users), N=row["N"], at=truth)
    assert evaluate(shown, truth, **money).mean(metric) == pytest.approx(row["score"])
    assert row["served_score"] == pytest.approx(row["score"])


def test_seen_items_can_be_excluded_from_validation():
    models = {"models": sl.PersonalFrequency(), "cutoff": sl.cutoff.FixedN()}
    kept, dropped = (sl.fit(shoppers(), filter_seen=seen, **models).selection_ for seen in (False, True))
    assert kept.models[0]["score"] > dropped.models[0]["score"]


def test_progress_receives_one_line_per_step(capsys):
    lines = []
    sl.fit(shoppers(), models=["Popularity", "PersonalFrequency"], budget=1, progress=lines.append)
    assert lines[0] == "validation: the last baskets of 40 users"
    assert lines[1].startswith("Popularity: F1 0.")
    assert lines[2].startswith("PersonalFrequency: F1 0.")
    assert lines[3].startswith("cutoff: ")
    assert lines[4].startswith("F1 on users that took no part in choosing: 0.")
    assert len(lines) == 5
    sl.fit(shoppers(), models="Popularity", budget=1)
    assert capsys.readouterr() == ("", "")  # neither a terminal nor a notebook


def test_interrupted_training_stops_the_search(monkeypatch):
    monkeypatch.setattr(sl.BPRMF, "stopped_", "interrupted")
    with pytest.raises(KeyboardInterrupt):
        sl.fit(shoppers(), models=["BPRMF", "Popularity"], budget=1)


def test_models_that_cannot_be_fitted_are_reported():
    single = Interactions.from_csr(shoppers().to_csr())  # no baskets
    model = sl.fit(single, models=["Popularity", "TwoStage"], budget=1)
    assert "TwoStage" in model.selection_.skipped
    with pytest.raises(DataError, match="no candidate model can be fitted"):
        sl.fit(single, models=["TwoStage", sl.TwoStage(n_rounds=5)], budget=1)


# ------------------------------------------------------------------ all kinds of data
def test_without_timestamps_and_baskets(few_models):
    data = Interactions.from_csr(shoppers().to_csr())
    model = sl.fit(data, budget="quick")
    assert "drawn at random" in model.selection_.validation
    assert model.selection_.skipped["TwoStage"] == "it needs users with more than one basket"
    assert (model.recommend().lengths > 0).any()


def test_baskets_without_times(few_models):
    visit = pl.col("timestamp").cast(pl.Int64).alias("basket_id")
    data = Interactions.from_frame(shoppers().to_frame().with_columns(visit).drop("timestamp"))
    assert data.time is None
    model = sl.fit(data, budget="quick")
    assert "TwoStage" in {row["model"] for row in model.selection_.models}
    assert (model.recommend().lengths > 0).any()


def test_users_with_a_single_basket(few_models):
    rows = [(f"u{u}", f"i{(u * k) % 11}", 100 * u) for u in range(30) for k in range(1, 6)]
    model = sl.fit(Interactions.from_tuples(rows), budget="quick")
    assert "drawn at random" in model.selection_.validation
    assert (model.recommend().lengths > 0).any()


@pytest.mark.parametrize("n_users", [2, 5])
def test_a_handful_of_users(n_users):
    model = sl.fit(shoppers(n_users), budget="quick")
    assert len(model.recommend()) == n_users


def test_without_lightgbm(few_models, monkeypatch):
    monkeypatch.setattr(two_stage, "find_spec", lambda name: None)
    model = sl.fit(shoppers(), budget="quick")
    assert "not installed" in model.selection_.skipped["TwoStage"]
    assert (model.recommend().lengths > 0).any()


@pytest.mark.parametrize("name", ["ALS", "GFCF", "MatrixBlend"])
def test_models_of_a_plain_matrix_are_tried_without_baskets(name):
    matrix = Interactions.from_frame(shoppers().to_frame().select("user_id", "item_id").unique())
    assert getattr(sl, name).why_unsuitable(matrix) is None
    assert "several baskets" in getattr(sl, name).why_unsuitable(shoppers())


def test_models_too_slow_for_the_data_are_skipped(few_models, monkeypatch):
    monkeypatch.setattr(ease, "MANY_ITEMS", 10)
    monkeypatch.setattr(tifuknn, "MANY_USERS", 10)
    skipped = sl.fit(shoppers(), budget="quick").selection_.skipped
    assert skipped == {
        "EASE": "users have several baskets, and 40 items are more than 10",
        "TIFUKNN": "40 users are more than 10",
    }


def test_the_joint_model_is_left_out_of_much_data_where_trees_are_better(monkeypatch):
    assert sl.DKHRM.why_unsuitable(shoppers()) is None
    monkeypatch.setattr(hrm, "MANY_ROWS", 100)
    assert "more than 100, where TwoStage predicts more" in sl.DKHRM.why_unsuitable(shoppers())
    monkeypatch.setattr(hrm, "find_spec", lambda name: None)
    assert sl.DKHRM.why_unsuitable(shoppers()) is None, "without trees it is the best that is left"


def test_table_gives_the_same_model_as_interactions(monkeypatch):
    monkeypatch.setattr(auto, "MODELS", ("Popularity", "PersonalFrequency"))
    model = sl.fit(shoppers().to_frame().to_pandas(), budget=1)
    assert model.history_.fingerprint == shoppers().fingerprint
    assert model.selection_ == sl.fit(shoppers(), budget=1).selection_


# ------------------------------------------------------------------ refusals
def test_unusable_data_is_refused():
    with pytest.raises(DataError, match="at least two users with two items each, got 1"):
        sl.fit(Interactions.from_tuples([("a", "x", 0), ("b", "y", 0), ("b", "z", 0)]))
    with pytest.raises(DataError, match=r"interactions must be a .* got ndarray"):
        sl.fit(np.eye(3))
    with pytest.raises(DataError, match="at least one interaction"):
        sl.fit(shoppers().where(np.zeros(shoppers().n_rows, bool)))


@pytest.mark.parametrize("budget", [0, -1, "long", 1.5, True, None])
def test_invalid_budget_is_refused(budget):
    with pytest.raises(ConfigError, match=r"^budget must be quick, default or a positive number"):
        sl.fit(shoppers(), budget=budget)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"models": "SVD"}, "model must be one of .* got 'SVD'"),
        ({"models": []}, "at least one model"),
        ({"models": [3]}, "names or unfitted models, got 3"),
        ({"metric": "map"}, "metric must be one of f1, ndcg"),
        ({"cutoff": "expected_f1"}, "cutoff must be 'auto', None or an unfitted cutoff, got 'expected_f1'"),
    ],
)
def test_invalid_arguments_are_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        sl.fit(shoppers(), **arguments)


def test_report_columns_are_aligned():
    report = SelectionReport(
        validation="x",
        models=[{"model": "A", "params": {"k": 1}, "N": 3, "score": 0.5}],
        cutoffs=[{"cutoff": "d", "score": 1.0}],
    )
    lines = str(report).split("\n")
    assert lines[0] == "A(k=1), cutoff: d"
    assert len({len(line) for line in lines[3:5]}) == 1


def test_a_model_class_is_refused():
    with pytest.raises(ConfigError, match=r"got a class; pass EASE\(\)"):
        sl.fit(sl.load_dataset("sample"), models=sl.EASE)


def test_choices_under_strict_time_use_events_before_the_cut_to_learn(few_models):
    data = sl.load_dataset("sample")
    model = sl.fit(data, budget="quick", models=["Popularity", "PersonalFrequency"], validation="by_time")
    assert "strict time" in model.selection_.validation
    assert model.history_.fingerprint == data.fingerprint  # the final model is fitted on everything
    held = hold_out_by_time(data)
    best = model.selection_.models[0]
    assert best["model"] == "PersonalFrequency"
    truth, later = held.truth, held.later
    fitted = sl.PersonalFrequency().fit(held.history)
    report = sl.evaluate_over_time(
        fitted, later, baskets="first", users=truth.users.to_ids(truth.active_users), N=best["N"]
    )
    assert report.n_users == truth.active_users.size
    assert report.f1 == pytest.approx(best["score"])
    again = sl.fit(data, budget="quick", models=["Popularity", "PersonalFrequency"], validation="by_time")
    assert again.selection_ == model.selection_


def test_split_is_used_for_validation_and_its_test_set_is_not():
    split = sl.split.by_time(sl.load_dataset("sample"), "2024-06-01")
    model = sl.fit(split.train_valid, models="PersonalFrequency", budget="quick", validation=split)
    assert "2024-05" in model.selection_.validation
    assert model.history_.fingerprint == split.train_valid.fingerprint
    with pytest.raises(ConfigError, match=r"sl\.fit\(split\.train_valid, validation=split\)"):
        sl.fit(split.data, models="PersonalFrequency", validation=split)
