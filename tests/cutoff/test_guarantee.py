"""Guarantee: the level holds as often as it says, and what cannot be promised is refused."""

import numpy as np
import pytest
from scipy.stats import binom

from shortlist.cutoff import Guarantee, heads
from shortlist.cutoff.guarantee import hoeffding_bentkus
from shortlist.cutoff.labels import label
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, InfeasibleError

N_ITEMS = 8


def world(rng, n_users):
    """(heads, truth): relevance grows with the score; one item outside the head labels everybody."""
    scores = rng.normal(size=(n_users, N_ITEMS)).astype(np.float32)
    taken = rng.random(scores.shape) < 1 / (1 + np.exp(1.5 - 1.5 * scores))
    table = np.column_stack([taken, np.ones(n_users, bool)])
    excluded = np.column_stack([scores, np.full(n_users, -np.inf, np.float32)])
    truth = Interactions.from_csr(table)
    return heads(excluded, ids=truth), truth


def risks(threshold, lists, known):
    """(covered precision, precision with empty lists counting 1, pooled precision, share of empty lists)."""
    above = lists.scores > threshold
    lengths = np.bincount(known.number[above], minlength=len(lists))
    hits = np.bincount(known.number[above & known.relevant], minlength=len(lists))
    covered = lengths > 0
    precision = np.where(covered, hits / np.maximum(lengths, 1), 1.0)
    mean = precision[covered].mean() if covered.any() else 1.0
    return mean, precision.mean(), hits.sum() / max(lengths.sum(), 1), 1 - covered.mean()


BIG = world(np.random.default_rng(123), 20_000)
TRUE = label(*BIG)


@pytest.mark.parametrize(
    ("params", "which", "n_users", "draws"),
    [
        ({"min_precision": 0.5}, 0, 120, 1000),
        ({"min_precision": 0.7, "over": "users"}, 1, 120, 150),
        ({"min_precision": 0.25, "over": "items", "n_candidates": N_ITEMS}, 2, 500, 100),
        ({"max_empty": 0.2}, 3, 120, 150),
    ],
)
def test_the_level_holds_in_all_but_delta_of_the_draws(params, which, n_users, draws):
    fallback = None if "max_empty" in params else "empty"
    cut = Guarantee(confidence=0.8, n_thresholds=12, fallback=fallback, **params)
    broken = useful = 0
    for seed in range(draws):
        threshold = cut.fit(*world(np.random.default_rng(seed), n_users)).threshold_
        useful += np.isfinite(threshold)
        risk = risks(threshold, BIG[0], TRUE)[which]
        broken += risk > cut.max_empty if which == 3 else np.isfinite(threshold) and risk < cut.min_precision
    assert broken <= 0.2 * draws
    assert useful > 0.1 * draws


@pytest.mark.parametrize("over", ["covered", "users", "items"])
def test_what_cannot_be_promised_is_refused(over):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, N_ITEMS)).astype(np.float32)
    truth = Interactions.from_tuples([(u, 0 if rng.random() < 0.01 else 99) for u in range(200)])
    wish = Guarantee(min_precision=0.9, over=over)
    if over == "users":  # empty lists count as precise: a few shown items may always be wrong
        assert wish.fit(heads(scores), truth).lengths(heads(scores)).sum() < 200
        return
    with pytest.raises(InfeasibleError, match=r"no threshold can promise .* 90\.0% with confidence 95\.0%"):
        wish.fit(heads(scores), truth)
    wish.set_params(fallback="empty").fit(heads(scores), truth)
    assert wish.apply(heads(scores)).cover_ratio == 0
    assert wish.promise_.startswith("nothing is shown")


def test_full_lists_cannot_be_promised_to_users_without_candidates():
    lists, truth = world(np.random.default_rng(1), 100)
    with pytest.raises(InfeasibleError, match=r"at most 5\.0% of lists are empty"):
        Guarantee(max_empty=0.05).fit(lists.head(np.where(np.arange(100) < 50, 0, N_ITEMS)), truth)


def test_the_promise_names_its_assumption():
    lists, truth = world(np.random.default_rng(2), 400)
    cut = Guarantee(min_precision=0.4).fit(lists, truth)
    assert "precision over covered users is at least 40.0%" in cut.promise_
    assert "tested on 200 users" in cut.promise_
    assert "while users stay exchangeable" in cut.promise_
    assert "exchangeable" in Guarantee.__doc__
    assert cut.apply(lists).at(0).reason == "guarantee"


def test_more_users_allow_more_to_be_shown():
    shown = []
    for n_users in (100, 3000):
        cut = (
            Guarantee(min_precision=0.45)
            .set_params(fallback="empty")
            .fit(*world(np.random.default_rng(3), n_users))
        )
        shown.append(cut.lengths(BIG[0]).mean())
    assert shown[0] < shown[1]


@pytest.mark.parametrize("risk", [0.0, 0.1, 0.29])
def test_p_values_are_small_only_when_they_may_be(risk):
    """Losses of 0 or 1 with mean exactly at the limit: a p-value below any level is at most that likely."""
    n, limit = 60, 0.3
    p = [hoeffding_bentkus(k / n, n, limit) for k in range(n + 1)]
    chance = binom.pmf(np.arange(n + 1), n, limit)
    for level in (0.01, 0.05, 0.2, 0.5):
        assert chance[np.array(p) <= level].sum() <= level
    assert hoeffding_bentkus(risk, n, limit) <= hoeffding_bentkus(risk + 0.05, n, limit)
    assert hoeffding_bentkus(risk, 10 * n, limit) <= hoeffding_bentkus(risk, n, limit)
    assert hoeffding_bentkus(risk, 0, limit) == 1.0


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "exactly one of min_precision and max_empty"),
        ({"min_precision": 0.5, "max_empty": 0.5}, "exactly one"),
        ({"min_precision": 1.5}, r"must lie in \(0, 1\)"),
        ({"min_precision": 0.5, "confidence": 1.0}, r"must lie in \(0, 1\)"),
        ({"min_precision": 0.5, "over": "days"}, "over must be one of"),
        ({"max_empty": 0.5, "fallback": "empty"}, "fallback must be None"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, words):
    with pytest.raises(ConfigError, match=words):
        Guarantee(**params).fit(np.eye(2), Interactions.from_csr(np.eye(2)))
