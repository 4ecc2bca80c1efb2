"""Candidates and columns, against a plain account of what had happened before the moment."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.kernels.candidates import FADES, LATELY, LINKED, Rules
from shortlist.kernels.item_stats import DAY
from shortlist.kernels.snapshots import Moments
from shortlist.models.two_stage import rolling_ease as tastes
from shortlist.models.two_stage.snapshots import FEATURES, WINDOWS, Timeline, basket_moments

QUOTA, REACH, DECAY = 4, 2, 0.5
TASTES = {"FIRST": 6, "GROWTH": 1.5, "ITEMS": 9, "REG": 2.0}


@pytest.fixture(autouse=True)
def _small_shops_have_tastes(monkeypatch):
    for name, value in TASTES.items():
        monkeypatch.setattr(tastes, name, value)


def shop(seed, n_users=12, n_items=15, n_days=40):
    """A few users who come back on some days and take a few items each time."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        for day in np.sort(rng.permutation(n_days)[: rng.integers(1, 6)]):
            items = rng.permutation(n_items)[: rng.integers(1, 5)]
            rows += [(f"u{user:02}", f"i{int(i * rng.random()):02}", int(day) * 86_400) for i in items]
    return Interactions.from_tuples(rows)


class Plain:
    """All baskets as (moment, user, items), and everything worked out anew for each question."""

    def __init__(self, data, at):
        moment = basket_moments(data)
        owner = np.repeat(np.arange(data.n_users), np.diff(data.user_baskets))
        baskets = [
            (int(moment[b]), int(owner[b]), data.item[data.baskets[b] : data.baskets[b + 1]].tolist())
            for b in range(data.n_baskets)
        ]
        self.baskets = [b for b in baskets if b[0] < at]
        self.at = at

    def of(self, user):
        return [(when, items) for when, owner, items in self.baskets if owner == user]

    def sales(self, since=None, until=None):
        until = self.at if until is None else until
        found = defaultdict(int)
        for when, _, items in self.baskets:
            if (since is None or when >= since) and when < until:
                for item in items:
                    found[item] += 1
        return found

    def pairs(self, reach):
        found = defaultdict(float)
        for user in {owner for _, owner, _ in self.baskets}:
            own = [items for _, items in self.of(user)]
            for b, items in enumerate(own):
                for earlier in range(max(b - reach, 0), b) if reach else [b]:
                    for i in own[earlier]:
                        for j in items:
                            if i != j:
                                found[i, j] += DECAY ** (b - earlier - 1) if reach else 1
        return found

    def gaps(self, item):
        """Days between one user's rows of the item, for all users."""
        found = []
        for user in {owner for _, owner, _ in self.baskets}:
            times = [when for when, items in self.of(user) if item in items]
            found += [(b - a) / DAY for a, b in pairwise(times)]
        return found

    def come(self, user, when):
        """How far a user had come before a moment."""
        return np.log1p(sum(len(items) for then, items in self.of(user) if then < when))

    def stage_columns(self, user, item):
        stages = [self.come(owner, when) for when, owner, items in self.baskets for i in items if i == item]
        passed = self.come(user, self.at) - np.mean(stages)
        return {
            "stage": np.mean(stages),
            "stage_passed": passed,
            "stage_passed_by_spread": passed / (np.std(stages) + 0.3),
        }

    def item_columns(self, item):
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
        row["item_basket"] = np.mean([len(items) for _, items in inside])
        row["sales_per_buyer"] = sold / (sold - len(gaps))
        return row

    def own_columns(self, user, item, item_gap):
        mine = self.of(user)
        times = [when for when, items in mine if item in items]
        backs = [len(mine) - 1 - b for b, (_, items) in enumerate(mine) if item in items]
        row = {"own_count": len(times)}
        for fade in FADES:
            row[f"own_faded_{fade}"] = sum(fade**back for back in backs)
        row["own_faded_days"] = sum(0.5 ** ((self.at - when) / DAY / 14) for when in times)
        names = ("own_share", "own_days", "own_baskets_ago", "own_days_per_item_gap", "own_days_per_own_gap")
        row |= dict.fromkeys(names, np.nan)
        if times:
            days = (self.at - times[-1]) / DAY
            row["own_share"], row["own_days"] = len(times) / len(mine), days
            row["own_baskets_ago"], row["own_days_per_item_gap"] = backs[-1], days / item_gap
            if len(times) > 1:
                row["own_days_per_own_gap"] = days * (len(times) - 1) / ((times[-1] - times[0]) / DAY)
        return row

    def link_columns(self, user):  # noqa: C901
        """{item: six scores}: what the user's items lead to, and what leads to the latest of them."""
        mine, sales, together, after = self.of(user), self.sales(), self.pairs(0), self.pairs(REACH)
        out = defaultdict(float)
        for (i, _), weight in after.items():
            out[i] += weight
        found = defaultdict(lambda: [0.0] * 6)

        def add(j, value, at):
            found[j][at] += value
            found[j][at + 1] = max(found[j][at + 1], value)

        def led(pairs, i):
            return [(j, weight) for (a, j), weight in pairs.items() if a == i]

        distinct = {}
        for back, (_, items) in enumerate(reversed(mine)):
            for i in items:
                distinct.setdefault(i, back)
        assert len(distinct) <= LINKED
        for i, back in distinct.items():
            for j, weight in led(together, i):
                add(j, 0.9**back * weight / sales[i], 0)
        for back, (_, items) in enumerate(list(reversed(mine))[:REACH]):
            for i in items:
                for j, weight in led(after, i):
                    add(j, DECAY**back * weight / max(out[i], 1) ** 0.5, 2)
        late = [i for i, back in distinct.items() if back < REACH]
        for (j, i), weight in after.items():
            if i in late[:LATELY]:
                add(j, DECAY ** distinct[i] * weight / max(out[i], 1) ** 0.5, 4)
        return found

    def tastes(self, user):
        """{item: sum of weights} of the items that most people have, as last learned."""
        size = float(TASTES["FIRST"])
        while int(size * TASTES["GROWTH"]) <= len(self.baskets):
            size *= TASTES["GROWTH"]
        if int(size) > len(self.baskets):
            return {}
        taken = defaultdict(set)
        for _, owner, items in sorted(self.baskets, key=lambda basket: basket[0])[: int(size)]:
            taken[owner] |= set(items)
        holders = defaultdict(int)
        for items in taken.values():
            for i in items:
                holders[i] += 1
        known = sorted((i for i in holders if holders[i] > 1), key=lambda i: (-holders[i], i))
        known = known[: TASTES["ITEMS"]]
        have = np.array([[i in items for i in known] for items in taken.values()], float)
        inverse = np.linalg.inv(have.T @ have + TASTES["REG"] * np.eye(len(known)))
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0)
        mine = {i for _, items in self.of(user) for i in items}
        return dict(
            zip(known, weights[[k for k, i in enumerate(known) if i in mine]].sum(axis=0), strict=True)
        )

    def user_columns(self, user):
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
            "mean_basket": np.mean(sizes),
            "last_basket": sizes[-1],
            "basket_before": sizes[-2] if len(mine) > 1 else np.nan,
            "days_away": away,
            "visit_gap": gap,
            "user_repeats": repeats / sum(sizes),
            "n_own": len(seen),
            "weekday": (self.at // DAY + 4) % 7,
            "days_away_per_gap": away / (gap + 1),
            "days_known": (self.at - times[0]) / DAY,
        }


