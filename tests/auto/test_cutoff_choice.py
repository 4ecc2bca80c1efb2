"""Cutoff selection: users are scored by cutoffs fitted on others; the fixed N stays unless clearly beaten."""

from functools import cache

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto import cutoff_choice
from shortlist.auto.cutoff_choice import (
    FIXED,
    SelectionData,
    choose_cutoff,
    compare_cutoffs,
    cross_validate,
    default_cutoffs,
)
from shortlist.cutoff import ExpectedF1, ExpectedNDCG, FixedN
from shortlist.cutoff.base import fit_cutoffs
from shortlist.errors import ConfigError, DataError


@cache
def parts():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.PersonalFrequency().fit(split.train)
    users = split.valid.users.to_ids(split.valid.active_users)
    return split, model.recommend(users, N=20, at=split.valid)


def test_best_on_other_users_is_selected_and_fitted_on_all():
    split, lists = parts()
    cutoffs = {
        FIXED: FixedN(n_candidates=20),
        "expected": ExpectedF1(n_candidates=20, calibration="platt", size="history"),
    }
    choice = choose_cutoff(lists, split.valid, split.train, cutoffs)
    assert choice.scores.keys() == cutoffs.keys()
    assert choice.scores[choice.name] == max(choice.scores.values()) >= choice.scores[FIXED]
    expected = cutoffs[choice.name].clone().fit(lists, split.valid, history=split.train)
    ours = choice.cutoff.lengths(lists, history=split.train)
    assert (ours == expected.lengths(lists, history=split.train)).all()
    assert str(choice).startswith(f"{choice.name}: F1 0.")
    assert "over the best fixed N" in str(choice)


def choose_by_scores(monkeypatch, **scores):
    """Select among cutoffs with the given scores per user."""
    split, lists = parts()
    cutoffs = {name.replace("_", " "): FixedN(n_candidates=20, N=k + 1) for k, name in enumerate(scores)}
    values = dict(zip(range(1, len(scores) + 1), map(np.array, scores.values()), strict=True))

    def cross_validate_all(cutoffs, *_, **options):
        return {name: values[cutoff.N] for name, cutoff in cutoffs.items()}

    monkeypatch.setattr(cutoff_choice, "cross_validate_all", cross_validate_all)
    return compare_cutoffs(SelectionData(lists, split.valid, None), cutoffs)


def test_default_is_kept_unless_another_is_clearly_better(monkeypatch):
    default = [0.2, 0.4, 0.6, 0.8]
    noisy, clear, clearer = [0.0, 1.0, 0.0, 1.2], [0.3, 0.5, 0.65, 0.8], [0.4, 0.6, 0.8, 0.9]
    fixed = [0.1, 0.1, 0.1, 0.1]
    for cutoffs, expected in (
        ({"default": default, "noisy": noisy}, "default"),
        ({"default": default, "noisy": noisy, "clear": clear}, "clear"),
        ({"default": default, "clearer": clearer, "clear": clear}, "clearer"),
    ):
        assert choose_by_scores(monkeypatch, fixed_N=fixed, **cutoffs).name == expected


def test_reason_explains_why_a_higher_score_is_not_selected(monkeypatch):
    default, noisy, fixed = [0.2, 0.4, 0.6, 0.8], [0.0, 1.0, 0.0, 1.2], [0.1, 0.1, 0.1, 0.1]
    choice = choose_by_scores(monkeypatch, fixed_N=fixed, default=default, noisy=noisy)
    assert choice.scores["noisy"] > choice.scores[choice.name]
    assert "'noisy' scores 0.5500" in choice.reason
    assert "its lead over the default, 'default', is within one standard error" in choice.reason
    best = choose_by_scores(monkeypatch, fixed_N=fixed, default=default)
    assert best.reason == "+400.0% over the best fixed N, on users it was not fitted on"


