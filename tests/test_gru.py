"""The recurrent network of benchmarks/leave_one_out.py: its gradients, and that it learns an order."""

import runpy
from pathlib import Path

import numpy as np
import pytest

GRU = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "gru.py"))["GRU"]
N_ITEMS = 12


@pytest.fixture
def network():
    model = GRU(N_ITEMS, n_factors=5)
    rng = np.random.default_rng(1)
    for name, values in model.params.items():
        model.params[name] = values + 0.3 * rng.standard_normal(values.shape)
    model.params["items"][-1] = 0  # padding
    return model


def test_gradients_are_those_of_the_loss(network):
    rng, step = np.random.default_rng(2), 1e-5
    inputs, targets = (rng.integers(0, N_ITEMS + 1, (4, 3)) for _ in range(2))
    sampled = rng.choice(N_ITEMS, 6, replace=False)
    masks = tuple((rng.random((4, 3, 5)) < 0.7) / 0.7 for _ in range(2))
    _, gradients = network.loss(inputs, targets, sampled, masks)
    for name, values in network.params.items():
        n_checked = values.size - 5 if name == "items" else values.size  # padding is not learned
        numeric = np.zeros(n_checked)
        for place in range(n_checked):
            kept = values.flat[place]
            for sign in (1, -1):
                values.flat[place] = kept + sign * step
                numeric[place] += sign * network.loss(inputs, targets, sampled, masks)[0] / (2 * step)
            values.flat[place] = kept
        np.testing.assert_allclose(gradients[name].flat[:n_checked], numeric, atol=1e-7, err_msg=name)


def test_learns_which_item_follows():
    model = GRU(N_ITEMS, n_factors=16, batch=8, length=10, n_sampled=N_ITEMS, lr=0.02, dropout=0.0)
    rng = np.random.default_rng(0)
    sequences = [(rng.integers(N_ITEMS) + np.arange(9)) % N_ITEMS for _ in range(64)]
    for _ in range(15):
        model.fit_epoch(sequences)
    best = model.scores(model.states(sequences)[:, 0]).argmax(axis=1)
    following = np.array([(s[-1] + 1) % N_ITEMS for s in sequences])
    assert (best == following).mean() > 0.9
