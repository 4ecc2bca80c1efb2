"""evaluate_over_time, against a slow oracle that makes every list by itself, and with a shuffled future."""

from copy import copy
from datetime import timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.data.interactions import NO_BASKET, NO_WEIGHT, Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import METRICS, TimedReport, paired_test
from shortlist.models.strict_time import find_visits, lists_over_time
from shortlist.recommend.options import RequestOptions
from tests.models.cases import ALL_MODELS, bits
from tests.models.cases import fit as fit_model

DAY, HOUR = 86_400_000_000, 3_600_000_000
CUT, N_DAYS = 12, 20
LEARNED_ONLY = (
    "BPRMF",
    "LogMF",
    "CRRMF",
    "DKBPRMF",
    "PrecomputedScores",
)  # events change no list of known users


@cache
def shop():
    """20 days, 25 users with up to two visits a day, equal times, and users and items that appear late."""
    rng = np.random.default_rng(3)
    rows = []
    for day in range(N_DAYS):
        for user in rng.choice(25 if day >= CUT else 22, 9, replace=False).tolist():
            for hour in rng.choice([8, 8, 12, 20], rng.integers(1, 3), replace=False).tolist():
                n_items = 16 if day < CUT else 18
                favorites = [user % 6, (user + 1) % 6]
                basket = {*rng.choice(favorites, 1).tolist(), *rng.integers(n_items, size=2).tolist()}
                time = np.datetime64("2024-03-01") + np.timedelta64(24 * day + hour, "h")
                rows += [(f"u{user:02}", f"i{item:02}", time.item()) for item in basket]
    return Interactions.from_tuples(rows)


@cache
def parts():
    """(events before the cut without later ids, later events)."""
    data = shop()
    before = data.time < data.time.min() // DAY * DAY + CUT * DAY
    return data.where(before).compact(), data.where(~before).compact()


@cache
def later(name):
    """Later events that the model can observe."""
    train, events = parts()
    if name != "PrecomputedScores":
        return events
    return events.where((train.users.align(events.users) >= 0)[events.user]).compact()  # no scores for others


@cache
def fitted(name):
    return fit_model(name, parts()[0])


def naive_lists(model, events, every):
    """{(user id, time): item ids}: visit by visit, one request each, from the events before its step."""
    origin, rows = int(events.time.min()) // DAY * DAY, events.to_frame()
    times = rows["timestamp"].to_physical().to_list()
    visits = sorted({(time, user_id) for time, user_id in zip(times, rows["user_id"], strict=True)})
    found, current, observed = {}, copy(model), 0
    for time, user_id in visits:
        known = time if every is None else origin + (time - origin) // every * every
        more = rows.filter([observed <= one < known for one in times])
        if more.height:
            current, observed = current.observe(Interactions.from_frame(more)), known
        at, seen = np.datetime64(time, "us").item(), not model.history_.has_repeats
        found[user_id, time] = current.recommend([user_id], N=5, filter_seen=seen, at=at)[user_id].items
    return found


def fast_lists(model, events, every, visits=None):
    """The same through `lists_over_time`; visits without a list have an empty one."""
    visits = find_visits(events, "all") if visits is None else visits
    ids = events.users.to_ids(visits.users).to_list()
    found = {key: [] for key in zip(ids, visits.times.tolist(), strict=True)}
    for numbers, lists in lists_over_time(model, events, visits, every, RequestOptions(N=5)):
        for number, one in zip(numbers.tolist(), lists, strict=True):
            assert one.user_id == ids[number]
            found[one.user_id, int(visits.times[number])] = one.items
    return found


@pytest.mark.filterwarnings("ignore::shortlist.errors.DataWarning")  # events of items new to the model
@pytest.mark.parametrize("every", [None, 12 * HOUR, 3 * DAY])
@pytest.mark.parametrize("name", ALL_MODELS)
def test_lists_equal_those_made_one_by_one(name, every):
    events = later(name)
    fast = fast_lists(fitted(name), events, every)
    slow = naive_lists(fitted(name), events, every)
    assert len(slow) > 50
    assert fast == slow


