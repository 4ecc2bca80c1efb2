"""Every method of calibration gives probabilities that match outcomes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import shortlist as sl
from shortlist.core.codec import Contents, EstimatorForm, Scope
from shortlist.core.options import Estimator
from shortlist.cutoff import Calibration, ExpectedF1, top_candidates
from shortlist.cutoff.calibration import isotonic_fit, isotonic_predict
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.errors import ConfigError, DataError, ModelFileError


def world(seed, n_users=400, n_items=30):
    """(scores, true probabilities, truth, history); the log-odds are 2·score − 2."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_users, n_items)).astype(np.float32)
    chance = 1 / (1 + np.exp(2 - 2 * scores))
    bought = rng.random(scores.shape) < chance
    bought[:, 0] |= ~bought.any(axis=1)  # every user is labeled
    history = Interactions.from_csr(rng.random(scores.shape) < 0.3)
    return scores, chance, Interactions.from_csr(bought), history


def ranked(lists, table):
    """Values of a users × items table in the order of the lists."""
    return table[np.repeat(np.arange(len(lists)), lists.lengths), lists.items]


@pytest.mark.parametrize("method", ["platt", "isotonic", "features", "auto"])
def test_probabilities_match_outcomes_of_new_users(method):
    scores, _, truth, history = world(0)
    cal = Calibration(method=method).fit(scores, truth, history=history)
    new_scores, chance, new_truth, new_history = world(1)
    lists = cal.apply(new_scores, history=new_history)
    assert sl.evaluate(lists, new_truth).calibration_error < 0.02
    assert np.abs(lists.probabilities - ranked(lists, chance)).mean() < 0.03


def test_platt_is_the_maximum_likelihood_line():
    scores, _, truth, _ = world(2)
    lists = top_candidates(scores)
    y = label_lists(lists, truth).relevant

    def loss(line):
        x = line[0] + line[1] * lists.scores
        return (np.logaddexp(0, x) - y * x).sum()

    best = minimize(loss, [0.0, 1.0], method="BFGS").x
    p = Calibration(method="platt").fit(scores, truth).probabilities(scores)
    np.testing.assert_allclose(np.log(p / (1 - p)), best[0] + best[1] * lists.scores, atol=2e-2)


def test_platt_never_decreases_with_the_score():
    scores, _, truth, _ = world(3)
    p = Calibration(method="platt").fit(-scores, truth).probabilities(-scores)
    assert np.ptp(p) < 1e-9
    assert p[0] == pytest.approx(label_lists(top_candidates(scores), truth).relevant.mean(), abs=1e-3)


def test_features_use_the_history():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(300, 20)).astype(np.float32)
    before = rng.random(scores.shape) < 0.3
    bought = rng.random(scores.shape) < np.where(before, 0.6, 0.05)
    bought[:, 0] |= ~bought.any(axis=1)
    truth, history = Interactions.from_csr(bought), Interactions.from_csr(before)
    lists = Calibration(method="features").fit(scores, truth, history=history).apply(scores, history=history)
    repeated = ranked(lists, before)
    assert lists.probabilities[repeated].mean() == pytest.approx(0.6, abs=0.05)
    assert lists.probabilities[~repeated].mean() == pytest.approx(0.05, abs=0.05)
    assert Calibration().fit(scores, truth, history=history).method_ == "features"


def test_result_does_not_depend_on_batches(monkeypatch):
    scores, _, truth, history = world(6, n_users=50)
    cal = Calibration(method="features").fit(scores, truth, history=history)
    whole = cal.probabilities(scores, history=history)
    monkeypatch.setattr("shortlist.cutoff.calibration.BLOCK", 300)
    assert (cal.probabilities(scores, history=history) == whole).all()


def test_isotonic_steps_ascend_and_are_means():
    x = np.array([1.0, 1, 2, 3, 3, 4, 5, 6])
    y = np.array([0.0, 1, 0, 0, 1, 1, 0, 1])
    steps, heights = isotonic_fit(x, y)
    assert steps.tolist() == [1, 3, 6]
    assert heights == pytest.approx([1 / 3, 1 / 2, 15 / 16])
    assert isotonic_predict(steps, heights, np.array([-9, 3.5, 4, 99])) == pytest.approx(
        [1 / 3, 1 / 2, 1 / 2, 15 / 16]
    )


