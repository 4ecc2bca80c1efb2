"""Guarantee: it holds as often as stated, and infeasible levels are refused."""

import numpy as np
import pytest

from shortlist.cutoff import Guarantee, top_candidates
from shortlist.cutoff.monitor import GuaranteeMonitor
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.errors import ConfigError, InfeasibleError
from shortlist.kernels.significance import bet_on_losses

N_ITEMS = 8


def world(rng, n_users):
    """(candidates, truth): relevance grows with the score; an item without a score labels all users."""
    scores = rng.normal(size=(n_users, N_ITEMS)).astype(np.float32)
    bought = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 1.5 * scores))
    table = np.column_stack([bought, np.ones(n_users, bool)])
    padded = np.column_stack([scores, np.full(n_users, -np.inf, np.float32)])
    truth = Interactions.from_csr(table)
    return top_candidates(padded, ids=truth), truth


def risks(threshold, lists, known):
    """(precision of covered users, precision with 1 for empty lists, share of empty lists, kept hits)."""
    above = lists.scores > threshold
    number = lists.owner
    lengths = np.bincount(number[above], minlength=len(lists))
    hits = np.bincount(number[above & known.relevant], minlength=len(lists))
    covered = lengths > 0
    precision = np.where(covered, hits / np.maximum(lengths, 1), 1.0)
    mean = precision[covered].mean() if covered.any() else 1.0
    some = known.n_retrieved > 0
    return mean, precision.mean(), 1 - covered.mean(), (hits[some] / known.n_retrieved[some]).mean()


BIG = world(np.random.default_rng(123), 20_000)
TRUE = label_lists(*BIG)


@pytest.mark.parametrize(
    ("params", "which", "n_users", "trials"),
    [
        ({"min_precision": 0.5}, 0, 120, 1000),
        ({"min_precision": 0.7, "over": "users"}, 1, 120, 300),
        ({"max_empty": 0.2}, 2, 120, 300),
        ({"min_recall": 0.8}, 3, 120, 300),
    ],
)
def test_guarantee_holds_with_the_stated_confidence(params, which, n_users, trials):
    fallback = "empty" if "min_precision" in params else None
    cut = Guarantee(confidence=0.8, fallback=fallback, **params)
    broken = useful = 0
    for seed in range(trials):
        threshold = cut.fit(*world(np.random.default_rng(seed), n_users)).threshold_
        useful += np.isfinite(threshold)
        risk, level = risks(threshold, BIG[0], TRUE)[which], cut._level()
        broken += risk > level if which == 2 else np.isfinite(threshold) and risk < level
    assert 0 < broken <= 0.2 * trials
    assert useful > 0.9 * trials


@pytest.mark.parametrize("over", ["covered", "users"])
def test_infeasible_precision_is_refused(over):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, N_ITEMS)).astype(np.float32)
    truth = Interactions.from_tuples([(u, 0 if rng.random() < 0.01 else 99) for u in range(200)])
    cut = Guarantee(min_precision=0.9, over=over)
    if over == "users":  # empty lists have precision 1, so a few wrong items are allowed
        assert cut.fit(top_candidates(scores), truth).lengths(top_candidates(scores)).sum() < 200
        return
    with pytest.raises(InfeasibleError, match=r"no threshold guarantees .* 90\.0% with confidence 95\.0%"):
        cut.fit(top_candidates(scores), truth)
    cut.set_params(fallback="empty").fit(top_candidates(scores), truth)
    assert cut.apply(top_candidates(scores)).cover_ratio == 0
    assert cut.guarantee_.startswith("nothing is shown")


def test_users_without_candidates_make_max_empty_infeasible():
    lists, truth = world(np.random.default_rng(1), 100)
    with pytest.raises(InfeasibleError, match=r"at most 5\.0% of lists are empty"):
        Guarantee(max_empty=0.05).fit(lists.head(np.where(np.arange(100) < 50, 0, N_ITEMS)), truth)


def test_guarantee_states_level_and_assumption():
    lists, truth = world(np.random.default_rng(2), 400)
    cut = Guarantee(min_precision=0.4).fit(lists, truth)
    assert "precision over covered users is at least 40.0%" in cut.guarantee_
    assert "tested on 400 users" in cut.guarantee_
    assert "as long as users stay exchangeable" in cut.guarantee_
    assert "exchangeable" in Guarantee.__doc__
    assert cut.apply(lists).at(0).reason == "guarantee"


def test_more_users_allow_longer_lists():
    cut, shown = Guarantee(min_precision=0.45, fallback="empty"), []
    for n_users in (100, 1000):
        cuts = [cut.clone().fit(*world(np.random.default_rng(seed), n_users)) for seed in range(10)]
        shown.append(np.mean([one.lengths(BIG[0]).mean() for one in cuts]))
    assert shown[0] < 0.9 * shown[1]


