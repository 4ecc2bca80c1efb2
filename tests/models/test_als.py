"""ALS against its objective, its closed form, and itself on other numbers of threads."""

import numpy as np
import polars as pl
import pytest

from shortlist.data.interactions import Interactions
from shortlist.kernels.als import FEW
from shortlist.kernels.rows import read_only
from shortlist.models import als
from shortlist.models.als import ALS
from tests.models.cases import bits, checkerboard, crowd, dense


def objective(one, data):
    """The objective in plain NumPy, with the learned users."""
    has_item, unobserved = (data.to_csr().toarray() > 0).astype(float), one._weight(data.n_items)
    users, items = one._state.users.astype(float), one._state.items.astype(float)
    scores = users @ items.T
    penalty = sum(
        one.reg * ((counts + unobserved * n_others) ** one.reg_power * (vectors**2).sum(axis=1)).sum()
        for counts, n_others, vectors in (
            (has_item.sum(axis=1), data.n_items, users),
            (has_item.sum(axis=0), data.n_users, items),
        )
    )
    return (has_item * (1 - scores) ** 2).sum() + unobserved * (scores**2).sum() + penalty


@pytest.mark.parametrize("n_factors", [8, 40])
def test_every_epoch_lowers_the_objective(n_factors):
    data = crowd()
    found = [
        objective(ALS(n_factors=n_factors, n_epochs=n, reg_power=0.8).fit(data), data) for n in (1, 2, 4, 12)
    ]
    assert sorted(found, reverse=True) == found
    assert found[-1] < 0.99 * found[0]


def test_users_are_the_closed_form():
    data = crowd()
    one = ALS(n_factors=40, n_epochs=3, unobserved=0.2, reg=0.02, reg_power=0.5).fit(data)
    items = one._state.items.astype(float)
    has_item = data.to_csr().toarray() > 0
    for user in (0, 7, 399):
        liked = items[has_item[user]]
        penalty = 0.02 * (len(liked) + 0.2 * data.n_items) ** 0.5
        matrix = 0.2 * items.T @ items + liked.T @ liked + penalty * np.eye(40)
        wanted = np.linalg.solve(matrix, liked.sum(axis=0))
        np.testing.assert_allclose(one._state.users[user], wanted, atol=2e-4)


def test_weights_are_confidences_and_dislikes_should_score_zero():
    rows = [("a", "x", 0, 3), ("a", "y", 0, -2), ("b", "x", 0, 1), ("b", "z", 0, 1), ("c", "y", 0, 1)]
    data = Interactions.from_tuples(rows, negative_weights="keep")
    one = ALS(n_factors=4, n_epochs=5, weighting="linear", unobserved=0.5, reg=0.1).fit(data)
    items = one._state.items.astype(float)  # x, y, z
    penalty = 0.1 * (5 + 0.5 * 3)
    matrix = 0.5 * items.T @ items + (items[:2].T * [3, 2]) @ items[:2] + penalty * np.eye(4)
    np.testing.assert_allclose(one._state.users[0], np.linalg.solve(matrix, 3 * items[0]), atol=1e-4)


@pytest.mark.parametrize("way", ["session", "observe", "fold_in"])
def test_the_same_history_gives_the_same_scores(way):
    one = ALS(n_factors=16, n_epochs=3).fit(checkerboard())
    items = ["i00", "i04", "i06"]
    session = one.score(one.build_request(history={"new": items})).dense(20)
    if way == "observe":
        one.observe([("new", item, 5) for item in items])
    elif way == "fold_in":
        one.fold_in({"new": items})
    if way != "session":
        assert (dense(one, [one.users_.index("new")]) == session).all()
    known = checkerboard()
    copied = known.items.to_ids(known.item_sets[1][: known.item_sets[0][1]]).to_list()
    again = one.score(one.build_request(history={"copy": copied})).dense(20)
    np.testing.assert_allclose(again[0], dense(one, [0])[0], atol=1e-4)


def test_observed_items_change_the_list_at_once():
    one = ALS(n_factors=16, n_epochs=3).fit(checkerboard())
    before = dense(one, [0, 1])
    one.observe([("u00", "i01", 400), ("u00", "i03", 400)])
    after = dense(one, [0, 1])
    assert abs(after[0] - before[0]).max() > 0.01
    assert (after[1] == before[1]).all()


