"""Choosing a decider: judged on strangers, and no worse than the fixed length it is compared with."""

from functools import cache

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto import cutoff_choice as auto
from shortlist.auto.cutoff_choice import FIXED, choose_cutoff, crossed, default_cutoffs
from shortlist.cutoff import ExpectedF1, FixedN
from shortlist.cutoff.top_candidates import heads
from shortlist.errors import ConfigError, DataError
from shortlist.models.counting import PersonalFrequency


@cache
def parts():
    split = sl.split.last_basket(sl.load_dataset("sample"))
    model = PersonalFrequency().fit(split.train)
    return split, heads(model.score, ids=split.train, users=split.valid.active_users, n_candidates=20)


def test_the_best_on_strangers_is_chosen_and_fitted_on_all():
    split, lists = parts()
    deciders = {
        FIXED: FixedN(n_candidates=20),
        "expected": ExpectedF1(n_candidates=20, calibration="platt", size="history"),
    }
    choice = choose_cutoff(lists, split.valid, split.train, deciders)
    assert choice.tried.keys() == deciders.keys()
    assert choice.tried[choice.name] == max(choice.tried.values()) >= choice.tried[FIXED]
    expected = deciders[choice.name].clone().fit(lists, split.valid, history=split.train)
    ours = choice.cutoff.lengths(lists, history=split.train)
    assert (ours == expected.lengths(lists, history=split.train)).all()
    assert choice.name in str(choice)


def by_value(monkeypatch, **worth):
    """Deciders that are worth so much to each user, and which of them is chosen."""
    split, lists = parts()
    deciders = {name.replace("_", " "): FixedN(n_candidates=20, N=k + 1) for k, name in enumerate(worth)}
    values = dict(zip(range(1, len(worth) + 1), map(np.array, worth.values()), strict=True))
    monkeypatch.setattr(auto, "crossed", lambda cutoff, *_: values[cutoff.N])
    return choose_cutoff(lists, split.valid, None, deciders).name


def test_the_usual_one_stays_unless_another_is_clearly_better(monkeypatch):
    usual = [0.2, 0.4, 0.6, 0.8]
    noisy, clear, clearer = [0.0, 1.0, 0.0, 1.2], [0.3, 0.5, 0.65, 0.8], [0.4, 0.6, 0.8, 0.9]
    fixed = [0.1, 0.1, 0.1, 0.1]
    assert by_value(monkeypatch, fixed_N=fixed, usual=usual, noisy=noisy) == "usual"
    assert by_value(monkeypatch, fixed_N=fixed, usual=usual, noisy=noisy, clear=clear) == "clear"
    assert by_value(monkeypatch, fixed_N=fixed, usual=usual, clearer=clearer, clear=clear) == "clearer"


def test_what_does_not_beat_the_fixed_length_is_never_chosen(monkeypatch):
    usual = [0.2, 0.4, 0.6, 0.8]
    barely = [0.9, 0.0, 0.9, 0.3]  # better than usual on average, and not clearly
    assert by_value(monkeypatch, fixed_N=barely, usual=usual) == FIXED
    assert by_value(monkeypatch, fixed_N=usual, usual=usual) == FIXED
    assert by_value(monkeypatch, fixed_N=barely) == FIXED
    assert by_value(monkeypatch, usual=usual, barely=barely) == "usual"
    assert by_value(monkeypatch, fixed_N=barely, usual=usual, best=[0.0, 0.9, 0.4, 0.9]) == "best"


def test_nobody_is_judged_by_a_fit_that_saw_them():
    split, lists = parts()
    lengths = []

    class Spy(FixedN):
        def _learn(self, heads, known, history):
            super()._learn(heads, known, history)
            lengths.append(set(heads.users.values.to_list()))

    values = crossed(Spy(n_candidates=20), lists, split.valid, split.train)
    assert len(lengths) == 2
    assert not lengths[0] & lengths[1]
    assert lengths[0] | lengths[1] == set(lists.users.values.to_list())
    assert values.shape == (split.valid.active_users.size,)
    by_hand = [
        FixedN(n_candidates=20).fit(lists.take(np.arange(k, len(lists), 2)), split.valid) for k in (0, 1)
    ]
    for part, other in ((0, 1), (1, 0)):
        judge = np.arange(other, len(lists), 2)
        report = sl.evaluate(by_hand[part].apply(lists.take(judge)), split.valid)
        assert values[judge].mean() == pytest.approx(report.values("f1")[judge].mean())


def test_equals_leave_the_fixed_length():
    split, lists = parts()
    choice = choose_cutoff(
        lists, split.valid, None, {FIXED: FixedN(n_candidates=20, N=3), "same": FixedN(n_candidates=20, N=3)}
    )
    assert choice.name == FIXED


def test_what_cannot_be_chosen_from_is_refused():
    split, lists = parts()
    with pytest.raises(ConfigError, match="at least one cutoff"):
        choose_cutoff(lists, split.valid, None, {})
    with pytest.raises(DataError, match="at least two users"):
        choose_cutoff(lists.take([0]), split.valid, None, default_cutoffs())
