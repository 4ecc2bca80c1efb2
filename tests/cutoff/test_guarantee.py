"""Guarantee: it holds as often as stated, and infeasible levels are refused."""

import numpy as np
import pytest

from shortlist.cutoff import Guarantee, top_candidates
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.errors import ConfigError, DataError, InfeasibleError
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
        ({"min_recall": 0.8, "on": "score"}, 3, 120, 300),
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
    assert Guarantee(max_empty=0.5)._p_value([np.zeros(0)], 0.5) == 1


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
    assert Guarantee(max_empty=0.3)._p_value([losses], 0.3) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "exactly one of min_precision, max_empty, min_recall, got none"),
        ({"min_precision": 1.5}, "min_precision must be a number above 0 and below 1"),
        ({"min_precision": 0.5, "confidence": 1.0}, "confidence must be a number above 0 and below 1"),
        ({"min_precision": 0.5, "over": "days"}, "over must be one of"),
        ({"min_precision": 0.5, "on": "place"}, "on must be one of auto, score, probability, rank"),
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


def test_two_levels_and_infeasible_recall_are_refused():
    lists, truth = world(np.random.default_rng(5), 300)
    with pytest.raises(
        ConfigError, match="exactly one of min_precision, max_empty, min_recall, got max_empty and"
    ):
        Guarantee(min_recall=0.5, max_empty=0.1)
    with pytest.raises(InfeasibleError, match="the highest recall that can be guaranteed is"):
        Guarantee(min_recall=0.999).fit(lists, truth)


# ------------------------------------------------------------------ several baskets
def drifting(rng, n_users, shift, growth=1.0):
    """(candidates, truth) of one basket: relevance moves by `shift`, scores grow by a factor."""
    scores = rng.normal(size=(n_users, N_ITEMS)).astype(np.float32)
    bought = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 1.5 * scores - shift))
    table = np.column_stack([bought, np.ones(n_users, bool)])
    padded = np.column_stack([scores * growth, np.full(n_users, -np.inf, np.float32)])
    truth = Interactions.from_csr(table)
    return top_candidates(padded, ids=truth), truth


def baskets(*shifts, seed=0, n_users=600, growth=None):
    """(the latest basket, the earlier ones) in which relevance moved so."""
    factors = growth or [1.0] * len(shifts)
    made = [
        drifting(np.random.default_rng([seed, n]), n_users, shift, factor)
        for n, (shift, factor) in enumerate(zip(shifts, factors, strict=True))
    ]
    return made[-1], made[:-1]


def test_a_threshold_must_pass_on_each_basket():
    """The worst basket decides, wherever it is; what is tested alone on it is as strict."""
    (lists, truth), earlier = baskets(0.0, -0.8, 0.0, 0.0)
    alone = Guarantee(min_precision=0.45).fit(lists, truth)
    together = Guarantee(min_precision=0.45).fit(lists, truth, earlier=earlier)
    worst = Guarantee(min_precision=0.45).fit(*earlier[1])
    assert alone.threshold_ < together.threshold_
    assert together.threshold_ == pytest.approx(worst.threshold_, abs=0.15)
    assert "on each of the last 4 baskets or periods" in together.guarantee_
    assert "on one basket or period only: changes from one to the next are not covered" in alone.guarantee_


def test_equal_baskets_cost_little():
    (lists, truth), earlier = baskets(0.0, 0.0, 0.0, 0.0, n_users=2000)
    one = Guarantee(min_precision=0.45).fit(lists, truth)
    four = Guarantee(min_precision=0.45).fit(lists, truth, earlier=earlier)
    assert four.apply(lists).items.size > 0.9 * one.apply(lists).items.size


@pytest.mark.parametrize("params", [{"min_precision": 0.45}, {"min_recall": 0.8, "on": "score"}])
def test_scores_that_grow_with_time_change_nothing(params):
    """An earlier basket is cut at the threshold that keeps the same share of its candidates."""
    grown, same = (
        Guarantee(**params).fit(*latest, earlier=earlier)
        for latest, earlier in (baskets(0.0, 0.0, growth=growth) for growth in ([0.2, 1.0], [1.0, 1.0]))
    )
    assert grown.threshold_ == same.threshold_
    np.testing.assert_array_equal(grown.p_values_, same.p_values_)


