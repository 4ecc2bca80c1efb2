"""Probabilities that come true, by every method."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from shortlist.cutoff import Calibration, heads, prior_corrected, reliability
from shortlist.cutoff.isotonic import isotonic_fit, isotonic_predict
from shortlist.cutoff.labels import label
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError


def world(seed, n_users=400, n_items=30, spread=0.0):
    """(scores, the chances behind them, truth, history): log-odds 2·s − 2 and each user's own height."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_users, n_items)).astype(np.float32)
    own = np.random.default_rng(99).normal(0, spread, n_users)[:, None]
    chance = 1 / (1 + np.exp(2 - 2 * scores - own))
    taken = rng.random(scores.shape) < chance
    taken[:, 0] |= ~taken.any(axis=1)  # everybody is labelled
    history = Interactions.from_csr(rng.random(scores.shape) < 0.3)
    return scores, chance, Interactions.from_csr(taken), history


def ranked(lists, table):
    """Values of a users × items table in the order of the lists."""
    return table[np.repeat(np.arange(len(lists)), lists.lengths), lists.items]


@pytest.mark.parametrize("method", ["platt", "isotonic", "features", "trees", "auto"])
def test_promises_are_kept_on_new_users(method):
    scores, _, truth, history = world(0)
    cal = Calibration(method=method).fit(scores, truth, history=history)
    new_scores, chance, new_truth, new_history = world(1)
    lists = cal.apply(new_scores, history=new_history)
    assert reliability(lists, new_truth).ece < 0.02
    assert np.abs(lists.probabilities - ranked(lists, chance)).mean() < 0.03


def test_platt_is_the_maximum_likelihood_line():
    scores, _, truth, _ = world(2)
    lists = heads(scores)
    y = label(lists, truth).relevant

    def loss(line):
        x = line[0] + line[1] * lists.scores
        return (np.logaddexp(0, x) - y * x).sum()

    best = minimize(loss, [0.0, 1.0], method="BFGS").x
    p = Calibration(method="platt").fit(scores, truth).probabilities(scores)
    np.testing.assert_allclose(np.log(p / (1 - p)), best[0] + best[1] * lists.scores, atol=2e-2)


def test_scores_never_speak_against_an_item():
    scores, _, truth, _ = world(3)
    p = Calibration(method="platt").fit(-scores, truth).probabilities(-scores)
    assert np.ptp(p) < 1e-9
    assert p[0] == pytest.approx(label(heads(scores), truth).relevant.mean(), abs=1e-3)


def test_own_heights_help_known_users_and_leave_strangers_alone():
    scores, chance, truth, _ = world(4, spread=1.5)
    lists = heads(scores)
    flat = Calibration(method="platt").fit(scores, truth)
    own = Calibration(method="platt", shrink=0.3).fit(scores, truth)
    error = [np.abs(c.probabilities(scores) - ranked(lists, chance)).mean() for c in (flat, own)]
    assert error[1] < 0.7 * error[0]
    strangers = replace(lists, users=IdMap.of(np.arange(5000, 5400)))
    np.testing.assert_allclose(own.probabilities(strangers), flat.probabilities(strangers), rtol=1e-12)


def test_past_tells_what_scores_do_not():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(300, 20)).astype(np.float32)
    had = rng.random(scores.shape) < 0.3
    taken = rng.random(scores.shape) < np.where(had, 0.6, 0.05)
    taken[:, 0] |= ~taken.any(axis=1)
    truth, history = Interactions.from_csr(taken), Interactions.from_csr(had)
    lists = Calibration(method="features").fit(scores, truth, history=history).apply(scores, history=history)
    before = ranked(lists, had)
    assert lists.probabilities[before].mean() == pytest.approx(0.6, abs=0.05)
    assert lists.probabilities[~before].mean() == pytest.approx(0.05, abs=0.05)
    assert Calibration().fit(scores, truth, history=history).method_ == "features"


def test_blocks_change_nothing(monkeypatch):
    scores, _, truth, history = world(6, n_users=50)
    cal = Calibration(method="features").fit(scores, truth, history=history)
    whole = cal.probabilities(scores, history=history)
    monkeypatch.setattr("shortlist.cutoff.calibration.BLOCK", 300)
    assert (cal.probabilities(scores, history=history) == whole).all()


def test_trees_are_saved_as_text(tmp_path):
    scores, _, truth, history = world(7)
    cal = Calibration(method="trees").fit(scores, truth, history=history)
    cal.save(tmp_path / "trees")
    again = Calibration.load(tmp_path / "trees")
    assert cal.text_.tobytes().startswith(b"tree")
    assert (again.probabilities(scores, history=history) == cal.probabilities(scores, history=history)).all()


