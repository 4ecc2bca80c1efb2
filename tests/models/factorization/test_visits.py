"""Weights in factor models: how often training visits a pair."""

import warnings

import numpy as np
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataWarning
from shortlist.models.factorization.schedule import MAX_MEAN, count_row_visits
from shortlist.models.factorization.training import TrainingRows, visit_scale
from tests.models.cases import bits, dense
from tests.threads import on_threads

MODELS = {
    "BPRMF": sl.BPRMF(n_factors=8, n_epochs=3, seed=2),
    "LogMF": sl.LogMF(n_factors=8, n_epochs=3, seed=2),
    "CRRMF": sl.CRRMF(n_factors=8, n_epochs=3, seed=2),
    "DKBPRMF": sl.DKBPRMF(n_factors=8, n_epochs=3, seed=2),
    "HRM": sl.HRM(n_factors=8, n_epochs=3, seed=2, repeat_decay=0.9),
    "DKHRM": sl.DKHRM(n_factors=8, n_epochs=3, seed=2),
}


def weighted_data(weights):
    """Random baskets; `weights` makes the weight of each row."""
    rng = np.random.default_rng(4)
    rows = sorted(
        {(f"u{rng.integers(9)}", f"i{rng.integers(12)}", f"2024-01-{d % 28 + 1:02}") for d in range(300)}
    )
    return sl.Interactions.from_tuples(
        [(*row, float(weights(n))) for n, row in enumerate(rows)], negative_weights="keep"
    )


def count_visits(amounts, seed, scale=1.0):
    return count_row_visits(amounts, scale, seed)


def test_visits_are_the_amounts_rounded_at_random():
    amounts = np.tile([1.0, 2.25, 0.1, -3.0, 0.0], 4000)
    visits = count_visits(amounts, seed=3).reshape(-1, 5)
    assert (visits[:, [0, 2]] == 1).all()  # at least once
    assert set(visits[:, 1]) == {2, 3}
    assert visits[:, 1].mean() == pytest.approx(2.25, abs=0.03)
    assert not visits[:, [3, 4]].any()
    assert np.array_equal(visits, count_visits(amounts, seed=3).reshape(-1, 5))
    assert not np.array_equal(visits, count_visits(amounts, seed=4).reshape(-1, 5))


def test_large_amounts_keep_their_ratio():
    data = weighted_data(lambda n: 30 if n % 2 else 90)
    assert visit_scale(data.weight.astype(np.float64)) == pytest.approx(MAX_MEAN / data.weight.mean())
    visits = count_visits(np.tile([30.0, 90.0], 5000), 0, MAX_MEAN / 60).reshape(-1, 2)
    assert visits.mean(axis=0) == pytest.approx([MAX_MEAN / 2, 1.5 * MAX_MEAN], rel=0.02)


def test_places_of_rows_decide_about_their_visits():
    amounts = np.random.default_rng(1).random(1000) * 3
    whole = count_row_visits(amounts, 1.0, 5)
    assert np.array_equal(count_row_visits(amounts[:300], 1.0, 5), whole[:300])


def test_rows_are_repeated_within_their_group():
    rows = [("a", "x", 1, 2.0), ("a", "y", 1, -1.0), ("b", "z", 2, 3.0)]
    data = sl.Interactions.from_tuples(rows, negative_weights="keep")
    one = sl.HRM(weighting="linear", repeat_decay=None, trend_half_life=None)
    loaded = TrainingRows.of(
        one, one.representation.groups(data, one.terms.start(data), one.weight_transform)
    )
    assert loaded.indptr.tolist() == [0, 2, 5]
    assert loaded.item.tolist() == [0, 0, 2, 2, 2]
    assert loaded.groups.starts.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", MODELS)
def test_a_weight_of_one_and_none_are_the_same_bit_for_bit(name):
    data = weighted_data(lambda n: 1)
    plain = MODELS[name].clone().fit(data)
    if name in ("HRM", "DKHRM"):  # a pair of the others is the sum of its rows
        assert bits(MODELS[name].clone().set_params(weighting="linear").fit(data)) == bits(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert np.array_equal(
            dense(MODELS[name].clone().fit(weighted_data(lambda n: n % 7 - 1))), dense(plain)
        )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weighting", ["linear", "log", "cap"])
def test_weights_raise_the_score_of_their_item(name, weighting):
    heavy = {"i3": 40, "i4": 0.5}
    data = weighted_data(lambda n: 1)
    frame = data.to_frame()
    amounts = [heavy.get(item, 2) for item in frame["item_id"]]
    weighted = sl.Interactions.from_frame(frame.with_columns(weight=np.array(amounts, np.float64)))
    model = MODELS[name].clone().set_params(weighting=weighting, weight_cap=30.0, n_epochs=8)
    before = dense(model.clone().set_params(weighting="none").fit(weighted))
    after = dense(model.clone().fit(weighted))
    gain = (after - before).mean(axis=0)
    at = {item: model.clone().fit(weighted).items_.index(item, "item id") for item in heavy}
    assert gain[at["i3"]] > gain[at["i4"]]


@pytest.mark.parametrize("name", ["BPRMF", "HRM"])
def test_threads_do_not_change_weighted_models(name):
    data = weighted_data(lambda n: n % 5)
    one, four = on_threads(1, 4, run=lambda: MODELS[name].clone().set_params(weighting="log").fit(data))
    assert np.array_equal(dense(one), dense(four))


def test_weights_are_needed():
    with pytest.raises(ConfigError, match="needs weights"):
        sl.BPRMF(weighting="log").fit(sl.load_dataset("sample"))
    with pytest.raises(ConfigError, match="squared"):
        sl.BPRMF(weighting="squared").fit(weighted_data(lambda n: 1))
