"""Validation while training: F1 at the best N, by hand and against the plain definition."""

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.kernels.parameters import Parameters
from shortlist.models.factorization.representation import UserFactors
from shortlist.models.factorization.training import MAX_ITEMS, build_evaluator


def theta_of(scores):
    """Parameters whose scores are the given table."""
    table = np.asarray(scores, np.float32)
    n_users, n_items = table.shape
    none = np.zeros(0, np.float32)
    own = np.zeros(n_users, np.float32), np.eye(n_items, dtype=np.float32)
    return Parameters(table, *own, *[none] * (len(Parameters._fields) - 3))


class Scorer:
    """A model whose scores are the user parameters; it notes for which times they are made."""

    seed = 0

    representation = UserFactors()

    def __init__(self):
        self.requested = {}

    def dense_scores(self, theta, history, trend, users, timestamps):
        if timestamps is not None:
            names = history.users.to_ids(users).to_list()
            self.requested.update(zip(names, (timestamps // 86_400_000_000).tolist(), strict=True))
        return theta.user[users]


def evaluator_of(valid, history, scorer=None):
    """The evaluator of validation data."""
    return build_evaluator(scorer or Scorer(), valid, history, None)


def score(evaluator, scores):
    """F1 of the parameters whose scores are the given table."""
    theta = theta_of(scores)
    return evaluator.score(theta._replace(user=theta.user[evaluator.users]))


def plain(scores, seen, wanted):
    """F1 at the best N over all users with something wanted."""
    best = 0
    for n in range(1, MAX_ITEMS + 1):
        total = 0
        for user, held in wanted.items():
            free = [i for i in np.argsort(-scores[user], kind="stable") if i not in seen[user]]
            shown = min(n, scores.shape[1])
            total += 2 * len(set(free[:n]) & held) / (shown + len(held))
        best = max(best, total / len(wanted))
    return best


@pytest.mark.parametrize("repeats", [False, True])
def test_f1_at_the_best_n(repeats):
    rng = np.random.default_rng(int(repeats))
    rows, held = [], []
    for user in range(12):
        items = rng.permutation(30)
        rows += [(user, int(i), 0) for i in items[:8]]
        rows += [(user, int(i), 1) for i in items[:3]] if repeats else []
        held += [(user, int(i), 2) for i in items[5 if repeats else 8 : 11]] if user % 3 else []
    everything = Interactions.from_tuples([*rows, *held])
    history, valid = (
        everything.where(everything.time < 2_000_000),
        everything.where(everything.time == 2_000_000),
    )
    assert history.n_rows == len(rows)
    assert history.has_repeats == repeats
    scores = rng.normal(size=(12, 30))
    seen = {u: set() if repeats else {i for v, i, _ in rows if v == u} for u in range(12)}
    wanted = {u: {i for v, i, _ in held if v == u} for u in range(12) if u % 3}
    evaluator = evaluator_of(valid, history)
    assert score(evaluator, scores) == pytest.approx(plain(scores, seen, wanted))


def test_a_perfect_ranking_of_one_item_each_is_perfect():
    data = Interactions.from_tuples([(u, i, t) for u in range(3) for i, t in ((u, 0), (u + 3, 1))])
    history, valid = data.where(data.time == 0), data.where(data.time > 0)
    scores = np.zeros((3, 6))
    scores[np.arange(3), np.arange(3)] = 9  # seen, so filtered
    scores[np.arange(3), np.arange(3) + 3] = 5
    assert score(evaluator_of(valid, history), scores) == 1


def test_lists_are_made_at_the_time_of_the_validation_basket():
    days = [30, 10, 20, 10]
    rows = [(u, i, t) for u, day in enumerate(days) for i, t in ((u, 0), (u + 4, 86_400 * day))]
    data = Interactions.from_tuples(rows)
    history, valid = data.where(data.time == 0), data.where(data.time > 0)
    scorer = Scorer()
    score(evaluator_of(valid, history, scorer), np.zeros((4, 8)))
    assert scorer.requested == dict(enumerate(days))
    timeless = Interactions.from_tuples([(0, 1), (0, 2), (1, 0)])
    assert evaluator_of(timeless, timeless).times is None
