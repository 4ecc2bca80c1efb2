"""Candidates and features, against a plain computation from the events before the prediction time."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from shortlist.data import timeline
from shortlist.data.history import Events, History
from shortlist.data.interactions import Interactions
from shortlist.data.timeline import event_times
from shortlist.kernels.snapshot_features import DAY, N_LATEST, N_LINKED, CandidateRules, Snapshots
from shortlist.models.two_stage import snapshots
from shortlist.models.two_stage.features import FEATURES, compute_features
from shortlist.models.two_stage.snapshots import WINDOWS, EventReplay, Rolling

PER_SOURCE, WINDOW, DECAY = 4, 2, 0.5
EASE = {"FIRST_BASKETS": 6, "GROWTH": 1.5, "MAX_ITEMS": 9, "REG": 2.0}
LINKS = {"FIRST_BASKETS": 3, "GROWTH": 1.3}


@pytest.fixture(autouse=True)
def _solve_on_small_data(monkeypatch):
    for method, values in (("EASE", EASE), ("LINKS", LINKS)):
        for name, value in values.items():
            is_shared = name in ("FIRST_BASKETS", "GROWTH")
            monkeypatch.setattr(snapshots, f"{method}_{name}" if is_shared else name, value)


def last_solution(n_baskets, settings):
    """The number of baskets of the last solution; 0: none."""
    size = float(settings["FIRST_BASKETS"])
    if int(size) > n_baskets:
        return 0
    while int(size * settings["GROWTH"]) <= n_baskets:
        size *= settings["GROWTH"]
    return int(size)


def purchases(seed, n_users=12, n_items=15, n_days=40):
    """A few users who buy a few items on some days."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        for day in np.sort(rng.permutation(n_days)[: rng.integers(1, 6)]):
            items = rng.permutation(n_items)[: rng.integers(1, 5)]
            rows += [(f"u{user:02}", f"i{int(i * rng.random()):02}", int(day) * 86_400) for i in items]
    return Interactions.from_tuples(rows)


