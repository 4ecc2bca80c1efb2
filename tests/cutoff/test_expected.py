"""Cutoffs on expected F1, NDCG and value, and the predicted sizes behind them."""

from dataclasses import replace

import numpy as np
import pytest

from shortlist.cutoff import ExpectedF1, ExpectedNDCG, ExpectedValue, FixedN, expected, top_candidates
from shortlist.cutoff.basket_size import BasketSize
from shortlist.cutoff.threshold import user_utilities
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.errors import ConfigError, DataError


def shoppers(seed, n_users=600, n_items=40):
    """(candidates, truth, history): small and large baskets; 60% of their items are not candidates."""
    rng = np.random.default_rng(seed)
    size = rng.choice([1, 2, 8, 16], n_users)
    rows, earlier = [], []
    for u in range(n_users):
        for basket in range(3):
            earlier += [(u, int(i), basket) for i in rng.choice(1000, size[u], replace=False)]
        n = 1 + rng.poisson(size[u] - 0.9)
        rows += [
            (u, int(i)) for i in rng.choice(n_items, min(n, n_items), replace=False) if rng.random() < 0.4
        ]
        rows += [(u, 2000 + int(i)) for i in range(max(n * 6 // 10, 1))]
    truth, history = Interactions.from_tuples(rows), Interactions.from_tuples(earlier)
    scores = rng.normal(size=(n_users, n_items)).astype(np.float32)
    lists = top_candidates(scores)
    lifted = replace(lists, scores=lists.scores + 2.5 * label_lists(lists, truth).relevant.astype(np.float32))
    return top_candidates(lifted), truth, history


def test_predicted_sizes_follow_the_history():
    lists, truth, history = shoppers(0)
    known = label_lists(lists, truth)
    size = BasketSize().fit(known, known.n_relevant - 1, history)
    mean = size.predict(lists, history)
    assert np.corrcoef(mean, known.n_relevant)[0, 1] > 0.8
    assert mean.mean() == pytest.approx((known.n_relevant - 1).mean(), rel=0.01)
    assert BasketSize().fit(known, known.n_relevant - 1, None).dispersion_ > size.dispersion_


def test_unknown_users_get_an_average_size():
    lists, truth, history = shoppers(1)
    known = label_lists(lists, truth)
    size = BasketSize().fit(known, known.n_relevant, history)
    unknown = replace(lists.take([0]), users=type(lists.users).of([10**6]))
    assert 2 < size.predict(unknown, history)[0] < 12
    with pytest.raises(DataError, match="pass history="):
        size.predict(lists, None)


def test_dynamic_lengths_beat_the_best_fixed_length_on_new_users():
    lists, truth, history = shoppers(2)
    new, new_truth, new_history = shoppers(3)
    labels = label_lists(new, new_truth)
    fixed = user_utilities(labels, FixedN().fit(lists, truth).lengths(new), "f1").mean()
    cut = ExpectedF1().fit(lists, truth, history=history)
    lengths = cut.lengths(new, history=new_history)
    assert user_utilities(labels, lengths, "f1").mean() > 1.05 * fixed
    assert np.corrcoef(lengths, labels.n_relevant)[0, 1] > 0.4


def test_relevant_items_that_are_not_candidates_lengthen_lists():
    """With more relevant items, F1 gives more weight to hits and less to precision."""
    lists, truth, history = shoppers(4)
    inside, both = (
        ExpectedF1(size=size, calibration="platt")
        .fit(lists, truth, history=history)
        .lengths(lists, history=history)
        for size in ("probabilities", "both")
    )
    assert both.mean() > inside.mean()


def test_auto_size_is_both_unless_another_is_clearly_better():
    lists, truth, history = shoppers(5)
    cut = ExpectedF1(calibration="platt").fit(lists, truth, history=history)
    known = label_lists(lists, truth)
    utility = {}
    for size in ("probabilities", "history", "both"):
        one = ExpectedF1(size=size, calibration="platt").fit(lists, truth, history=history)
        utility[size] = user_utilities(known, one.lengths(lists, history=history), "f1")
    gain = utility[cut.size_] - utility["both"]
    assert cut.size_ == "both" or gain.mean() > gain.std() / np.sqrt(gain.size)
    assert all(other.mean() - utility[cut.size_].mean() < 0.005 for other in utility.values())
    inside = truth.where(
        truth.items.values.to_numpy()[truth.item] < 2000
    )  # now every relevant item is a candidate
    assert ExpectedF1(calibration="platt").fit(lists, inside).size_ in ("both", "probabilities")


def test_expected_utility_matches_the_observed_one():
    lists, truth, history = shoppers(6)
    cut = ExpectedF1(size="both").fit(lists, truth, history=history)
    curve = cut.expected_utility(lists, history=history)
    known = label_lists(lists, truth)
    assert curve[known.rows].mean() == pytest.approx(known.utilities("f1")[known.rows].mean(), rel=0.08)


@pytest.mark.parametrize("kind", [ExpectedF1, ExpectedNDCG])
def test_coverage_is_met_on_validation(kind):
    lists, truth, history = shoppers(7)
    cut = kind(coverage=0.3, size="both").fit(lists, truth, history=history)
    shown = cut.apply(lists, history=history)
    assert 0.3 <= shown.cover_ratio < 0.32
    assert shown.at(int(np.argmin(shown.lengths))).reason == "below_floor"
    assert shown.at(int(np.argmax(shown.lengths))).reason == "utility"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"coverage": -0.1}, "coverage must be a number between 0 and 1"),
        ({"floor": np.nan}, "floor must be a number"),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        ExpectedF1(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))