def test_infinite_scores_do_not_get_probability_one():
    scores, _, truth, _ = world(9, n_users=60)
    scores[0, :3] = np.inf
    p = Calibration(method="platt").fit(scores, truth).probabilities(scores)
    assert ((p > 0) & (p < 1)).all()
    assert p[0] == p[:30].max()


def test_none_uses_the_probabilities_of_the_lists():
    lists = top_candidates(np.array([[3.0, 2.0, 1.0]]))
    carried = replace(lists, probabilities=np.array([0.9, np.nan, 0.1]))
    assert Calibration(method="none").probabilities(carried).tolist() == [0.9, 0.0, 0.1]
    rounded = replace(lists, probabilities=np.array([1 + 1e-9, 0.5, -1e-9]))
    assert Calibration(method="none").probabilities(rounded).tolist() == [1.0, 0.5, 0.0]
    with pytest.raises(DataError, match="needs lists with probabilities"):
        Calibration(method="none").probabilities(lists)


def test_history_is_required_if_fitted_with_one():
    scores, _, truth, history = world(10, n_users=40)
    cal = Calibration(method="features").fit(scores, truth, history=history)
    with pytest.raises(DataError, match="pass history="):
        cal.probabilities(top_candidates(scores))


def test_truth_of_unknown_users_is_refused():
    with pytest.raises(DataError, match="at least one candidate of a user with truth rows"):
        Calibration().fit(top_candidates(np.eye(2)), Interactions.from_tuples([(99, 1)]))


def test_at_least_one_candidate_is_needed():
    with pytest.raises(ConfigError, match="n_candidates must be a whole number of at least 1"):
        Calibration(n_candidates=0)


def test_auto_has_the_lowest_loss_in_cross_validation():
    """Each method is fitted on every second user and tested on the others, and the reverse."""
    chosen = set()
    for seed in range(6):
        scores, _, truth, _ = world(seed, n_users=16)
        lists = top_candidates(scores)
        halves = [label_lists(lists.take(np.arange(start, 16, 2)), truth) for start in (0, 1)]
        losses = {}
        for method in ("platt", "isotonic", "features"):
            losses[method] = 0.0
            for train, test in (halves, halves[::-1]):
                p = Calibration(method=method).fit_labels(train, None).probabilities(test.lists)
                p = np.clip(p, 1e-6, 1 - 1e-6)
                losses[method] -= np.log(np.where(test.relevant, p, 1 - p)).sum()
        chosen.add(Calibration().fit(scores, truth).method_)
        assert Calibration().fit(scores, truth).method_ == min(losses, key=losses.get)
    assert len(chosen) > 1


def cases_with_probabilities():
    """(lists with probabilities, truth)."""
    scores, chance, truth, _ = world(11, n_users=40)
    lists = top_candidates(scores)
    return replace(lists, probabilities=ranked(lists, chance)), truth


def reload(estimator):
    """The estimator as a file gives it back."""
    contents = Contents({}, {})
    packed = json.loads(json.dumps(EstimatorForm(Estimator).write(estimator, "", contents)))
    return EstimatorForm(Estimator).read(packed, "", contents, Scope())


@pytest.mark.parametrize("method", ["none", "platt", "isotonic", "features"])
def test_a_calibration_of_a_file_must_be_complete(method):
    lists, truth = cases_with_probabilities()
    cut = ExpectedF1(calibration=method).fit(lists, truth)
    assert (reload(cut).apply(lists).lengths == cut.apply(lists).lengths).all()
    for name, rule in (("calibration_", "be a fitted Calibration"), ("next_size_", "be a fitted BasketSize")):
        changed = cut.clone()
        vars(changed).update(cut.fitted() | {name: type(vars(cut)[name])()})
        with pytest.raises(ModelFileError, match=f"{name}' must {rule}"):
            reload(changed)


def test_the_columns_of_a_logistic_calibration_are_those_of_its_method():
    lists, truth = cases_with_probabilities()
    platt = Calibration(method="platt").fit(lists, truth)
    features = Calibration(method="features").fit(lists, truth)
    for one, other in ((platt, features), (features, platt)):
        changed = one.clone()
        vars(changed).update(one.fitted() | {"logistic_": other.logistic_})
        with pytest.raises(ModelFileError, match="'logistic_' must have"):
            reload(changed)