class Plain:
    """All baskets before a time as (time, user, items); every value is computed from scratch."""

    def __init__(self, data, at):
        time = event_times(data)
        owner = np.repeat(np.arange(data.n_users), np.diff(data.user_baskets))
        baskets = [
            (int(time[b]), int(owner[b]), data.item[data.baskets[b] : data.baskets[b + 1]].tolist())
            for b in range(data.n_baskets)
        ]
        self.baskets = [b for b in baskets if b[0] < at]
        self.at = at

    def of(self, user):
        return [(when, items) for when, owner, items in self.baskets if owner == user]

    def in_order(self):
        return sorted(self.baskets, key=lambda basket: basket[0])

    def sales(self, since=None, until=None):
        until = self.at if until is None else until
        found = defaultdict(int)
        for when, _, items in self.baskets:
            if (since is None or when >= since) and when < until:
                for item in items:
                    found[item] += 1
        return found

    def pairs(self, window):
        """Weights of pairs after the last solution."""
        found = defaultdict(float)
        counted = self.in_order()[: last_solution(len(self.baskets), LINKS)]
        for user in {owner for _, owner, _ in counted}:
            own = [items for _, owner, items in counted if owner == user]
            for b, items in enumerate(own):
                for earlier in range(max(b - window, 0), b) if window else [b]:
                    for i in own[earlier]:
                        for j in items:
                            if i != j:
                                found[i, j] += DECAY ** (b - earlier - 1) if window else 1
        return found

    def gaps(self, item):
        """Days between purchases of the item by one user, for all users."""
        found = []
        for user in {owner for _, owner, _ in self.baskets}:
            times = [when for when, items in self.of(user) if item in items]
            found += [(b - a) / DAY for a, b in pairwise(times)]
        return found

    def experience(self, user, when):
        """log(1 + items bought) of a user before a time."""
        return np.log1p(sum(len(items) for then, items in self.of(user) if then < when))

    def experience_features(self, user, item):
        buyers = [
            self.experience(owner, when) for when, owner, items in self.baskets for i in items if i == item
        ]
        above = self.experience(user, self.at) - np.mean(buyers)
        return {
            "buyer_experience": np.mean(buyers),
            "experience_above_buyers": above,
            "experience_above_buyers_scaled": above / (np.std(buyers) + 0.3),
        }

    def item_features(self, item):
        row = {}
        sales = self.sales()
        shares = {}
        for days in WINDOWS:
            recent = self.sales(self.at - days * DAY)
            shares[days] = row[f"sales_{days}d"] = recent[item] / max(sum(recent.values()), 1)
        sold, all_sold = sales[item], sum(sales.values())
        gaps = self.gaps(item)
        inside = [(when, items) for when, _, items in self.baskets if item in items]
        row["sales"] = sold / max(all_sold, 1)
        row["repeat_rate"] = len(gaps) / (sold + 5)
        row["repeat_gap"] = np.mean(gaps) if gaps else np.nan
        row["trend_3d"] = (shares[3] + 1e-5) / (shares[14] + 1e-5)
        row["trend_14d"] = (shares[14] + 1e-5) / (row["sales"] + 1e-5)
        row["item_age"] = (self.at - min(when for when, _ in inside)) / DAY
        row["item_basket_size"] = np.mean([len(items) for _, items in inside])
        row["sales_per_buyer"] = sold / (sold - len(gaps))
        return row

    def own_features(self, user, item, item_gap):
        mine = self.of(user)
        times = [when for when, items in mine if item in items]
        backs = [len(mine) - 1 - b for b, (_, items) in enumerate(mine) if item in items]
        row = {"own_count": len(times)}
        for decay in (0.5, 0.8, 0.95):
            row[f"own_decayed_{decay}"] = sum(decay**back for back in backs)
        row["own_decayed_days"] = sum(0.5 ** ((self.at - when) / DAY / 14) for when in times)
        names = (
            "own_basket_share",
            "own_days",
            "own_baskets_ago",
            "own_days_per_item_gap",
            "own_days_per_own_gap",
        )
        row |= dict.fromkeys(names, np.nan)
        if times:
            days = (self.at - times[-1]) / DAY
            row["own_basket_share"], row["own_days"] = len(times) / len(mine), days
            row["own_baskets_ago"], row["own_days_per_item_gap"] = backs[-1], days / item_gap
            if len(times) > 1:
                row["own_days_per_own_gap"] = days * (len(times) - 1) / ((times[-1] - times[0]) / DAY)
        return row

    def link_features(self, user):  # noqa: C901
        """{item: six scores}: links from the user's items, and transitions into the latest of them."""
        mine, sales, together, after = self.of(user), self.sales(), self.pairs(0), self.pairs(WINDOW)
        out = defaultdict(float)
        for (i, _), weight in after.items():
            out[i] += weight
        found = defaultdict(lambda: [0.0] * 6)

        def add(j, value, at):
            found[j][at] += value
            found[j][at + 1] = max(found[j][at + 1], value)

        def neighbors(pairs, i):
            return [(j, weight) for (a, j), weight in pairs.items() if a == i]

        distinct = {}
        for back, (_, items) in enumerate(reversed(mine)):
            for i in items:
                distinct.setdefault(i, back)
        assert len(distinct) <= N_LINKED
        for i, back in distinct.items():
            for j, weight in neighbors(together, i):
                add(j, 0.9**back * weight / sales[i], 0)
        for back, (_, items) in enumerate(list(reversed(mine))[:WINDOW]):
            for i in items:
                for j, weight in neighbors(after, i):
                    add(j, DECAY**back * weight / max(out[i], 1) ** 0.5, 2)
        late = [i for i, back in distinct.items() if back < WINDOW]
        for (j, i), weight in after.items():
            if i in late[:N_LATEST]:
                add(j, DECAY ** distinct[i] * weight / max(out[i], 1) ** 0.5, 4)
        return found

    def ease(self, user):
        """{item: score} by the last EASE solution, for the items with the most buyers."""
        size = last_solution(len(self.baskets), EASE)
        if not size:
            return {}
        bought = defaultdict(set)
        for _, owner, items in self.in_order()[:size]:
            bought[owner] |= set(items)
        buyers = defaultdict(int)
        for items in bought.values():
            for i in items:
                buyers[i] += 1
        known = sorted((i for i in buyers if buyers[i] > 1), key=lambda i: (-buyers[i], i))
        known = known[: EASE["MAX_ITEMS"]]
        have = np.array([[i in items for i in known] for items in bought.values()], float)
        inverse = np.linalg.inv(have.T @ have + EASE["REG"] * np.eye(len(known)))
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0)
        mine = {i for _, items in self.of(user) for i in items}
        return dict(
            zip(known, weights[[k for k, i in enumerate(known) if i in mine]].sum(axis=0), strict=True)
        )

    def user_features(self, user):
        mine = self.of(user)
        sizes, times = [len(items) for _, items in mine], [when for when, _ in mine]
        seen, repeats = set(), 0
        for _, items in mine:
            repeats += sum(i in seen for i in items)
            seen |= set(items)
        away = (self.at - times[-1]) / DAY
        gap = (times[-1] - times[0]) / (len(mine) - 1) / DAY if len(mine) > 1 else np.nan
        return {
            "n_baskets": len(mine),
            "mean_basket_size": np.mean(sizes),
            "last_basket_size": sizes[-1],
            "previous_basket_size": sizes[-2] if len(mine) > 1 else np.nan,
            "days_since_last_basket": away,
            "mean_basket_gap": gap,
            "user_repeat_rate": repeats / sum(sizes),
            "n_own_items": len(seen),
            "weekday": (self.at // DAY + 4) % 7,
            "days_since_last_basket_per_gap": away / (gap + 1),
            "days_since_first_basket": (self.at - times[0]) / DAY,
        }


def computed(data, has_repeats, snapshots):
    """(number, items, features, labels) of each snapshot."""
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, PER_SOURCE, WINDOW, DECAY, has_repeats)
    replay = EventReplay(History.of(data), rules)
    for block in compute_features(replay, replay.whole.timeline.log.users, snapshots):
        for k in range(block.indptr.size - 1):
            part = slice(block.indptr[k], block.indptr[k + 1])
            yield (
                block.first + k,
                block.items[part].copy(),
                block.features[part].copy(),
                block.labels[part].copy(),
            )


