"""Allocation of items to users: what each user is shown at given prices, and an auction that finds prices.

Maximize the sum of the values of shown items, given a total number of items, a limit per item, and per user a
maximum length and limits per group. An item of value v costs the user λ, the price of the total, and μ, the
price of the item. For given prices users are independent: they take the items with the largest positive
v − λ − μ that their own limits allow.

Item prices come from an auction (Bertsekas, "The auction algorithm", 1988; with several units per item and
several items per user: Kelso and Crawford, 1982). A user bids for an item up to the point where another item
would be as good. The lowest bid loses its unit when a higher one arrives. Prices only rise, and each rise is
at least `step`, so the result is optimal up to `step` per shown item.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Ints, Longs

DIGITS = 1 << 16  # a double has four digits of 16 bits
N_BINS = 1 << 16  # of the histogram of values
UNLIMITED = 1 << 40


class CandidateValues(NamedTuple):
    """Candidates of all users with what is needed to compute their values."""

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n_candidates,)
    probabilities: Doubles  # (n_candidates,)
    gains: Doubles  # (n_items,) negative for items that must not be shown
    cost: float  # per shown item


class Offers(NamedTuple):
    """Candidates with a positive value, best first within a user."""

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n_offers,)
    values: Doubles  # (n_offers,)


class UserLimits(NamedTuple):
    """Limits that hold for each user."""

    max_items: int
    groups: Ints  # (n_items, n_fields) group of each item, numbered over all fields; -1: no group
    group_limits: Longs  # (n_groups,)


class Market(NamedTuple):
    """The state of the auction; an item without limit takes every bid and keeps price 0."""

    limits: Longs  # (n_items,) units of each item, -1: no limit
    starts: Longs  # (n_items + 1,) where the bids of each item are stored
    n_bids: Longs  # (n_items,)
    bids: Doubles  # (n_units,) a heap per item, lowest bid first
    bid_offers: Longs  # (n_units,) the offer that belongs to each bid
    bid_users: Ints  # (n_units,) and its user
    held: Bools  # (n_offers,) whether the user holds a unit of the item


@inlined
def _sort_descending(values: Doubles, order: Ints, n: int) -> None:
    """Fill order[:n] with the positions of values[:n], largest first; equal values keep their order."""
    for k in range(n):
        order[k] = k
    gap = n
    while gap > 1:
        gap = 1 if gap < 5 else gap * 5 // 11
        for start in range(gap, n):
            k, at = order[start], start
            while at >= gap:
                other = order[at - gap]
                if values[other] > values[k] or (values[other] == values[k] and other < k):
                    break
                order[at] = other
                at -= gap
            order[at] = k


@inlined
def _is_free(limits: UserLimits, used: Longs, item: int, without: int) -> bool:
    """Whether no group of the item is full, if the item `without` (-1: none) were not shown."""
    for field in range(limits.groups.shape[1]):
        group = limits.groups[item, field]
        if group < 0:
            continue
        n = used[group]
        if without >= 0 and limits.groups[without, field] == group:
            n -= 1
        if n >= limits.group_limits[group]:
            return False
    return True


@inlined
def _use(limits: UserLimits, used: Longs, item: int, by: int) -> None:
    """Count an item in its groups."""
    for field in range(limits.groups.shape[1]):
        if limits.groups[item, field] >= 0:
            used[limits.groups[item, field]] += by


@kernel
def limit_lists(
    indptr: Longs,  # (n_users + 1,)
    items: Ints,  # (n,) best first
    limits: UserLimits,
    kept: Bools,  # (n,)
    sizes: Longs,  # (n_users,)
) -> None:
    """Fill kept with the items that remain if every item beyond a limit is skipped, and sizes."""
    used = np.zeros(limits.group_limits.size, np.int64)
    for user in range(sizes.size):
        n = 0
        for k in range(indptr[user], indptr[user + 1]):
            kept[k] = n < limits.max_items and _is_free(limits, used, items[k], -1)
            if kept[k]:
                _use(limits, used, items[k], 1)
                n += 1
        for k in range(indptr[user], indptr[user + 1]):
            if kept[k]:
                _use(limits, used, items[k], -1)
        sizes[user] = n


@inlined
def _pick(limits: UserLimits, items: Ints, values: Doubles, used: Longs, order: Ints, n: int) -> int:
    """Move the best positive values within the limits to the front of order[:n]; return their number."""
    _sort_descending(values, order, n)
    picked = 0
    for at in range(n):
        k = order[at]
        if values[k] <= 0.0 or picked == limits.max_items:
            break
        if _is_free(limits, used, items[k], -1):
            _use(limits, used, items[k], 1)
            order[picked] = k  # picked <= at: nothing unread is overwritten
            picked += 1
    for at in range(picked):
        _use(limits, used, items[order[at]], -1)
    return picked


@inlined
def _fill_values(lists: CandidateValues, user: int, values: Doubles) -> int:
    """Fill the values of a user's candidates; return how many are positive."""
    start, positive = lists.indptr[user], 0
    for k in range(lists.indptr[user + 1] - start):
        item = lists.items[start + k]
        values[k] = lists.probabilities[start + k] * lists.gains[item] - lists.cost
        if lists.gains[item] < 0.0:
            values[k] = -1.0
        positive += values[k] > 0.0
    return positive


