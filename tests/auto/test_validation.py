"""Validation: what is held out, what is fitted on the rest, and the refit."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto.fit import _warn_of_volume
from shortlist.auto.validation import (
    HOLD_OUT_ONE_IN,
    Validation,
    build_model,
    hold_out,
    hold_out_by_time,
)
from shortlist.data.interactions import NO_BASKET, NO_WEIGHT, Interactions
from shortlist.errors import ConfigError, DataError, DataWarning


@cache
def sample():
    return sl.load_dataset("sample")


@cache
def unordered():
    return Interactions.from_csr(sample().to_csr())


def test_last_baskets_are_held_out_where_users_return():
    found, split = hold_out(sample()), sl.split.last_basket(sample())
    assert found.history.fingerprint == split.train_valid.fingerprint
    assert found.truth.fingerprint == split.test.fingerprint
    assert found.description == "the last baskets of 300 users"


def test_random_items_are_held_out_where_users_do_not_return():
    data = unordered()
    history, truth, description = hold_out(data, 1)[:3]
    assert "drawn at random" in description
    assert history.n_rows + truth.n_rows == data.n_rows
    assert (np.diff(history.indptr)[np.diff(data.indptr) > 0] > 0).all()
    for user in truth.active_users:
        known, held = (
            set(part.item[part.indptr[user] : part.indptr[user + 1]].tolist()) for part in (history, truth)
        )
        assert not known & held  # an item is held out with all its rows
        assert len(held) == max(1, (len(known) + len(held)) // HOLD_OUT_ONE_IN)
    assert (hold_out(data, 1).truth.item == truth.item).all()
    other = hold_out(data, 2).truth.item
    assert other.size != truth.item.size or (other != truth.item).any()


def test_too_little_data_is_refused():
    with pytest.raises(DataError, match="at least two users with two items each, got 1"):
        hold_out(Interactions.from_tuples([("a", "x", 0), ("b", "y", 0), ("b", "z", 0)]))


def test_validation_ranks_at_the_time_of_the_held_out_basket():
    holdout = hold_out(sample())
    found = Validation(sl.HRM(n_factors=8, n_epochs=2, trend_half_life=3.0), holdout, n_candidates=7).fit()
    users = holdout.truth.users.to_ids(holdout.truth.active_users)
    expected = found.model.recommend(users, N=7, at=holdout.truth)
    assert found.candidates.items.tolist() == expected.items.tolist()
    assert found.candidates.scores.tolist() == expected.scores.tolist()
    assert found.curve["N"].to_list() == list(range(1, 8))
    best = found.curve["f1"].arg_max()
    assert (found.N, found.score) == (found.curve["N"][best], found.curve["f1"][best])


def test_epochs_are_chosen_by_early_stopping_and_refitted():
    holdout = hold_out(sample())
    model = sl.BPRMF(n_factors=4, n_epochs=8, patience=8, lr=0.2)
    epochs = []
    found = Validation(model, holdout, n_candidates=10).fit(progress=lambda state: epochs.append(state.score))
    assert found.n_epochs == 1 + int(np.argmax(epochs))
    final = found.refit(sample())
    assert final.get_params() == model.get_params() | {"n_epochs": found.n_epochs}
    assert final.history_.fingerprint == sample().fingerprint
    assert not model.is_fitted


def test_models_without_epochs_are_refitted_as_they_are():
    found = Validation(sl.Popularity(), hold_out(unordered()), n_candidates=10).fit()
    assert found.n_epochs is None
    assert found.refit(unordered()).get_params() == sl.Popularity().get_params()


def test_cutoff_is_fitted_on_a_clone():
    found = Validation(sl.PersonalFrequency(), hold_out(sample()), n_candidates=10).fit()
    cutoff = sl.cutoff.FixedN(n_candidates=10)
    assert found.fit_cutoff(cutoff).N_ == found.N
    assert not cutoff.fitted()


def test_metric_selects_n():
    found = Validation(sl.PersonalFrequency(), hold_out(sample()), n_candidates=10, metric="recall").fit()
    assert (found.N, found.score) == (10, found.curve["recall"][-1])


def test_models_are_built_by_name():
    assert build_model("BPRMF", {"n_factors": 3}).n_factors == 3
    with pytest.raises(ConfigError, match="did you mean 'BPRMF'"):
        build_model("BPRFM", {})
    with pytest.raises(ConfigError, match="BPRMF has no parameter 'n_factor'"):
        build_model("BPRMF", {"n_factor": 3})


def test_by_time_holds_out_the_first_later_baskets_of_known_users():
    data = sample()
    held = hold_out_by_time(data)
    cut = int(held.later.time.min())
    assert held.history.time.max() < cut
    assert held.history.n_rows + held.later.n_rows == data.n_rows
    assert held.later.n_rows == -(-data.n_rows // HOLD_OUT_ONE_IN)  # there are no equal times at the cut
    for user in held.truth.active_users[:50]:
        rows = slice(data.indptr[user], data.indptr[user + 1])
        later = data.time[rows] >= cut
        assert not later.all()
        first = data.item[rows][data.time[rows] == data.time[rows][later].min()]
        own = held.truth.item[held.truth.indptr[user] : held.truth.indptr[user + 1]]
        assert own.tolist() == first.tolist()


def test_strict_candidates_are_those_of_a_model_that_observed_the_days_before():
    held = hold_out(sample(), validation="by_time")
    found = Validation(sl.TIFUKNN(), held, n_candidates=5).fit()
    users = held.truth.users.to_ids(held.truth.active_users)
    assert found.candidates.users.values.equals(users)
    day = 86_400_000_000
    for number in (0, 40, len(users) - 1):
        at = int(held.truth.time[held.truth.indptr[held.truth.active_users[number]]])
        model = sl.TIFUKNN().fit(held.history)
        earlier = held.later.time < at // day * day
        assert earlier.any()
        model.observe(held.later.where(earlier).compact())
        expected = model.recommend([users[number]], N=5, at=np.datetime64(at, "us").item())
        assert found.candidates.at(number).items == expected.at(0).items


@pytest.mark.parametrize("name", ["PersonalFrequency", "TIFUKNN", "EASE", "BPRMF", "HRM", "TwoStage"])
def test_shuffling_events_after_a_time_changes_no_earlier_candidates(name):
    held = hold_out_by_time(sample())
    middle = int(np.median(held.truth.time[held.truth.indptr[:-1][held.truth.active_users]]))
    rng, later = np.random.default_rng(0), held.later
    after = np.flatnonzero(later.time >= middle)
    item = later.item.copy()
    item[after] = rng.permutation(item[after])
    shuffled = Interactions.from_dense(
        later.users, later.items, later.user, item, later.time, NO_BASKET, NO_WEIGHT
    )
    small = {"BPRMF": {"n_epochs": 2}, "HRM": {"n_epochs": 2}, "TwoStage": {"n_rounds": 5, "n_bags": 1}}
    found = []
    for events in (later, shuffled):
        model = build_model(name, small.get(name, {}))
        holdout = held._replace(later=events)
        found.append(Validation(model, holdout, n_candidates=10).fit().candidates)
    truth = held.truth
    times = truth.time[truth.indptr[truth.active_users]]
    assert (times < middle).sum() > 50
    for number in np.flatnonzero(times <= middle):  # at the time itself, nothing of it is known
        assert found[0].at(int(number)).items == found[1].at(int(number)).items


def test_split_by_time_is_validated_under_strict_time_and_another_is_not():
    split = sl.split.by_time(sample(), "2024-06-01")
    held = hold_out(split.train_valid, validation=split)
    assert held.later.time.min() == split.valid.time.min()
    assert held.history.n_rows == split.train.n_rows
    assert held.truth.active_users.tolist() == split.valid.active_users.tolist()
    split = sl.split.last_basket(sample())
    held = hold_out(split.train_valid, validation=split)
    assert held.later is None
    assert held.history is split.train
    assert held.truth is split.valid
    with pytest.raises(ConfigError, match="train_valid"):
        hold_out(sample(), validation=split)  # the test set would be used


def test_invalid_validation_is_refused():
    with pytest.raises(ConfigError, match="validation must be one of last_basket, by_time or a Split"):
        hold_out(sample(), validation="random")
    with pytest.raises(DataError, match="needs timestamps"):
        hold_out_by_time(unordered())
    one = Interactions.from_tuples([("a", "x", 0), ("a", "y", 9), ("b", "y", 0)])
    with pytest.raises(DataError, match="at least two users with events before and after"):
        hold_out_by_time(one)


def test_a_budget_compares_models_by_what_it_earns():
    data = sl.load_dataset("sample")
    names = ["Popularity", "PersonalFrequency"]
    budget = sl.cutoff.Budget(items_per_list=1.5)
    model = sl.fit(data, models=names, cutoff=budget, users="everyone", horizon="7d", budget="quick")
    selection = model.selection_
    assert (type(model).__name__, selection.metric) == ("PersonalFrequency", "value")
    split = sl.split.last_period(data, "7d")
    ranker = sl.PersonalFrequency().fit(split.train_valid)
    known = sl.Interactions.from_frame(split.train_valid.to_frame()).users.values
    lists = ranker.recommend(known, N=2, filter_seen=False)
    taken = split.test.to_frame().select("user_id", "item_id").unique()
    hits = lists.to_frame().join(taken, on=["user_id", "item_id"])["rank"]
    expected = ((hits == 1).sum() + 0.5 * (hits == 2).sum()) / len(known)
    scores = {row["model"]: row["score"] for row in selection.models}
    assert scores["PersonalFrequency"] == pytest.approx(expected)
    same, often = selection.held_out["baselines"]
    assert same["name"] == "the same volume, 1.5 per list, for everyone"
    assert 0 < same["score"] < often["score"]
    assert sl.allocate(model, contacts=30).n_users == 30


def test_a_budget_that_loses_to_a_simpler_volume_is_a_warning():
    validation = SimpleNamespace(volume=1.5, metric="value")
    worse = {"name": "the same volume for everyone", "difference": -0.035, "low": -0.07, "high": -0.005}
    unclear = {"name": "most often", "difference": -0.01, "low": -0.07, "high": 0.05}
    held_out = {"baselines": [worse, unclear]}
    with pytest.warns(DataWarning, match="less than the same volume for everyone") as caught:
        _warn_of_volume(SimpleNamespace(validation=validation), held_out)
    assert len(caught) == 1
    _warn_of_volume(SimpleNamespace(validation=SimpleNamespace(volume=None)), held_out)