def all_snapshots(data):
    """Each basket but a user's first as the target, in order of time."""
    time = event_times(data)
    owner = np.repeat(np.arange(data.n_users, dtype=np.int32), np.diff(data.user_baskets))
    target = np.flatnonzero(np.arange(data.n_baskets) > data.user_baskets[owner])
    target = target[np.argsort(time[target], kind="stable")]
    return Snapshots(owner[target], time[target], target)


@pytest.mark.parametrize("seed", range(3))
def test_features_match_plain_computation(seed):
    data = purchases(seed)
    snapshots = all_snapshots(data)
    checked = with_ease = 0
    for number, items, features, labels in computed(data, True, snapshots):
        user, at = int(snapshots.user[number]), int(snapshots.at[number])
        plain = Plain(data, at)
        about, links, sales = plain.user_features(user), plain.link_features(user), plain.sales()
        liked = plain.ease(user)
        basket = snapshots.target[number]
        bought = set(data.item[data.baskets[basket] : data.baskets[basket + 1]].tolist())
        for item, row, hit in zip(items.tolist(), features, labels, strict=True):
            expected = plain.item_features(item) | plain.experience_features(user, item)
            expected |= plain.own_features(user, item, expected["repeat_gap"])
            near = links[item]
            for k, name in enumerate(("together", "after", "before")):
                expected[f"{name}_sum"], expected[f"{name}_max"] = near[2 * k : 2 * k + 2]
                expected[f"{name}_lift"] = near[2 * k] / sales[item] ** 0.5
            expected |= about
            got = row[FEATURES.index("ease")]
            assert got == pytest.approx(liked.get(item, np.nan), abs=2e-3, nan_ok=True), (number, item)
            with_ease += not np.isnan(got)
            for name, value in expected.items():
                got = row[FEATURES.index(name)]
                assert got == pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True), (name, number, item)
            assert set(FEATURES) - set(expected) == {"user_trend", "ease"}  # both are tested separately
            assert hit == (item in bought)
            checked += 1
    assert checked > 100
    assert with_ease > 50


def test_user_trend_is_mean_share_of_recent_sales_at_purchase():
    day = 86_400
    rows = [("a", "x", 0), ("b", "x", day), ("c", "y", day), ("d", "x", 2 * day), ("d", "z", 9 * day)]
    data = Interactions.from_tuples(rows)
    snapshots = Snapshots(np.array([3], np.int32), np.array([10 * DAY]), np.array([-1]))
    ((_, _, features, _),) = computed(data, True, snapshots)
    # x at day 2: two of the three sales of days -1 … 1; z at day 9: no recent sales
    assert features[:, FEATURES.index("user_trend")] == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("has_repeats", [True, False])