def test_probabilities_are_tested_on_users_who_did_not_calibrate_them():
    """Users who calibrate the probabilities, and users who test the thresholds, are disjoint halves."""
    lists, truth = world(np.random.default_rng(4), 400)
    users = {"calibration": set(), "test": set()}

    class Recorded(Guarantee):
        def _calibrate(self, labels, history):
            users["calibration"].update(labels.lists.users.values.to_list())
            super()._calibrate(labels, history)

        def _losses(self, labels, lengths):
            users["test"].update(labels.lists.users.values.to_list())
            return super()._losses(labels, lengths)

    Recorded(min_precision=0.3, on="probability", calibration="platt").fit(lists, truth)
    assert not users["calibration"] & users["test"]
    assert users["calibration"] | users["test"] == set(lists.users.values.to_list())


def test_outcomes_do_not_choose_the_thresholds():
    lists, truth = world(np.random.default_rng(5), 400)
    other = Interactions.from_csr(1 - truth.to_csr().toarray())
    cuts = [Guarantee(min_precision=0.3, fallback="empty").fit(lists, one) for one in (truth, other)]
    assert cuts[0].threshold_ != cuts[1].threshold_
    np.testing.assert_array_equal(cuts[0].grid_, cuts[1].grid_)


def test_first_threshold_covers_a_tenth_of_the_users():
    lists, truth = world(np.random.default_rng(6), 1000)
    cut = Guarantee(min_precision=0.3).fit(lists, truth)
    covered = [(lists.scores[lists.indptr[:-1]] > threshold).mean() for threshold in cut.grid_]
    assert covered[0] == 0.1
    assert covered[-1] == 1
    shown = np.array([(lists.scores > threshold).sum() for threshold in cut.grid_])
    assert (shown[1:] / shown[:-1]).max() < 1.2


def test_lists_are_never_longer_than_those_tested():
    lists, truth = world(np.random.default_rng(6), 300)
    cut = Guarantee(min_precision=0.1).fit(lists.head(3), truth)
    assert cut.threshold_ == -np.inf
    assert cut.lengths(lists).max() == 3


def test_equal_scores_give_one_threshold():
    scores = np.zeros((100, 3), np.float32)
    cut = Guarantee(min_precision=0.5).fit(top_candidates(scores), Interactions.from_csr(np.ones((100, 3))))
    assert cut.grid_.tolist() == [-np.inf]
    assert cut.apply(top_candidates(scores)).cover_ratio == 1


def slow_capital(losses, limit, alpha):
    """The same bets, written plainly: the largest capital."""
    counted = [loss for loss in losses if not np.isnan(loss)]
    capital = highest = 1.0
    deviations = [limit * (1 - limit)]
    for t, loss in enumerate(counted):
        variance = sum(deviations) / len(deviations)
        bet = np.sqrt(2 * np.log(1 / alpha) / (len(counted) * variance))
        capital *= 1 + min(bet, 0.75 / (1 - limit)) * (limit - loss)
        highest = max(highest, capital)
        mean = (limit + sum(counted[: t + 1])) / (t + 2)
        deviations.append((loss - mean) ** 2)
    return highest


@pytest.mark.parametrize("limit", [0.05, 0.5, 0.97])
@pytest.mark.parametrize("alpha", [0.01, 0.2])
@pytest.mark.parametrize("scale", [0.9, 2.0])
def test_bets_against_a_slow_oracle(limit, alpha, scale):
    rng = np.random.default_rng(7)
    losses = np.where(rng.random(60) < 0.2, np.nan, np.minimum(rng.random(60) * scale * limit, 1))
    assert np.exp(bet_on_losses(losses, limit, alpha)) == pytest.approx(slow_capital(losses, limit, alpha))


def test_no_list_that_counts_is_no_evidence():
    assert bet_on_losses(np.full(5, np.nan), 0.5, 0.1) == 0
    assert Guarantee(max_empty=0.5)._p_value(np.zeros(0), 0.5) == 1


@pytest.mark.parametrize("limit", [0.1, 0.5, 0.93])
@pytest.mark.parametrize("kind", ["binary", "skewed"])
def test_bets_are_valid(limit, kind):
    """For losses whose mean is the limit, P(capital ≥ 1 / alpha) ≤ alpha; lower losses win more."""
    rng = np.random.default_rng(8)
    trials, alpha = 3000, 0.2
    rejected = 0
    for _ in range(trials):
        losses = (rng.random(60) < limit) * 1.0 if kind == "binary" else rng.beta(limit, 1 - limit, 60)
        log_capital = bet_on_losses(losses, limit, alpha)
        rejected += log_capital >= -np.log(alpha)
        assert bet_on_losses(losses * 0.8, limit, alpha) >= log_capital
    assert 0.05 * trials < rejected <= alpha * trials


