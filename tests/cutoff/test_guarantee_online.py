"""Guarantee.update: the long-run mean meets the level on any data, within the printed bound."""

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cutoff import Guarantee, top_candidates
from shortlist.cutoff.guarantee import next_position, position_at, threshold_at
from shortlist.errors import ConfigError, DataError

N_ITEMS, N_USERS = 8, 60


def batch(rng, shift):
    """(candidates, truth) of one day; a negative shift makes all items less relevant."""
    scores = rng.normal(size=(N_USERS, N_ITEMS)).astype(np.float32)
    relevant = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 1.5 * scores - shift))
    truth = sl.Interactions.from_csr(relevant)
    return top_candidates(scores, ids=truth), truth


def fitted(**params):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2_000, N_ITEMS)).astype(np.float32)
    truth = sl.Interactions.from_csr(rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 1.5 * scores)))
    lists = top_candidates(scores, ids=truth)
    return Guarantee(confidence=0.8, n_thresholds=12, **params).fit(lists, truth, users=truth.users.values)


SHIFTS = {
    "none": lambda t: 0.0,
    "sudden": lambda t: 0.0 if t < 100 else -2.0,
    "season": lambda t: 2 * np.sin(t / 15),
    "hopeless": lambda t: -8.0,
    "alternating": lambda t: 2.0 * (-1) ** t,
}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(
    "params", [{"min_precision": 0.5}, {"min_precision": 0.6, "over": "users"}, {"max_empty": 0.2}]
)
def test_mean_meets_the_level_within_the_bound_on_any_data(params, shift):
    rng, cut, rates = np.random.default_rng(1), fitted(**params), []
    safe = 0.0 if "max_empty" in params else 1.0
    for t in range(200):
        lists, truth = batch(rng, SHIFTS[shift](t))
        shown = cut.apply(lists)
        rate = cut.batch_rate(shown, truth, users=truth.users.values)
        rates.append(safe if rate is None else rate)
        cut = cut.update(shown, truth, users=truth.users.values)
        mean, bound = np.mean(rates), cut.bound(t + 1)
        if "max_empty" in params:
            assert mean <= cut.max_empty + bound
        else:
            assert mean >= cut.min_precision - bound
    assert cut.n_updates_ == 200
    assert cut.total_ / 200 == pytest.approx(mean)
    assert bound < 0.04


def test_a_fixed_threshold_breaks_where_the_update_does_not():
    rng, cut = np.random.default_rng(2), fitted(min_precision=0.5)
    first, fixed, adapted = cut, [], []
    for t in range(200):
        lists, truth = batch(rng, SHIFTS["sudden"](t))
        users = truth.users.values
        fixed.append(first.batch_rate(first.apply(lists), truth, users=users))
        shown = cut.apply(lists)
        rate = cut.batch_rate(shown, truth, users=users)
        adapted.append(1.0 if rate is None else rate)
        cut = cut.update(shown, truth, users=users)
    assert np.mean(fixed) < 0.5 - cut.bound(200)
    assert np.mean(adapted) >= 0.5 - cut.bound(200)


def test_update_returns_a_new_guarantee_and_prints_the_bound():
    cut = fitted(min_precision=0.5)
    before = cut.threshold_
    lists, truth = batch(np.random.default_rng(3), -3.0)
    after = cut.update(cut.apply(lists), truth, users=truth.users.values)
    assert cut.threshold_ == before
    assert "n_updates_" not in cut.fitted()
    assert after.threshold_ > before
    assert "over 1 updates for a guaranteed 50.0%; for any data it is at least" in after.guarantee_


def test_updated_guarantee_is_saved(tmp_path):
    cut = fitted(max_empty=0.3)
    lists, _ = batch(np.random.default_rng(4), 0.0)
    after = cut.update(cut.apply(lists))
    same = Guarantee.load(after.save(tmp_path / "cutoff"))
    assert same.fitted().keys() == after.fitted().keys()
    assert same.update(cut.apply(lists)).threshold_ == after.update(cut.apply(lists)).threshold_


def test_a_late_outcome_widens_the_bound():
    cut = fitted(min_precision=0.5)
    assert cut.bound(10, delay=3) == pytest.approx(cut.bound(10) + 0.5 * 3 / 10)


def test_positions_and_thresholds_are_inverse():
    grid = np.array([3.0, 2.0, 0.5, -np.inf])
    for threshold in (3.0, 2.5, 2.0, 0.5):
        assert threshold_at(grid, position_at(grid, threshold)) == pytest.approx(threshold)
    assert (threshold_at(grid, 1.0), threshold_at(grid, 0.0)) == (np.inf, -np.inf)
    assert (position_at(grid, np.inf), position_at(grid, -np.inf)) == (1.0, 0.0)
    assert threshold_at(grid, 0.99) == 3.0
    assert position_at(np.array([-np.inf]), -0.5) == 0.0


def test_fallback_lists_count_as_empty_and_unknown_users_do_not_count():
    table = pl.DataFrame(
        {
            "user_id": ["ann", "bob", "cat"],
            "item_id": ["tea", "jam", None],
            "rank": [1, 1, 0],
            "reason": ["guarantee", "fallback", "unknown_user"],
        }
    )
    lists = sl.RankedLists.from_frame(table)
    truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    assert Guarantee(max_empty=0.5).batch_rate(lists) == 0.5
    assert Guarantee(min_precision=0.5).batch_rate(lists, truth) == 1.0


def test_truth_is_required_for_precision():
    cut = fitted(min_precision=0.5)
    with pytest.raises(DataError, match="precision needs truth"):
        cut.update(cut.apply(batch(np.random.default_rng(0), 0.0)[0]))


@pytest.mark.parametrize("step", [0, 1, "a", True])
def test_invalid_step_is_refused(step):
    with pytest.raises(ConfigError, match="step"):
        Guarantee(min_precision=0.5, step=step).fit(*batch(np.random.default_rng(0), 0.0))


def test_the_next_position_moves_with_the_shortfall_and_is_bounded():
    assert next_position(0.5, 0.3, 0.1) == pytest.approx(0.53)
    assert next_position(0.5, -0.3, 0.1) == pytest.approx(0.47)
    assert next_position(0.5, 7.0, 0.1) == pytest.approx(0.6)
    assert next_position(0.5, -7.0, 0.1) == pytest.approx(0.4)
    assert next_position(0.05, -1.0, 0.1) == 0.0


@pytest.mark.parametrize("params", [{"min_precision": 0.5}, {"max_empty": 0.2}])
def test_the_bound_starts_from_the_distance_to_the_safe_end(params):
    """Empty lists are safe for precision, so its safe end is a high threshold; for max_empty a low one."""
    cut = fitted(**params)
    position = position_at(cut.grid_, cut.threshold_)
    assert 0.1 < position < 0.9
    start = position if "min_precision" in params else 1 - position
    largest = 0.5 if "min_precision" in params else 0.8
    assert cut.bound(4) == pytest.approx(largest * (1 + cut.step - start) / (4 * cut.step))
    with pytest.raises(ConfigError, match="n_updates must be"):
        cut.bound(0)


def test_the_guarantee_names_what_is_promised():
    lists, truth = batch(np.random.default_rng(3), 0.0)
    names = {"min_precision": "mean precision", "max_empty": "mean share of empty lists"}
    for param, name in names.items():
        cut = fitted(**{param: 0.4})
        assert cut.update(cut.apply(lists), truth, users=truth.users.values).guarantee_.startswith(name)