def test_candidates_are_distinct_and_cover_sources(has_repeats):
    data = purchases(7)
    snapshots = all_snapshots(data)
    for number, items, _, _ in computed(data, has_repeats, snapshots):
        plain = Plain(data, int(snapshots.at[number]))
        mine = {i for _, basket in plain.of(int(snapshots.user[number])) for i in basket}
        assert len(set(items.tolist())) == items.size
        if has_repeats:
            assert set(items.tolist()) >= mine if len(mine) <= 2 * PER_SOURCE else True
        else:
            assert not set(items.tolist()) & mine
        sales = plain.sales()
        best = sorted(sales, key=lambda i: (-sales[i], i))[:PER_SOURCE]
        assert all(i in items or (not has_repeats and i in mine) for i in best)
        liked = plain.ease(int(snapshots.user[number]))
        most = max((value for i, value in liked.items() if has_repeats or i not in mine), default=0.0)
        near = [i for i, value in liked.items() if value > most - 1e-3 and (has_repeats or i not in mine)]
        assert most <= 0 or set(items.tolist()) & set(near)


@pytest.mark.parametrize("has_repeats", [True, False])
def test_the_nearest_neighbors_and_followers_are_candidates(has_repeats):
    """There are more items than all sources together propose."""
    data, checked = purchases(8, n_users=30, n_items=90), 0
    snapshots = all_snapshots(data)
    for number, items, _, _ in computed(data, has_repeats, snapshots):
        plain, user = Plain(data, int(snapshots.at[number])), int(snapshots.user[number])
        mine = {i for _, basket in plain.of(user) for i in basket}
        links, width = plain.link_features(user), PER_SOURCE * (2 - has_repeats)
        for column in (0, 2):
            sums = sorted((values[column] for values in links.values()), reverse=True)
            least = max(sums[:width][-1], 0) if len(sums) >= width else 0
            nearest = {i for i, values in links.items() if values[column] > least + 1e-6}
            assert all(i in items or (not has_repeats and i in mine) for i in nearest)
            checked += len(nearest)
    assert checked > 50


def test_the_first_basket_of_all_is_a_target_and_no_sales_give_no_candidates():
    day = 86_400
    data = Interactions.from_tuples([("a", "x", day), ("b", "x", 0), ("b", "y", 0)])
    snapshots = Snapshots(np.zeros(2, np.int32), np.array([0, DAY]), np.zeros(2, np.int64))
    before, after = computed(data, True, snapshots)
    assert before[1].size == 0
    assert dict(zip(after[1].tolist(), after[3].tolist(), strict=True)) == {0: True, 1: False}
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, PER_SOURCE, WINDOW, DECAY, True)
    replay = EventReplay(History.of(data), rules)
    (block,) = compute_features(replay, replay.whole.timeline.log.users, snapshots)
    assert block.non_empty.tolist() == [False, True]


def test_later_events_change_nothing():
    data = purchases(3)
    cut = 20 * DAY
    known = data.where(data.time < cut)
    users = known.active_users
    snapshots = Snapshots(users, np.full(users.size, cut), np.full(users.size, -1))
    with_future = list(computed(data, True, snapshots))
    without = list(computed(known, True, snapshots))
    for (_, items, features, _), (_, items_2, features_2, _) in zip(with_future, without, strict=True):
        assert (items == items_2).all()
        np.testing.assert_array_equal(features, features_2)


def test_sessions_without_times_end_just_before_the_prediction():
    history = Interactions.from_tuples([(0, 0, 10), (0, 1, 20), (1, 0, 15)])
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, 4, 2, 0.5, True)
    frame = {"user_id": [7, 7, 7, 8], "item_id": [0, 1, 0, 1], "basket_id": [1, 2, 3, 1]}
    sessions = Interactions.from_frame(pl.DataFrame(frame))
    at = np.array([10 * DAY, 20 * DAY])
    log = EventReplay(History.of(history), rules).session_log(sessions, at)
    assert log.time.tolist() == [10 * DAY - 3, 10 * DAY - 2, 10 * DAY - 1, 20 * DAY - 1]


def test_solutions_are_taken_over_from_baskets_before_the_first_new_one():
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, PER_SOURCE, WINDOW, DECAY, True)
    known = EventReplay(History.of(purchases(0)), rules).whole.ease
    known.solution(1)
    last = int(np.sort(known.log.users.time)[known.sizes[0] - 1])
    for until, taken in ((last, {}), (last + 1, {1})):
        new = snapshots.RollingEASE(known.log, known.n_items)
        new.take_solutions(known, until)
        assert new._cache.keys() == set(taken)


class WithoutSolutions(Rolling):
    """The sizes alone."""

    _empty = _extend = _solve = None