def test_the_kernel_gets_room_for_the_longest_list(monkeypatch):
    """Compiled code checks no bounds."""
    sizes = []
    monkeypatch.setattr(expected, "compute_joint_utilities", lambda *given: sizes.append(given[5].size))
    lists = top_candidates(np.array([[4.0, 3, 2, 1]]))
    for cut in (ExpectedF1(), ExpectedNDCG()):
        cut._curve(lists, np.full(4, 0.5), None, "probabilities")
    assert sizes == [5, 5]


def test_items_are_shown_while_their_expected_value_is_positive():
    lists = replace(
        top_candidates(np.array([[4.0, 3, 2, 1]])), probabilities=np.array([0.9, 0.5, 0.26, 0.25])
    )
    assert ExpectedValue(gain=3, cost=1, calibration="none").lengths(lists).tolist() == [3]
    assert ExpectedValue(gain=1, cost=1, calibration="none").lengths(lists).tolist() == [1]
    assert ExpectedValue(gain=1, cost=0, calibration="none").lengths(lists).tolist() == [4]
    with pytest.raises(ConfigError, match="gain must be a number above 0, got"):
        ExpectedValue(gain=0).lengths(lists)
    with pytest.raises(ConfigError, match="cost must be a number of at least 0, got"):
        ExpectedValue(cost=-0.5).lengths(lists)


def test_items_of_positive_value_are_shown_the_most_probable_first():
    lists = replace(top_candidates(np.array([[3.0, 2, 1]])), probabilities=np.array([0.6, 0.1, 0.9]))
    shown = ExpectedValue(gain=1, cost=1, calibration="none").apply(lists)
    assert shown[0].items == [2, 0]
    assert shown[0].probabilities.tolist() == [0.9, 0.6]


def test_a_list_that_is_worse_than_all_validation_lists_stays_empty():
    rng = np.random.default_rng(0)
    p = np.sort(rng.uniform(0.05, 0.6, (200, 10)))[:, ::-1]
    lists = replace(top_candidates(p), probabilities=p.ravel().astype("f4").astype("f8"))
    pairs = np.argwhere(rng.uniform(size=p.shape) < p)
    cut = ExpectedF1(calibration="none").fit(lists, Interactions.from_tuples(pairs.tolist()))
    assert cut.floor_ == pytest.approx(cut.utility_quantiles_.min())
    assert (cut.lengths(lists) > 0).all()
    useless = replace(top_candidates(np.full((1, 3), 0.002)), probabilities=np.full(3, 0.002))
    shown = cut.apply(useless)
    assert (len(shown[0]), shown[0].reason) == (0, "below_floor")
    assert cut.with_floor(0).lengths(useless).tolist() == [3]
