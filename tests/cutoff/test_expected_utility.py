"""Expected utility: the probabilities and sizes behind the lengths."""

from dataclasses import replace

import numpy as np
import pytest

from shortlist.core.glm import Logistic
from shortlist.cutoff import ExpectedF1, ExpectedNDCG, ExpectedValue, FixedN, heads
from shortlist.cutoff.basket_size import ListSize
from shortlist.cutoff.labels import label
from shortlist.cutoff.sweep import mean_utility, user_utilities
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError


def shoppers(seed, n_users=600, n_items=40):
    """(heads, truth, history): small and large baskets, two thirds of them outside the head."""
    rng = np.random.default_rng(seed)
    size = rng.choice([1, 2, 8, 16], n_users)
    rows, past = [], []
    for u in range(n_users):
        for basket in range(3):
            past += [(u, int(i), basket) for i in rng.choice(1000, size[u], replace=False)]
        n = 1 + rng.poisson(size[u] - 0.9)
        rows += [
            (u, int(i)) for i in rng.choice(n_items, min(n, n_items), replace=False) if rng.random() < 0.4
        ]
        rows += [(u, 2000 + int(i)) for i in range(max(n * 6 // 10, 1))]
    truth, history = Interactions.from_tuples(rows), Interactions.from_tuples(past)
    scores = rng.normal(size=(n_users, n_items)).astype(np.float32)
    lists = heads(scores)
    lifted = replace(lists, scores=lists.scores + 2.5 * label(lists, truth).relevant.astype(np.float32))
    return heads(lifted), truth, history


def test_sizes_follow_the_past():
    lists, truth, history = shoppers(0)
    known = label(lists, truth)
    size = ListSize().learn(known, known.n_relevant - 1, history)
    mean = size.predict(lists, history)
    assert np.corrcoef(mean, known.n_relevant)[0, 1] > 0.8
    assert mean.mean() == pytest.approx((known.n_relevant - 1).mean(), rel=0.01)
    assert ListSize().learn(known, known.n_relevant - 1, None).dispersion_ > size.dispersion_


def test_strangers_are_given_the_common_size():
    lists, truth, history = shoppers(1)
    known = label(lists, truth)
    size = ListSize().learn(known, known.n_relevant, history)
    stranger = replace(lists.take([0]), users=type(lists.users).of([10**6]))
    assert 2 < size.predict(stranger, history)[0] < 12
    with pytest.raises(DataError, match="pass history="):
        size.predict(lists, None)


def test_dynamic_lengths_beat_the_best_fixed_length_on_new_users():
    lists, truth, history = shoppers(2)
    new, new_truth, new_history = shoppers(3)
    judged = label(new, new_truth)
    fixed = mean_utility(judged, FixedN().fit(lists, truth).lengths(new), "f1")
    cut = ExpectedF1().fit(lists, truth, history=history)
    lengths = cut.lengths(new, history=new_history)
    assert mean_utility(judged, lengths, "f1") > 1.05 * fixed
    assert np.corrcoef(lengths, judged.n_relevant)[0, 1] > 0.4


def test_relevant_items_outside_the_head_lengthen_lists():
    """Recall that is lost anyway makes precision cheaper: n comes from the past, not from the candidates."""
    lists, truth, history = shoppers(4)
    inside, both = (
        ExpectedF1(size=size, calibration="platt")
        .fit(lists, truth, history=history)
        .lengths(lists, history=history)
        for size in ("probabilities", "both")
    )
    assert both.mean() > inside.mean()


def test_auto_leaves_both_only_for_a_clear_gain():
    lists, truth, history = shoppers(5)
    cut = ExpectedF1(calibration="platt").fit(lists, truth, history=history)
    known = label(lists, truth)
    worth = {}
    for size in ("probabilities", "history", "both"):
        one = ExpectedF1(size=size, calibration="platt").fit(lists, truth, history=history)
        worth[size] = user_utilities(known, one.lengths(lists, history=history), "f1")
    gain = worth[cut.size_] - worth["both"]
    assert cut.size_ == "both" or gain.mean() > gain.std() / np.sqrt(gain.size)
    assert all(other.mean() - worth[cut.size_].mean() < 0.005 for other in worth.values())
    inside = truth.where(truth.items.values.to_numpy()[truth.item] < 2000)  # now nothing lies outside
    assert ExpectedF1(calibration="platt").fit(lists, inside).size_ in ("both", "probabilities")


def test_bent_lines_do_not_run_away_beyond_what_was_seen():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(5000, 1))
    line = Logistic(quantiles=(0.2, 0.5, 0.8)).learn(x, (rng.random(5000) < 0.1).astype(float))
    assert line.log_odds(np.array([[99.0]])) == line.log_odds(np.array([[9.0]]))


def test_expected_worth_comes_true():
    lists, truth, history = shoppers(6)
    cut = ExpectedF1(size="both").fit(lists, truth, history=history)
    curve = cut.expected(lists, history=history)
    known = label(lists, truth)
    assert curve[known.rows].mean() == pytest.approx(known.f1()[known.rows].mean(), rel=0.08)


@pytest.mark.parametrize("kind", [ExpectedF1, ExpectedNDCG])
def test_coverage_is_met_on_validation(kind):
    lists, truth, history = shoppers(7)
    cut = kind(coverage=0.3).fit(lists, truth, history=history)
    shown = cut.apply(lists, history=history)
    assert 0.3 <= shown.cover_ratio < 0.32
    assert shown.at(int(np.argmin(shown.lengths))).reason == "below_floor"
    assert shown.at(int(np.argmax(shown.lengths))).reason == "utility"


def test_normal_and_exact_agree_about_most_lists():
    lists, truth, history = shoppers(8)
    exact, normal = (
        ExpectedF1(method=method, size="probabilities")
        .fit(lists, truth, history=history)
        .lengths(lists, history=history)
        for method in ("exact", "normal")
    )
    assert (np.abs(exact - normal) <= 1).mean() > 0.9


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": "guess"}, "size must be one of"),
        ({"method": "rough"}, "method must be exact or normal"),
        ({"coverage": -0.1}, r"coverage must lie in \[0, 1\]"),
        ({"floor": np.nan}, "floor must be a number"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        ExpectedF1(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))


def test_value_shows_while_the_next_item_pays():
    lists = replace(heads(np.array([[4.0, 3, 2, 1]])), probabilities=np.array([0.9, 0.5, 0.26, 0.25]))
    assert ExpectedValue(gain=3, cost=1, calibration="none").lengths(lists).tolist() == [3]
    assert ExpectedValue(gain=1, cost=1, calibration="none").lengths(lists).tolist() == [1]
    assert ExpectedValue(gain=1, cost=0, calibration="none").lengths(lists).tolist() == [4]
    with pytest.raises(ConfigError, match="gain must be positive"):
        ExpectedValue(gain=0).lengths(lists)


def test_value_ends_at_the_first_item_that_does_not_pay():
    lists = replace(heads(np.array([[3.0, 2, 1]])), probabilities=np.array([0.6, 0.1, 0.9]))
    assert ExpectedValue(gain=1, cost=1, calibration="none").lengths(lists).tolist() == [1]