@inlined
def _longest(indptr: Longs) -> int:
    longest = 0
    for user in range(indptr.size - 1):
        longest = max(longest, indptr[user + 1] - indptr[user])
    return longest


@kernel
def count_offers(lists: CandidateValues, limits: UserLimits, first: int, sizes: Longs) -> None:
    """Fill sizes (n,) with the number of offers of the users from `first` on, within their limits."""
    longest = _longest(lists.indptr[first : first + sizes.size + 1])
    values, order = np.empty(longest), np.empty(longest, np.int32)
    used = np.zeros(limits.group_limits.size, np.int64)
    for at in range(sizes.size):
        positive = _fill_values(lists, first + at, values)
        if limits.groups.shape[1] == 0:
            sizes[at] = min(positive, limits.max_items)
            continue
        start, end = lists.indptr[first + at], lists.indptr[first + at + 1]
        sizes[at] = _pick(limits, lists.items[start:end], values, used, order, end - start)


@kernel
def fill_offers(
    lists: CandidateValues, limits: UserLimits, first: int, offers: Offers, positions: Ints
) -> None:
    """Write the offers of the users from `first` on; positions (n_offers,) are those in the user's list."""
    longest = _longest(lists.indptr[first : first + offers.indptr.size])
    values, order = np.empty(longest), np.empty(longest, np.int32)
    used = np.zeros(limits.group_limits.size, np.int64)
    for at in range(offers.indptr.size - 1):
        start, end = lists.indptr[first + at], lists.indptr[first + at + 1]
        _fill_values(lists, first + at, values)
        n = _pick(limits, lists.items[start:end], values, used, order, end - start)
        for k in range(n):
            target = offers.indptr[at] + k
            offers.items[target] = lists.items[start + order[k]]
            offers.values[target] = values[order[k]]
            positions[target] = order[k]


@kernel
def count_digits(bits: npt.NDArray[np.uint64], prefix: int, shift: int, counts: Longs) -> None:
    """Count the digit at `shift` of the numbers whose higher digits are `prefix`, in counts (DIGITS,)."""
    for k in range(bits.size):
        rest = bits[k] >> np.uint64(shift)
        if shift == 48 or np.int64(rest >> np.uint64(16)) == prefix:
            counts[rest & np.uint64(DIGITS - 1)] += 1


@kernel
def sum_above(offers: Offers, price: float, worth: Doubles, sizes: Longs) -> None:
    """Fill worth (n_users,), the sum of value − price over sizes (n_users,) offers above the price."""
    for user in range(offers.indptr.size - 1):
        total, n = 0.0, 0
        for k in range(offers.indptr[user], offers.indptr[user + 1]):
            if offers.values[k] <= price:
                break
            total += offers.values[k] - price
            n += 1
        worth[user], sizes[user] = total, n


@inlined
def _fill_reduced(
    offers: Offers, user: int, price: float, item_prices: Doubles, reduced: Doubles
) -> tuple[int, float]:
    """Fill the values of a user's offers less prices; return how many are positive, and their sum."""
    positive, total = 0, 0.0
    for k in range(offers.indptr[user + 1] - offers.indptr[user]):
        at = offers.indptr[user] + k
        reduced[k] = offers.values[at] - price - item_prices[offers.items[at]]
        if reduced[k] > 0.0:
            positive += 1
            total += reduced[k]
    return positive, total


