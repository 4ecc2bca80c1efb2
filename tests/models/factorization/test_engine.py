"""Factor models: reproducible bits, limiting cases, probabilities, new users."""

from dataclasses import replace

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.models.factorization import representation, schedule
from tests.models.cases import (
    FACTORS,
    JOINT,
    all_users,
    bits,
    checkerboard,
    crowd,
    dense,
    fit,
    fitted,
    probabilities,
)
from tests.threads import on_threads

joint_model = pytest.mark.parametrize("name", JOINT)


def test_crowd_fills_several_blocks():
    data = crowd()
    assert (
        schedule.choose_partition(data.item_sets.items.size, data.n_users, data.n_items, FACTORS).n_blocks
        >= 4
    )


@pytest.mark.parametrize(
    ("name", "changed"),
    [(name, {}) for name in JOINT]
    + [
        ("DKBPRMF", {"loss": "hinge", "penalty": "l1", "negatives": "uniform", "bias": False}),
        ("DKHRM", {"loss": "hinge", "penalty": "l1", "pool_items": "max", "pool_user": "max", "window": 2}),
        ("DKHRM", {"repeat_decay": 0.9}),
    ],
)
def test_same_seed_same_bits_on_any_number_of_threads(name, changed):
    # seven epochs: the items are relabeled once
    one, two, four = on_threads(1, 2, 4, run=lambda: bits(fit(name, crowd(), n_epochs=7, lr=0.05, **changed)))
    assert one == two == four
    other = bits(fit(name, crowd(), n_epochs=7, lr=0.05, seed=1, **changed))
    assert all(other[part] != one[part] for part in ("parameters.user", "parameters.item"))


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_same_bits_if_a_block_processes_several_ranges(name, monkeypatch):
    for constant, value in (
        ("RANGE_BYTES", 200),
        ("CELL_ROWS", 1),
        ("CACHE_MIN_BLOCKS", 4),
        ("CACHE_MAX_BLOCKS", 4),
    ):
        monkeypatch.setattr(schedule, constant, value)
    monkeypatch.setattr(representation, "CONTEXT_BLOCKS", 4)
    assert schedule.choose_partition(crowd().n_rows, 400, crowd().n_items, FACTORS).ranges_per_block > 1
    one, two, three = on_threads(1, 2, 3, run=lambda: bits(fit(name, crowd(), n_epochs=2, lr=0.05)))
    assert one == two == three


@pytest.mark.parametrize(("ranker", "joint"), [("BPRMF", "DKBPRMF"), ("HRM", "DKHRM")])
@pytest.mark.parametrize("changed", [{}, {"loss": "hinge", "penalty": "l1"}])
def test_joint_model_with_alpha_0_equals_the_ranker(ranker, joint, changed):
    plain = bits(fit(ranker, crowd(), n_epochs=3, negative_draws=1))
    mixed = fit(joint, crowd(), n_epochs=3, alpha=0, **changed)
    for part in ("parameters.user", "parameters.item", "parameters.bias"):
        assert bits(mixed)[part] == plain[part]
    users = all_users(crowd())
    assert mixed.boundaries() is None
    assert probabilities(mixed, users[:2]) is None
    assert (mixed._state.parameters.boundary == mixed.t).all()


def test_only_joint_models_learn_boundaries_and_only_logistic_losses_give_probabilities():
    users = np.arange(5, dtype=np.int32)
    for name in JOINT:
        one = fitted(name)
        assert (one.boundaries() is not None) == name.startswith("DK")
        assert (probabilities(one, users) is not None) == (name in ("LogMF", "DKBPRMF", "DKHRM"))
    assert np.ptp(fitted("DKBPRMF").boundaries()) > 0
    hinge = fit("DKBPRMF", checkerboard(), loss="hinge")
    assert hinge.boundaries() is not None
    assert probabilities(hinge, users) is None


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_strong_penalty_keeps_boundaries_at_t(penalty):
    free, penalized = (
        fit("DKBPRMF", checkerboard(), t=0.7, lambda_t=lambda_t, penalty=penalty).boundaries()
        for lambda_t in (0.0, 1e4)
    )
    assert np.abs(penalized - 0.7).max() < 1e-3 < np.abs(free - 0.7).max()


def test_more_negatives_leave_fewer_items_above_the_boundary():
    users = all_users(crowd())
    above = []
    for negatives in (0.5, 1.0, 2.0):
        one = fit("DKBPRMF", crowd(), n_epochs=10, lr=0.05, negatives=negatives, alpha=0.8)
        above.append(float((dense(one, users) > one.boundaries()[:, None]).mean()))
    assert above[0] > above[1] > above[2] > 0


