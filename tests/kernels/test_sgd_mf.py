"""sgd_block and sgd_round of matrix factorization against numeric gradients, on the same random stream."""

from itertools import product

import numpy as np
import pytest

from shortlist.kernels.parameters import HINGE, L1, L2, LOGISTIC, SQUARED, Hyperparameters, Parameters
from shortlist.kernels.sgd import sgd_block, sgd_round
from shortlist.kernels.simd import factor_width
from shortlist.kernels.strata import Visits
from shortlist.kernels.terms import Terms
from shortlist.models.factorization.schedule import UniformExamples
from shortlist.models.factorization.terms import NO_SALES, NO_TERMS, Trend, relabel_sales
from tests import naive
from tests.kernels.test_sgd_repeats import DECAY, USERS, new_counts
from tests.kernels.test_sgd_strata import labeled_rows, schedule_of
from tests.kernels.test_sgd_trend import DAY, basket_times, busy, dated, sold_on

F = np.float32
WIDTH = factor_width(8)
LOSSES = {"logistic": LOGISTIC, "hinge": HINGE, "squared": SQUARED}


def hyperparameters(**changed):
    """Hyperparameters with a different strength of each regularization."""
    plain = {
        "lr": 0.5, "reg_user": 0.1, "reg_item": 0.2, "reg_negative": 0.3, "alpha": 0.5, "positive_rate": 0.25,
        "positive_weight": 1.5, "t": 0.4, "lambda_t": 0.6, "loss": LOGISTIC, "penalty": L2,
        "learn_boundary": True, "negative_draws": 1,
    }  # fmt: skip
    hyper = plain | changed
    kept = ("loss", "penalty", "learn_boundary")
    hyper = {name: value if name in kept else F(value) for name, value in hyper.items()}
    return Hyperparameters(**hyper | {"negative_draws": np.int32(hyper["negative_draws"])})


def parameters(seed, n_users, n_items, bias=True, scale=0.7, repeats=False, trend=False):
    """Random parameters, and the same in double precision for the reference."""
    rng = np.random.default_rng(seed)
    sizes = ((n_users, 8), n_users, (n_items, 8), n_items if bias else 0)
    for used in (repeats, trend):
        sizes += (n_users, n_items) if used else (0, 0)
    hyper = Parameters(*(rng.normal(scale=scale, size=size).astype(F) for size in sizes))
    return hyper, Parameters(*(array.astype(np.float64) for array in hyper))


def wanted_state(kind, hyper, n_items, liked=(0,)):
    """A random state whose next draw is of the wanted kind: pair, positive, negative or rejected."""
    for state in range(10_000):
        _, other, z = naive.draw(state, 0, n_items)
        free = other not in liked
        found = {
            "pair": z >= hyper.alpha and free,
            "positive": z < hyper.alpha * hyper.positive_rate,
            "negative": hyper.alpha * hyper.positive_rate <= z < hyper.alpha and free,
            "rejected": z >= hyper.alpha * hyper.positive_rate and not free,
        }
        if found[kind]:
            return state
    raise AssertionError(f"no state draws a {kind}")


def run_block(theta, hyper, state, visits):
    """sgd_block over visits of (user, liked items)."""
    starts = np.concatenate([[0], np.cumsum([len(liked) for _, liked in visits])]).astype(np.int64)
    users = np.array([user for user, _ in visits], np.int32)
    liked = np.array([item for _, items in visits for item in items], np.int32)
    liked_in = np.zeros(len(theta.item), np.int32)
    visits, every_user = Visits(starts, users, liked), np.arange(len(theta.user), dtype=np.int32)
    stream, counts = np.array([state], np.uint64), new_counts(0)
    scratch = np.empty((2, 8), F)
    return sgd_block(
        visits, every_user, theta, hyper, liked_in, stream, WIDTH, NO_TERMS, counts, None, scratch
    )


def assert_same(theta, plain, atol=2e-6):
    for name, array in theta._asdict().items():
        np.testing.assert_allclose(array, getattr(plain, name), rtol=1e-5, atol=atol, err_msg=name)