def described(data, returns, moments):
    rules = Rules(np.array(WINDOWS, np.int64) * DAY, QUOTA, REACH, DECAY, returns)
    for block in Timeline(data, REACH).describe(rules, moments):
        for k in range(block.indptr.size - 1):
            part = slice(block.indptr[k], block.indptr[k + 1])
            yield (
                block.first + k,
                block.items[part].copy(),
                block.columns[part].copy(),
                block.taken[part].copy(),
            )


def every_moment(data):
    """Each basket but a user's first as the thing to foretell, in order of time."""
    moment = basket_moments(data)
    owner = np.repeat(np.arange(data.n_users, dtype=np.int32), np.diff(data.user_baskets))
    target = np.flatnonzero(np.arange(data.n_baskets) > data.user_baskets[owner])
    target = target[np.argsort(moment[target], kind="stable")]
    return Moments(owner[target], moment[target], target)


@pytest.mark.parametrize("seed", range(3))
def test_columns_tell_what_had_happened_before(seed):
    data = shop(seed)
    moments = every_moment(data)
    checked = tasted = 0
    for number, items, columns, taken in described(data, True, moments):
        user, at = int(moments.user[number]), int(moments.at[number])
        plain = Plain(data, at)
        about, links, sales = plain.user_columns(user), plain.link_columns(user), plain.sales()
        liked = plain.tastes(user)
        basket = moments.target[number]
        bought = set(data.item[data.baskets[basket] : data.baskets[basket + 1]].tolist())
        for item, row, hit in zip(items.tolist(), columns, taken, strict=True):
            expected = plain.item_columns(item) | plain.stage_columns(user, item)
            expected |= plain.own_columns(user, item, expected["repeat_gap"])
            near = links[item]
            for k, name in enumerate(("together", "after", "before")):
                expected[f"{name}_sum"], expected[f"{name}_max"] = near[2 * k : 2 * k + 2]
                expected[f"{name}_lift"] = near[2 * k] / sales[item] ** 0.5
            expected |= about
            got = row[FEATURES.index("taste")]
            assert got == pytest.approx(liked.get(item, np.nan), abs=2e-3, nan_ok=True), (number, item)
            tasted += not np.isnan(got)
            for name, value in expected.items():
                got = row[FEATURES.index(name)]
                assert got == pytest.approx(value, rel=1e-4, abs=1e-6, nan_ok=True), (name, number, item)
            assert set(FEATURES) - set(expected) == {"user_heat", "taste"}  # one has a test of its own
            assert hit == (item in bought)
            checked += 1
    assert checked > 100
    assert tasted > 50