def test_cutoff_that_does_not_beat_the_fixed_n_is_never_selected(monkeypatch):
    default = [0.2, 0.4, 0.6, 0.8]
    barely = [0.9, 0.0, 0.9, 0.3]  # higher than the default on average, but not clearly
    for cutoffs, expected in (
        ({"fixed_N": barely, "default": default}, FIXED),
        ({"fixed_N": default, "default": default}, FIXED),
        ({"fixed_N": barely}, FIXED),
        ({"default": default, "barely": barely}, "default"),
        ({"fixed_N": barely, "default": default, "best": [0.0, 0.9, 0.4, 0.9]}, "best"),
    ):
        assert choose_by_scores(monkeypatch, **cutoffs).name == expected


def test_users_are_scored_by_cutoffs_fitted_on_other_users():
    split, lists = parts()
    fitted_on = []

    class Spy(FixedN):
        def _fit_labels(self, labels, history):
            super()._fit_labels(labels, history)
            fitted_on.append(set(labels.lists.users.values.to_list()))

    values = cross_validate(Spy(n_candidates=20), lists, split.valid, split.train)
    assert len(fitted_on) == 2
    assert not fitted_on[0] & fitted_on[1]
    assert fitted_on[0] | fitted_on[1] == set(lists.users.values.to_list())
    assert values.shape == (split.valid.active_users.size,)
    by_hand = [
        FixedN(n_candidates=20).fit(lists.take(np.arange(k, len(lists), 2)), split.valid) for k in (0, 1)
    ]
    for fitting, other in ((0, 1), (1, 0)):
        scoring = np.arange(other, len(lists), 2)
        report = sl.evaluate(by_hand[fitting].apply(lists.take(scoring)), split.valid)
        assert values[scoring].mean() == pytest.approx(report.values("f1")[scoring].mean())


def test_fixed_n_wins_ties():
    split, lists = parts()
    choice = choose_cutoff(
        lists, split.valid, None, {FIXED: FixedN(n_candidates=20, N=3), "same": FixedN(n_candidates=20, N=3)}
    )
    assert choice.name == FIXED
    assert choice.reason == "no other cutoff beats the best fixed N on users it was not fitted on"


def test_cutoffs_maximize_the_metric():
    split, lists = parts()
    cutoffs = default_cutoffs(20, metric="ndcg")
    assert cutoffs[FIXED].target == "ndcg"
    assert {type(one) for one in cutoffs.values()} == {FixedN, ExpectedNDCG}
    platt = "expected NDCG (Platt calibration; basket size from history and candidates)"
    some = {name: cutoffs[name] for name in (FIXED, platt)}
    choice = choose_cutoff(lists, split.valid, split.train, some, metric="ndcg")
    values = cross_validate(some[FIXED], lists, split.valid, split.train, "ndcg")
    assert choice.scores[FIXED] == values.mean()
    assert "NDCG 0." in str(choice)


def test_invalid_arguments_are_refused():
    split, lists = parts()
    with pytest.raises(ConfigError, match="at least one cutoff"):
        choose_cutoff(lists, split.valid, None, {})
    with pytest.raises(DataError, match="at least two users"):
        choose_cutoff(lists.take([0]), split.valid, None, default_cutoffs())
    for call in (
        lambda: default_cutoffs(metric="map"),
        lambda: choose_cutoff(lists, split.valid, metric="map"),
    ):
        with pytest.raises(ConfigError, match=r"metric must be one of f1, ndcg, value.*, got 'map'"):
            call()


def test_cutoffs_fitted_together_are_those_fitted_alone():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = sl.DKBPRMF(n_epochs=3).fit(split.train)
    lists = model.recommend(N=20, filter_seen=False)
    cutoffs = [*default_cutoffs(20).values(), *default_cutoffs(10).values()]
    together = fit_cutoffs(cutoffs, lists, split.valid, split.train)
    for cutoff, fitted in zip(cutoffs, together, strict=True):
        alone = cutoff.clone().fit(lists, split.valid, history=split.train)
        assert repr(fitted) == repr(alone)
        found, expected = (one.apply(lists, history=split.train) for one in (fitted, alone))
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        if expected.probabilities is not None:
            np.testing.assert_array_equal(found.probabilities, expected.probabilities)