def test_two_stage_predicts_for_a_past_time_as_if_it_were_then():
    """What benchmarks/strict_time.py relies on: observe everything once, then predict for past times."""
    data = shop()
    before = data.time < int(parts()[1].time.min())
    model, events = fit_model("TwoStage", data.where(before)), data.where(~before)  # the ids of all items
    first = find_visits(events, "first")
    expected = fast_lists(model, events, None, first)
    at = pl.Series(first.times).cast(pl.Datetime("us"))
    current = copy(model).observe(events.compact())
    lists = current.recommend(events.users.to_ids(first.users), N=5, at=at, filter_seen=False)
    assert len(lists) > 15
    for one, time in zip(lists, first.times.tolist(), strict=True):
        assert one.items == expected[one.user_id, time]


def shuffle_after(events, time, seed=0):
    """Permute users and items of the rows at or after a time; the ids stay the same."""
    rng = np.random.default_rng(seed)
    later = np.flatnonzero(events.time >= time)
    user, item = events.user.copy(), events.item.copy()
    user[later], item[later] = rng.permutation(user[later]), rng.permutation(item[later])
    return Interactions.from_dense(events.users, events.items, user, item, events.time, NO_BASKET, NO_WEIGHT)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_shuffling_the_future_changes_no_earlier_list(name):
    events = later(name)
    middle = int(np.median(events.time))  # a time with visits of its own: they must not change either
    assert (events.time == middle).any()
    shuffled = shuffle_after(events, middle)
    assert shuffled.fingerprint != events.fingerprint
    for every in (None, 12 * HOUR):
        before = fast_lists(fitted(name), events, every)
        after = fast_lists(fitted(name), shuffled, every)
        earlier = {key for key in before if key[1] < middle}
        assert earlier == {key for key in after if key[1] < middle}
        assert len(earlier) > 20
        assert {key: before[key] for key in earlier} == {key: after[key] for key in earlier}
        at_middle = {key for key in before if key[1] == middle} & after.keys()
        assert at_middle or every is not None
        assert {key: before[key] for key in at_middle} == {key: after[key] for key in at_middle}
        if name not in LEARNED_ONLY:
            assert any(before[key] != after[key] for key in before.keys() & after.keys() if key[1] > middle)


@pytest.mark.parametrize("name", ["PersonalFrequency", "TwoStage"])
def test_model_that_is_passed_does_not_change(name):
    model = fitted(name)
    before, rows = bits(model), model.history_.fingerprint
    sl.evaluate_over_time(model, parts()[1], N=5)
    assert bits(model) == before
    assert model.history_.fingerprint == rows


def test_report_equals_metrics_by_hand():
    model, events = fitted("PersonalFrequency"), parts()[1]
    report = sl.evaluate_over_time(model, events, N=5)
    lists = naive_lists(model, events, DAY)
    f1 = []
    for user_id, time in zip(report.user_ids, report.times.tolist(), strict=True):
        rows = (events.user == events.users.index(user_id)) & (events.time == time)
        truth = set(events.items.to_ids(events.item[rows]).to_list())
        shown = lists.pop((user_id, time))
        f1.append(2 * len(truth & set(shown)) / (len(truth) + len(shown)))
    assert not lists  # every visit is in the report
    assert report.values("f1") == pytest.approx(f1)
    assert (np.diff(report.times) >= 0).all()
    assert report.unlisted == sum(not known for known in known_users(model, report))
    assert report.users["time"].to_physical().to_list() == report.times.tolist()