def test_partial_fit_continues():
    data = crowd()
    one = ALS(n_factors=16, n_epochs=2).fit(data)
    before = objective(one, data)
    one.partial_fit(data, n_epochs=3)
    assert objective(one, data) < before


def test_number_of_threads_changes_nothing():
    one = ALS(n_factors=40, n_epochs=2, n_threads=1).fit(crowd())
    assert bits(one) == bits(ALS(n_factors=40, n_epochs=2, n_threads=3).fit(crowd()))


def shelf(n=120):
    """Items of the crowd: the group of users that takes them, and words without meaning."""
    words = [f"w{n % 7} w{n % 11}" for n in range(n)]
    return pl.DataFrame({"item_id": np.arange(n), "group": [f"g{n % 4}" for n in range(n)], "words": words})


def test_content_is_a_ridge_regression_that_items_are_drawn_to(monkeypatch):
    monkeypatch.setattr(als, "CONTENT_STEPS", 200)
    data = crowd()
    one = ALS(n_factors=8, n_epochs=150, unobserved=0.2, reg=0.02, reg_power=0.5).fit(data, items=shelf())
    content, state = one._state.features, one._state
    x, w, items = content.matrix.toarray().astype(float), content.vectors.astype(float), state.items
    has_item = data.to_csr().toarray() > 0
    penalty = 0.02 * (has_item.sum(axis=0) + 0.2 * data.n_users) ** 0.5
    ridge = np.linalg.solve(
        (x.T * penalty) @ x + penalty.mean() * np.eye(x.shape[1]), (x.T * penalty) @ items
    )
    np.testing.assert_allclose(w, ridge, atol=2e-3)
    users = state.users.astype(float)
    for item in (0, 50, 119):
        fans = users[has_item[:, item]]
        matrix = 0.2 * users.T @ users + fans.T @ fans + penalty[item] * np.eye(8)
        wanted = np.linalg.solve(matrix, fans.sum(axis=0) + penalty[item] * (x @ w)[item])
        np.testing.assert_allclose(items[item], wanted, atol=5e-3)


def test_few_pairs_and_many_agree_with_means():
    """The exact solver and conjugate gradients solve the same system."""
    rng = np.random.default_rng(0)
    n, width = FEW + 1, 32
    fixed = als.FixedSide(
        read_only(rng.normal(size=(60, width)).astype("f4")), read_only(rng.random(width).astype("f4") + 1)
    )
    columns = rng.permutation(60)[:n].astype(np.int32)
    confidence = np.where(rng.random(n) < 0.8, 1.5, -0.5).astype("f4")
    means, penalty = rng.normal(size=(2, width)).astype("f4"), np.array([0.7, 0.7], "f4")
    rows = als.ConfidenceRows(
        read_only(np.array([0, FEW, FEW + n])), read_only(np.r_[columns[:FEW], columns]),
        read_only(np.r_[confidence[:FEW], confidence]),
    )  # fmt: skip
    found, rest = np.zeros((2, width), "f4"), (als.NOTHING, 200, np.float32(1e-7))
    als.solve_rows(rows, fixed, read_only(penalty), read_only(means), *rest, found)
    for number, size in enumerate((FEW, n)):
        v, c = fixed.vectors[columns[:size]].astype(float), np.abs(confidence[:size]).astype(float)
        matrix = np.diag(fixed.gram + 0.7) + (v.T * c) @ v
        right = v.T @ (c * (confidence[:size] > 0)) + 0.7 * means[number]
        np.testing.assert_allclose(found[number], np.linalg.solve(matrix, right), atol=1e-4)


def test_partial_fit_continues_with_content():
    data = crowd()
    one = ALS(n_factors=16, n_epochs=20).fit(data, items=shelf(124))
    before = one._state.features.matrix @ one._state.features.vectors
    one.partial_fit(data, n_epochs=1)
    state = one._state
    after = state.features.matrix @ state.features.vectors  # in another basis
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=0.1)
    np.testing.assert_allclose(state.items[120:], after[120:], atol=0.05)  # nobody has these items
    assert np.linalg.norm(after, axis=1).min() > 0.3