@inlined
def _bound_branch(values: Doubles, order: Ints, at: int, n: int, room: int) -> float:
    """The sum of the next `room` values, an upper bound of what can still be added."""
    total = 0.0
    for k in range(at, min(n, at + room)):
        total += values[order[k]]
    return total


@inlined
def _bound_worth(
    limits: UserLimits, items: Ints, values: Doubles, used: Longs, order: Ints, n: int, n_nodes: int
) -> float:
    """The largest sum of a list of the first n of `order` (sorted, positive), or an upper bound of it.

    Branch and bound: if items have groups in several fields, taking the best item first may be wrong.
    """
    taken = np.empty(n, np.int32)
    best, bound, total, depth, at, nodes = 0.0, 0.0, 0.0, 0, 0, 0
    while True:
        reachable = total + _bound_branch(values, order, at, n, limits.max_items - depth)
        is_open = at < n and depth < limits.max_items and reachable > best * (1 + 1e-12)
        if is_open and nodes >= n_nodes:
            bound, is_open = max(bound, reachable), False
        if is_open:
            nodes += 1
            if _is_free(limits, used, items[order[at]], -1):
                _use(limits, used, items[order[at]], 1)
                total += values[order[at]]
                taken[depth] = at
                depth += 1
                best = max(best, total)
            at += 1
            continue
        if depth == 0:
            return max(best, bound)
        depth -= 1  # leave out the item that was taken last, and go on behind it
        at = int(taken[depth])
        _use(limits, used, items[order[at]], -1)
        total -= values[order[at]]
        at += 1


@kernel
def price_users(
    offers: Offers, limits: UserLimits, price: float, item_prices: Doubles, n_nodes: int, worth: Doubles
) -> None:
    """Fill worth (n_users,): the largest sum of value − prices that a list can have, or an upper bound."""
    longest = _longest(offers.indptr)
    reduced, order = np.empty(longest), np.empty(longest, np.int32)
    used = np.zeros(limits.group_limits.size, np.int64)
    for user in range(offers.indptr.size - 1):
        start, end = offers.indptr[user], offers.indptr[user + 1]
        positive, total = _fill_reduced(offers, user, price, item_prices, reduced)
        n_fields = limits.groups.shape[1]
        if n_fields > 1:
            _sort_descending(reduced, order, end - start)
            items = offers.items[start:end]
            total = _bound_worth(limits, items, reduced, used, order, positive, n_nodes)
        elif n_fields == 1 or positive > limits.max_items:
            n = _pick(limits, offers.items[start:end], reduced, used, order, end - start)
            total = 0.0
            for k in range(n):
                total += reduced[order[k]]
        worth[user] = total


@inlined
def _is_full(market: Market, item: int) -> bool:
    return bool(market.limits[item] >= 0 and market.n_bids[item] >= market.limits[item])


@inlined
def _fill_profits(
    offers: Offers, market: Market, user: int, price: float, step: float, profits: Doubles
) -> int:
    """Fill value − prices of a user's first offers, −1 for those held; return how many exceed the price."""
    for k in range(offers.indptr[user + 1] - offers.indptr[user]):
        at = offers.indptr[user] + k
        item = offers.items[at]
        profits[k] = offers.values[at] - price
        if profits[k] <= 0.0:
            return k  # offers are sorted by value
        if market.held[at]:
            profits[k] = -1.0
        elif _is_full(market, item):
            profits[k] -= market.bids[market.starts[item]] + step
    return int(offers.indptr[user + 1] - offers.indptr[user])


@inlined
def _count_held(offers: Offers, limits: UserLimits, market: Market, user: int, used: Longs, by: int) -> int:
    """Add the items that a user holds to the counts of their groups; return their number."""
    n = 0
    for at in range(offers.indptr[user], offers.indptr[user + 1]):
        if market.held[at]:
            _use(limits, used, offers.items[at], by)
            n += 1
    return n


