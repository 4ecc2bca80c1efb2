"""The score of a selection on users that took no part in it."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shortlist as sl
import shortlist.auto.fit as auto
from shortlist.auto import search as held_out
from shortlist.auto.search import HalfSelections, halves, held_out_score
from shortlist.auto.validation import hold_out, validate
from shortlist.cutoff import FixedN
from shortlist.errors import ModelFileError
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve
from shortlist.models.selection import SelectionReport
from shortlist.reports.model_page import _held_out
from tests.auto.test_fit import shoppers

MODELS = ["Popularity", "PersonalFrequency"]


def users_of(truth, half):
    """Ids of every other user with truth."""
    return truth.users.to_ids(truth.active_users[half::2])


def part_of(truth, half):
    kept = np.isin(truth.user, truth.active_users[half::2])
    return truth.where(kept)


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


def test_number_of_epochs_is_chosen_on_the_choosing_half():
    history, truth, *_ = hold_out(noise())
    model = sl.BPRMF(n_factors=4, n_epochs=12, patience=2, lr=0.2, seed=1)
    found = validate(model, hold_out(noise()), n_candidates=20, n_threads=1)
    selections = HalfSelections()
    selections.add(found)
    seen = []

    def fit_cutoff(half):
        seen.append(half.model.n_epochs_)
        return "fixed N", half.fit_cutoff(FixedN(n_candidates=20))

    assert held_out_score(selections, fit_cutoff) is not None
    expected = [model.clone().fit(history, valid=part_of(truth, half)).n_epochs_ for half in (0, 1)]
    assert seen == expected


def test_users_of_the_other_half_do_not_matter_for_what_a_half_chooses():
    """Swap the truth of the second half: the choice of the first half stays."""
    holdout = hold_out(shoppers())
    truth = holdout.truth
    second = np.isin(truth.user, truth.active_users[1::2])
    changed = truth.where(~second).concat(replace_items(truth.where(second)))
    chosen = []
    for one in (truth, changed):
        selections = HalfSelections()
        for name in MODELS:
            selections.add(validate(getattr(sl, name)(), holdout._replace(truth=one), n_candidates=20))
        score, best = selections.best[0]
        chosen.append((score, type(best.model)))
        assert [half.size for half in halves(best)] == [20, 20]
    assert chosen[0] == chosen[1]


def replace_items(truth):
    """The same users and times, other items."""
    return replace(truth, item=(truth.item + 7) % truth.n_items)


def test_model_and_lists_are_those_without_the_measurement(monkeypatch):
    ours = sl.fit(shoppers(), models=MODELS, budget="quick")
    monkeypatch.setattr(auto, "held_out_score", lambda *_: None)
    plain = sl.fit(shoppers(), models=MODELS, budget="quick")
    assert replace(ours.selection_, held_out=None) == plain.selection_
    assert ours.recommend().items.tolist() == plain.recommend().items.tolist()


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
    assert "both halves chose EASE, fixed N)." in str(same)
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
    assert SelectionReport.from_notes(notes).held_out is None  # files of earlier versions
    assert SelectionReport.from_notes(notes | {"held_out": held_out}).held_out == held_out
    if damage == {"score": 0.1}:
        held_out = damage  # the other keys are missing
    elif isinstance(damage, dict):
        held_out = held_out | damage
    else:
        held_out = damage
    with pytest.raises(ModelFileError):
        SelectionReport.from_notes(notes | {"held_out": held_out})


def test_halves_train_with_the_content_of_items(monkeypatch):
    given, fit_model = [], held_out.fit_model

    def record(*args, items=None, **rest):
        given.append(items)
        return fit_model(*args, items=items, **rest)

    monkeypatch.setattr(held_out, "fit_model", record)
    data = sl.load_dataset("sample")
    table = pl.DataFrame({"item_id": data.items.values, "color": ["red", "blue"] * (data.n_items // 2)})
    sl.fit(data, models=sl.BPRMF(n_epochs=2), items=table, budget="quick")
    assert [one.ids.values.to_list() for one in given] == [data.items.values.to_list()] * 2
