"""Everyone within a horizon: users who take nothing are validated, calibrate the cutoff and cost money."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto.validation import Validation, hold_out
from shortlist.core.metrics import Money
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import evaluate

WEEK = 7 * 86_400 * 10**6


def sample():
    return sl.load_dataset("sample")


def test_everyone_known_before_the_cut_is_a_case():
    data = sample()
    holdout = hold_out(data, horizon=WEEK, everyone=True)
    cut = data.end_time - WEEK
    assert holdout.at == cut
    assert holdout.history.time.max() < cut <= holdout.truth.time.min()
    assert sorted(holdout.users) == holdout.history.active_users.tolist()
    n = holdout.truth.active_users.size
    assert 0 < n < holdout.users.size
    assert set(holdout.users[:n]) == set(holdout.truth.active_users)  # halves have as many buyers
    buyers = hold_out(data, horizon=WEEK)
    assert buyers.users.tolist() == sorted(holdout.users[:n])


def test_validation_counts_users_who_take_nothing():
    money = Money(1.0, 0.1)
    holdout = hold_out(sample(), horizon=WEEK, everyone=True)
    found = Validation(
        sl.PersonalFrequency(), holdout, n_candidates=20, metric="value", filter_seen=False, money=money
    ).fit()
    lists = found.candidates
    assert len(lists) == holdout.users.size
    report = evaluate(lists.head(3), holdout.truth, users=holdout.user_ids, gain=1, cost=0.1)
    assert found.curve["value"][2] == pytest.approx(report.mean("value"))
    assert report.n_users == holdout.users.size
    half = found.restrict(np.arange(0, len(lists), 2))
    assert half.holdout.users.size == len(half.candidates)
    assert half.curve["value"][2] == pytest.approx(half.evaluate(half.candidates.head(3)).mean("value"))


def test_probabilities_fall_if_everyone_is_validated():
    data = sample()
    models = {
        users: sl.fit(data, models="PersonalFrequency", gain=1, cost=0.1, users=users, horizon="7d")
        for users in ("buyers", "everyone")
    }
    best = {users: model.selection_.held_out for users, model in models.items()}
    assert best["everyone"]["n_users"] > best["buyers"]["n_users"]
    assert models["everyone"].selection_.users == "everyone"
    lengths = {users: model.recommend().lengths.sum() for users, model in models.items()}
    assert lengths["everyone"] < lengths["buyers"]


def test_a_split_by_period_is_one_of_everyone():
    split = sl.split.last_period(sample(), "7d")
    model = sl.fit(split.train_valid, models="PersonalFrequency", gain=1, cost=0.1, validation=split)
    assert model.selection_.users == "everyone"
    assert "7 days of" in model.selection_.validation


def test_refit_keeps_money_and_horizon():
    from shortlist.auto.refit import refit

    model = sl.fit(sample(), models="PersonalFrequency", gain=1, cost=0.1, users="everyone", horizon="7d")
    again = refit(model, None).model.selection_
    first = model.selection_
    assert (again.metric, again.gain, again.cost, again.users, again.horizon) == (
        (first.metric, first.gain, first.cost, first.users, first.horizon)
    )


def test_choice_by_value_beats_the_fixed_length_on_other_users():
    holdout = hold_out(sample(), horizon=WEEK, everyone=True)
    found = Validation(sl.PersonalFrequency(), holdout, n_candidates=20, filter_seen=False).fit()
    choice = sl.choose_cutoff(
        found.candidates, holdout.truth, holdout.history, gain=1, cost=0.02, users=holdout.user_ids
    )
    assert choice.metric == "value"
    assert choice.scores[choice.name] >= choice.scores["fixed N"]
    assert "earned per 1,000 users" in str(choice)
    assert list(sl.default_cutoffs(gain=1, cost=0.1))[1:] == [
        "expected value (model's probabilities)",
        "expected value (Platt calibration)",
        "expected value (calibration by features)",
    ]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"metric": "value"}, "metric='value' needs what an item earns and costs"),
        ({"gain": 1}, "gain and cost belong together, got no cost"),
        ({"users": "everyone"}, "users='everyone' needs a horizon"),
        ({"users": "all"}, "users must be buyers or everyone, got 'all'"),
        ({"horizon": "7d", "validation": "by_time"}, "horizon holds out the last period"),
        ({"horizon": "7d", "cutoff": sl.cutoff.Guarantee(min_precision=0.1)}, "combined with a Guarantee"),
        (
            {"cutoff": sl.cutoff.ExpectedValue(gain=2), "gain": 1, "cost": 0.1},
            "gain must be that of the cutoff",
        ),
    ],
)
def test_contradictions_are_refused(arguments, match):
    with pytest.raises(ConfigError, match=match):
        sl.fit(sample(), models="Popularity", **arguments)


def test_horizon_needs_times_and_buyers():
    with pytest.raises(DataError, match="horizon needs timestamps"):
        sl.fit(sl.Interactions.from_tuples([("a", "x"), ("b", "y")]), models="Popularity", horizon="7d")
    with pytest.raises(DataError, match="horizon must leave at least two users"):
        sl.fit(sample(), models="Popularity", horizon="900d")