@kernel
def count_available(
    offers: Offers,
    limits: UserLimits,
    market: Market,
    active: Bools,  # (n_users,)
    users: tuple[int, int],  # the first user, and the one behind the last
    step: float,
    bins: tuple[float, float],  # where the first one starts, and their width
    counts: Longs,  # (N_BINS,)
    best: Doubles,  # (n_users,)
) -> None:
    """Count what users would take beside what they hold if the total had the price bins[0].

    The histogram is over value − item price − bins[0]. `best` is each user's highest, 0 if there is none.
    """
    longest = _longest(offers.indptr[users[0] : users[1] + 1])
    profits, order = np.empty(longest), np.empty(longest, np.int32)
    used = np.zeros(limits.group_limits.size, np.int64)
    for user in range(users[0], users[1]):
        best[user] = 0.0
        if not active[user]:
            continue
        start, end = offers.indptr[user], offers.indptr[user + 1]
        n_held = _count_held(offers, limits, market, user, used, 1)
        if n_held < limits.max_items:
            n = _fill_profits(offers, market, user, bins[0], step, profits)
            rest = UserLimits(limits.max_items - n_held, limits.groups, limits.group_limits)
            n = _pick(rest, offers.items[start:end], profits, used, order, n)
            for k in range(n):
                counts[min(int(profits[order[k]] / bins[1]), N_BINS - 1)] += 1
            if n:
                best[user] = profits[order[0]]
        _count_held(offers, limits, market, user, used, -1)


