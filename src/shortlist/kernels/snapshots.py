"""Features of each candidate of a user, computed from what was known just before a point in time."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.candidates import (
    DECAYS,
    EASEWeights,
    GivenCandidates,
    Scratch,
    add_given,
    load_history,
    propose,
    score_ease,
    score_links,
)
from shortlist.kernels.item_stats import (
    DAY,
    EventLog,
    ItemStats,
    ReplayState,
    Rules,
    UserLog,
    advance,
    experience,
)
from shortlist.kernels.jit import inlined, kernel
from shortlist.kernels.links import Links
from shortlist.kernels.rng import GOLDEN, mix_bits, unit_float
from shortlist.types import Bools, Floats, Ints, Longs

N_FEATURES = 48  # named by `FEATURES` in models/two_stage/features.py, in the same order
N_USER_FEATURES = 12  # the last of them
ITEM, OWN, LINKED, USER = 0, 16, 26, 36  # where the features of each kind start
MISSING = np.nan


class Snapshots(NamedTuple):
    """Users at points in time."""

    user: Ints  # (n,)
    at: Longs  # (n,) microseconds, ascending
    target: Longs  # (n,) the basket that followed, -1: unknown


class FeatureRows(NamedTuple):
    """Output of `fill_features`; at least as many rows as there can be candidates."""

    indptr: Longs  # (n + 1,) where each snapshot's rows start
    items: Ints  # (n_rows,)
    features: Floats  # (n_rows, N_FEATURES)
    labels: Bools  # (n_rows,) whether the basket that followed contains the item
    users: Floats  # (n, N_USER_FEATURES) features of the snapshots' users
    non_empty: Bools  # (n,) whether there are candidates, kept or not


@inlined
def _user_features(users: UserLog, first: int, end: int, at: int, n_own: int, row: Floats) -> None:
    """Fill the features of the user, which are the same for all candidates of a snapshot."""
    n = end - first
    rows = users.baskets[end] - users.baskets[first]
    repeats, trend = 0.0, 0.0
    for r in range(users.baskets[first], users.baskets[end]):
        repeats += users.gap[r] >= 0
        trend += users.trend[r]
    row[0] = n
    row[1] = rows / n if n else MISSING
    row[2] = users.baskets[end] - users.baskets[end - 1] if n else MISSING
    row[3] = users.baskets[end - 1] - users.baskets[end - 2] if n > 1 else MISSING
    row[4] = (at - users.time[end - 1]) / DAY if n else MISSING
    row[5] = (users.time[end - 1] - users.time[first]) / (n - 1) / DAY if n > 1 else MISSING
    row[6] = repeats / rows if n else MISSING
    row[7] = trend / rows if n else MISSING
    row[8] = n_own
    row[9] = (at // DAY + 4) % 7  # weekday
    row[10] = row[4] / (row[5] + 1.0)
    row[11] = (at - users.time[first]) / DAY if n else MISSING


@inlined
def _load_item(item_stats: ItemStats, i: int, at: int, scratch: Scratch) -> None:
    """Compute the features of the item that are the same for all users at a time."""
    row, sold = scratch.item_rows[i], item_stats.sold[i]
    for w in range(item_stats.recent.shape[0]):
        row[w] = item_stats.recent[w, i] / max(item_stats.total[1 + w], 1.0)
    row[5] = sold / max(item_stats.total[0], 1.0)
    row[6] = item_stats.repeats[i] / (sold + 5.0)
    row[7] = item_stats.gaps[i] / item_stats.repeats[i] if item_stats.repeats[i] else MISSING
    row[8] = (row[1] + 1e-5) / (row[3] + 1e-5)
    row[9] = (row[3] + 1e-5) / (row[5] + 1e-5)
    row[10] = (at - item_stats.first[i]) / DAY if sold else MISSING
    row[11] = item_stats.sizes[i] / sold if sold else MISSING
    row[12] = sold / item_stats.buyers[i] if sold else MISSING
    mean = item_stats.experience[i, 0] / sold if sold else MISSING
    row[13] = mean
    spread = max(item_stats.experience[i, 1] / sold - mean * mean, 0.0) ** 0.5 + 0.3 if sold else MISSING
    scratch.item_experience[i, 0], scratch.item_experience[i, 1] = mean, spread
    scratch.item_at[i] = at


@inlined
def _item_features(
    item_stats: ItemStats, i: int, at: int, user_experience: float, scratch: Scratch, row: Floats
) -> None:
    """Fill the features of the item."""
    if scratch.item_at[i] != at:
        _load_item(item_stats, i, at, scratch)
    row[:14] = scratch.item_rows[i]
    row[14] = user_experience - scratch.item_experience[i, 0]
    row[15] = (user_experience - scratch.item_experience[i, 0]) / scratch.item_experience[i, 1]


@inlined
def _own_features(scratch: Scratch, mark: int, i: int, at: int, n: int, item_gap: float, row: Floats) -> None:
    """Fill the features of the user's purchases of the item."""
    if scratch.own[i] != mark:
        row[:5] = 0
        row[5:10] = MISSING
        return
    count, last = scratch.purchases[i], (at - scratch.last[i]) / DAY
    row[0] = count
    for f in range(len(DECAYS) + 1):
        row[1 + f] = scratch.decayed[i, f]
    row[5] = count / n
    row[6] = last
    row[7] = scratch.back[i]
    row[8] = last / item_gap
    row[9] = last * (count - 1) / ((scratch.last[i] - scratch.earliest[i]) / DAY) if count > 1 else MISSING