@pytest.mark.parametrize(
    ("loss", "penalty", "kind", "bias"),
    [
        *product(("logistic", "hinge"), (L2, L1), ("positive", "negative"), (True, False)),
        *product(["squared"], [L2], ("positive", "negative"), (True, False)),
        *product(["logistic"], [L2], ("pair", "rejected"), (True, False)),
    ],
)
def test_one_step_is_one_gradient_step(loss, penalty, kind, bias):
    for seed in range(3):
        hyper = hyperparameters(loss=LOSSES[loss], penalty=penalty, learn_boundary=loss != "squared")
        theta, plain = parameters(seed, 2, 4, bias, scale=0.3)  # margins below 1
        before = [array.copy() for array in theta]
        state = wanted_state(kind, hyper, 4)
        pairs = run_block(theta, hyper, state, [(1, [0])])
        expected = naive.block(plain, hyper, [(1, [0], ())], 0, 4, state)[0]
        assert pairs == expected == (kind == "pair")
        assert_same(theta, plain)
        changed_names = [
            name for name, old, new in zip(theta._fields, before, theta, strict=True) if (old != new).any()
        ]
        learned = ["boundary"] * (kind not in ("pair", "rejected") and hyper.learn_boundary)
        assert kind == "rejected" or changed_names == ["user", *learned, "item"] + ["bias"] * bias
        assert kind != "rejected" or changed_names == []


def test_boundary_does_not_change_unless_learned():
    hyper = hyperparameters(learn_boundary=False)
    theta, plain = parameters(0, 1, 4)
    state = wanted_state("positive", hyper, 4)
    boundary = theta.boundary.copy()
    run_block(theta, hyper, state, [(0, [0])])
    naive.block(plain, hyper, [(0, [0], ())], 0, 4, state)
    assert_same(theta, plain)
    assert (theta.boundary == boundary).all()


@pytest.mark.parametrize("share", [0.25, 0])
@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_many_steps_match_the_reference(alpha, share):
    hyper = hyperparameters(alpha=alpha, positive_rate=share, lr=0.1)
    visits = [(0, [0, 1, 4]), (2, [2]), (1, [5, 0, 3, 1])]
    if not share:  # examples that are drawn from all items have their own rows
        visits = [(0, [0, 1, 4, ~2, ~1, ~1]), (2, [2]), (1, [5, 0, 3, 1]), (0, [~0, ~3])]
    theta, plain = parameters(5, 3, 6)
    pairs = run_block(theta, hyper, 77, visits)
    expected = naive.block(plain, hyper, [(user, liked, ()) for user, liked in visits], 0, 6, 77)[0]
    assert pairs == expected
    assert_same(theta, plain)


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_alpha_is_the_share_of_classification_steps(alpha):
    hyper = hyperparameters(alpha=alpha, lr=0.01)
    visits = [(0, [i]) for i in range(100)] * 40
    theta, _ = parameters(1, 1, 100)
    pairs = run_block(theta, hyper, 9, visits)
    assert {0: 3900 < pairs < 4000, 0.5: 1800 < pairs < 2150, 1: pairs == 0}[alpha]  # 1 in 100 is rejected


def test_user_who_likes_every_item_trains_on_positives_only():
    theta, _ = parameters(0, 1, 4)
    before = [array.copy() for array in theta]
    assert run_block(theta, hyperparameters(alpha=0), 3, [(0, [0, 1, 2, 3])]) == 0
    assert all((old == new).all() for old, new in zip(before, theta, strict=True))
    assert run_block(theta, hyperparameters(alpha=1), 3, [(0, [0, 1, 2, 3])] * 20) == 0
    assert (theta.user != before[0]).any()


def test_only_drawn_rows_are_examples_if_they_come_from_all_items():
    hyper = hyperparameters(alpha=1, positive_rate=0)
    theta, plain = parameters(0, 1, 4)
    assert run_block(theta, hyper, 3, [(0, [0, 1])] * 20) == 0
    assert_same(theta, plain)  # liked rows alone make no step
    run_block(theta, hyper, 3, [(0, [0, 1, ~1, ~3])])
    drawn = theta.bias - plain.bias
    assert drawn[1] > 0 > drawn[3]  # one example is liked, the other is not
    assert drawn[0] == drawn[2] == 0


