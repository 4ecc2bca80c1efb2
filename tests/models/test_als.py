"""ALS against its objective, its closed form, and itself on other numbers of threads."""

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.models.als import ALS
from tests.models.cases import bits, checkerboard, crowd, dense
from tests.threads import on_threads


def objective(one, data):
    """The objective in plain NumPy, with the learned users."""
    has_item, unobserved = (data.to_csr().toarray() > 0).astype(float), one._weight(data.n_items)
    users, items = one._state.vectors.users.astype(float), one._state.vectors.items.astype(float)
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
    items = one._state.vectors.items.astype(float)
    has_item = data.to_csr().toarray() > 0
    for user in (0, 7, 399):
        liked = items[has_item[user]]
        penalty = 0.02 * (len(liked) + 0.2 * data.n_items) ** 0.5
        matrix = 0.2 * items.T @ items + liked.T @ liked + penalty * np.eye(40)
        wanted = np.linalg.solve(matrix, liked.sum(axis=0))
        np.testing.assert_allclose(one._state.vectors.users[user], wanted, atol=2e-4)


def test_weights_are_confidences_and_dislikes_should_score_zero():
    rows = [("a", "x", 0, 3), ("a", "y", 0, -2), ("b", "x", 0, 1), ("b", "z", 0, 1), ("c", "y", 0, 1)]
    data = Interactions.from_tuples(rows, negative_weights="keep")
    one = ALS(n_factors=4, n_epochs=5, weighting="linear", unobserved=0.5, reg=0.1).fit(data)
    items = one._state.vectors.items.astype(float)  # x, y, z
    penalty = 0.1 * (5 + 0.5 * 3)
    matrix = 0.5 * items.T @ items + (items[:2].T * [3, 2]) @ items[:2] + penalty * np.eye(4)
    np.testing.assert_allclose(one._state.vectors.users[0], np.linalg.solve(matrix, 3 * items[0]), atol=1e-4)


@pytest.mark.parametrize("way", ["session", "observe"])
def test_the_same_history_gives_the_same_scores(way):
    one = ALS(n_factors=16, n_epochs=3).fit(checkerboard())
    items = ["i00", "i04", "i06"]
    session = one.score(one.build_request(history={"new": items})).dense(20)
    if way == "observe":
        one.observe([("new", item, 5) for item in items])
        assert (dense(one, [one.users_.index("new")]) == session).all()
    known = checkerboard()
    copied = known.items.to_ids(known.item_sets.row(0)).to_list()
    again = one.score(one.build_request(history={"copy": copied})).dense(20)
    np.testing.assert_allclose(again[0], dense(one, [0])[0], atol=1e-4)


def test_observed_items_change_the_list_at_once():
    one = ALS(n_factors=16, n_epochs=3).fit(checkerboard())
    before = dense(one, [0, 1])
    one.observe([("u00", "i01", 400), ("u00", "i03", 400)])
    after = dense(one, [0, 1])
    assert abs(after[0] - before[0]).max() > 0.01
    assert (after[1] == before[1]).all()


def test_number_of_threads_changes_nothing():
    one, three = on_threads(1, 3, run=lambda: bits(ALS(n_factors=40, n_epochs=2).fit(crowd())))
    assert one == three
