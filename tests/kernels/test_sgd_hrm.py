"""The HRM kernels against numeric gradients, including those of the context, on the same random stream."""

from itertools import product

import numpy as np
import pytest

import shortlist as sl
from shortlist.kernels.hybrid import (
    ContextCell,
    ContextGradients,
    ContextRound,
    Contexts,
    apply_context_gradients,
    hybrid_vectors,
)
from shortlist.kernels.parameters import HINGE, L1, L2, LOGISTIC, SQUARED
from shortlist.kernels.sgd import sgd_block, sgd_round
from shortlist.kernels.strata import Visits
from shortlist.kernels.terms import Terms
from shortlist.models.factorization.objective import single_precision
from shortlist.models.factorization.schedule import UniformExamples
from shortlist.models.factorization.terms import NO_SALES, NO_TERMS, Trend, relabel_sales
from tests import naive
from tests.kernels.test_sgd_mf import WIDTH, F, assert_same, hyperparameters, parameters, wanted_state
from tests.kernels.test_sgd_repeats import DECAY, USERS, new_counts
from tests.kernels.test_sgd_strata import labeled_rows, schedule_of
from tests.kernels.test_sgd_trend import DAY, basket_times, busy, dated, sold_on

POOLS = list(product((False, True), (False, True)))
KINDS = [
    (LOGISTIC, L2, "pair"),
    (LOGISTIC, L2, "positive"),
    (LOGISTIC, L1, "negative"),
    (HINGE, L1, "positive"),
    (HINGE, L2, "negative"),
    (SQUARED, L2, "positive"),
    (SQUARED, L2, "negative"),
    (LOGISTIC, L2, "rejected"),
]


REPEAT_START, HALF_LIFE = 0.6, 2.0


def contexts_of(baskets, pools):
    """Contexts from a list of (user, context items)."""
    ends = np.cumsum([len(items) for _, items in baskets]).astype(np.int64)
    begins = ends - [len(items) for _, items in baskets]
    item = np.array([i for _, items in baskets for i in items], np.int32)
    user = np.array([user for user, _ in baskets], np.int32)
    return Contexts(user, begins, ends, item, *pools)