@inlined
def _link_features(scratch: Scratch, ease: EASEWeights, i: int, sold: float, row: Floats) -> None:
    """Fill the features of the item and the user's other items."""
    root = np.float32(max(sold, 1.0) ** 0.5)
    for k in range(6):
        row[k] = scratch.links[i, k]
    for k in range(3):
        row[6 + k] = row[2 * k] / root
    row[9] = scratch.ease[ease.row[i]] if ease.row[i] >= 0 else MISSING


@inlined
def _label(users: UserLog, basket: int, scratch: Scratch, mark: int) -> None:
    """Mark the items of the basket that followed, if it is known."""
    if basket >= 0:
        for row in range(users.baskets[basket], users.baskets[basket + 1]):
            scratch.target[users.item[row]] = mark


@inlined
def _keep_some(
    found: Ints, n: int, basket: int, rate: float, scratch: Scratch, mark: int, labels: Bools
) -> int:
    """Keep the candidates in the basket and a share of the others, drawn for each basket and item."""
    kept = 0
    key = mix_bits(np.uint64(basket + 1) * GOLDEN)
    for k in range(n):
        i = found[k]
        label = scratch.target[i] == mark
        if label or rate >= 1 or unit_float(mix_bits(key ^ np.uint64(i) * GOLDEN)) < rate:
            found[kept], labels[kept] = i, label
            kept += 1
    return kept


@kernel
def fill_features(
    log: EventLog,
    state: ReplayState,  # advances with the snapshots
    users: UserLog,  # whose histories the snapshots refer to: log.users, or sessions
    rules: Rules,
    known: tuple[Links, EASEWeights],  # as of all these snapshots
    scratch: Scratch,
    snapshots: Snapshots,
    given: GivenCandidates,
    part: tuple[int, int, float],  # first snapshot, end, and the share of the candidates not bought to keep
    out: FeatureRows,
) -> None:
    """Propose candidates and compute their features, snapshot by snapshot."""
    links, ease = known
    used, stats = 0, state.item_stats
    out.indptr[0] = 0
    for number in range(part[0], part[1]):
        user, at, target = snapshots.user[number], snapshots.at[number], snapshots.target[number]
        advance(log, state, rules, scratch.all_items, at)
        mark = scratch.mark[0]
        scratch.mark[0] += 1
        first, end = users.user_baskets[user], users.user_baskets[user + 1]
        while end > first and users.time[end - 1] >= at:
            end -= 1
        n_own = load_history(users, scratch, mark, first, end, at)
        n_near = score_links(users, stats, links, rules, scratch, first, end, n_own)
        score_ease(ease, scratch, n_own)
        user_experience = experience(users, user, end)
        n, found, labels = 0, out.items[used:], out.labels[used:]
        if not given.only:
            n = propose(rules, ease, state.best, scratch, mark, n_own, n_near, found)
        if given.starts.size:
            more = given.items[given.starts[number] : given.starts[number + 1]]
            n = add_given(more, scratch, mark, n, found)
        about = out.users[number - part[0]]
        out.non_empty[number - part[0]] = n > 0
        _user_features(users, first, end, at, n_own, about)
        _label(users, target, scratch, mark)
        n = _keep_some(found, n, target, part[2], scratch, mark, labels)
        for k in range(used, used + n):
            i, row = out.items[k], out.features[k]
            _item_features(stats, i, at, user_experience, scratch, row[ITEM:OWN])
            _own_features(scratch, mark, i, at, end - first, row[7], row[OWN:LINKED])
            _link_features(scratch, ease, i, stats.sold[i], row[LINKED:USER])
            row[USER:] = about
        used += n
        out.indptr[number - part[0] + 1] = used
