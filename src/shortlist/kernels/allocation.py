"""Allocation of items to users: what each user takes at given prices, and lists that fit all limits.

Maximize the sum of the values of shown items, given a total number of items, a limit per item, and per user a
maximum length and limits per group. An item of value v costs the user λ, the price of the total, and μ, the
price of the item. For given prices users are independent: they take the items with the largest positive
v − λ − μ that their own limits allow. If items have groups in several fields, the best items first may not be
the best list; then the places of a user in the groups of all fields but the first have prices, too.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Ints, Longs

DIGITS = 1 << 16  # a double has four digits of 16 bits
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


class LimitPrices(NamedTuple):
    """What offers cost at present."""

    total: float
    items: Doubles  # (n_items,)
    places: Doubles  # (n_places,) of a user in a group


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
def _is_free(limits: UserLimits, used: Longs, item: int) -> bool:
    """Whether no group of the item is full."""
    for field in range(limits.groups.shape[1]):
        group = limits.groups[item, field]
        if group >= 0 and used[group] >= limits.group_limits[group]:
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
            kept[k] = n < limits.max_items and _is_free(limits, used, items[k])
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
        if _is_free(limits, used, items[k]):
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
def number_places(offers: Offers, limits: UserLimits, first: int, places: Longs) -> int:
    """Number the groups of each user from `first` on; places (n_offers, n_fields), -1: no group."""
    numbers, n = np.full(limits.group_limits.size, -1, np.int64), first
    for user in range(offers.indptr.size - 1):
        start = n
        for k in range(offers.indptr[user], offers.indptr[user + 1]):
            for field in range(limits.groups.shape[1]):
                group = limits.groups[offers.items[k], field]
                places[k, field] = -1
                if group >= 0:
                    if numbers[group] < start:
                        numbers[group] = n
                        n += 1
                    places[k, field] = numbers[group]
    return n


@kernel
def take_at_prices(
    offers: Offers,
    limits: UserLimits,  # groups of the first field
    prices: LimitPrices,
    places: Longs,  # (n_offers, n) places that have prices, -1: none
    taken: Bools,  # (n_offers,)
    worth: Doubles,  # (n_users,)
) -> None:
    """Fill taken with the best list of each user at the prices, and worth with its value less the prices."""
    longest = _longest(offers.indptr)
    reduced, order = np.empty(longest), np.empty(longest, np.int32)
    used = np.zeros(limits.group_limits.size, np.int64)
    for user in range(offers.indptr.size - 1):
        start, end = offers.indptr[user], offers.indptr[user + 1]
        positive, n, total = 0, 0, 0.0
        for at in range(start, end):
            taken[at] = False
        for at in range(start, end):
            value = offers.values[at] - prices.total
            if value <= 0.0:
                break  # offers are sorted by value
            value -= prices.items[offers.items[at]]
            for column in range(places.shape[1]):
                if places[at, column] >= 0:
                    value -= prices.places[places[at, column]]
            reduced[n] = value
            n += 1
            positive += value > 0.0
        if limits.groups.shape[1] == 0 and positive <= limits.max_items:
            for k in range(n):
                if reduced[k] > 0.0:
                    taken[start + k] = True
                    total += reduced[k]
        else:
            n = _pick(limits, offers.items[start:end], reduced, used, order, n)
            for k in range(n):
                taken[start + order[k]] = True
                total += reduced[order[k]]
        worth[user] = total


@kernel
def fill_in_order(
    order: Longs,  # (n,) offers, best first
    users: Ints,  # (n,) their users
    items: Ints,  # (n_offers,)
    places: Longs,  # (n_offers, n_fields)
    stock: Longs,  # (n_items,) units that are left, changed in place
    rooms: Longs,  # (n_places,) likewise
    lengths: Longs,  # (n_users,) items that may still be added, likewise
    held: Bools,  # (n_offers,) likewise
    budget: int,
) -> int:
    """Show the offers that the limits allow; return what is left of the total."""
    for k in range(order.size):
        at, user = order[k], users[k]
        is_free = budget > 0 and not held[at] and lengths[user] > 0 and stock[items[at]] > 0
        for field in range(places.shape[1]):
            is_free = is_free and (places[at, field] < 0 or rooms[places[at, field]] > 0)
        if not is_free:
            continue
        held[at] = True
        budget -= 1
        lengths[user] -= 1
        stock[items[at]] -= 1
        for field in range(places.shape[1]):
            if places[at, field] >= 0:
                rooms[places[at, field]] -= 1
    return budget


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
        elif not _is_free(limits, used, lists.items[start + best]):
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
