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
    weigh_latest,
)
from shortlist.kernels.item_stats import (
    DAY,
    CoCounts,
    EventLog,
    ItemStats,
    ReplayState,
    Rules,
    UserLog,
    advance,
    experience,
    pair_weight,
)
from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Floats, Ints, Longs

N_FEATURES = 48  # named by `FEATURES` in models/two_stage/features.py, in the same order
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
def _item_features(item_stats: ItemStats, i: int, at: int, user_experience: float, row: Floats) -> None:
    """Fill the features of the item."""
    sold = item_stats.sold[i]
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
    row[14] = user_experience - mean
    row[15] = (
        (user_experience - mean) / (max(item_stats.experience[i, 1] / sold - mean * mean, 0.0) ** 0.5 + 0.3)
        if sold
        else MISSING
    )


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
def _link_features(
    scratch: Scratch, after: CoCounts, ease: EASEWeights, i: int, sold: float, n_latest: int, row: Floats
) -> None:
    """Fill the features of the item and the user's other items."""
    for k in range(4):
        row[k] = scratch.links[i, k]
    row[4:6] = 0
    for k in range(n_latest):
        value = scratch.latest_weight[k] * pair_weight(after, i, scratch.own_items[k])
        row[4] += value
        row[5] = max(row[5], value)
    for k in range(3):
        row[6 + k] = row[2 * k] / max(sold, 1.0) ** 0.5
    row[9] = scratch.ease[ease.row[i]] if ease.row[i] >= 0 else MISSING


@inlined
def _contains(users: UserLog, basket: int, i: int) -> bool:
    """Return whether a basket contains the item; False for an unknown basket (-1)."""
    if basket >= 0:
        for row in range(users.baskets[basket], users.baskets[basket + 1]):
            if users.item[row] == i:
                return True
    return False


@kernel
def fill_features(
    log: EventLog,
    state: ReplayState,  # advances with the snapshots
    users: UserLog,  # whose histories the snapshots refer to: log.users, or sessions
    rules: Rules,
    ease: EASEWeights,  # as of all these snapshots
    scratch: Scratch,
    snapshots: Snapshots,
    given: GivenCandidates,
    numbers: tuple[int, int],  # snapshots numbers[0] … numbers[1] - 1 are processed
    out: FeatureRows,
) -> None:
    """Propose candidates and compute their features, snapshot by snapshot."""
    used = 0
    out.indptr[0] = 0
    for number in range(numbers[0], numbers[1]):
        user, at = snapshots.user[number], snapshots.at[number]
        advance(log, state, rules, scratch.all_items, at)
        mark = scratch.mark[0]
        scratch.mark[0] += 1
        first, end = users.user_baskets[user], users.user_baskets[user + 1]
        while end > first and users.time[end - 1] >= at:
            end -= 1
        n_own = load_history(users, scratch, mark, first, end, at)
        n_near = score_links(users, state, rules, scratch, first, end, n_own)
        score_ease(ease, scratch, n_own)
        n_latest = weigh_latest(state.after, rules, scratch, n_own)
        user_experience = experience(users, user, end)
        n = 0
        if not given.only:
            n = propose(rules, ease, state.best, scratch, mark, n_own, n_near, out.items[used:])
        if given.starts.size:
            more = given.items[given.starts[number] : given.starts[number + 1]]
            n = add_given(more, scratch, mark, n, out.items[used:])
        for k in range(used, used + n):
            i, row = out.items[k], out.features[k]
            _item_features(state.item_stats, i, at, user_experience, row[:16])
            _own_features(scratch, mark, i, at, end - first, row[7], row[16:26])
            _link_features(scratch, state.after, ease, i, state.item_stats.sold[i], n_latest, row[26:36])
            out.labels[k] = _contains(users, snapshots.target[number], i)
            if k == used:
                _user_features(users, first, end, at, n_own, row[36:48])
            else:
                row[36:48] = out.features[used, 36:48]
        used += n
        out.indptr[number - numbers[0] + 1] = used
