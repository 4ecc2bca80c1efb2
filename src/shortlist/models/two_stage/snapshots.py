"""Moments: lists are made at a time, from what had happened before it and nothing else."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.times import parse_times
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.candidates import CHUNK, FADES, LATELY, Asked, Rules, Scratch
from shortlist.kernels.item_stats import DAY, CoCounts, ItemStats, Log, gaps_fill, pairs_list
from shortlist.kernels.snapshots import N_FEATURES, Moments, moments_describe
from shortlist.models.two_stage.rolling_ease import RollingEASE
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

WINDOWS = (1, 3, 7, 14, 30)  # days of recent sales
SOURCES = 8  # candidates per moment are at most this many times the quota
BLOCK = 512  # moments described at a time
KEPT = 2  # replays that are kept for later moments
ANY = Asked(np.empty(0, np.int64), np.empty(0, np.int32), False)

FEATURES = (
    *(f"sales_{days}d" for days in WINDOWS),
    "sales",
    "repeat_rate",
    "repeat_gap",
    "trend_3d",
    "trend_14d",
    "item_age",
    "item_basket",
    "sales_per_buyer",
    "stage",
    "stage_passed",
    "stage_passed_by_spread",
    "own_count",
    *(f"own_faded_{fade}" for fade in FADES),
    "own_faded_days",
    "own_share",
    "own_days",
    "own_baskets_ago",
    "own_days_per_item_gap",
    "own_days_per_own_gap",
    "together_sum",
    "together_max",
    "after_sum",
    "after_max",
    "before_sum",
    "before_max",
    "together_lift",
    "after_lift",
    "before_lift",
    "taste",
    "n_baskets",
    "mean_basket",
    "last_basket",
    "basket_before",
    "days_away",
    "visit_gap",
    "user_repeats",
    "user_heat",
    "n_own",
    "weekday",
    "days_away_per_gap",
    "days_known",
)


ABOUT_USER = slice(FEATURES.index("n_baskets"), len(FEATURES))  # the same for all candidates of a moment


class Block(NamedTuple):
    """Described candidates of some moments; list number k belongs to moment `first` + k."""

    first: int
    indptr: Longs  # (n + 1,)
    items: Ints  # (n_candidates,)
    columns: Floats  # (n_candidates, N_FEATURES)
    taken: Bools  # (n_candidates,)


class Piece(NamedTuple):
    """Moments number first … last - 1, and how often tastes had been learned before them."""

    first: int
    last: int
    stage: int


def basket_moments(data: Interactions) -> Longs:
    """(n_baskets,) when each happened; without times, a user's baskets follow each other day by day."""
    if data.time is not None:
        return np.asarray(data.time[data.baskets[:-1]], np.int64)
    owner = np.repeat(np.arange(data.n_users), np.diff(data.user_baskets))
    return (np.arange(data.n_baskets) - data.user_baskets[owner]) * DAY


