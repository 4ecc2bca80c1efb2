"""Paired tests, against SciPy and against their expected error rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import holm, paired_test
from shortlist.evaluation.significance import bootstrap_means


def pair(seed, shift=0.0, n=300):
    rng = np.random.default_rng(seed)
    base = rng.random(n)
    return base + rng.normal(shift, 0.2, n), base


def test_classical_tests_equal_scipy():
    values, baseline = pair(0, 0.02)
    test = paired_test(values, baseline)
    assert test.difference == pytest.approx((values - baseline).mean())
    assert test.p_t == pytest.approx(stats.ttest_rel(values, baseline).pvalue)
    assert test.p_wilcoxon == pytest.approx(stats.wilcoxon(values, baseline).pvalue)


def test_bootstrap_agrees_with_the_t_test_on_normal_data():
    for seed in range(5):
        test = paired_test(*pair(seed, 0.02))
        assert test.p_bootstrap == pytest.approx(test.p_t, abs=0.02)
        spread = 0.2 / np.sqrt(300) * 1.96
        assert test.high - test.low == pytest.approx(2 * spread, rel=0.15)
        assert test.low < test.difference < test.high


def test_large_difference_is_significant_and_none_is_not():
    assert paired_test(*pair(1, 0.2)).p_bootstrap == pytest.approx(1 / 10_001)
    same = pair(1)[1]
    test = paired_test(same, same)
    assert (test.difference, test.low, test.high) == (0, 0, 0)
    assert (test.p_bootstrap, test.p_t, test.p_wilcoxon) == (1, 1, 1)


def test_groups_of_one_value_are_a_plain_test():
    values, baseline = pair(4, 0.02)
    assert paired_test(values, baseline, groups=np.arange(values.size)) == paired_test(values, baseline)


def test_copies_of_a_value_within_a_group_are_no_evidence():
    values, baseline = pair(5, 0.02)
    plain = paired_test(values, baseline)
    copied = np.repeat(values, 4), np.repeat(baseline, 4)
    grouped = paired_test(*copied, groups=np.repeat(np.arange(values.size), 4))
    assert grouped.difference == pytest.approx(plain.difference)
    assert (grouped.low, grouped.high) == (pytest.approx(plain.low), pytest.approx(plain.high))
    assert (grouped.p_t, grouped.p_wilcoxon) == (pytest.approx(plain.p_t), pytest.approx(plain.p_wilcoxon))
    assert paired_test(*copied).high - paired_test(*copied).low < 0.6 * (plain.high - plain.low)


def test_false_positive_rate_holds_for_correlated_groups_of_different_sizes():
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(120), rng.integers(1, 8, 120))
        change = rng.normal(0, 1, 120)[groups] + rng.normal(0, 0.3, groups.size)
        test = paired_test(change, np.zeros(groups.size), groups=groups, resamples=500)
        found.append((test.p_bootstrap, test.p_t))
    assert (np.mean(np.array(found) <= 0.05, axis=0) <= 0.10).all()


def test_groups_must_fit_the_values():
    with pytest.raises(DataError, match="one number per value"):
        paired_test(*pair(0), groups=np.zeros(3, np.int32))


def test_false_positive_rate_is_is_about_five_percent():
    p = [paired_test(*pair(seed), resamples=500).p_bootstrap for seed in range(200)]
    assert 0.01 <= np.mean(np.array(p) <= 0.05) <= 0.10


def test_same_seed_gives_the_same_bits_and_another_does_not():
    values, baseline = pair(2, 0.01)
    assert paired_test(values, baseline, seed=5) == paired_test(values, baseline, seed=5)
    assert paired_test(values, baseline, seed=5).low != paired_test(values, baseline, seed=6).low


def test_swapping_the_pair_changes_only_the_sign():
    values, baseline = pair(3, 0.02)
    one, other = paired_test(values, baseline), paired_test(baseline, values)
    assert other.difference == -one.difference
    assert (other.low, other.high) == (pytest.approx(-one.high), pytest.approx(-one.low))
    assert (other.p_bootstrap, other.p_t) == (one.p_bootstrap, pytest.approx(one.p_t))


def test_equal_gain_of_every_user():
    test = paired_test(np.full(30, 0.5), np.full(30, 0.25))
    assert (test.low, test.high, test.p_t) == (0.25, 0.25, 0)
    assert test.p_bootstrap < 0.001


def test_one_user_has_classical_p_of_one():
    test = paired_test(np.array([1.0]), np.array([0.0]))
    assert (test.p_t, test.p_wilcoxon) == (1, 1)


def test_higher_level_gives_a_wider_interval():
    values, baseline = pair(4)
    narrow, wide = paired_test(values, baseline, level=0.5), paired_test(values, baseline, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_bootstrap_means_have_the_theoretical_spread():
    values = np.random.default_rng(0).random(400)
    means = bootstrap_means(values, 20_000, seed=1)
    assert means.mean() == pytest.approx(values.mean(), abs=0.001)
    assert means.std() == pytest.approx(values.std() / 20, rel=0.03)


def test_invalid_settings_and_shapes_are_refused():
    with pytest.raises(DataError, match="one value per user"):
        paired_test(np.zeros(3), np.zeros(4))
    with pytest.raises(DataError, match="one value per user"):
        paired_test(np.zeros(0), np.zeros(0))
    with pytest.raises(ConfigError, match="resamples"):
        paired_test(np.zeros(3), np.zeros(3), resamples=0)
    with pytest.raises(ConfigError, match="level"):
        paired_test(np.zeros(3), np.zeros(3), level=1)


def test_holm_by_hand():
    # sorted .01 .03 .04 .20 times 4 3 2 1 = .04 .09 .08 .20, made non-decreasing: .04 .09 .09 .20
    assert holm([0.04, 0.01, 0.2, 0.03]) == pytest.approx([0.09, 0.04, 0.2, 0.09])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_raises_p_values_keeps_order_and_is_bounded_by_bonferroni(p):
    adjusted = holm(p)
    for raw, value in zip(p, adjusted, strict=True):
        assert raw <= value <= min(1, raw * len(p) + 1e-12)
    order = np.argsort(p, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    assert min(adjusted) == pytest.approx(min(1, min(p) * len(p)))


@pytest.mark.parametrize("options", [{"level": 0.0}, {"level": 1.0}, {"resamples": 0}])
def test_a_level_of_0_or_1_is_refused(options):
    with pytest.raises(ConfigError, match="level between 0 and 1"):
        paired_test(np.ones(3), np.zeros(3), **options)


def test_few_skewed_values_are_rejected_less_often_than_by_their_means():
    """The null hypothesis holds; a test at 5% should reject 5%. Means of 40 skewed values reject 14%."""
    rng, plain, ours, n = np.random.default_rng(0), 0, 0, 400
    for seed in range(n):
        change = rng.lognormal(0, 1, 40) - np.exp(0.5)
        test = paired_test(change, np.zeros(40), resamples=400, seed=seed)
        means = bootstrap_means(change, 400, seed)
        plain += (1 + (np.abs(means - change.mean()) >= abs(change.mean())).sum()) / 401 <= 0.05
        ours += test.p_bootstrap <= 0.05
    assert ours < 0.6 * plain


def test_few_values_against_a_plain_count():
    """The larger p-value of both sides together and of twice the observed side, whichever sign it has."""
    change = np.random.default_rng(3).lognormal(0, 1, 12) - 1.0
    means = bootstrap_means(change, 500, 7)
    squares = bootstrap_means(change**2, 500, 7)
    t = [(m - change.mean()) / np.sqrt(s - m * m) for m, s in zip(means, squares, strict=True)]
    observed = change.mean() / change.std()
    both, side = sum(abs(x) >= observed for x in t), sum(x >= observed for x in t)
    expected = (1 + max(both, 2 * side)) / 501
    assert observed > 0
    for values, baseline in ((change, np.zeros(12)), (np.zeros(12), change)):
        assert paired_test(values, baseline, resamples=500, seed=7).p_bootstrap == pytest.approx(expected)


def test_p_value_at_the_floor_is_a_bound():
    rng = np.random.default_rng(0)
    clear = paired_test(rng.normal(1, 0.1, 300), np.zeros(300), resamples=99)
    assert clear.p_bootstrap == 0.01
    assert clear.is_bound
    assert not paired_test(rng.normal(0, 1, 300), np.zeros(300), resamples=99).is_bound


@pytest.mark.parametrize("size", [3, 200])
def test_no_change_at_all_is_not_significant(size):
    assert paired_test(np.full(size, 0.25), np.full(size, 0.25), resamples=50).p_bootstrap == 1