def test_exact_p_value_of_empty_lists():
    """1 of 20 lists is empty: P(X ≤ 1) for a binomial with 20 draws."""
    losses = np.repeat([1.0, 0.0], [1, 19])
    expected = 0.7**20 + 20 * 0.3 * 0.7**19
    assert Guarantee(max_empty=0.3)._p_value(losses, 0.3) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "exactly one of min_precision, max_empty, min_recall, got none"),
        ({"min_precision": 1.5}, "min_precision must be a number above 0 and below 1"),
        ({"min_precision": 0.5, "confidence": 1.0}, "confidence must be a number above 0 and below 1"),
        ({"min_precision": 0.5, "over": "days"}, "over must be one of"),
        ({"min_precision": 0.5, "on": "rank"}, "on must be one of score, probability"),
        (
            {"min_precision": 0.5, "n_thresholds": 0},
            "n_thresholds must be a whole number between 1",
        ),
    ],
)
def test_invalid_parameters_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        Guarantee(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))


@pytest.mark.parametrize(
    "params", [{"min_precision": 0.36}, {"min_precision": 0.6, "over": "users"}, {"max_empty": 0.3}]
)
def test_threshold_follows_from_the_p_values(params):
    """The last threshold that passes before the first failure, from the most careful one on."""
    lists, truth = world(np.random.default_rng(0), 200)
    cut = Guarantee(n_thresholds=12, confidence=0.8, **params).fit(lists, truth)
    step = -1 if "max_empty" in params else 1
    p, grid = cut.p_values_[::step], cut.grid_[::step]
    failed = int(np.argmax(p > 0.2))
    assert 0 < failed < p.size
    assert cut.threshold_ == grid[failed - 1]
    assert (p[failed + 1 :] == 1).all()  # not tested
    assert (np.diff(cut.grid_) < 0).all()


def test_infeasible_level_names_one_that_is_feasible():
    lists, truth = world(np.random.default_rng(9), 300)
    with pytest.raises(InfeasibleError, match=r"highest precision that can be guaranteed is") as caught:
        Guarantee(min_precision=0.95).fit(lists, truth)
    best = float(str(caught.value).split("guaranteed is ")[1].split("%")[0]) / 100
    assert 0.5 < best < 0.95
    Guarantee(min_precision=best).fit(lists, truth)
    with pytest.raises(InfeasibleError):
        Guarantee(min_precision=best + 0.002).fit(lists, truth)
    few = lists.head(np.where(np.arange(300) < 100, 0, N_ITEMS))
    with pytest.raises(InfeasibleError, match=r"smallest share of empty lists .* is 38\.1%") as caught:
        Guarantee(max_empty=0.1).fit(few, truth)
    best = float(str(caught.value).split("guaranteed is ")[1].split("%")[0]) / 100
    Guarantee(max_empty=best).fit(few, truth)


def test_loss_of_recall_is_the_share_of_hits_that_is_cut_off():
    scores = np.array([[4.0, 3.0, 2.0, 1.0]] * 3)
    truth = Interactions.from_tuples([(0, 0), (0, 2), (1, 3), (2, 9)])  # 9 is no candidate
    labels = label_lists(top_candidates(scores), truth)
    losses = Guarantee(min_recall=0.5)._losses(labels, np.array([2, 0, 4], np.int32))
    np.testing.assert_array_equal(losses, [0.5, 1.0, np.nan])


def test_guarantee_of_recall_shows_as_little_as_it_can():
    lists, truth = world(np.random.default_rng(5), 2000)
    strict, loose = (Guarantee(min_recall=level).fit(lists, truth) for level in (0.95, 0.6))
    assert 0 < loose.apply(lists).items.size < strict.apply(lists).items.size < lists.items.size
    assert "lists keep on average at least 95.0% of the relevant candidates, with confidence" in repr(strict)


def test_recall_is_not_updated_from_shown_lists():
    lists, truth = world(np.random.default_rng(5), 300)
    cut = Guarantee(min_recall=0.6).fit(lists, truth)
    with pytest.raises(ConfigError, match="fit it again on complete lists"):
        cut.update(cut.apply(lists), truth)
    with pytest.raises(ConfigError, match="fit the guarantee again on complete lists"):
        GuaranteeMonitor.of(cut)
    with pytest.raises(
        ConfigError, match="exactly one of min_precision, max_empty, min_recall, got max_empty and"
    ):
        Guarantee(min_recall=0.5, max_empty=0.1)
    with pytest.raises(InfeasibleError, match="the highest recall that can be guaranteed is"):
        Guarantee(min_recall=0.999).fit(lists, truth)
