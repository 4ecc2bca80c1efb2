"""What was known about each candidate of a user just before a moment."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.candidates import (
    FADES,
    Asked,
    Rules,
    Scratch,
    Taste,
    add_asked,
    lately,
    like,
    link,
    move_on,
    propose,
    recall,
)
from shortlist.kernels.item_stats import DAY, CoCounts, ItemStats, Log, far, pair_weight
from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Floats, Ints, Longs

N_FEATURES = 48
NEVER = np.nan


class Moments(NamedTuple):
    """Whom to describe, in order of time."""

    user: Ints  # (n,)
    at: Longs  # (n,) ascending
    target: Longs  # (n,) the basket that followed, -1: unknown


@inlined
def _about_user(
    log: Log, item_stats: ItemStats, first: int, end: int, at: int, n_mine: int, row: Floats
) -> None:
    """The last columns: what is the same for all candidates of the moment."""
    n = end - first
    rows = log.baskets[end] - log.baskets[first]
    repeats, trend_score = 0.0, 0.0
    for r in range(log.baskets[first], log.baskets[end]):
        repeats += log.gap[r] >= 0
        trend_score += item_stats.trend_score[r]
    row[0] = n
    row[1] = rows / n if n else NEVER
    row[2] = log.baskets[end] - log.baskets[end - 1] if n else NEVER
    row[3] = log.baskets[end - 1] - log.baskets[end - 2] if n > 1 else NEVER
    row[4] = (at - log.moment[end - 1]) / DAY if n else NEVER
    row[5] = (log.moment[end - 1] - log.moment[first]) / (n - 1) / DAY if n > 1 else NEVER
    row[6] = repeats / rows if n else NEVER
    row[7] = trend_score / rows if n else NEVER
    row[8] = n_mine
    row[9] = (at // DAY + 4) % 7  # weekday
    row[10] = row[4] / (row[5] + 1.0)
    row[11] = (at - log.moment[first]) / DAY if n else NEVER


@inlined
def _about_item(item_stats: ItemStats, i: int, at: int, come: float, row: Floats) -> None:
    sold = item_stats.sold[i]
    for w in range(item_stats.recent.shape[0]):
        row[w] = item_stats.recent[w, i] / max(item_stats.total[1 + w], 1.0)
    row[5] = sold / max(item_stats.total[0], 1.0)
    row[6] = item_stats.repeats[i] / (sold + 5.0)
    row[7] = item_stats.gaps[i] / item_stats.repeats[i] if item_stats.repeats[i] else NEVER
    row[8] = (row[1] + 1e-5) / (row[3] + 1e-5)
    row[9] = (row[3] + 1e-5) / (row[5] + 1e-5)
    row[10] = (at - item_stats.first[i]) / DAY if sold else NEVER
    row[11] = item_stats.sizes[i] / sold if sold else NEVER
    row[12] = sold / item_stats.buyers[i] if sold else NEVER
    mean = item_stats.stage[i, 0] / sold if sold else NEVER
    row[13] = mean
    row[14] = come - mean
    row[15] = (
        (come - mean) / (max(item_stats.stage[i, 1] / sold - mean * mean, 0.0) ** 0.5 + 0.3)
        if sold
        else NEVER
    )


@inlined
def _about_own(scratch: Scratch, number: int, i: int, at: int, n: int, item_gap: float, row: Floats) -> None:
    if scratch.own[i] != number:
        row[:5] = 0
        row[5:10] = NEVER
        return
    count, last = scratch.times[i], (at - scratch.last[i]) / DAY
    row[0] = count
    for f in range(len(FADES) + 1):
        row[1 + f] = scratch.faded[i, f]
    row[5] = count / n
    row[6] = last
    row[7] = scratch.back[i]
    row[8] = last / item_gap
    row[9] = last * (count - 1) / ((scratch.last[i] - scratch.earliest[i]) / DAY) if count > 1 else NEVER


@inlined
def _about_links(
    scratch: Scratch, after: CoCounts, taste: Taste, i: int, sold: float, n_late: int, row: Floats
) -> None:
    for k in range(4):
        row[k] = scratch.links[i, k]
    row[4:6] = 0
    for k in range(n_late):
        value = scratch.pull[k] * pair_weight(after, i, scratch.mine[k])
        row[4] += value
        row[5] = max(row[5], value)
    for k in range(3):
        row[6 + k] = row[2 * k] / max(sold, 1.0) ** 0.5
    row[9] = scratch.liking[taste.place[i]] if taste.place[i] >= 0 else NEVER


@inlined
def _taken(log: Log, basket: int, i: int) -> bool:
    if basket >= 0:
        for row in range(log.baskets[basket], log.baskets[basket + 1]):
            if log.item[row] == i:
                return True
    return False


@kernel
def moments_describe(
    log: Log,
    item_stats: ItemStats,
    together: CoCounts,
    after: CoCounts,
    rules: Rules,
    taste: Taste,  # of all these moments
    scratch: Scratch,
    moments: Moments,
    asked: Asked,
    numbers: tuple[int, int],  # of the moments to describe now
    every: Ints,  # (n_items,) all items
    indptr: Longs,  # (n + 1,) filled
    items: Ints,  # (≥ n · SOURCES · quota, or what is asked for) filled
    columns: Floats,  # (≥ …, N_FEATURES) filled
    taken: Bools,  # (≥ …,) filled: whether the basket that followed has the item
) -> None:
    """Fill in candidates and columns moment by moment; the item_stats moves forward with them."""
    used = 0
    indptr[0] = 0
    for number in range(numbers[0], numbers[1]):
        user, at = moments.user[number], moments.at[number]
        move_on(log, item_stats, together, after, rules, scratch, every, at)
        mark = scratch.renewed[1]
        scratch.renewed[1] += 1
        first, end = log.user_baskets[user], log.user_baskets[user + 1]
        while end > first and log.moment[end - 1] >= at:
            end -= 1
        n_mine = recall(log, scratch, mark, first, end, at)
        n_near = link(log, item_stats, together, after, rules, scratch, first, end, n_mine)
        like(taste, scratch, n_mine)
        n_late, come = lately(after, rules, scratch, n_mine), far(log, user, end)
        n = 0 if asked.only else propose(rules, taste, scratch, mark, n_mine, n_near, items[used:])
        if asked.starts.size:
            more = asked.items[asked.starts[number] : asked.starts[number + 1]]
            n = add_asked(more, scratch, mark, n, items[used:])
        for k in range(used, used + n):
            i, row = items[k], columns[k]
            _about_item(item_stats, i, at, come, row[:16])
            _about_own(scratch, mark, i, at, end - first, row[7], row[16:26])
            _about_links(scratch, after, taste, i, item_stats.sold[i], n_late, row[26:36])
            taken[k] = _taken(log, moments.target[number], i)
            if k == used:
                _about_user(log, item_stats, first, end, at, n_mine, row[36:48])
            else:
                row[36:48] = columns[used, 36:48]
        used += n
        indptr[number - numbers[0] + 1] = used
