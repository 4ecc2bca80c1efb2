"""Trend scores against plain counting; only sales before the day are used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.interactions import Interactions
from shortlist.kernels.terms import PRIOR, trend_scores
from shortlist.models.factorization.terms import Trend, relabel_sales
from tests import naive

DAY = 86_400_000_000


def dated(users, first=11_000):
    """Interactions of users → baskets → items; each user buys every other day."""
    rows = [
        (user, item, (first + user % 3 + 2 * at) * 86_400 + 3600 * user)
        for user, baskets in enumerate(users)
        for at, basket in enumerate(baskets)
        for item in basket
    ]
    return Interactions.from_tuples(rows)


def busy(n_items, first=11_000, n_days=9):
    """Many sales with large trend scores: on each day most of them are of one item."""
    rng = np.random.default_rng(2)
    rows = [(0, item, first * 86_400) for item in range(n_items)]
    for day in range(n_days):
        rows += [(user, int(rng.integers(n_items)), (first + day) * 86_400) for user in range(10)]
        rows += [(user, int(7 * day % n_items), (first + day) * 86_400 + 60) for user in range(40)]
    return Interactions.from_tuples(rows)


def basket_times(data):
    """(n_baskets,) the time of each basket."""
    return data.time[data.baskets[:-1]]


def sold_on(data):
    """(day, item) of every row."""
    return list(zip((data.time // DAY).tolist(), data.item.tolist(), strict=True))


def single(sales, items, number):
    """Trend scores of items before basket `number`."""
    out, items = np.empty(len(items), np.float32), np.asarray(items, np.int32)
    days, recent_share = (np.full(items.size, each[number]) for each in (sales.group_day, sales.recent_share))
    trend_scores(sales, items, days, recent_share, out)
    return out


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-3 * 86_400, 9 * 86_400)),
    min_size=1,
    max_size=40,
)


@given(rows=ROWS, half_life=st.floats(0.3, 30), day_number=st.integers(-5, 400))
@settings(max_examples=60, deadline=None)
def test_trend_scores_match_plain_counting(rows, half_life, day_number):
    data = Interactions.from_tuples(rows)
    trend, sold = Trend.of(data, half_life), sold_on(data)
    for day in (day_number, *range(-4, 11)):
        wanted = [naive.trend_score(i, day, sold, half_life, float(PRIOR)) for i in range(data.n_items)]
        np.testing.assert_allclose(trend.trend_scores(day), wanted, atol=2e-6)


def test_trend_scores_do_not_depend_on_labels():
    data = dated([[[0, 1], [1, 2], [2]], [[2], [0, 2, 1]], [[3], [3], [3, 0]]])
    trend = Trend.of(data, 2.0)
    label = np.array([2, 0, 3, 1], np.int32)
    sales = trend.for_baskets(basket_times(data))
    for made, names in ((sales, np.arange(4)), (relabel_sales(sales, label), label)):
        for number, timestamp in enumerate(basket_times(data)):
            plain = [naive.trend_score(i, timestamp // DAY, sold_on(data), 2.0) for i in range(4)]
            np.testing.assert_allclose(single(made, names, number), plain, atol=1e-6)


@pytest.mark.parametrize("half_life", [0.5, 7.0])
def test_sales_of_the_day_and_later_are_not_used(half_life):
    rng = np.random.default_rng(0)
    rows = [(u, int(rng.integers(6)), int(rng.integers(10 * 86_400))) for u in range(80)]
    day = 6
    early = [row for row in rows if row[2] < day * 86_400]
    other = [(u, 5 - i, 2 * day * 86_400 - t) for u, i, t in early]  # all on the day or later
    same = [(99, i, 0) for i in range(6)]  # so that all data sets contain every item
    trend_score = [
        Trend.of(Interactions.from_tuples(s), half_life)
        for s in (rows + same, early + other + same, early + same)
    ]
    assert (trend_score[0].trend_scores(day) == trend_score[2].trend_scores(day)).all()
    assert (trend_score[1].trend_scores(day) == trend_score[2].trend_scores(day)).all()
    assert (trend_score[2].trend_scores(day) != 0).any()
    assert (trend_score[0].trend_scores(day + 1) != trend_score[2].trend_scores(day + 1)).any()


def test_trend_scores_are_zero_before_the_first_sale_and_long_after_the_last():
    trend = Trend.of(dated([[[0, 1], [1]], [[2], [2]]]), 3.0)
    assert (trend.trend_scores(10_999) == 0).all()
    assert (trend.trend_scores(11_000) == 0).all()
    assert np.abs(trend.trend_scores(11_003)).max() > 0.01
    np.testing.assert_allclose(trend.trend_scores(12_000), 0, atol=1e-6)
