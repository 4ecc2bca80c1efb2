"""HRM's kernels against numeric gradients, the context's share included, on the same random stream."""

from itertools import product

import numpy as np
import pytest

from shortlist.kernels.hrm import Contexts, context_apply, hrm_block, hrm_round, hybrid_vectors
from shortlist.kernels.losses import HINGE, L1, L2, LOGISTIC, SQUARED
from shortlist.models.factorization.trend import NOTHING, Trend, relabelled
from tests import naive
from tests.kernels.test_mf import WIDTH, F, parameters, rates, same, wanted_state
from tests.kernels.test_repeats import MEMORY, USERS, trace_of
from tests.kernels.test_strata import schedule_of
from tests.kernels.test_trend import DAY, busy, dated, moments_of, sold_on

POOLS = list(product((False, True), (False, True)))
KINDS = [
    (LOGISTIC, L2, "pair"),
    (LOGISTIC, L2, "positive"),
    (LOGISTIC, L1, "negative"),
    (HINGE, L1, "positive"),
    (HINGE, L2, "negative"),
    (SQUARED, L2, "positive"),
    (SQUARED, L2, "negative"),
    (LOGISTIC, L2, "lost"),
]


LEVEL, HALF_LIFE = 0.6, 2.0


def contexts_of(baskets, pools):
    """Contexts from a list of (user, items before)."""
    ends = np.cumsum([len(items) for _, items in baskets]).astype(np.int64)
    begins = ends - [len(items) for _, items in baskets]
    item = np.array([i for _, items in baskets for i in items], np.int32)
    user = np.array([user for user, _ in baskets], np.int32)
    return Contexts(user, begins, ends, item, *pools, F(np.log(MEMORY)), F(LEVEL))


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize(("loss", "penalty", "kind"), KINDS)
def test_one_step_is_one_gradient_step(loss, penalty, kind, pools):
    """The basket before holds an item of the step itself, one item twice, and items of no other part."""
    basket = [0, 2, 5, 2]
    for seed, bias in ((0, True), (1, False), (2, True)):
        made = rates(loss=loss, penalty=penalty, learn_boundary=loss != SQUARED)
        theta, plain = parameters(seed, 2, 6, bias, scale=0.5)
        contexts, snapshot = contexts_of([(1, basket)], pools), theta.item.copy()
        state, debts = wanted_state(kind, made, 6), np.full((1, 8), 7, F)
        starts, groups, liked = np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int32)
        stamp, stream = np.zeros(6, np.int32), np.array([state], np.uint64)
        scratch = (stamp, trace_of(0), NOTHING, stream)
        pairs = hrm_block(starts, groups, liked, contexts, snapshot, theta, debts, made, *scratch, WIDTH)
        assert pairs == (kind == "pair")
        strata = schedule_of([[[0]]], 1, 1)
        strata.enter(0)
        context_apply(0, 6, 0, strata.strata, contexts, snapshot, theta.item, debts, np.array([0, 1]), WIDTH)
        _, owed = naive.block(plain, made, [(1, [0], basket)], 0, 6, state, pools, plain.item.copy())
        for debt in owed:
            for item, move in debt.items():
                plain.item[item] += move
        same(theta, plain)


