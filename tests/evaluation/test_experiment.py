"""Experiments: differences against plain regressions, intervals by simulation, verdicts and refusals."""

import json
import math

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError, DataWarning
from shortlist.evaluation.experiment import (
    betting_interval,
    half_width,
    mean_difference,
    split_evidence,
    sum_products,
)


def sums_of(columns, chosen):
    return sum_products(columns[chosen], np.zeros(int(chosen.sum()), np.int64), 1)[0]


@pytest.fixture
def users():
    rng = np.random.default_rng(7)
    n = 3_000
    before = rng.gamma(1.0, 1.0, n)
    arm = rng.choice(["ten", "dynamic"], n)
    hits = rng.poisson(0.5 * before * np.where(arm == "dynamic", 1.3, 1.0))
    return pl.DataFrame({"arm": arm, "before": before, "hits": hits, "day": np.arange(n) // 100})


def test_difference_is_that_of_a_regression_with_interactions():
    rng = np.random.default_rng(0)
    x, is_first = rng.normal(size=(400, 2)), rng.random(400) < 0.4
    y = x @ [1.0, -2.0] + is_first * (0.5 + x[:, 0]) + rng.normal(size=400)
    columns = np.column_stack([np.ones(400), x, y])
    estimate = mean_difference(sums_of(columns, is_first), sums_of(columns, ~is_first), 3, 2)
    centered = x - x.mean(0)
    design = np.column_stack([np.ones(400), is_first, centered, is_first[:, None] * centered])
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    assert estimate.difference == pytest.approx(coefficients[1])
    assert estimate.reference == pytest.approx(coefficients[0])
    residual, share = y - design @ coefficients, is_first.mean()
    influence = centered @ coefficients[4:] + np.where(is_first, residual / share, -residual / (1 - share))
    assert estimate.variance == pytest.approx(influence.var(), rel=0.02)  # other degrees of freedom


def test_difference_without_covariates_is_that_of_the_means():
    y, is_first = np.array([1.0, 2.0, 3.0, 10.0]), np.array([True, True, False, False])
    columns = np.column_stack([np.ones(4), y])
    estimate = mean_difference(sums_of(columns, is_first), sums_of(columns, ~is_first), 1, 0)
    assert estimate.difference == -5
    assert estimate.variance == pytest.approx(0.5 / 0.5 + 24.5 / 0.5)


def test_width_worked_by_hand():
    odds = -2 * math.log(0.05)
    rho2 = (odds + math.log(odds + 1)) / 5_000
    inner = math.log(math.sqrt(400 * rho2 + 1) / 0.05)
    expected = 3 * math.sqrt(2 * (400 * rho2 + 1) / (400**2 * rho2) * inner)
    assert half_width(np.array(9.0), np.array(400.0), 0.05) == pytest.approx(expected)


def test_width_of_a_plan_worked_by_hand():
    quantile = 2.326348  # of the normal distribution, at 1 - 0.01
    widths = half_width(np.full(4, 9.0), np.array([10.0, 450.0, 900.0, 901.0]), 0.05, 900)
    assert widths[1:3] == pytest.approx([3 * quantile * 30 / 450, 3 * quantile * 30 / 900], rel=1e-6)
    always = half_width(np.full(2, 9.0), np.array([10.0, 901.0]), 0.01)  # early, and after the planned number
    assert widths[[0, 3]] == pytest.approx(always)


def test_a_plan_is_rarely_wrong_and_finds_more():
    rng = np.random.default_rng(6)
    wrong, power, without = 0, 0, 0
    n = np.arange(100.0, 6_001.0, 100.0)
    for lift in (0.0, 0.063):  # a test that looks once, at the end, finds the latter in 68% of the cases
        sums = (rng.normal(lift / 2, 1, (2_000, 60, 100))).sum(2).cumsum(1)
        difference = np.abs(2 * sums / n)
        planned = (difference > half_width(np.full(60, 4.0), n, 0.05, 6_000)).any(1).mean()
        if lift:
            power, without = planned, (difference > half_width(np.full(60, 4.0), n, 0.05)).any(1).mean()
        else:
            wrong = planned
    assert wrong < 0.05
    assert 0.5 < power < 0.68
    assert power > without + 0.2


def test_looks_every_day_are_rarely_wrong_and_a_daily_z_test_often():
    rng = np.random.default_rng(5)
    wrong = z_wrong = 0
    for _ in range(300):
        arm, hits = rng.random(4_000) < 0.5, rng.poisson(1.0, 4_000)
        daily = sum_products(np.column_stack([np.ones(4_000), hits]), np.arange(4_000) // 100 * 2 + arm, 80)
        total = daily.reshape(40, 2, 2, 2).cumsum(0)[4:]
        estimate = mean_difference(total[:, 1], total[:, 0], 1, 0)
        size = np.abs(estimate.difference)
        wrong += bool((size > half_width(estimate.variance, estimate.n_users, 0.05)).any())
        z_wrong += bool((size > 1.96 * np.sqrt(estimate.variance / estimate.n_users)).any())
    assert wrong <= 15
    assert z_wrong > 60


def test_betting_interval_is_exact_for_few_skewed_outcomes():
    rng = np.random.default_rng(1)
    misses = 0
    for _ in range(200):
        is_first = rng.random(300) < 0.5
        outcome = (rng.random(300) < np.where(is_first, 0.1, 0.02)).astype(float)
        low, high = betting_interval(outcome, is_first, 0.5, 0.1)
        misses += not low <= 0.08 <= high
    assert misses <= 20
    assert -1 <= low < high <= 1


def test_betting_interval_finds_a_large_difference_with_unequal_shares():
    rng = np.random.default_rng(2)
    is_first = rng.random(4_000) < 0.2
    outcome = (rng.random(4_000) < np.where(is_first, 0.6, 0.3)).astype(float)
    low, high = betting_interval(outcome, is_first, 0.2, 0.05)
    assert 0.1 < low < 0.3 < high < 0.5


def plain_capital(outcome, is_first, share, error, difference, sign):
    """The largest capital of someone who bets that the difference is larger (sign 1) or smaller (-1)."""
    largest = max(1 / share, 1 / (1 - share))
    sums, counts = {True: 0.5, False: 0.5}, {True: 1, False: 1}
    total, squares, capital, richest = 0.5, 0.25, 1.0, 1.0
    level = difference / (2 * largest) + 0.5
    room = level if sign > 0 else 1 - level
    for t, (y, first) in enumerate(zip(outcome, is_first, strict=True), 1):
        a, b = sums[True] / counts[True], sums[False] / counts[False]
        unbiased = a - b + ((y - a) / share if first else (b - y) / (1 - share))
        value = unbiased / (2 * largest) + 0.5
        bet = math.sqrt(2 * math.log(2 / error) / (squares * math.log(1 + t)))
        capital *= 1 + min(bet, 0.5 / room) * sign * (value - level)
        richest = max(richest, capital)
        total += value
        squares += (value - total / (t + 1)) ** 2
        sums[bool(first)] += y
        counts[bool(first)] += 1
    return richest


def test_betting_interval_ends_where_a_bet_makes_someone_rich():
    rng = np.random.default_rng(4)
    is_first = rng.random(600) < 0.4
    outcome = (rng.random(600) < np.where(is_first, 0.8, 0.3)).astype(float)
    low, high = betting_interval(outcome, is_first, 0.4, 0.1)
    assert -1 < low < 0.5 < high < 1
    for end, sign in ((low, 1), (high, -1)):
        outside, inside = (
            plain_capital(outcome, is_first, 0.4, 0.1, end - sign * side, sign) for side in (1e-6, -1e-6)
        )
        assert outside >= 2 / 0.1 > inside


def test_split_evidence_is_the_ratio_of_two_likelihoods():
    prior = 200 * np.array([0.3, 0.7])

    def log_beta(a, b):
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    expected = (
        log_beta(prior[0] + 40, prior[1] + 60) - log_beta(*prior) - 40 * math.log(0.3) - 60 * math.log(0.7)
    )
    assert split_evidence(np.array([40.0, 60.0]), np.array([0.3, 0.7])) == pytest.approx(expected)


def test_verdict_of_a_true_difference(users):
    report = sl.evaluate_experiment(users, metric="hits", control="ten", covariates=["before"])
    assert report.verdict == "better"
    assert report.winner == "dynamic"
    row = report.differences.row(0, named=True)
    assert 0 < row["low"] < row["difference"] < row["high"]
    assert "dynamic against ten: better. The difference in hits per user is +0." in report.summary()
    assert report.looks.height == 30
    assert json.loads(json.dumps(report.to_dict()))["winner"] == "dynamic"


def test_covariates_narrow_the_interval(users):
    widths = [
        report.differences["high"][0] - report.differences["low"][0]
        for names in ((), ("before",))
        for report in [sl.evaluate_experiment(users, metric="hits", control="ten", covariates=names)]
    ]
    assert widths[1] < 0.9 * widths[0]


def test_the_order_of_users_within_a_day_changes_nothing(users):
    mixed = users.sample(fraction=1.0, shuffle=True, seed=3)
    reports = [sl.evaluate_experiment(table, metric="hits", control="ten") for table in (users, mixed)]
    assert reports[0].looks.equals(reports[1].looks)


def test_a_wrong_split_stops_the_verdict(users):
    report = sl.evaluate_experiment(users, metric="hits", control="ten", shares={"ten": 0.4, "dynamic": 0.6})
    assert report.verdict == "invalid split"
    assert report.winner is None
    assert "not split by the requested shares" in report.summary()


def test_a_right_split_is_rarely_called_wrong():
    counts = np.random.default_rng(4).binomial(1, 0.3, (500, 4_000)).cumsum(1).astype(float)
    both = np.stack([counts, np.arange(1, 4_001) - counts], axis=-1)
    evidence = split_evidence(both, np.array([0.3, 0.7])).max(1)
    assert (evidence > math.log(1_000)).sum() <= 2


def test_no_difference_larger_than_what_matters(users):
    even = users.with_columns(hits=(pl.int_range(pl.len()) // 2 % 2))
    report = sl.evaluate_experiment(even, metric="hits", control="ten", smallest_effect=0.2)
    assert report.verdict == "no difference"


def test_guardrails_look_at_the_worse_side(users):
    rate = np.where(users["arm"] == "dynamic", 0.6, 0.2)
    table = users.with_columns(empty=np.random.default_rng(0).random(users.height) < rate)
    kept = sl.evaluate_experiment(table, metric="hits", control="ten", guardrails={"empty": 0.9})
    assert kept.differences.filter(metric="empty")["verdict"][0] == "guardrail kept"
    broken = sl.evaluate_experiment(table, metric="hits", control="ten", guardrails={"empty": 0.1})
    assert broken.broken_guardrails == ["empty"]
    assert broken.winner is None
    assert broken.verdict == "guardrail broken"
    row = broken.differences.filter(metric="empty").row(0, named=True)
    assert 0 < row["exact_low"] < row["difference"] < row["exact_high"]  # the exact one has the same sign


def test_an_arm_that_breaks_a_guardrail_takes_no_victory_from_another_one(users):
    rng = np.random.default_rng(0)
    third = users.filter(arm="dynamic").with_columns(arm=pl.lit("empty lists"), hits=pl.col("hits") + 1)
    arms = pl.concat([users, third])
    rate = np.where(arms["arm"] == "empty lists", 0.6, 0.2)
    table = arms.with_columns(empty=rng.random(arms.height) < rate)
    shares = dict.fromkeys(["ten", "dynamic", "empty lists"], 1 / 3)
    options = {"metric": "hits", "control": "ten", "guardrails": {"empty": 0.1}, "shares": shares}
    report = sl.evaluate_experiment(table, **options)
    assert report.broken_guardrails == ["empty"]
    assert (report.winner, report.verdict) == ("dynamic", "better")


def test_the_winner_has_the_fewest_empty_lists(users):
    rng, shares = np.random.default_rng(0), dict.fromkeys(["ten", "dynamic", "some"], 1 / 3)
    arms = pl.concat([users, users.filter(arm="ten").with_columns(arm=pl.lit("some"))])
    rate = arms["arm"].replace_strict({"ten": 0.6, "some": 0.4, "dynamic": 0.1}).to_numpy()
    table = arms.with_columns(empty=(rng.random(arms.height) < rate).astype(float))
    assert sl.evaluate_experiment(table, metric="empty", control="ten", shares=shares).winner == "dynamic"


def test_a_guardrail_on_something_that_never_happens_in_one_arm(users):
    table = users.with_columns(empty=((pl.col("arm") == "dynamic") & (pl.col("before") > 2)).cast(pl.Float64))
    report = sl.evaluate_experiment(table, metric="hits", control="ten", guardrails={"empty": 0.3})
    row = report.differences.filter(metric="empty").row(0, named=True)
    assert row["verdict"] == "guardrail kept"
    assert (row["low"], row["high"]) == (row["exact_low"], row["exact_high"])


def test_several_arms_share_the_error(users):
    three = pl.concat([users, users.filter(arm="ten").with_columns(arm=pl.lit("five"))])
    shares = dict.fromkeys(["ten", "dynamic", "five"], 1 / 3)
    report = sl.evaluate_experiment(three, metric="hits", control="ten", shares=shares)
    pair = sl.evaluate_experiment(users, metric="hits", control="ten")
    width = [
        r.differences.filter(arm="dynamic").select(pl.col("high") - pl.col("low")).item()
        for r in (report, pair)
    ]
    assert width[0] > width[1]
    assert report.differences["arm"].to_list() == ["dynamic", "five"]


def test_days_that_contradict_each_other_give_no_verdict_about_a_rate():
    """The exact interval replaces one that has too few users, not one that contradicts itself."""
    rng = np.random.default_rng(0)
    arm = rng.random(16_000) < 0.5
    rate = np.where(arm, np.where(np.arange(16_000) < 3_000, 0.9, 0.3), 0.5)
    table = {
        "arm": arm.astype(str),
        "empty": (rng.random(16_000) < rate).astype(float),
        "day": np.arange(16_000) // 100,
    }
    with pytest.warns(DataWarning, match="changes over time"):
        report = sl.evaluate_experiment(table, metric="empty", control="False")
    assert report.verdict == "not yet"


def test_days_that_contradict_each_other_are_a_warning():
    rng = np.random.default_rng(0)
    arm = rng.random(8_000) < 0.5
    effect = np.where(np.arange(8_000) < 2_000, 2.0, -1.0)
    table = {
        "arm": arm.astype(str),
        "hits": rng.normal(size=8_000) + arm * effect,
        "day": np.arange(8_000) // 100,
    }
    with pytest.warns(DataWarning, match="changes over time"):
        report = sl.evaluate_experiment(table, metric="hits", control="False")
    assert report.verdict == "not yet"


@pytest.mark.parametrize(
    ("change", "options", "error", "text"),
    [
        ({}, {"metric": "sales"}, DataError, "'sales'"),
        ({"hits": None}, {}, DataError, "finite"),
        ({}, {"control": "none"}, ConfigError, "control must be one of the arms"),
        ({}, {"shares": {"ten": 0.5, "dynamic": 0.6}}, ConfigError, "add up to 1"),
        ({}, {"shares": {"ten": 0.5, "dynamic": 0.3, "five": 0.2}}, DataError, "five"),
        ({}, {"confidence": 1.0}, ConfigError, "confidence"),
        ({}, {"guardrails": {"hits": -1}}, ConfigError, "guardrails"),
        ({}, {"smallest_effect": -1}, ConfigError, "smallest_effect"),
    ],
)
def test_bad_input_is_refused(users, change, options, error, text):
    table = users.with_columns(**{name: pl.lit(value, pl.Float64) for name, value in change.items()})
    with pytest.raises(error, match=text):
        sl.evaluate_experiment(table, **{"metric": "hits", "control": "ten"} | options)


def test_plan_needs_about_as_many_users_as_simulations():
    rng = np.random.default_rng(9)
    before = rng.gamma(1.0, 1.0, 20_000)
    now, new = rng.poisson(0.8 * before), rng.poisson(0.96 * before)
    plan = sl.plan_experiment(now, new, users_per_day=100, window_days=7, covariates=before)
    assert 1_500 < plan.users < 3_500  # benchmarks/experiments.py: half of the runs end after 1,500
    assert plan.days == math.ceil(plan.users / 100 + 7)
    without = sl.plan_experiment(now, new, users_per_day=100, window_days=7)
    assert 0.3 < plan.users / without.users < 0.8  # what is known of the users reduces their number
    assert f"{plan.days} days" in plan.summary()


def test_plan_says_when_it_takes_too_long():
    outcomes = np.random.default_rng(1).normal(size=(2, 1_000))
    plan = sl.plan_experiment(outcomes[0], outcomes[1] + 0.001, users_per_day=5, window_days=7)
    assert plan.users is None
    assert "more than a year" in plan.summary()


@pytest.mark.parametrize(
    "options", [{"users_per_day": 0}, {"share": 1.0}, {"confidence": 0.2}, {"window_days": -1}]
)
def test_plan_refuses_bad_parameters(options):
    with pytest.raises(ConfigError):
        sl.plan_experiment(np.ones(20), np.ones(20), **{"users_per_day": 5, "window_days": 7} | options)


def test_plan_refuses_other_lengths():
    with pytest.raises(DataError, match="as many in both arms"):
        sl.plan_experiment(np.ones(20), np.ones(21), users_per_day=5, window_days=7)