@pytest.mark.parametrize(
    ("n_blocks", "each", "negative_draws"),
    [(1, 1, 1), (3, 1, 1), (4, 1, 1), (1, 1, 3), (3, 1, 3), (2, 3, 1), (3, 2, 3)],
)
@pytest.mark.parametrize("rate", [0.25, 0])
def test_rounds_match_the_reference(n_blocks, each, negative_draws, rate):
    users = [[[0, 3, 5, 8]], [[1, 2]], [[]], [[4, 9, 10, 7, 6]], [[0, 1, 2, 3]], [[5]], [[8, 9, 10]]]
    examples = None if rate else UniformExamples(np.array([bool(items) for (items,) in users]), 2.5)
    schedule = schedule_of(users, 11, n_blocks, seed=4, each=each, examples=examples)
    schedule.prepare(0)
    hyper = hyperparameters(lr=0.2, alpha=0.6, negative_draws=negative_draws, positive_rate=rate)
    theta, plain = parameters(2, len(users), 11)
    groups = [(user, rows, ()) for user, rows in enumerate(labeled_rows(schedule))]
    every_user = np.arange(len(users), dtype=np.int32)
    for round_index in range(n_blocks):
        steps = schedule.strata, every_user, theta, hyper, np.uint64(99), WIDTH, NO_TERMS, None
        pairs = sgd_round(0, n_blocks, round_index, *steps)
        assert pairs == naive.run_round(
            plain,
            hyper,
            groups,
            schedule.user_starts.tolist(),
            schedule.strata.range_size,
            round_index,
            99,
            each=each,
        )
    assert_same(theta, plain, 1e-5)


def test_several_draws_use_the_unseen_item_with_the_highest_score():
    theta, _ = parameters(3, 1, 40, bias=True)
    before = theta.item.copy()
    scores = before @ theta.user[0] + theta.bias
    assert run_block(theta, hyperparameters(alpha=0.0, negative_draws=400), 1, [(0, [0, 1])]) == 2
    changed = set(np.flatnonzero((theta.item != before).any(axis=1)))
    strongest = np.argsort(-scores[2:])[:3] + 2  # the first step may reorder the very top
    assert {0, 1} < changed
    assert changed - {0, 1} <= set(strongest)


def test_several_draws_skip_a_user_who_likes_every_item():
    theta, _ = parameters(4, 1, 3)
    before = [array.copy() for array in theta]
    assert run_block(theta, hyperparameters(alpha=0.0, negative_draws=5), 1, [(0, [0, 1, 2])]) == 0
    assert all((new == old).all() for new, old in zip(theta, before, strict=True))


@pytest.mark.parametrize(("repeats", "trend"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("n_blocks", "negative_draws"), [(1, 1), (3, 1), (3, 3)])
def test_rounds_with_terms_match_the_reference(n_blocks, negative_draws, repeats, trend):
    schedule = schedule_of(USERS, 11, n_blocks, seed=4)
    schedule.prepare(0)
    hyper = hyperparameters(lr=0.1, alpha=0.6, negative_draws=negative_draws)
    theta, plain = parameters(2, len(USERS), 11, repeats=repeats, trend=trend)
    users = np.array([user for user, baskets in enumerate(USERS) for _ in baskets], np.int32)
    groups = [(int(user), rows, ()) for user, rows in zip(users, labeled_rows(schedule), strict=True)]
    signals, sales = None, NO_SALES
    if trend:
        data, times = busy(11), basket_times(dated(USERS))
        sales = relabel_sales(Trend.of(data, 2.0).for_baskets(times), schedule.label)
        sold = [(day, int(schedule.label[item])) for day, item in sold_on(data)]
        signals = [[naive.trend_score(item, day, sold, 2.0) for item in range(11)] for day in times // DAY]
    terms = Terms(sales, F(np.log(DECAY)), F(0.6))
    for round_index in range(n_blocks):
        steps = schedule.strata, users, theta, hyper, np.uint64(99), WIDTH, terms, None
        pairs = sgd_round(0, n_blocks, round_index, *steps)
        assert pairs == naive.run_round(
            plain,
            hyper,
            groups,
            schedule.user_starts.tolist(),
            schedule.strata.range_size,
            round_index,
            99,
            repeat_decay=DECAY if repeats else None,
            start=0.6 if repeats else 0.0,
            trend_scores=signals,
        )
    assert_same(theta, plain, 1e-5)