def test_a_first_basket_moves_nothing_and_draws_nothing():
    made, (theta, _) = rates(), parameters(0, 1, 4)
    before, debts, stream = [a.copy() for a in theta], np.full((1, 8), 7, F), np.array([5], np.uint64)
    pairs = hrm_block(
        np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int32),
        contexts_of([(0, [])], (False, False)), theta.item.copy(), theta, debts, made,
        np.zeros(4, np.int32), trace_of(0), NOTHING, stream, WIDTH,
    )  # fmt: skip
    assert pairs == 0
    assert all((old == new).all() for old, new in zip(before, theta, strict=True))
    assert (debts == 0).all()
    assert stream[0] == 5


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize(("repeats", "trend"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("n_blocks", "each", "window", "negative_draws"),
    [(1, 1, 1, 1), (3, 1, 1, 1), (3, 1, 2, 1), (3, 1, 2, 3), (1, 1, 1, 6), (2, 3, 1, 1)],
)
def test_rounds_replay_the_oracle(n_blocks, each, window, negative_draws, pools, repeats, trend):
    schedule = schedule_of(USERS, 11, n_blocks, seed=4, each=each)
    schedule.enter(0)
    made = rates(lr=0.1, alpha=0.6, negative_draws=negative_draws)
    theta, plain = parameters(2, len(USERS), 11, repeats=repeats, trend=trend)
    groups = []
    for user, baskets in enumerate(USERS):
        for at, items in enumerate(baskets):
            before = [i for basket in baskets[max(at - window, 0) : at] for i in basket]
            groups.append((user, schedule.label[items].tolist(), [int(schedule.label[i]) for i in before]))
    contexts = contexts_of([(user, before) for user, _, before in groups], pools)
    warmth, sales = None, NOTHING
    if trend:
        shop, moments = busy(11), moments_of(dated(USERS))
        sales = relabelled(Trend.of(shop, HALF_LIFE).before(moments), schedule.label)
        sold = [(day, int(schedule.label[i])) for day, i in sold_on(shop)]
        warmth = [[naive.trend_score(i, day, sold, HALF_LIFE) for i in range(11)] for day in moments // DAY]
        assert np.ptp(warmth) > 1
    for turn in range(n_blocks):
        cells, blocks = schedule.strata.cells, np.arange(n_blocks)
        begin = blocks * n_blocks * each + (blocks + turn) % n_blocks * each
        debt_at = np.concatenate([[0], np.cumsum(cells[begin + each] - cells[begin])])
        debts, snapshot = np.empty((debt_at[-1], 8), F), theta.item.copy()
        pairs = hrm_round(
            0, n_blocks, turn, schedule.strata, contexts, sales, schedule.size, snapshot, theta, debts,
            debt_at, made, np.uint64(99), WIDTH,
        )  # fmt: skip
        for low, high in ((0, 4), (4, 11)):  # as two threads would share it
            context_apply(
                low, high, turn, schedule.strata, contexts, snapshot, theta.item, debts, debt_at, WIDTH
            )
        assert pairs == naive.a_round(
            plain,
            made,
            groups,
            schedule.users_at.tolist(),
            schedule.size,
            turn,
            99,
            pools,
            each,
            *((MEMORY, LEVEL) if repeats else (None, 0.0)),
            warmth,
        )
    same(theta, plain, 1e-5)


@pytest.mark.parametrize(("alpha", "least", "most"), [(0, 1700, 1999), (0.5, 800, 1050), (1, 0, 0)])
def test_alpha_is_the_share_of_examples(alpha, least, most):
    theta, _ = parameters(0, 1, 20)
    n = 2000
    pairs = hrm_block(
        np.arange(n + 1), np.zeros(n, np.int32), np.zeros(n, np.int32),
        contexts_of([(0, [3])], (False, False)), theta.item.copy(), theta,
        np.empty((n, 8), F), rates(alpha=alpha, lr=0.01), np.zeros(20, np.int32),
        trace_of(0), NOTHING, np.array([5], np.uint64), WIDTH,
    )  # fmt: skip
    assert least <= pairs <= most


@pytest.mark.parametrize("pools", POOLS)
def test_hybrid_vectors(pools):
    theta, plain = parameters(3, 3, 6)
    asked = [(2, [1, 4, 4]), (0, []), (1, [5])]
    contexts, out = contexts_of(asked, pools), np.empty((3, 8), F)
    hybrid_vectors(theta.user, theta.item, contexts, out, WIDTH)
    for (user, basket), vector in zip(asked, out, strict=True):
        alone = plain.user[user]
        wanted = naive.hybrid(alone, plain.item[basket], *pools) if basket else alone
        np.testing.assert_allclose(vector, wanted, atol=1e-6)