@inlined
def _sift(market: Market, low: int, n: int, at: int) -> None:
    """Restore the heap of n bids that starts at `low` after the bid at position `at` has grown or is new."""
    bid, offer, user = market.bids[low + at], market.bid_offers[low + at], market.bid_users[low + at]
    while at > 0 and market.bids[low + (at - 1) // 2] > bid:
        parent = (at - 1) // 2
        _move(market, low + parent, low + at)
        at = parent
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and market.bids[low + child + 1] < market.bids[low + child]:
            child += 1
        if market.bids[low + child] >= bid:
            break
        _move(market, low + child, low + at)
        at = child
    market.bids[low + at], market.bid_offers[low + at], market.bid_users[low + at] = bid, offer, user


@inlined
def _move(market: Market, source: int, target: int) -> None:
    market.bids[target] = market.bids[source]
    market.bid_offers[target] = market.bid_offers[source]
    market.bid_users[target] = market.bid_users[source]


@inlined
def _place(market: Market, item: int, offer: int, user: int, bid: float) -> int:
    """Give the user a unit; return the user who loses one, or -1."""
    market.held[offer] = True
    if market.limits[item] < 0:
        return -1
    low, n, loser = market.starts[item], market.n_bids[item], -1
    at = n
    if n == market.limits[item]:
        loser, at = market.bid_users[low], 0
        market.held[market.bid_offers[low]] = False
    else:
        n += 1
        market.n_bids[item] = n
    market.bids[low + at], market.bid_offers[low + at], market.bid_users[low + at] = bid, offer, user
    _sift(market, low, n, at)
    return int(loser)


@inlined
def _alternative(
    limits: UserLimits, items: Ints, profits: Doubles, used: Longs, without: int, is_full: bool
) -> float:
    """The best profit that a user could have instead of the item `without`; 0 if there is none."""
    best = 0.0
    for k in range(items.size):
        if profits[k] <= best:
            continue
        if _is_free(limits, used, items[k], without) and (is_full or limits.groups.shape[1] > 0):
            best = profits[k]
    return best


@kernel
def run_auction(
    offers: Offers,
    limits: UserLimits,
    market: Market,  # changed in place
    waiting: Ints,  # (n_waiting,) users who may want more, in the order of their turns
    price: float,
    step: float,
) -> int:
    """Let users bid until no one wants more at the prices; return the number of bids."""
    n_users = offers.indptr.size - 1
    queue, is_waiting = np.empty(n_users + 1, np.int32), np.zeros(n_users, np.bool_)
    for k in range(waiting.size):
        queue[k], is_waiting[waiting[k]] = waiting[k], True
    first, last, n_bids = 0, waiting.size, 0
    longest = _longest(offers.indptr)
    profits, fresh = np.empty(longest), np.empty(longest, np.int32)
    used = np.zeros(limits.group_limits.size, np.int64)
    while first != last:
        user = queue[first]
        first = (first + 1) % queue.size
        is_waiting[user] = False
        start, end = offers.indptr[user], offers.indptr[user + 1]
        items = offers.items[start:end]
        n = _fill_profits(offers, market, user, price, step, profits)
        n_held, n_fresh = _count_held(offers, limits, market, user, used, 1), 0
        while n_held < limits.max_items:
            best = -1
            for k in range(n):
                if profits[k] > (profits[best] if best >= 0 else 0.0) and _is_free(
                    limits, used, items[k], -1
                ):
                    best = k
            if best < 0:
                break
            fresh[n_fresh], profits[best] = best, -1.0
            _use(limits, used, items[best], 1)
            n_fresh += 1
            n_held += 1
        alternative = 0.0
        for k in range(n_fresh):
            at = start + fresh[k]
            if k == 0 or limits.groups.shape[1] > 0:
                alternative = _alternative(
                    limits, items[:n], profits, used, items[fresh[k]], n_held == limits.max_items
                )
            bid = offers.values[at] - price - alternative
            loser = _place(market, offers.items[at], at, user, bid)
            n_bids += 1
            if loser >= 0 and not is_waiting[loser]:
                queue[last], is_waiting[loser] = loser, True
                last = (last + 1) % queue.size
        if limits.groups.shape[1] > 0:
            _count_held(offers, limits, market, user, used, -1)
    return n_bids


@kernel
def collect_rows(
    lists: Longs,  # (n_users + 1,) where each user's candidates start
    offers: Longs,  # (n_users + 1,) where each user's offers start
    positions: Ints,  # (n_offers,)
    held: Bools,  # (n_offers,)
    sizes: Longs,  # (n_users,)
    rows: Longs,  # (n_held,)
) -> None:
    """Fill rows with the candidates that are shown, and sizes with their number per user."""
    at = 0
    for user in range(sizes.size):
        before = at
        for k in range(offers[user], offers[user + 1]):
            if held[k]:
                rows[at] = lists[user] + positions[k]
                at += 1
        sizes[user] = at - before


# why a list ends, as explain_ends writes it
NO_CANDIDATES, ALL_SHOWN, LONGEST, NO_VALUE, GROUP_FULL, ITEM_FULL, BELOW_PRICE = range(7)


@kernel
def explain_ends(
    lists: CandidateValues,
    limits: UserLimits,
    shown: Bools,  # (n_candidates,)
    left: Longs,  # (n_items,) units of each item that are left, -1: no limit
    first: int,
    ends: npt.NDArray[np.uint8],  # (n,) of the users from `first` on
) -> None:
    """Write why the best candidate that a user is not shown is not in the list."""
    values = np.empty(_longest(lists.indptr[first : first + ends.size + 1]))
    used = np.zeros(limits.group_limits.size, np.int64)
    for at in range(ends.size):
        start, end = lists.indptr[first + at], lists.indptr[first + at + 1]
        _fill_values(lists, first + at, values)
        n_shown, best = 0, -1
        for k in range(end - start):
            if shown[start + k]:
                n_shown += 1
                _use(limits, used, lists.items[start + k], 1)
            elif best < 0 or values[k] > values[best]:
                best = k
        if end == start:
            ends[at] = NO_CANDIDATES
        elif best < 0:
            ends[at] = ALL_SHOWN
        elif n_shown == limits.max_items:
            ends[at] = LONGEST
        elif left[lists.items[start + best]] == 0:
            ends[at] = ITEM_FULL
        elif values[best] <= 0.0:
            ends[at] = NO_VALUE
        elif not _is_free(limits, used, lists.items[start + best], -1):
            ends[at] = GROUP_FULL
        else:
            ends[at] = BELOW_PRICE
        for k in range(end - start):
            if shown[start + k]:
                _use(limits, used, lists.items[start + k], -1)


@kernel
def sum_positions(lists: CandidateValues, first: int, last: int, sums: Doubles) -> None:
    """Add number, probability and value of the candidates of users to sums (n_positions, 3)."""
    for user in range(first, last):
        start = lists.indptr[user]
        for k in range(min(lists.indptr[user + 1] - start, sums.shape[0])):
            p = lists.probabilities[start + k]
            sums[k, 0] += 1.0
            sums[k, 1] += p
            sums[k, 2] += p * lists.gains[lists.items[start + k]] - lists.cost