@pytest.mark.parametrize(("first", "growth"), [(3, 1.3), (6, 1.5), (4, 2.0)])
def test_solutions_are_as_many_as_fit_into_the_baskets(first, growth):
    for n in range(1, 120):
        sizes = WithoutSolutions(SimpleNamespace(order=np.empty(n)), 1, first, growth).sizes
        expected = sorted({int(first * growth**k) for k in range(30)})
        assert sizes.tolist() == [size for size in expected if size <= n]


def test_replay_without_times_observes():
    rules = CandidateRules(np.array(WINDOWS, np.int64) * DAY, PER_SOURCE, WINDOW, DECAY, True)
    history = History.of(Interactions.from_tuples([(0, 0), (0, 1), (1, 0)]))
    longer, new = history.append(Events(Interactions.from_tuples([(1, 1)])))
    replay = EventReplay(history, rules)
    assert replay.whole.timeline.log.order.size
    assert replay.observe(longer, rules, new).history.n_rows == 4


RULES = CandidateRules(np.array(WINDOWS, np.int64) * DAY, PER_SOURCE, WINDOW, DECAY, True)


def feature_bits(replay):
    """Features of all users and of sessions: five days before the end of the history, there, and later."""
    n, bits = replay.history.n_users, []
    sessions = replay.history.rows_of(np.arange(4, dtype=np.int32))
    for at in (
        replay.whole.timeline.end - 5 * DAY,
        replay.whole.timeline.end,
        replay.whole.timeline.end + 2 * DAY,
    ):
        logs = replay.whole.timeline.log.users, replay.session_log(sessions, np.full(4, at))
        for users, n_shown in zip(logs, (n, 4), strict=True):
            shown = Snapshots(np.arange(n_shown, dtype=np.int32), np.full(n_shown, at), np.full(n_shown, -1))
            for block in compute_features(replay, users, shown):
                bits += [block.items.tobytes(), block.features.tobytes(), block.users.tobytes()]
    return bits


def batches(seed, n=24):
    """Small batches: mostly later than all before, some late or at equal times; new users and items."""
    rng, day = np.random.default_rng(seed), 40.0
    for number in range(n):
        day += rng.random() / 2
        late = {5: 3.0, 11: 30.0}.get(number % 12, 0.0)
        times = (day - late * rng.random(rng.integers(1, 6))) * 86_400
        times = np.floor(times / 86_400) * 86_400 if number % 4 == 3 else times
        yield [
            (f"u{rng.integers(12 + number // 3):02}", f"i{rng.integers(15 + number // 8):02}", int(time))
            for time in times
        ]


def observe(replay, events):
    history, new = replay.history.append(Events(Interactions.from_tuples(events)))
    return replay.observe(history, RULES, new)


@pytest.mark.parametrize(("unsettled", "max_copies"), [(4, 2), (20, 2), (20, 50)])
@pytest.mark.parametrize("seed", range(3))
def test_small_batches_give_the_bits_of_the_whole_history(monkeypatch, seed, unsettled, max_copies):
    monkeypatch.setattr(snapshots, "UNSETTLED", unsettled)
    monkeypatch.setattr(timeline, "MAX_COPIES", max_copies)
    grow, grown = timeline.Timeline.grow, []
    monkeypatch.setattr(timeline.Timeline, "grow", lambda *a: grown.append(grow(*a)) or grown[-1])
    replay = EventReplay(History.of(purchases(seed)), RULES)
    feature_bits(replay)
    for number, events in enumerate(batches(seed)):
        replay = observe(replay, events)
        if number % 5 != 2:  # else nobody asks between two batches
            whole = EventReplay(History.of(replay.history.merged), RULES)
            assert feature_bits(replay) == feature_bits(whole)
            assert np.array_equal(replay.whole.timeline.first_sales, whole.whole.timeline.first_sales)
    used = [longer is not None for longer in grown]
    assert sum(used) > 5
    assert all(used) == (max_copies == 50)


def test_versions_of_a_history_are_read_while_others_grow_from_them():
    first = EventReplay(History.of(purchases(1)), RULES)
    expected = feature_bits(first)
    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            chains = [list(batches(seed, 8)) for seed in (3, 4)]
            readers = [pool.submit(feature_bits, first) for _ in range(4)]
            ends = list(pool.map(lambda chain: _observe_all(first, chain), chains))
        assert all(reader.result() == expected for reader in readers)
        for end in ends:
            assert feature_bits(end) == feature_bits(EventReplay(History.of(end.history.merged), RULES))
    assert feature_bits(first) == expected


def _observe_all(replay, chain):
    for events in chain:
        replay = observe(replay, events)
        assert replay.whole.timeline.log.order.size
    return replay
