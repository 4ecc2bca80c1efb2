"""Model and cutoff chosen together, and the score of that choice on users that took no part in it."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto import choice as choosing
from shortlist.auto import validation
from shortlist.auto.choice import ModelTrial, choose_jointly, find_finalists, score_held_out
from shortlist.auto.validation import Validation, hold_out
from shortlist.core.codec import Contents, RecordForm, Scope
from shortlist.cutoff import FixedN
from shortlist.errors import ConfigError, ModelFileError
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve
from shortlist.models.selection import SelectionReport
from shortlist.reports.model_report import _held_out
from tests.auto.test_fit import shoppers

MODELS = ["Popularity", "PersonalFrequency"]


def users_of(truth, half):
    """Ids of every other user with truth."""
    return truth.users.to_ids(truth.active_users[half::2])


def part_of(truth, half):
    kept = np.isin(truth.user, truth.active_users[half::2])
    return truth.where(kept)


# ------------------------------------------------------------------ model and cutoff together
def mixed_baskets(n_users=120):
    """Baskets of one item or of six; the history does not tell which comes next."""
    rng = np.random.default_rng(1)
    rows = []
    for user in range(n_users):
        for visit in range(4):
            items = rng.permutation(30)[: 6 if rng.random() < 0.5 else 1]
            rows += [(f"u{user:03}", f"i{item:02}", 86_400 * (7 * visit + user % 5)) for item in items]
    return sl.Interactions.from_tuples(rows)


def ordered_and_separated(data):
    """Two rankers: the true items first but with the same scores for all users; and with scores that tell
    them apart, where one true item in ten is missed."""
    rng, truth = np.random.default_rng(0), hold_out(data).truth
    true = truth.to_csr().toarray() > 0
    order = np.argsort(np.argsort(-(true + rng.random(true.shape)), axis=1), axis=1)
    separated = np.where(true & (rng.random(true.shape) > 0.1), 4.0, 0.0) + rng.random(true.shape)
    return [sl.PrecomputedScores(scores=-1.0 * order), sl.PrecomputedScores(scores=separated)]


def test_a_model_with_better_lists_beats_one_with_a_better_fixed_n():
    data = mixed_baskets()
    models = ordered_and_separated(data)
    at_n, separated = (
        Validation(model, hold_out(data), n_candidates=20, filter_seen=False).fit() for model in models
    )
    assert 0.9 * at_n.score < separated.score < at_n.score
    fitted = sl.fit(data, models=models, filter_seen=False)
    assert fitted.scores is models[1].scores
    first, second = fitted.selection_.models
    assert first["score"] < second["score"]
    assert first["served_score"] > 1.2 * second["served_score"]
    assert first["served_score"] == fitted.selection_.cutoffs[0]["score"]
    assert "F1 with a cutoff" in str(fitted.selection_)
    held_out = fitted.selection_.held_out  # each half chooses it, too
    assert held_out["score"] > 1.2 * second["served_score"]
    fixed = sl.fit(data, models=models, filter_seen=False, cutoff=FixedN())
    assert fixed.scores is models[0].scores  # with one length for all, the other model is better


def test_models_far_behind_are_not_compared(monkeypatch):
    scores = [0.5, 0.44, 0.46, 0.49, 0.48]
    parts = [SimpleNamespace(score=score, rank=(score, 0.1)) for score in scores]
    assert find_finalists(parts) == [0, 3, 4]
    assert find_finalists(parts[:2]) == [0]


def test_models_that_all_earn_nothing_are_compared_by_what_users_take():
    recalls = [0.1, 0.4, 0.2, 0.3, 0.05]
    parts = [SimpleNamespace(score=0.0, rank=(0.0, recall)) for recall in recalls]
    assert find_finalists(parts) == [1, 2, 3]


@pytest.mark.parametrize("cutoff", ["auto", None])
def test_a_joint_model_is_compared_with_its_own_boundary(cutoff, monkeypatch):
    data = sl.load_dataset("sample")
    found = Validation(sl.DKHRM(n_epochs=3), hold_out(data), n_candidates=50).fit()
    choice = choose_jointly([found], cutoff).served
    truth = found.holdout.truth
    own = found.model.recommend(truth.users.to_ids(truth.active_users), at=truth)
    expected = evaluate(own, truth).mean("f1")
    if cutoff is None:
        assert choice.cutoff is None
        assert choice.cutoff_name == "the model's boundary"
        assert choice.score == pytest.approx(expected, rel=0.02)  # candidates beyond 50 are cut
    else:
        assert choice.cutoff.scores["the model's boundary"] == pytest.approx(expected, rel=0.02)


def test_a_boundary_that_is_chosen_is_served_and_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "default_cutoffs", lambda *_, **__: {"fixed N": FixedN(N=1)})
    model = sl.fit(sl.load_dataset("sample"), models=sl.DKHRM(n_epochs=3))
    assert model.selection_.cutoffs[0]["cutoff"] == "the model's boundary"
    assert model.cutoff_ is None
    lists = sl.load_model(model.save(tmp_path / "m")).recommend()
    assert lists.lengths.tolist() == model.recommend(cutoff="boundary").lengths.tolist()


# ------------------------------------------------------------------ the score on other users
def test_score_is_that_of_each_half_choosing_for_the_other_by_hand():
    data = shoppers()
    report = sl.fit(data, models=MODELS, cutoff=sl.cutoff.FixedN(), budget="quick").selection_
    history, truth, *_ = hold_out(data)
    fitted = [getattr(sl, name)().fit(history) for name in MODELS]
    values, choices = [], []
    for half in (0, 1):
        scored = []
        for model in fitted:
            lists = model.recommend(users_of(truth, half), N=50, at=truth)
            curve = fixed_n_curve(lists, part_of(truth, half), range(1, 51))
            scored.append((float(curve["f1"].max()), best_fixed_n(curve)))
        best = int(np.argmax([score for score, _ in scored]))
        lists = fitted[best].recommend(users_of(truth, 1 - half), N=scored[best][1], at=truth)
        values.append(evaluate(lists, part_of(truth, 1 - half)).values("f1"))
        choices.append(f"{MODELS[best]}, FixedN")
    values = np.concatenate(values)
    assert report.held_out["score"] == pytest.approx(values.mean())
    assert report.held_out["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(values.size))
    assert report.held_out["n_users"] == truth.active_users.size == values.size
    assert report.held_out["choices"] == choices


def noise(n_users=60):
    """Users who buy items at random: nothing can be learned, so any lead on validation is chance."""
    rng = np.random.default_rng(5)
    rows = [
        (f"u{user:02}", f"i{item:02}", visit * 86_400)
        for user in range(n_users)
        for visit in range(4)
        for item in rng.choice(30, 2, replace=False)
    ]
    return sl.Interactions.from_tuples(rows)


def test_best_of_many_random_settings_is_not_reported_as_if_it_were_found():
    found = sl.fit(noise(), models="PersonalFrequency", budget=20).selection_
    assert found.held_out["score"] < found.models[0]["score"]


def arms_of(holdout, names=MODELS):
    """Validated arms with default settings."""
    fitted = [Validation(getattr(sl, name)(), holdout, n_candidates=20).fit() for name in names]
    return [
        ModelTrial(number, name, 0, {}, part.model, part)
        for number, (name, part) in enumerate(zip(names, fitted, strict=True))
    ]


def test_users_of_the_other_half_do_not_matter_for_what_a_half_chooses():
    """Swap the truth of the second half: the choice of the first half stays."""
    holdout = hold_out(shoppers())
    truth = holdout.truth
    second = np.isin(truth.user, truth.active_users[1::2])
    changed = truth.where(~second).concat(replace_items(truth.where(second)))
    users = np.arange(truth.active_users.size)
    first, again = (
        score_held_out(arms_of(holdout._replace(truth=part)), users, "auto") for part in (truth, changed)
    )
    assert first.choices[0] == again.choices[0]
    assert first.fixed_lengths[0] == again.fixed_lengths[0]
    assert first.chosen.tolist() != again.chosen.tolist()


def test_only_the_given_users_are_scored():
    users = np.arange(5, 25)
    scores = score_held_out(arms_of(hold_out(shoppers())), users, "auto")
    assert scores.chosen.size == scores.often.size == 20
    assert score_held_out(arms_of(hold_out(shoppers())), users[:3], "auto") is None


def replace_items(truth):
    """The same users and times, other items."""
    return replace(truth, item=(truth.item + 7) % truth.n_items)


def test_a_choice_that_loses_on_the_other_half_is_not_served(monkeypatch):
    data, lost = mixed_baskets(), {}

    def lose(*arguments):
        scores = score_held_out(*arguments)
        lost["scores"] = scores._replace(chosen=0.5 * scores.fixed)
        return lost["scores"]

    models = ordered_and_separated(data)
    served = sl.fit(data, models=models, filter_seen=False)
    monkeypatch.setattr(choosing, "score_held_out", lose)
    fitted = sl.fit(data, models=models, filter_seen=False)
    assert served.scores is models[1].scores
    assert fitted.scores is models[0].scores  # with one length for all, the other model is better
    assert type(fitted.cutoff_) is FixedN
    report = fitted.selection_
    assert report.models[0]["served_score"] == report.models[0]["score"] == report.cutoffs[0]["score"]
    assert report.reason.startswith(
        "no other cutoff beats the best fixed N on users who took no part in choo"
    )
    assert report.held_out["score"] == lost["scores"].fixed.mean()
    assert all(choice.endswith(", fixed N") for choice in report.held_out["choices"])


def test_a_choice_that_cannot_be_tested_on_others_is_not_served(monkeypatch):
    data = mixed_baskets()
    monkeypatch.setattr(choosing, "score_held_out", lambda *_: None)
    untested = sl.fit(data, models=ordered_and_separated(data), filter_seen=False)
    assert type(untested.cutoff_) is FixedN
    assert untested.selection_.reason.startswith("too few users to test")


def test_too_few_users_and_guarantees_are_not_measured():
    rows = [(user, item, day) for user in "abc" for day in (0, 86_400) for item in ("x", "y")]
    few = sl.fit(sl.Interactions.from_tuples(rows), models="Popularity", cutoff=sl.cutoff.FixedN())
    assert few.selection_.held_out is None
    assert "took no part" not in str(few.selection_)
    guarantee = sl.cutoff.Guarantee(max_empty=0.9)
    assert sl.fit(shoppers(), models="Popularity", cutoff=guarantee).selection_.held_out is None


def test_score_is_shown_saved_and_reported(tmp_path):
    lines = []
    model = sl.fit(shoppers(), models=MODELS, metric="ndcg", budget="quick", progress=lines.append)
    found = model.selection_.held_out
    text = f"NDCG on users that took no part in choosing: {found['score']:.4f}"
    assert text in str(model.selection_)
    assert text in model.selection_._repr_html_()
    assert any(text in line for line in lines)
    assert _held_out(model)["score"] == f"{found['score']:.4f}"
    same = replace(model.selection_, held_out=found | {"choices": ["EASE, fixed N"] * 2})
    assert "each half with what the other half chose: EASE, fixed N)." in str(same)
    assert sl.load_model(model.save(tmp_path / "m")).selection_.held_out == found


def test_no_cutoff_is_measured_at_the_fixed_n():
    found = sl.fit(shoppers(), models=MODELS, cutoff=None, budget="quick").selection_.held_out
    assert all(choice.endswith(", fixed N") for choice in found["choices"])


@pytest.mark.parametrize(
    "damage",
    [3, {"score": 0.1}, {"score": "high"}, {"n_users": 1.5}, {"n_users": True}, {"choices": "a"}],
)
def test_damaged_scores_are_refused(damage):
    held_out = {"score": 0.1, "standard_error": 0.01, "n_users": 5, "choices": ["a", "b"]}
    notes = {
        "validation": "x",
        "models": [{"model": "A", "params": {}, "N": 3, "score": 0.5}],
        "cutoffs": [],
        "skipped": {},
        "reason": "",
        "metric": "f1",
    }

    def load(held_out):
        contents = Contents({}, {})
        packed = RecordForm(SelectionReport).write(SelectionReport(**notes, held_out=held_out), "", contents)
        return RecordForm(SelectionReport).read(packed, "", contents, Scope())

    assert load(None).held_out is None
    assert load(held_out).held_out == held_out
    if damage == {"score": 0.1}:
        held_out = damage  # the other keys are missing
    elif isinstance(damage, dict):
        held_out = held_out | damage
    else:
        held_out = damage
    with pytest.raises(ModelFileError):
        load(held_out)


# ------------------------------------------------------------------ stages
def stages(monkeypatch, *samples):
    """Samples so small that the test data has all stages."""
    monkeypatch.setattr(choosing, "SAMPLES", samples)
    monkeypatch.setattr(validation, "MIN_SAMPLE", 4)


@pytest.fixture
def fits(monkeypatch):
    """(model, rows) of every model that is fitted."""
    fit_model, fitted = validation.fit_model, []

    def record(model, data, **options):
        fitted.append((str(model), data.n_rows))
        return fit_model(model, data, **options)

    monkeypatch.setattr(validation, "fit_model", record)
    return fitted


def test_samples_grow_and_contain_the_smaller_ones(monkeypatch):
    stages(monkeypatch)
    holdout = hold_out(sl.load_dataset("sample"))
    small, large = (holdout.sample(n_rows, 0) for n_rows in (1000, 4000))
    assert abs(small.history.n_rows - 1000) < 100
    assert abs(large.history.n_rows - 4000) < 100
    assert set(small.users) < set(large.users) < set(holdout.users)
    assert small.description == f"{small.users.size} of the last baskets of 300 users"
    assert (small.history.user_counts[small.users] == holdout.history.user_counts[small.users]).all()
    assert holdout.sample(holdout.history.n_rows, 0) is holdout


def test_models_that_are_far_behind_are_dropped_on_a_small_sample(monkeypatch, fits):
    stages(monkeypatch, 1000, 6000)
    names = ["Popularity", "PersonalFrequency", "TIFUKNN"]
    report = sl.fit(sl.load_dataset("sample"), models=names, budget="quick", cutoff=FixedN()).selection_
    assert report.skipped.keys() == {"Popularity"}
    assert re.fullmatch(r"0\.\d+ for \d+ users, where \w+ has 0\.\d+", report.skipped["Popularity"])
    assert {row["model"] for row in report.models} == {"PersonalFrequency", "TIFUKNN"}
    rows = [n_rows for name, n_rows in fits if name.startswith("TIFUKNN")][:2]
    assert np.allclose(rows, (1000, 6000), rtol=0.1)


def test_every_stage_may_train_for_as_many_epochs_as_the_model_has(monkeypatch, fits):
    stages(monkeypatch, 1000, 6000)
    model = sl.BPRMF(n_factors=8, n_epochs=4, patience=1, seed=1)
    sl.fit(sl.load_dataset("sample"), models=model, cutoff=FixedN())
    assert ["n_epochs=4" in name for name, _ in fits if name.startswith("BPRMF")][:2] == [True, True]


def test_nothing_is_fitted_twice(fits):
    sl.fit(shoppers(), models=["EASE", "TIFUKNN"], budget=3, cutoff=FixedN())
    compared = [fit for fit in fits if fit[0].startswith(("EASE", "TIFUKNN"))]
    assert len(compared) == len(set(compared)) > 2


def test_users_of_smaller_samples_do_not_score_the_choice(monkeypatch):
    stages(monkeypatch, 3000, 3000)
    found = sl.fit(sl.load_dataset("sample"), models=MODELS, budget="quick").selection_
    stages(monkeypatch, 3000, 100_000)
    fresh = sl.fit(sl.load_dataset("sample"), models=MODELS, budget="quick").selection_
    assert fresh.held_out["n_users"] + found.held_out["n_users"] == 300


def test_no_model_is_started_when_the_time_is_over():
    report = sl.fit(shoppers(), models=MODELS, minutes=1e-9).selection_
    assert [row["model"] for row in report.models] == ["Popularity"]
    assert report.skipped == {"PersonalFrequency": "no time was left of 1e-09 minutes"}
    with pytest.raises(ConfigError, match="minutes"):
        sl.fit(shoppers(), models=MODELS, minutes=0)


def test_within_the_noise_the_best_over_three_metrics_is_selected():
    rng = np.random.default_rng(0)
    values = rng.random(200)
    models = [SimpleNamespace(name=name, values=values + shift, score=0.5 + shift) for name, shift in SHIFTS]
    models[1].values = models[1].values + rng.normal(0, 0.2, 200)  # noise
    scores = [[model.score, 0.5, 0.5] for model in models]
    scores[1][1:] = [0.6, 0.6]
    selected, reason = choosing._prefer(models, scores)
    assert selected.name == "noisy"
    assert reason.startswith("the scores of best and noisy, each with its cutoff, differ by less than 2 sta")
    assert choosing._prefer(models[::2], scores[::2]) == (models[0], "")  # clearly better


SHIFTS = (("best", 0.001), ("noisy", 0.0), ("worse", -0.1))


def test_models_that_earn_nothing_are_compared_by_what_users_take_of_as_many_items():
    """All earn 0.0 at N = 0; then recall and NDCG of 20 items decide, without a warning of NumPy."""
    finalists = [SimpleNamespace(name=name, values=np.zeros(50), score=0.0) for name in ("weak", "strong")]
    selected, reason = choosing._prefer(finalists, [[0.0, 0.1, 0.05], [0.0, 0.2, 0.1]])
    assert selected.name == "strong"
    assert "recall and NDCG of 20 items" in reason
    nothing, _ = choosing._prefer(finalists, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert nothing.name == "weak", "the first of equals"