class Timeline:
    """Interactions laid out so that any moment in them can be looked at as it was."""

    def __init__(self, data: Interactions, reach: int) -> None:
        moment = basket_moments(data)
        owner = np.repeat(np.arange(data.n_users, dtype=np.int32), np.diff(data.user_baskets))
        gap = np.empty(data.n_rows)
        gaps_fill(data.user_baskets, data.baskets, data.item, moment, gap, data.n_items)
        order = np.argsort(moment, kind="stable")
        self.n_items, self.has_repeats = data.n_items, data.has_repeats
        self.log = Log(data.user_baskets, data.baskets, data.item, moment, owner, order, gap)
        self.together, self.after = self._places(0), self._places(reach)
        self.tastes = RollingEASE(self.log, self.n_items)
        self.end = int(moment.max()) + 1
        self.every = np.arange(self.n_items, dtype=np.int32)
        self._kept: list[tuple[int, tuple[object, ...], ReplayState]] = []
        self._lock = Lock()

    def _places(self, reach: int) -> tuple[Longs, Ints]:
        """(starts, others) of every pair that ever occurs."""
        n = pairs_list(self.log, reach, self.n_items, np.empty(0, np.int64))
        keys = np.empty(n, np.int64)
        pairs_list(self.log, reach, self.n_items, keys)
        keys.sort()  # np.unique hashes, which takes forty times as long here
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if n else keys
        starts = np.searchsorted(keys, np.arange(self.n_items + 1, dtype=np.int64) * self.n_items)
        return starts.astype(np.int64), (keys % self.n_items).astype(np.int32)

    def describe(
        self, rules: Rules, moments: Moments, asked: Asked = ANY, n_threads: int = 1
    ) -> Iterator[Block]:
        """Candidates of the moments, which must be in order of time, block by block.

        Every thread replays the shop for itself, which is a small part of the work, and describes every
        n-th block: what a block holds does not depend on who described it.
        """
        pieces = self._pieces(moments)
        if not pieces:
            return
        shops = [self._shop(rules, int(moments.at[0])) for _ in range(min(n_threads, len(pieces)))]
        with ThreadPoolExecutor(len(shops)) as pool:

            def start(number: int) -> Future[Block] | None:
                if number >= len(pieces):
                    return None
                shop = shops[number % len(shops)]
                return pool.submit(self._block, shop, rules, moments, asked, pieces[number])

            ahead = [start(number) for number in range(len(shops))]
            for number in range(len(pieces)):
                made = ahead[number % len(shops)]
                assert made is not None
                block = made.result()
                ahead[number % len(shops)] = start(number + len(shops))  # goes on while this one is used
                yield block
        self._keep(shops, rules, int(moments.at[-1]))

    def _pieces(self, moments: Moments) -> list[Piece]:
        """At most BLOCK moments each, all of one stage of the tastes."""
        stages = self.tastes.stages(moments.at)
        edges = np.flatnonzero(np.diff(stages, prepend=-1, append=-1))
        return [
            Piece(first, min(first + BLOCK, int(end)), int(stages[first]))
            for begin, end in pairwise(edges)
            for first in range(begin, end, BLOCK)
        ]

    def _block(
        self, shop: "ReplayState", rules: Rules, moments: Moments, asked: Asked, piece: Piece
    ) -> Block:
        """Described candidates of the moments of a piece."""
        first, last = piece.first, piece.last
        taste = self.tastes[piece.stage]
        room = 0 if asked.only else (last - first) * SOURCES * rules.quota
        if asked.starts.size:
            room += int(asked.starts[last] - asked.starts[first])
        indptr, items = np.zeros(last - first + 1, np.int64), np.empty(room, np.int32)
        columns, taken = np.empty((room, N_FEATURES), np.float32), np.empty(room, np.bool_)
        moments_describe(
            self.log,
            shop.item_stats,
            shop.together,
            shop.after,
            rules,
            taste,
            shop.scratch,
            moments,
            asked,
            (first, last),
            self.every,
            indptr,
            items,
            columns,
            taken,
        )
        used = indptr[-1]
        return Block(first, indptr, items[:used], columns[:used], taken[:used])

    def _shop(self, rules: Rules, at: int) -> "ReplayState":
        """The shop as it stood at or before `at`: one that was kept, or a new one."""
        with self._lock:
            for number, (reached, used, shop) in enumerate(self._kept):
                if reached <= at and used == _key(rules):
                    del self._kept[number]
                    return shop
        together, after = (self._pairs(*places) for places in (self.together, self.after))
        return ReplayState(self._shelf(len(rules.windows)), together, after, self._scratch(rules.quota))

    def _keep(self, shops: list["ReplayState"], rules: Rules, reached: int) -> None:
        """Whoever asks for a later moment need not replay what came before."""
        with self._lock:
            self._kept = [*((reached, _key(rules), shop) for shop in shops), *self._kept][:KEPT]

    def _shelf(self, n_windows: int) -> ItemStats:
        def zeros(*shape: int) -> Doubles:
            return np.zeros(shape)

        n = self.n_items
        return ItemStats(
            cursor=np.zeros(1 + n_windows, np.int64),
            sold=zeros(n),
            recent=zeros(n_windows, n),
            total=zeros(1 + n_windows),
            buyers=zeros(n),
            repeats=zeros(n),
            gaps=zeros(n),
            sizes=zeros(n),
            first=np.zeros(n, np.int64),
            stage=zeros(n, 2),
            trend_score=zeros(self.log.item.size),
        )

    def _scratch(self, quota: int) -> Scratch:
        n = self.n_items
        own, shown = (np.full(n, -1, np.int64) for _ in range(2))
        last, back, earliest = (np.zeros(n, np.int64) for _ in range(3))
        return Scratch(
            own,
            shown,
            np.zeros(n),
            np.zeros((n, len(FADES) + 1)),
            last,
            back,
            earliest,
            np.zeros((n, 4), np.float32),
            np.zeros(-(-n // CHUNK), np.bool_),
            np.zeros(n, np.float32),
            np.zeros(LATELY, np.float32),
            np.zeros(n, np.int32),
            np.zeros(n, np.int32),
            np.full((3, quota), -1, np.int32),
            np.array([-1, 0]),
        )

    def _pairs(self, starts: Longs, others: Ints) -> CoCounts:
        return CoCounts(starts, others, np.zeros(others.size, np.float32), np.zeros(self.n_items))


class ReplayState(NamedTuple):
    """What a replay carries along."""

    item_stats: ItemStats
    together: CoCounts
    after: CoCounts
    scratch: Scratch


def _key(rules: Rules) -> tuple[object, ...]:
    """Rules that can be compared."""
    return (*rules.windows.tolist(), *rules[1:])


def last_moments(timeline: Timeline, most: int) -> Moments:
    """Every user's last baskets as things to foretell, in order of time; never a user's first.

    As many of each user's as keep the sum within `most`, but at least the last.
    """
    log = timeline.log
    number = np.arange(log.moment.size)
    number = number[number > log.user_baskets[log.owner]]
    left = log.user_baskets[log.owner[number] + 1] - number
    within = np.cumsum(np.bincount(left)) <= most
    target = number[left <= max(int(within.sum()) - 1, 1)]
    target = target[np.argsort(log.moment[target], kind="stable")]
    return Moments(log.owner[target], log.moment[target], target)


def asked_moments(users: IdMap, end: int, ids: pl.Series, at: Any) -> Longs | None:
    """(n_users,) when each user known is asked: `at` for those with these ids, else at the end.

    None where nobody says when: `at` is None, or a test without times.
    """
    if at is None or (isinstance(at, Interactions) and at.time is None):
        return None
    moment = np.full(len(users), end, np.int64)
    if isinstance(at, Interactions):
        assert at.time is not None
        place, found = users.lookup(at.users.to_ids(at.active_users)), at.time[at.indptr[at.active_users]]
    else:
        one = isinstance(at, str) or not isinstance(at, Iterable)
        try:
            given = parse_times(pl.Series("at", [at] if one else at))
        except (DataError, TypeError):  # what data is told speaks of rows, and there are none
            got = repr(at) if one else "a list with something else in it"
            raise ConfigError(
                f"at must be a date, ISO 8601 or an epoch number, one or one per user, got {got}."
            ) from None
        if given.size not in (1, len(ids)):
            raise ConfigError(
                f"at must be one moment or one per user ({len(ids)}), got {given.size}; pass as many."
            )
        place, found = users.lookup(ids), np.broadcast_to(given, len(ids))
    moment[place[place >= 0]] = found[place >= 0]
    return moment