# ------------------------------------------------------------------ probabilities
def sample_interactions(n_users=300, n_items=80, seed=2):
    """Interactions from a known model of two factors; (data, the true probabilities)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items)) + rng.normal(size=n_items) - 2
    truth = 1 / (1 + np.exp(-logits))
    bought = rng.random(truth.shape) < truth
    bought[np.arange(n_items), np.arange(n_items)] = True  # every user and every item occurs
    bought[np.arange(n_users), np.arange(n_users) % n_items] = True
    return Interactions.from_csr(bought.astype(np.float32)), truth


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("LogMF", {}),
        ("LogMF", {"negatives": 5.0, "c": 3.0}),
        ("LogMF", {"negatives": "uniform"}),
        ("DKBPRMF", {"alpha": 1.0, "negatives": 5.0, "lambda_t": 0.1}),
        ("DKBPRMF", {"alpha": 1.0, "negatives": "uniform", "lambda_t": 0.1}),
    ],
)
def test_probabilities_are_calibrated_on_data_from_a_known_model(name, changed):
    data, truth = sample_interactions()
    one = fit(name, data, n_epochs=60, lr=0.05, reg=0.02, **changed)
    found = probabilities(one)
    assert found.mean() == pytest.approx(truth.mean(), rel=0.15)
    order = np.argsort(found, axis=None).reshape(5, -1)
    for fifth in order[2:]:  # the three highest fifths of the predictions
        assert found.flat[fifth].mean() == pytest.approx(truth.flat[fifth].mean(), rel=0.3)


def test_probabilities_of_the_next_basket_sum_to_its_mean_size():
    data = crowd()
    one = fit("DKHRM", data, n_epochs=15, lr=0.05, alpha=1.0, negatives=5.0, lambda_t=0.1, reg=0.02)
    expected = probabilities(one).sum(1).mean()
    assert expected == pytest.approx(data.n_rows / data.n_baskets, rel=0.25)


def test_probabilities_of_extreme_scores_are_0_and_1():
    one = fit("LogMF", checkerboard())
    bias = np.resize(np.array([1e4, -1e4], np.float32), 20)
    one._state = replace(one._state, parameters=one._state.parameters._replace(bias=bias))
    found = probabilities(one, np.zeros(1, np.int32))
    assert found[0, 0] == 1
    assert found[0, 1] == 0


# ------------------------------------------------------------------ new users
def observe_new(one, histories):
    """Add users without training, each with one basket after all known events."""
    after = int(one.history_.time.max()) + 1
    return one.observe([(user, item, after) for user, items in histories.items() for item in items])


@joint_model
def test_observed_users_get_scores_like_trained_users(name):
    """Users who were left out of training and observed then get about the scores of a full fit."""
    data, left_out = crowd(), [5, 17, 140]
    settings = {"n_epochs": 20, "lr": 0.2 if name == "LogMF" else 0.05, "reg": 0.02}
    whole = fit(name, data, **settings)
    rest = data.where(~np.isin(data.user, left_out)).compact()
    part = fit(name, rest, **settings)
    users = data.users.values.to_list()
    history = {users[u]: data.items.to_ids(data.item[data.user == u]).to_list() for u in left_out}
    observe_new(part, history)
    assert part.items_.values.to_list() == whole.items_.values.to_list()
    observed = dense(part, part.users_.lookup([users[u] for u in left_out]))
    correlations = [
        np.corrcoef(a, b)[0, 1]
        for a, b in zip(observed, dense(whole, np.array(left_out, np.int32)), strict=True)
    ]
    assert min(correlations) > 0.7


@joint_model
def test_observed_users_do_not_change_others(name):
    one = fit(name, checkerboard())
    old, users = one._state.parameters, all_users(checkerboard())
    scores = dense(one, users)
    observe_new(one, {"ann": ["i00", "i04", "i06"]})
    assert one._state.parameters is old
    np.testing.assert_allclose(dense(one, users), scores, rtol=1e-5, atol=1e-6)
    ann = dense(one, one.users_.lookup(["ann"]))[0]
    assert ann[0:20:2].mean() > ann[1:20:2].mean()
    if name.startswith("DK"):
        assert one.boundaries("ann")[0] != one.t


@joint_model
def test_observed_users_have_the_same_bits_on_any_number_of_threads(name):
    one = observe_new(fit(name, checkerboard()), {f"new{n}": [f"i{n:02}", f"i{n + 2:02}"] for n in range(7)})
    users = one.users_.lookup([f"new{n}" for n in range(7)])
    alone, together = on_threads(1, 3, run=lambda: dense(one, users))
    assert (alone == together).all()


def test_a_new_user_with_all_items_has_finite_scores():
    one = fit("DKBPRMF", checkerboard())
    observe_new(one, {"collector": one.items_.values.to_list()})
    assert np.isfinite(dense(one, one.users_.lookup(["collector"]))).all()