def run_block(visits, theta, hyper, state, cell):
    """sgd_block with contexts."""
    liked_in, stream = np.zeros(len(theta.item), np.int32), np.array([state], np.uint64)
    users, counts, scratch = cell.contexts.user, new_counts(0), np.empty((2, 8), F)
    return sgd_block(visits, users, theta, hyper, liked_in, stream, WIDTH, NO_TERMS, counts, cell, scratch)


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize(("loss", "penalty", "kind"), KINDS)
def test_one_step_is_one_gradient_step(loss, penalty, kind, pools):
    """The context contains the item of the step, one item twice, and items outside the step."""
    basket = [0, 2, 5, 2]
    for seed, bias in ((0, True), (1, False), (2, True)):
        hyper = hyperparameters(loss=loss, penalty=penalty, learn_boundary=loss != SQUARED)
        theta, plain = parameters(seed, 2, 6, bias, scale=0.5)
        contexts, snapshot = contexts_of([(1, basket)], pools), theta.item.copy()
        state, gradients = wanted_state(kind, hyper, 6), np.full((1, 8), 7, F)
        starts, groups, liked = np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int32)
        cell = ContextCell(contexts, snapshot, gradients)
        pairs = run_block(Visits(starts, groups, liked), theta, hyper, state, cell)
        assert pairs == (kind == "pair")
        schedule = schedule_of([[[0]]], 1, 1)
        schedule.prepare(0)
        collected = ContextGradients(snapshot, gradients, np.array([0, 1]))
        apply_context_gradients(0, 6, 0, schedule.strata, contexts, collected, theta.item, WIDTH)
        visit = 1, [0], basket
        _, context_moves = naive.block(plain, hyper, [visit], 0, 6, state, pools, plain.item.copy())
        for moves in context_moves:
            for item, move in moves.items():
                plain.item[item] += move
        assert_same(theta, plain)


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_negative_sampling_descends_its_loss(kind, pools):
    """HRM(negatives=25): the numeric gradient of log(1 + exp(∓s)) in every parameter, at a boundary of 0."""
    given = sl.HRM(negatives=25.0).objective()
    hyper = single_precision(
        given.hyperparameters(lr=0.3, reg_user=0.1, reg_item=0.2, reg_negative=0.3, negative_draws=1)
    )
    theta, _ = parameters(3, 1, 6, scale=0.5)
    theta.boundary[:] = 0
    before, basket = [array.astype(np.float64) for array in theta], [1, 2, 1]
    user, _, item, bias = before[:4]
    contexts, gradients = contexts_of([(0, basket)], pools), np.zeros((1, 8), F)
    cell = ContextCell(contexts, theta.item.copy(), gradients)
    visits = Visits(np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int32))
    state = wanted_state(kind, hyper, 6)
    run_block(visits, theta, hyper, state, cell)
    target = 0 if kind == "positive" else naive.draw(state, 0, 6)[1]
    context = item[basket].copy()

    def loss():
        score = item[target] @ naive.hybrid(user[0], context, *pools) + bias[target]
        reg = hyper.reg_item if kind == "positive" else hyper.reg_negative
        size = hyper.reg_user * user[0] @ user[0] + reg * item[target] @ item[target]
        return np.logaddexp(0, -score if kind == "positive" else score) + size / 2

    moves = [-0.3 * naive.gradient(loss, array) for array in (user, item, bias)]
    for moved, old, move in zip((theta.user, theta.item, theta.bias), (user, item, bias), moves, strict=True):
        np.testing.assert_allclose(moved, old + move, atol=2e-6)
    assert (theta.boundary == 0).all()
    context_move = -0.3 * naive.gradient(loss, context)
    collected = ContextGradients(cell.snapshot, gradients, np.array([0, 1]))
    schedule = schedule_of([[[0]]], 1, 1)
    schedule.prepare(0)
    changed = theta.item.copy()
    apply_context_gradients(0, 6, 0, schedule.strata, contexts, collected, changed, WIDTH)
    expected = np.zeros((6, 8))
    np.add.at(expected, basket, context_move)
    np.testing.assert_allclose(changed - theta.item, expected, atol=2e-6)


