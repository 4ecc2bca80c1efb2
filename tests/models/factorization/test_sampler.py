"""negatives="uniform" draws every (group, item) equally often, whatever the strata."""

import numpy as np
import pytest
from scipy.stats import chi2

import shortlist as sl
from shortlist.data.interactions import Interactions
from shortlist.models.factorization import training
from shortlist.models.factorization.schedule import Partition, UniformExamples
from tests.kernels.test_sgd_strata import cells, schedule_of

N_ITEMS = 12
USERS = [[[0, 1, 2], [3]], [[0, 5, 6, 7, 8], [1], [2, 9]], [[11], [0]], [[4, 3, 2, 10], [0, 1]], [[5]]]
PARTITIONS = [(1, 1), (1, 4), (2, 1), (3, 2), (4, 3), (5, 1), (2, 6)]


def drawn_counts(schedule, n_groups, n_epochs):
    """(n_groups, n_items) how often each example was drawn, read back from the strata."""
    counts = np.zeros((n_groups, N_ITEMS), np.int64)
    for epoch in range(n_epochs):
        schedule.prepare(epoch)
        for rows in cells(schedule).values():
            for group, item in rows:
                if item < 0:
                    counts[group, ~item] += 1
    return counts


@pytest.mark.parametrize(("n_blocks", "each"), PARTITIONS)
@pytest.mark.parametrize("per_group", [0.4, 3.25])
def test_examples_have_exact_frequencies_in_every_partition(n_blocks, each, per_group):
    n_groups, n_epochs = sum(map(len, USERS)), 250
    trained = np.arange(n_groups) % 4 != 1
    schedule = schedule_of(
        USERS, N_ITEMS, n_blocks, seed=3, each=each, examples=UniformExamples(trained, per_group)
    )
    counts = drawn_counts(schedule, n_groups, n_epochs)
    assert counts[~trained].sum() == 0
    expected = n_epochs * per_group / N_ITEMS
    statistic = ((counts[trained] - expected) ** 2 / expected).sum()
    # each of 7 · 12 cells counts as one degree of freedom; far too regular is as wrong as far too irregular
    low, high = chi2.ppf([1e-4, 1 - 1e-4], int(trained.sum()) * N_ITEMS)
    assert low < statistic < high
    per_cell = np.abs(counts[trained] - expected) / np.sqrt(expected)
    assert per_cell.max() < 5


def test_examples_do_not_depend_on_partition_or_threads():
    examples = UniformExamples(np.ones(sum(map(len, USERS)), np.bool_), 2.5)
    plans = [(1, 1, 1), (3, 2, 1), (3, 2, 3)]
    found = [
        drawn_counts(schedule_of(USERS, N_ITEMS, b, 5, threads, each, examples), examples.trained.size, 7)
        for b, each, threads in plans
    ]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def interactions():
    rows = [
        (f"u{user}", f"i{item:02}", 10 * at)
        for user, baskets in enumerate(USERS[:4])
        for at, items in enumerate(baskets)
        for item in items
    ]
    return Interactions.from_tuples(rows)


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
@pytest.mark.parametrize("partition", [(1, 1), (2, 3), (4, 3)])
def test_training_steps_have_these_frequencies(monkeypatch, name, partition):
    # scores and boundaries stay near 0, so that each example moves them by ± lr / 2, which counts the draws
    monkeypatch.setattr(training, "choose_partition", lambda *_: Partition(*partition))
    data, n_epochs, lr = interactions(), 600, 1e-6
    plain = {"alpha": 1.0, "t": 0.0, "lambda_t": 0.0, "reg": 0.0, "init": 0.0, "tol": 0.0}
    model = getattr(sl, name)(negatives="uniform", lr=lr, n_epochs=n_epochs, n_factors=8, **plain).fit(data)
    theta = model._state.parameters
    baskets = [[set(b) for b in own] for own in USERS[:4]]
    groups = [[set().union(*own)] if name == "DKBPRMF" else own[1:] for own in baskets]
    n_groups, n_rows = sum(map(len, groups)), sum(len(g) for own in groups for g in own)
    each = n_epochs * n_rows / (n_groups * N_ITEMS)  # draws of each pair of group and item
    order = data.items.lookup([f"i{item:02}" for item in range(N_ITEMS)])
    for user, own in enumerate(groups):
        wanted = each * sum(N_ITEMS - 2 * len(g) for g in own)
        found = theta.boundary[user] / (lr / 2)
        assert abs(found - wanted) < 5 * np.sqrt(each * N_ITEMS * len(own))
    for item in range(N_ITEMS):
        wanted = each * sum(1 if item in g else -1 for own in groups for g in own)
        found = theta.bias[order[item]] / (lr / 2)
        assert abs(found - wanted) < 5 * np.sqrt(each * n_groups)
