"""HRM with trend_half_life: recent sales before the day raise scores."""

from functools import cache

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, ModelFileError
from shortlist.models.base import load_model
from shortlist.models.factorization.model import item_offsets
from shortlist.models.factorization.terms import GrowingTrend, Trend
from shortlist.split import last_basket
from tests.models.cases import DAY, answer, bits, fit, model
from tests.models.crafted import read_parts, write_parts
from tests.threads import on_threads

SECONDS, FIRST = 86_400, 18_262  # 2020 begins on that day


@cache
def trending_data(n_users=150, n_items=40, n_days=30):
    """In each period of six days, one fifth of the items gets most of the sales."""
    rng = np.random.default_rng(3)
    rows = []
    for user in range(n_users):
        for day in np.sort(rng.permutation(n_days)[:6]):
            hot = rng.random(3) < 0.8
            items = np.where(hot, day // 6 * 8 + rng.integers(8, size=3), rng.integers(n_items, size=3))
            rows += [(user, int(i), (FIRST + int(day)) * SECONDS + user) for i in set(items)]
    return Interactions.from_tuples(rows)


def hits(one, split, **when):
    """The mean share of five recommended items that are in the test basket."""
    users = split.test.users.to_ids(split.test.active_users)
    lists = one.recommend(users, N=5, filter_seen=False, **when)
    bought = split.test.to_csr().toarray() > 0
    row = np.repeat(np.arange(len(lists)), lists.lengths)
    return bought[split.test.active_users[row], lists.items].mean()


def test_trend_ranks_items_that_sell_on_the_requested_day():
    split = last_basket(trending_data())
    plain, timely = (
        fit("HRM", split.train_valid, n_epochs=5, lr=0.02, trend_half_life=trend) for trend in (None, 2.0)
    )
    on_day = hits(timely, split, at=split.test)
    assert on_day > 1.5 * hits(plain, split, at=split.test)
    assert on_day > 1.5 * hits(timely, split, at="2020-01-08")
    assert hits(plain, split, at=split.test) == hits(plain, split)


def test_sales_observed_one_by_one_are_counted_and_leave_earlier_states_alone():
    data = trending_data()
    late = data.time >= np.quantile(data.time, 0.8)
    first = grown = GrowingTrend.grow(Trend.of(data.where(~late), 2.0))
    day, item, time = FIRST + 40, data.item[late], data.time[late]
    before = first.trend_scores(day).copy()
    for number in range(item.size):
        grown = grown.observe(item[number : number + 1], time[number : number + 1])
    assert item.size > 200  # enough to join pending sales
    assert np.array_equal(grown.trend_scores(day), Trend.of(data, 2.0).trend_scores(day))
    assert np.array_equal(first.trend_scores(day), before)


def test_scores_are_factors_plus_repeat_and_trend_terms():
    data = trending_data()
    one = fit("HRM", data, n_epochs=2, lr=0.05, repeat_decay=0.8, trend_half_life=2.0)
    theta, users = one._state.parameters, np.array([3, 0, 77, 4], np.int32)
    times = (FIRST + np.array([5, 12, 11, 400])) * DAY - [0, 1, 0, 0]
    trend = Trend.of(data, 2.0)
    term = np.stack(
        [
            (theta.user_trend[user] + theta.item_trend) * trend.trend_scores(FIRST + day)
            for user, day in zip(users, (5, 11, 11, 400), strict=True)
        ]
    )
    wanted = one.dense_scores(theta, data, None, users) + term
    np.testing.assert_allclose(
        one.dense_scores(theta, data, one._state.trend, users, times), wanted, rtol=1e-5, atol=1e-5
    )
    lists = one.recommend(data.users.to_ids(users), N=3, at=times.tolist(), filter_seen=False)
    for row, at in enumerate(times):  # the history of a user ends at the time of the request
        before = data.where(data.time < at)
        wanted[row] = one.dense_scores(theta, before, None, users[row : row + 1])[0] + term[row]
    best = -np.sort(-wanted, axis=1)[:, :3]
    np.testing.assert_allclose(lists.scores.reshape(4, 3), best, rtol=1e-5, atol=1e-5)
    assert answer(one, users).factors is None
    assert (theta.item_trend != 0).any()
    assert np.ptp(theta.user_trend) > 0


def test_default_time_is_just_after_the_last_event():
    data = trending_data()
    one = fit("DKHRM", data, n_epochs=2, trend_half_life=2.0)
    last = int(data.time.max())
    by_default, then, later = (one.recommend(N=4, at=at) for at in (None, last + 1, last + DAY))
    assert (by_default.scores == then.scores).all()
    assert (by_default.items == then.items).all()
    assert (by_default.scores != later.scores).any()
    timeless = Interactions.from_tuples([(0, 0), (0, 1)])
    assert (one.recommend(N=4, at=timeless).scores == by_default.scores).all()


def test_same_bits_on_any_number_of_threads():
    def learned(**changed):
        return bits(
            fit(
                "DKHRM",
                trending_data(),
                n_epochs=7,
                lr=0.05,
                repeat_decay=0.9,
                trend_half_life=2.0,
                **changed,
            )
        )

    one, two, four = on_threads(1, 2, 4, run=learned)
    assert one == two == four
    assert all(
        learned(seed=1)[part] != one[part] for part in ("parameters.user_trend", "parameters.item_trend")
    )


def test_validation_uses_the_day_of_each_basket():
    split = last_basket(trending_data())
    one = model("HRM", n_epochs=3, lr=0.02, trend_half_life=2.0).fit(split.train, valid=split.valid)
    found = []
    for when in (split.valid, None):
        users = split.valid.active_users
        lists = one.recommend(
            split.valid.users.to_ids(users), N=20, filter_seen=not split.train.has_repeats, at=when
        )
        bought, shown = split.valid.to_csr().toarray()[users] > 0, lists.items.reshape(-1, 20)
        right = np.take_along_axis(bought, shown, 1).cumsum(1)
        f1 = 2 * right / (np.arange(1, 21) + bought.sum(1, keepdims=True))
        found.append(f1.mean(0).max())
    assert max(one.valid_scores_) == pytest.approx(found[0])
    assert found[0] != found[1]


def test_trend_without_timestamps_is_rejected():
    timeless = Interactions.from_csr(trending_data().to_csr())
    with pytest.raises(ConfigError, match="trend_half_life needs timestamps, got data without them"):
        fit("HRM", timeless, trend_half_life=2.0)


def test_saved_and_loaded(tmp_path):
    one = fit("DKHRM", trending_data(), n_epochs=2, trend_half_life=2.0)
    one.save(tmp_path / "model")
    other = load_model(tmp_path / "model")
    assert other.trend_half_life == 2.0
    assert bits(other) == bits(one)
    assert (one.recommend(N=3, at="2020-01-09").scores == other.recommend(N=3, at="2020-01-09").scores).all()


def test_file_without_trend_weights_is_rejected(tmp_path):
    parts = read_parts(fit("HRM", trending_data(), n_epochs=1).save(tmp_path / "model"))
    del parts.arrays["parameters.user_trend"]
    write_parts(tmp_path / "model", parts)
    with pytest.raises(ModelFileError, match=r"'parameters.user_trend' is missing; save the model again"):
        load_model(tmp_path / "model")


def test_new_users_get_current_trend_scores():
    one = fit("DKHRM", trending_data(), n_epochs=3, lr=0.02, trend_half_life=2.0)
    learned = one._state.parameters.user_trend
    one.observe([(999, item, int(one.history_.time.max()) + 1) for item in (0, 2, 4)])
    used = one._request_parameters(one.build_request([999])).user_trend
    assert used[0] == pytest.approx(learned.mean(), rel=1e-5)
    trend = Trend.of(one.history_, 2.0)
    wanted = one._state.parameters.bias + (1 + one._state.parameters.item_trend) * trend.trend_scores(
        one.history_.time.max() // DAY
    )
    np.testing.assert_allclose(item_offsets(one._state), wanted, rtol=1e-6)


@pytest.mark.parametrize("at", ["yesterday", float("nan"), object(), ["2020-01-01", "x"]])
def test_invalid_time_is_rejected(at):
    with pytest.raises(ConfigError, match="at must be a date, an ISO 8601 string or an epoch number"):
        model("HRM", n_epochs=1, trend_half_life=2.0).fit(trending_data()).recommend(N=2, at=at)


def test_times_before_all_events_have_no_trend():
    one = fit("HRM", trending_data(), n_epochs=1, trend_half_life=2.0)
    assert (one.recommend([0], N=3, at=5).lengths == 3).all()  # warnings are errors: nothing overflows
