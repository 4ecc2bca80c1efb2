"""Features of the hour and the weekday, against a plain computation; without a clock there are none."""

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.kernels.snapshot_features import CLOCK_PRIOR
from shortlist.models.two_stage.features import CLOCK_FEATURES, FEATURES, tells_hours

DAY, HOUR = 86_400_000_000, 3_600_000_000


@pytest.fixture(scope="module")
def data():
    """Users who buy coffee in the morning and wine in the evening, some of it on Fridays."""
    rng, rows = np.random.default_rng(3), []
    for user in range(30):
        for day in range(0, 40, 1 + user % 3):
            evening = rng.random() < 0.5
            hour = int(rng.integers(18, 23)) if evening else int(rng.integers(6, 10))
            second = 1_700_000_000 // 86_400 * 86_400 + day * 86_400 + hour * 3600 + int(rng.integers(3600))
            names = ("wine", "cheese", "nuts") if evening else ("coffee", "rolls", "jam")
            rows += [(f"u{user}", item, second) for item in names if rng.random() < 0.6]
            rows.append((f"u{user}", "milk", second))
    return sl.Interactions.from_tuples(rows)


def model():
    return sl.TwoStage(n_rounds=5, n_bags=1, n_snapshots=60, negative_rate=1.0, min_leaf=5)


def hour_of(time):
    return time // HOUR % 24


def weekday_of(time):
    return (time // DAY + 4) % 7


def bell(a, b):
    apart = np.minimum(np.abs(a - b), 24 - np.abs(a - b))
    return np.exp(-(apart**2) / 4.5)


def lift(times, everything, at, item_share, usual_share):
    """The item's share of sales at the time, with a prior, over the share of all sales."""
    usual = usual_share(everything).sum() / everything.size
    return (item_share(times).sum() + CLOCK_PRIOR * usual) / (times.size + CLOCK_PRIOR) / usual


def test_features_are_those_of_a_plain_computation(data):
    examples = model().compute_examples(data)
    assert examples.features.shape[1] == len(FEATURES) + len(CLOCK_FEATURES)
    columns = dict(zip(CLOCK_FEATURES, examples.features[:, len(FEATURES) :].T, strict=True))
    time = data.time
    for row in range(0, examples.items.size, 7):
        item, snapshot = examples.items[row], examples.owner[row]
        user, at = examples.snapshots.user[snapshot], examples.snapshots.at[snapshot]
        before = time < at
        own = time[before & (data.item == item) & (data.user == user)]
        sold, everything = time[before & (data.item == item)], time[before]
        near = bell(hour_of(own), hour_of(at))
        expected = {
            "hour": hour_of(at),
            "item_at_weekday": lift(
                sold, everything, at, *[lambda t, at=at: weekday_of(t) == weekday_of(at)] * 2
            ),
            "own_at_hour": near.mean() if own.size else np.nan,
            "own_at_hour_recently": (near * 0.5 ** ((at - own) / DAY / 30)).sum(),
            "own_at_weekday": (weekday_of(own) == weekday_of(at)).mean() if own.size else np.nan,
        }

        def weight(times, at=at):
            """Sales at the hour and up to two hours away."""
            apart = np.minimum((hour_of(times) - hour_of(at)) % 24, (hour_of(at) - hour_of(times)) % 24)
            return np.where(apart <= 2, np.exp(-(apart**2) / 4.5), 0.0)

        expected["item_at_hour"] = lift(sold, everything, at, weight, weight)
        for name, value in expected.items():
            np.testing.assert_allclose(columns[name][row], value, rtol=1e-5, err_msg=name)


def test_evening_lists_differ_from_morning_lists(data):
    fitted = model().set_params(n_rounds=30).fit(data)
    day = data.end_time // DAY + 1
    morning, evening = (
        fitted.recommend(["u1"], N=3, filter_seen=False, at=np.datetime64(day * DAY + hour * HOUR, "us"))[
            "u1"
        ]
        for hour in (7, 20)
    )
    assert {"coffee", "rolls", "jam"} & set(morning.items)
    assert {"wine", "cheese", "nuts"} & set(evening.items)
    assert morning.items != evening.items


def test_dates_have_no_clock(data, tmp_path):
    dates = data.to_frame().with_columns(pl.col("timestamp").dt.truncate("1d"))
    without = sl.Interactions.from_frame(dates)
    assert tells_hours(data.time)
    assert not tells_hours(without.time)
    assert not tells_hours(None)
    fitted = model().fit(without)
    assert fitted.compute_examples(without).features.shape[1] == len(FEATURES)
    fitted.observe([("u1", "milk", "2030-01-01 09:15"), ("u2", "milk", "2030-01-01 19:15")])
    loaded = sl.load_model(
        fitted.save(tmp_path / "model")
    )  # the trees have seen no clock, whatever came later
    assert loaded.recommend(["u1"], N=3)["u1"].items == fitted.recommend(["u1"], N=3)["u1"].items


def test_a_clock_survives_saving_and_late_events(data, tmp_path):
    fitted = model().fit(data)
    events = [("u1", "tea", "2030-01-01 09:15"), ("u2", "milk", "2023-11-20 07:30")]
    fitted.observe(events)
    loaded = sl.load_model(fitted.save(tmp_path / "model"))
    assert loaded.recommend(N=4).to_frame().equals(fitted.recommend(N=4).to_frame())
    again = model().fit(data)
    for event in events:
        again.observe([event])
    assert again.recommend(N=4).to_frame().equals(fitted.recommend(N=4).to_frame())
