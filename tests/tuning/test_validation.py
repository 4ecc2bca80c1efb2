"""Validation: what is held out, what is fitted on the rest, and the refit."""

from functools import cache

import numpy as np
import pytest

import shortlist as sl
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.tuning.validation import HOLD_OUT_ONE_IN, build_model, hold_out, last_baskets, validate


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


def test_every_fold_is_predicted_from_earlier_baskets():
    late, early = last_baskets(sample(), 2)
    assert late.history.n_rows + late.truth.n_rows == sample().n_rows
    assert early.history.n_rows + early.truth.n_rows == late.history.n_rows
    for history, truth, _ in (late, early):
        for user in truth.active_users:
            before = history.time[history.indptr[user] : history.indptr[user + 1]]
            assert before.max() < truth.time[truth.indptr[user]]


def test_random_items_are_held_out_where_users_do_not_return():
    data = unordered()
    history, truth, description, _ = hold_out(data, 1)
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
    found = validate(sl.HRM(n_factors=4, n_epochs=2, trend_half_life=3.0), holdout, n_candidates=7)
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
    found = validate(model, holdout, n_candidates=10, progress=lambda state: epochs.append(state.score))
    assert found.n_epochs == 1 + int(np.argmax(epochs))
    final = found.refit(sample())
    assert final.get_params() == model.get_params() | {"n_epochs": found.n_epochs}
    assert final.history_.fingerprint == sample().fingerprint
    assert not model.is_fitted
    fixed = validate(model, holdout, n_candidates=10, early_stopping=False)
    assert fixed.n_epochs == 8


def test_models_without_epochs_are_refitted_as_they_are():
    found = validate(sl.Popularity(), hold_out(unordered()), n_candidates=10)
    assert found.n_epochs is None
    assert found.refit(unordered()).get_params() == sl.Popularity().get_params()


def test_cutoff_is_fitted_on_a_clone():
    found = validate(sl.PersonalFrequency(), hold_out(sample()), n_candidates=10)
    cutoff = sl.cutoff.FixedN(n_candidates=10)
    assert found.fit_cutoff(cutoff).N_ == found.N
    assert not cutoff.fitted()


def test_metric_selects_n():
    found = validate(sl.PersonalFrequency(), hold_out(sample()), n_candidates=10, metric="recall")
    assert (found.N, found.score) == (10, found.curve["recall"][-1])


def test_models_are_built_by_name():
    assert build_model("BPRMF", {"n_factors": 3}).n_factors == 3
    with pytest.raises(ConfigError, match="did you mean 'BPRMF'"):
        build_model("BPRFM", {})
    with pytest.raises(ConfigError, match="BPRMF has no parameter 'n_factor'"):
        build_model("BPRMF", {"n_factor": 3})