def test_the_margin_for_the_next_basket_is_the_largest_fall():
    """Relevance falls from basket to basket: with the margin, the next one keeps the level too."""
    kept = {None: 0, "next": 0}
    for seed in range(20):
        (lists, truth), earlier = baskets(0.6, 0.3, 0.0, seed=seed)
        following = drifting(np.random.default_rng([seed, 99]), 5_000, -0.3)
        labels = label_lists(*following)
        for horizon in kept:
            cut = Guarantee(min_precision=0.5, horizon=horizon, fallback="empty")
            threshold = cut.fit(lists, truth, earlier=earlier).threshold_
            kept[horizon] += not np.isfinite(threshold) or risks(threshold, following[0], labels)[0] >= 0.5
    assert kept["next"] >= 18
    assert kept[None] < kept["next"]


def test_the_margin_needs_two_baskets():
    (lists, truth), _ = baskets(0.0)
    with pytest.raises(DataError, match="horizon='next' needs at least two baskets"):
        Guarantee(min_precision=0.3, horizon="next").fit(lists, truth)


def test_on_several_baskets_a_broken_level_passes_as_rarely_as_on_one():
    """One basket is just below the level, the others far above: passing is an error of its test."""
    n_passed, trials, level = 0, 300, float(TRUE.relevant.mean()) + 0.001
    for seed in range(trials):
        (lists, truth), earlier = baskets(3.0, 0.0, 3.0, n_users=120, seed=seed)
        cut = Guarantee(min_precision=level, confidence=0.8, n_thresholds=1, fallback="empty")
        n_passed += cut.fit(lists, truth, earlier=earlier).threshold_ == -np.inf
    assert 0 < n_passed <= 0.2 * trials


# ------------------------------------------------------------------ recall, by rank or score
def test_recall_is_kept_by_rank_where_scores_of_users_do_not_compare():
    """Scores of every user are shifted at random, so one threshold on them keeps too much."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(1500, N_ITEMS)).astype(np.float32)
    bought = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 2.5 * scores))
    truth = Interactions.from_csr(bought)
    lists = top_candidates(scores + 5 * rng.normal(size=(1500, 1)).astype(np.float32), ids=truth)
    chosen, by_score = (Guarantee(min_recall=0.8, on=on).fit(lists, truth) for on in ("auto", "score"))
    assert chosen.on_ == "rank"
    assert np.unique(chosen.lengths(lists)).size == 1
    assert chosen.apply(lists).items.size < by_score.apply(lists).items.size


def test_recall_is_kept_by_score_where_it_keeps_fewer_items():
    lists, truth = world(np.random.default_rng(5), 2000)
    chosen, by_rank = (Guarantee(min_recall=0.8, on=on).fit(lists, truth) for on in ("auto", "rank"))
    assert chosen.on_ == "score"
    assert chosen.apply(lists).items.size < by_rank.apply(lists).items.size


def test_choosing_between_rank_and_score_keeps_the_confidence():
    broken, trials = 0, 300
    cut = Guarantee(min_recall=0.8, confidence=0.8)
    for seed in range(trials):
        fitted = cut.fit(*world(np.random.default_rng(seed), 120))
        shown = np.arange(N_ITEMS) if fitted.on_ == "rank" else None
        if shown is None:
            recall = risks(fitted.threshold_, BIG[0], TRUE)[3]
        else:
            lengths = np.minimum(BIG[0].lengths, int(np.ceil(-fitted.threshold_)))
            recall = 1 - np.nanmean(cut._losses(TRUE, lengths.astype(np.int32)))
        broken += recall < 0.8
    assert 0 < broken <= 0.2 * trials


# ------------------------------------------------------------------ whom max_empty is about
def test_max_empty_counts_every_list():
    """Users who bought nothing have lower scores; they count, although the truth does not name them."""
    rng = np.random.default_rng(2)
    scores = np.concatenate([rng.normal(2, 1, (400, 3)), rng.normal(-2, 1, (400, 3))]).astype(np.float32)
    truth = Interactions.from_tuples([(user, 0) for user in range(400)])
    lists = top_candidates(scores)
    cut = Guarantee(max_empty=0.3).fit(lists, truth)
    assert (cut.lengths(lists) == 0).mean() <= 0.3
    assert "counted over everyone who was given one, whether they interacted afterwards or not" in repr(cut)