def test_heat_is_the_share_of_recent_sales_when_the_row_happened():
    day = 86_400
    rows = [("a", "x", 0), ("b", "x", day), ("c", "y", day), ("d", "x", 2 * day), ("d", "z", 9 * day)]
    data = Interactions.from_tuples(rows)
    moments = Moments(np.array([3], np.int32), np.array([10 * DAY]), np.array([-1]))
    ((_, _, columns, _),) = described(data, True, moments)
    # x at day 2: two of the three sales of days -1 … 1; z at day 9: nothing had sold for days
    assert columns[:, FEATURES.index("user_heat")] == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("returns", [True, False])
def test_candidates_are_distinct_and_come_from_their_sources(returns):
    data = shop(7)
    moments = every_moment(data)
    for number, items, _, _ in described(data, returns, moments):
        plain = Plain(data, int(moments.at[number]))
        mine = {i for _, basket in plain.of(int(moments.user[number])) for i in basket}
        assert len(set(items.tolist())) == items.size
        if returns:
            assert set(items.tolist()) >= mine if len(mine) <= 2 * QUOTA else True
        else:
            assert not set(items.tolist()) & mine
        sales = plain.sales()
        best = sorted(sales, key=lambda i: (-sales[i], i))[:QUOTA]
        assert all(i in items or (not returns and i in mine) for i in best)
        liked = plain.tastes(int(moments.user[number]))
        most = max((value for i, value in liked.items() if returns or i not in mine), default=0.0)
        near = [i for i, value in liked.items() if value > most - 1e-3 and (returns or i not in mine)]
        assert most <= 0 or set(items.tolist()) & set(near)


def test_the_future_changes_nothing():
    data = shop(3)
    cut = 20 * DAY
    known = data.where(data.time < cut)
    users = known.active_users
    moments = Moments(users, np.full(users.size, cut), np.full(users.size, -1))
    with_future = list(described(data, True, moments))
    without = list(described(known, True, moments))
    for (_, items, columns, _), (_, items_2, columns_2, _) in zip(with_future, without, strict=True):
        assert (items == items_2).all()
        np.testing.assert_array_equal(columns, columns_2)


def test_without_times_baskets_follow_each_other_day_by_day():
    data = Interactions.from_tuples([("a", "x"), ("a", "y"), ("b", "x")])
    assert (basket_moments(data) == 0).all()