def test_without_lightgbm_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    scores, _, truth, _ = world(8, n_users=10)
    with pytest.raises(ConfigError, match=r"pip install 'shortlist\[trees\]'"):
        Calibration(method="trees").fit(scores, truth)


def test_isotonic_steps_rise_and_hold_their_means():
    x = np.array([1.0, 1, 2, 3, 3, 4, 5, 6])
    y = np.array([0.0, 1, 0, 0, 1, 1, 0, 1])
    steps, heights = isotonic_fit(x, y)
    assert steps.tolist() == [1, 3, 6]
    assert heights == pytest.approx([1 / 3, 1 / 2, 15 / 16])
    assert isotonic_predict(steps, heights, np.array([-9, 3.5, 4, 99])) == pytest.approx(
        [1 / 3, 1 / 2, 1 / 2, 15 / 16]
    )


def test_infinite_scores_are_probable_not_certain():
    scores, _, truth, _ = world(9, n_users=60)
    scores[0, :3] = np.inf
    p = Calibration(method="platt").fit(scores, truth).probabilities(scores)
    assert ((p > 0) & (p < 1)).all()
    assert p[0] == p[:30].max()


def test_own_probabilities_are_taken_as_they_are():
    lists = heads(np.array([[3.0, 2.0, 1.0]]))
    carried = replace(lists, probabilities=np.array([0.9, np.nan, 0.1]))
    assert Calibration(method="none").probabilities(carried).tolist() == [0.9, 0.0, 0.1]
    with pytest.raises(DataError, match="needs lists with probabilities"):
        Calibration(method="none").probabilities(lists)


def test_history_that_was_learned_from_is_asked_for_again():
    scores, _, truth, history = world(10, n_users=40)
    cal = Calibration(method="features").fit(scores, truth, history=history)
    with pytest.raises(DataError, match="pass history="):
        cal.probabilities(heads(scores))


def test_nobody_to_learn_from():
    with pytest.raises(DataError, match="at least one candidate of a user with truth rows"):
        Calibration().fit(heads(np.eye(2)), Interactions.from_tuples([("nobody", 1)]))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"method": "magic"}, "method must be one of"),
        ({"method": "isotonic", "shrink": 1.0}, "goes with platt"),
        ({"method": "platt", "shrink": 0.0}, "shrink is positive"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, words):
    scores, _, truth, _ = world(11, n_users=5)
    with pytest.raises(ConfigError, match=words):
        Calibration(**params).fit(scores, truth)


def test_sampling_prior_is_undone():
    """Log-odds learned from r negatives per positive, back to a world where one in a hundred is taken."""
    base, negatives = 0.01, 4.0
    lift = 7.0  # how much likelier this item is taken than the average
    true_odds = lift * base / (1 - base)
    trained = lift / negatives / (1 + lift / negatives)
    assert prior_corrected(np.array([trained]), negatives=negatives, base_rate=base) == pytest.approx(
        [true_odds / (1 + true_odds)]
    )
    assert prior_corrected(np.array([0.0, 1.0]), negatives=4, base_rate=0.1).tolist() == [0.0, 1.0]
    with pytest.raises(ConfigError, match=r"base_rate in \(0, 1\)"):
        prior_corrected(np.array([0.5]), negatives=4, base_rate=0)


def test_reliability_by_hand():
    truth = Interactions.from_csr(np.array([[1, 0, 0, 1]]))
    lists = replace(heads(np.array([[4.0, 3, 2, 1]])), probabilities=np.array([0.8, 0.8, 0.2, 0.2]))
    table, ece = reliability(lists, truth, n_bins=2)
    assert table["promised"].to_list() == pytest.approx([0.2, 0.8])
    assert table["observed"].to_list() == [0.5, 0.5]
    assert table["n"].to_list() == [2, 2]
    assert ece == pytest.approx(0.3)


def test_reliability_needs_probabilities_and_truth():
    lists, truth = heads(np.eye(2)), Interactions.from_csr(np.eye(2))
    with pytest.raises(DataError, match="lists with probabilities"):
        reliability(lists, truth)
    promised = replace(lists, probabilities=np.full(4, 0.5))
    with pytest.raises(DataError, match="users with truth rows"):
        reliability(promised, Interactions.from_tuples([("x", "y")]))
    with pytest.raises(ConfigError, match="n_bins must be at least 1"):
        reliability(promised, truth, n_bins=0)