def known_users(model, report):
    """Whether each user has events before the day of the list."""
    events = parts()[1]
    for user_id, time in zip(report.user_ids, report.times.tolist(), strict=True):
        own = events.time[events.user == events.users.index(user_id)]
        yield user_id in model.users_ or bool((own < time // DAY * DAY).any())


def tiny():
    """A model and ten days of events of two users."""
    train = Interactions.from_tuples([("a", "x", 0), ("b", "y", 0), ("a", "y", 10)])
    day = 86_400
    rows = [("a", "x", 1), ("a", "z", 1), ("a", "y", 4), ("b", "y", 2), ("b", "x", 9), ("c", "x", 10)]
    events = Interactions.from_tuples([(user, item, when * day) for user, item, when in rows])
    return sl.Popularity().fit(train), events


def test_truth_is_the_basket_or_everything_within_the_horizon():
    model, events = tiny()
    report = sl.evaluate_over_time(model, events, N=2, filter_seen=False)
    assert list(zip(report.user_ids, report.times // DAY, strict=True)) == [
        ("a", 1), ("b", 2), ("a", 4), ("b", 9), ("c", 10)]  # fmt: skip
    assert report.n_relevant.tolist() == [2, 1, 1, 1, 1]
    assert report.unlisted == 1  # c is new
    assert report.lengths.tolist() == [2, 2, 2, 2, 0]
    wide = sl.evaluate_over_time(model, events, N=2, filter_seen=False, horizon="3d")
    assert wide.times.tolist() == [1 * DAY, 2 * DAY, 4 * DAY]  # [9, 12) and [10, 13) are not complete
    assert wide.incomplete == 2
    assert wide.n_relevant.tolist() == [2, 1, 1]  # the end of the horizon is not part of it: 1 + 3 = 4
    wider = sl.evaluate_over_time(
        model, events, N=2, filter_seen=False, horizon=timedelta(days=3, microseconds=1)
    )
    assert wider.n_relevant.tolist() == [3, 1, 1]
    assert "2 lists left out" in str(wide)


def test_only_these_users_and_first_baskets():
    model, events = tiny()
    assert sl.evaluate_over_time(model, events, N=1, users=["b", "nobody"]).user_ids.to_list() == ["b", "b"]
    first = sl.evaluate_over_time(model, events, N=1, baskets="first")
    assert first.user_ids.to_list() == ["a", "b", "c"]
    assert first.times.tolist() == [1 * DAY, 2 * DAY, 10 * DAY]


def test_events_of_other_users_are_observed():
    train = Interactions.from_tuples([("a", "x", 0), ("b", "y", 0), ("b", "x", 0)])
    model = sl.Popularity().fit(train)
    rows = [("b", "y", 5), ("c", "y", 5), ("a", "y", 6)]
    events = Interactions.from_tuples([(user, item, when * 86_400) for user, item, when in rows])
    report = sl.evaluate_over_time(model, events, N=1, users=["a"], filter_seen=False)
    assert report.values("hits").tolist() == [1]  # y was bought more often than x only since day 5


def test_cutoff_of_the_model_ends_the_lists():
    train, events = parts()
    model = sl.fit(train, models="PersonalFrequency", cutoff=sl.cutoff.ExpectedF1(n_candidates=10))
    report = sl.evaluate_over_time(model, events)
    assert np.unique(report.lengths).size > 1
    assert report.calibration_error is not None
    other = sl.evaluate_over_time(model, events, cutoff=sl.cutoff.FixedN(N=3))
    assert set(other.lengths.tolist()) <= {0, 3}
    tests = sl.compare({"fixed": other, "dynamic": report}, metrics=["f1"]).tests
    by_user = paired_test(report.values("f1"), other.values("f1"), groups=report.groups)
    by_list = paired_test(report.values("f1"), other.values("f1"))
    assert tests["p_bootstrap"].to_list() == [by_user.p_bootstrap]
    assert by_user.difference == by_list.difference
    assert by_user.low != by_list.low
    with pytest.raises(DataError, match="same users"):
        sl.compare({"fixed": other, "first": sl.evaluate_over_time(model, events, N=3, baskets="first")})


def test_periods_add_up():
    model, events = tiny()
    report = sl.evaluate_over_time(model, events, N=2, filter_seen=False)
    assert isinstance(report, TimedReport)
    table = report.periods("3d", metrics=METRICS)
    assert table["start"].dt.epoch("d").to_list() == [1, 4, 7, 10]
    assert table["requests"].to_list() == [2, 1, 1, 1]
    for name in METRICS:
        assert (table[name] * table["requests"]).sum() == pytest.approx(report.values(name).sum())
    assert (table["cover_ratio"] * table["requests"]).sum() == pytest.approx(4)
    assert report.groups.tolist() == [0, 1, 0, 1, 2]


def test_invalid_arguments_are_refused():
    model, events = tiny()
    with pytest.raises(DataError, match="later than all events that the model knows"):
        sl.evaluate_over_time(model.clone().fit(events), events, N=1)
    with pytest.raises(DataError, match="must have timestamps"):
        sl.evaluate_over_time(model, Interactions.from_tuples([("a", "x")]), N=1)
    with pytest.raises(DataError, match="fitted on data with timestamps"):
        sl.evaluate_over_time(sl.Popularity().fit(Interactions.from_tuples([("a", "x"), ("b", "y")])), events)
    with pytest.raises(DataError, match="no list to evaluate"):
        sl.evaluate_over_time(model, events, N=1, users=["nobody"])
    with pytest.raises(DataError, match="no list to evaluate"):
        sl.evaluate_over_time(model, events, N=1, horizon="52w")
    for name, value in (("every", "daily"), ("every", "0d"), ("horizon", timedelta(0)), ("every", 3)):
        with pytest.raises(ConfigError, match=f"{name} must be a positive duration"):
            sl.evaluate_over_time(model, events, N=1, **{name: value})
    with pytest.raises(ConfigError, match="baskets must be"):
        sl.evaluate_over_time(model, events, N=1, baskets="last")
    with pytest.raises(ConfigError, match="pass N=10"):
        sl.evaluate_over_time(model, events)
    with pytest.raises(ConfigError, match="metric must be one of"):
        sl.evaluate_over_time(model, events, N=1).periods(metrics=("auc",))


def test_event_at_the_time_of_the_last_known_one_is_refused():
    model, _ = tiny()  # it knows events until second 10
    with pytest.raises(DataError, match="later than all events"):
        sl.evaluate_over_time(model, Interactions.from_tuples([("a", "x", 10)]), N=1)
    assert sl.evaluate_over_time(model, Interactions.from_tuples([("a", "x", 11)]), N=1).n_users == 1


def test_tables_are_accepted():
    model, events = tiny()
    table = events.to_frame()
    assert isinstance(table, pl.DataFrame)
    same = sl.evaluate_over_time(model, table, N=2)
    assert same.f1 == sl.evaluate_over_time(model, events, N=2).f1


def test_everyone_gets_a_list_at_every_step():
    """Against a slow version: for each week and each known user, the items of the next seven days."""
    data = sl.load_dataset("sample")
    split = sl.split.by_time(data, "2024-05-01")
    model = sl.PersonalFrequency().fit(split.train_valid)
    events = data.where(data.time >= split.train_valid.end_time)
    report = sl.evaluate_over_time(
        model, events, users="everyone", every="7d", horizon="7d", N=3, gain=1, cost=0.1
    )
    week = 7 * 86_400 * 10**6
    first, cases = int(events.time.min()) // (week // 7) * (week // 7), []
    for start in range(first, events.end_time - week + 1, week):
        if start < split.train_valid.end_time:
            continue
        for user in range(data.n_users):
            rows = slice(data.indptr[user], data.indptr[user + 1])
            times, items = data.time[rows], data.item[rows]
            if (times < start).any():
                taken = items[(times >= start) & (times < start + week)]
                cases.append((start, str(data.users.values[user]), len(set(taken.tolist()))))
    got = list(zip(report.times.tolist(), report.user_ids, report.n_relevant.tolist(), strict=True))
    assert sorted(got) == sorted(cases)
    assert (report.n_relevant == 0).any()
    assert report.values("value").tolist() == pytest.approx(
        (report.hits - 0.1 * (report.lengths - report.hits)).tolist()
    )
    assert (report.lengths == 3).all()


def test_everyone_needs_every_and_horizon():
    split = sl.split.by_time(sl.load_dataset("sample"), "2024-05-01")
    model = sl.PersonalFrequency().fit(split.train_valid)
    for options in ({"users": "everyone"}, {"users": "all", "horizon": "7d"}):
        with pytest.raises(ConfigError, match=r"users must be ids, or 'everyone' with every and horizon"):
            sl.evaluate_over_time(model, split.test, **options)