def test_first_basket_changes_nothing_and_draws_nothing():
    """The basket after it gets the same draw as without it."""
    hyper, baskets = hyperparameters(), [(0, []), (0, [1, 2])]
    results = []
    for groups in ([0], [0, 1], [1]):
        (theta, _), n = parameters(0, 1, 4), len(groups)
        before, gradients = [a.copy() for a in theta], np.full((n, 8), 7, F)
        contexts = contexts_of(baskets, (False, False))
        visits = Visits(np.arange(n + 1), np.array(groups, np.int32), np.zeros(n, np.int32))
        cell = ContextCell(contexts, theta.item.copy(), gradients)
        pairs = run_block(visits, theta, hyper, wanted_state("pair", hyper, 4), cell)
        assert pairs == n - (groups[0] == 0)
        if groups[0] == 0:
            assert (gradients[0] == 0).all()
        if groups == [0]:
            assert all((old == new).all() for old, new in zip(before, theta, strict=True))
        results.append([array.tobytes() for array in theta])
    assert results[1] == results[2] != results[0]


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize(("repeats", "trend"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("n_blocks", "each", "window", "negative_draws"),
    [(1, 1, 1, 1), (3, 1, 1, 1), (3, 1, 2, 1), (3, 1, 2, 3), (1, 1, 1, 6), (2, 3, 1, 1)],
)
def test_rounds_match_the_reference(n_blocks, each, window, negative_draws, pools, repeats, trend):
    rate = 0.25 if repeats == trend else 0.0  # 0: examples are drawn from all items
    later = np.array([at > 0 for baskets in USERS for at in range(len(baskets))])
    examples = None if rate else UniformExamples(later, 2.5)
    schedule = schedule_of(USERS, 11, n_blocks, seed=4, each=each, examples=examples)
    schedule.prepare(0)
    hyper = hyperparameters(lr=0.1, alpha=0.6, negative_draws=negative_draws, positive_rate=rate)
    theta, plain = parameters(2, len(USERS), 11, repeats=repeats, trend=trend)
    groups, rows = [], iter(labeled_rows(schedule))
    for user, baskets in enumerate(USERS):
        for at in range(len(baskets)):
            before = [i for basket in baskets[max(at - window, 0) : at] for i in basket]
            groups.append((user, next(rows), [int(schedule.label[i]) for i in before]))
    contexts = contexts_of([(user, before) for user, _, before in groups], pools)
    signals, sales = None, NO_SALES
    if trend:
        sales_data, times = busy(11), basket_times(dated(USERS))
        sales = relabel_sales(Trend.of(sales_data, HALF_LIFE).for_baskets(times), schedule.label)
        sold = [(day, int(schedule.label[i])) for day, i in sold_on(sales_data)]
        signals = [[naive.trend_score(i, day, sold, HALF_LIFE) for i in range(11)] for day in times // DAY]
        assert np.ptp(signals) > 1
    for round_index in range(n_blocks):
        cells, blocks = schedule.strata.cells, np.arange(n_blocks)
        begin = blocks * n_blocks * each + (blocks + round_index) % n_blocks * each
        starts = np.concatenate([[0], np.cumsum(cells[begin + each] - cells[begin])])
        collected = ContextGradients(theta.item.copy(), np.empty((starts[-1], 8), F), starts)
        terms = Terms(sales, F(np.log(DECAY)), F(REPEAT_START))
        steps = schedule.strata, contexts.user, theta, hyper, np.uint64(99), WIDTH, terms
        pairs = sgd_round(0, n_blocks, round_index, *steps, ContextRound(contexts, collected))
        for low, high in ((0, 4), (4, 11)):  # in two parts, as two threads would
            apply_context_gradients(
                low, high, round_index, schedule.strata, contexts, collected, theta.item, WIDTH
            )
        assert pairs == naive.run_round(
            plain,
            hyper,
            groups,
            schedule.user_starts.tolist(),
            schedule.strata.range_size,
            round_index,
            99,
            pools,
            each,
            *((DECAY, REPEAT_START) if repeats else (None, 0.0)),
            signals,
        )
    assert_same(theta, plain, 1e-5)


@pytest.mark.parametrize(("alpha", "least", "most"), [(0, 1700, 1999), (0.5, 800, 1050), (1, 0, 0)])
def test_alpha_is_the_share_of_classification_steps(alpha, least, most):
    theta, _ = parameters(0, 1, 20)
    n = 2000
    contexts = contexts_of([(0, [3])], (False, False))
    cell = ContextCell(contexts, theta.item.copy(), np.empty((n, 8), F))
    visits = Visits(np.arange(n + 1), np.zeros(n, np.int32), np.zeros(n, np.int32))
    pairs = run_block(visits, theta, hyperparameters(alpha=alpha, lr=0.01), 5, cell)
    assert least <= pairs <= most


@pytest.mark.parametrize("pools", POOLS)
def test_hybrid_vectors(pools):
    theta, plain = parameters(3, 3, 6)
    cases = [(2, [1, 4, 4]), (0, []), (1, [5])]
    contexts, out = contexts_of(cases, pools), np.empty((3, 8), F)
    hybrid_vectors(theta.user, theta.item, contexts, out, WIDTH)
    for (user, basket), vector in zip(cases, out, strict=True):
        expected = plain.user[user]
        wanted = naive.hybrid(expected, plain.item[basket], *pools) if basket else expected
        np.testing.assert_allclose(vector, wanted, atol=1e-6)
