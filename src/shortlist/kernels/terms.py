"""The repeat and trend terms: signals of an item before a basket, times weights of the user and the item."""

from typing import NamedTuple

import numpy as np

from shortlist.kernels.jit import borrowing, inlined, kernel
from shortlist.kernels.parameters import ONE, ZERO, Parameters
from shortlist.types import Doubles, Floats, Ints, Longs

PRIOR = np.float32(3)  # pseudo-sales added to both sides, so that one or two extra sales change little
SIGNAL_UNITS = 1 << 24  # in a sum of signals: a whole number has the same bits in any order of the users
USER_TREND_START = ONE  # initial trend weight of users: log-odds then follow the logarithm of sales


class Sales(NamedTuple):
    """The sales days of each item: entries begin[i] … end[i] - 1, ascending. Empty arrays if not used."""

    begin: Longs  # (n_items,)
    end: Longs  # (n_items,)
    day: Ints  # (n_entries,) since 1970
    decayed: Floats  # (n_entries,) sales up to and including this day, decayed by the days since
    total: Floats  # (n_entries,) sales up to and including this day, not decayed
    log_decay: np.float32  # logarithm of the weight of a sale one day later
    group_day: Ints  # (n_groups,) the day of each basket
    recent_share: Floats  # (n_groups,) decayed sales divided by all sales, over all items before that day


@kernel
def decay_sales(
    item: Ints,  # (n_entries,) ascending
    day: Ints,  # (n_entries,) ascending within an item
    count: Longs,  # (n_entries,) sales of the item on the day
    log_decay: float,
    decayed: Doubles,  # (n_entries,) written
    total: Doubles,  # (n_entries,) written
) -> None:
    """Accumulate each item's sales up to each of its days, with and without decay."""
    recent, whole = 0.0, 0.0
    for n in range(item.size):
        if n == 0 or item[n] != item[n - 1]:
            recent, whole = 0.0, 0.0
        elif recent:
            recent *= np.exp(log_decay * (day[n] - day[n - 1]))
        recent, whole = recent + count[n], whole + count[n]
        decayed[n], total[n] = recent, whole


@borrowing
def trend_score(sales: Sales, item: int | np.integer, day: np.int32, recent_share: np.float32) -> np.float32:
    """Return ln(recent sales / recent sales expected from all sales) of an item before the day."""
    first, low, high = sales.begin[item], sales.begin[item], sales.end[item]
    while low < high:  # binary search for the first entry that is not before the day
        middle = (low + high) // 2
        if sales.day[middle] < day:
            low = middle + 1
        else:
            high = middle
    if low == first:
        return np.float32(0)
    age = np.float32(day - 1 - sales.day[low - 1])
    recent = sales.decayed[low - 1] * np.exp(sales.log_decay * age)
    expected = sales.total[low - 1] * recent_share
    return np.log((recent + PRIOR) / (expected + PRIOR))  # type: ignore[no-any-return]


@kernel
def trend_scores(
    sales: Sales,
    items: Ints,  # (n,)
    days: Ints,  # (n,)
    recent_share: Floats,  # (n,)
    out: Floats,  # (n,) written
) -> None:
    """Compute `trend_score` of single items on single days."""
    for n in range(items.size):
        out[n] = trend_score(sales, items[n], days[n], recent_share[n])


class RepeatSignal(NamedTuple):
    """Earlier purchases of the current user in a range of items; each user overwrites the previous one."""

    owner: Ints  # (n_range_items,) 1 + the user that the next two entries belong to
    decayed: Floats  # (n_range_items,) number of baskets with the item, decayed up to the latest of them
    latest: Ints  # (n_range_items,) the latest of these baskets
    history: Ints  # (n_range_items,) the user's distinct items, in the order of their first purchase


@inlined
def new_counts(n_items: int) -> RepeatSignal:
    """Return memory for the purchases of one user after the other."""
    return RepeatSignal(
        np.empty(n_items, np.int32),
        np.empty(n_items, np.float32),
        np.empty(n_items, np.int32),
        np.empty(n_items, np.int32),
    )


@borrowing
def repeat_signal(
    counts: RepeatSignal, item: int | np.integer, user: np.int32, basket: np.int32, log_decay: np.float32
) -> np.float32:
    """Return ln(1 + decayed number of the user's earlier baskets with the item)."""
    if counts.owner[item] != user + 1:
        return ZERO
    age = np.float32(basket - 1 - counts.latest[item])
    return np.log(ONE + counts.decayed[item] * np.exp(log_decay * age))  # type: ignore[no-any-return]


@borrowing
def add_purchase(
    counts: RepeatSignal,
    n_history: int,
    item: np.int32,
    user: np.int32,
    basket: np.int32,
    log_decay: np.float32,
) -> int:
    """Record that the basket contains the item; return the number of distinct items in `counts.history`."""
    if counts.owner[item] == user + 1:
        age = np.float32(basket - counts.latest[item])
        counts.decayed[item] = ONE + counts.decayed[item] * np.exp(log_decay * age)
    else:
        counts.owner[item], counts.decayed[item], counts.history[n_history] = user + 1, ONE, item
        n_history += 1
    counts.latest[item] = basket
    return n_history


@kernel
def repeat_signals(
    groups: Ints,  # (n,) baskets
    wanted: Ints,  # (n,) items
    first: Longs,  # (n,) the first basket of each basket's user
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    log_decay: np.float32,
    out: Floats,  # (n,) written
) -> None:
    """Compute `repeat_signal` of single items before single baskets, directly from the data."""
    for n in range(groups.size):
        count = ZERO
        for basket in range(first[n], groups[n]):
            for row in range(baskets[basket], baskets[basket + 1]):
                if item[row] == wanted[n]:
                    count += np.exp(log_decay * np.float32(groups[n] - 1 - basket))
        out[n] = np.log(ONE + count)


@kernel
def count_repeats(
    user_baskets: Longs,  # (n_users + 1,)
    baskets: Longs,  # (n_baskets + 1,)
    item: Ints,  # (n_rows,)
    n_items: int,
    log_decay: np.float32,
) -> tuple[int, int, int]:
    """Return, over all baskets, the number of history items, of repeats, and the sum of their signals.

    The sum is in units of 1 / SIGNAL_UNITS; each user's part is rounded.
    """
    n_candidates, n_repeats, units, counts = 0, 0, 0, new_counts(n_items)
    counts.owner[:] = 0
    for u in range(user_baskets.size - 1):
        n_history, user, total = 0, np.int32(u), 0.0
        for b in range(user_baskets[u], user_baskets[u + 1]):
            basket = np.int32(b)
            n_candidates += n_history
            for row in range(baskets[b], baskets[b + 1]):
                signal = repeat_signal(counts, item[row], user, basket, log_decay)
                n_repeats += int(signal > ZERO)
                total += float(signal)
            for row in range(baskets[b], baskets[b + 1]):
                n_history = add_purchase(counts, n_history, item[row], user, basket, log_decay)
        units += int(total * SIGNAL_UNITS + 0.5)
    return n_candidates, n_repeats, units


class Terms(NamedTuple):
    """What the terms know about the groups of training, and about all items or those of one range."""

    sales: Sales  # empty without a trend term
    log_decay: np.float32  # logarithm of the weight of a basket one basket later
    repeat_start: np.float32  # initial repeat weight of users, toward which it is regularized


@inlined
def term_range(terms: Terms, low: int, high: int) -> Terms:
    """Return the terms of items low … high - 1."""
    sales = terms.sales
    if not sales.begin.size:
        return terms
    part = Sales(sales.begin[low:high], sales.end[low:high], *sales[2:])
    return Terms(part, terms.log_decay, terms.repeat_start)


class Place(NamedTuple):
    """The user and the basket of a visit, and what the trend term needs of its day."""

    user: np.int32
    group: np.int32
    day: np.int32
    recent_share: np.float32


class Signals(NamedTuple):
    """The signals of one item; 0 for a term that is off."""

    repeat: np.float32
    trend: np.float32


@borrowing
def place_of(terms: Terms, user: np.int32, group: np.int32) -> Place:
    """Return the place of a visit."""
    if terms.sales.group_day.size:
        return Place(user, group, terms.sales.group_day[group], terms.sales.recent_share[group])
    return Place(user, group, np.int32(0), ZERO)


@borrowing
def trend_signal(terms: Terms, place: Place, item: int | np.integer) -> np.float32:
    """Return the trend score of an item, 0 without a trend term."""
    if not terms.sales.begin.size:
        return ZERO
    return trend_score(terms.sales, item, place.day, place.recent_share)


@borrowing
def signals_of(terms: Terms, counts: RepeatSignal, place: Place, item: int | np.integer) -> Signals:
    """Return the signals of an item at the place."""
    repeat = ZERO
    if counts.owner.size:
        repeat = repeat_signal(counts, item, place.user, place.group, terms.log_decay)
    return Signals(repeat, trend_signal(terms, place, item))


@borrowing
def add_terms(score: np.float32, theta: Parameters, user: np.int32, item: np.int64, x: Signals) -> np.float32:
    """Return the score of an item with its terms."""
    if theta.item_repeat.size:
        score += (theta.user_repeat[user] + theta.item_repeat[item]) * x.repeat
    if theta.item_trend.size:
        score += (theta.user_trend[user] + theta.item_trend[item]) * x.trend
    return score


@borrowing
def add_term_margins(
    margin: np.float32,
    theta: Parameters,
    user: np.int32,
    item: np.int64,
    other: np.int64,
    x: Signals,
    y: Signals,
) -> np.float32:
    """Return the margin between an item and another one with their terms."""
    if theta.item_repeat.size:
        margin += (theta.user_repeat[user] + theta.item_repeat[item]) * x.repeat
        margin -= (theta.user_repeat[user] + theta.item_repeat[other]) * y.repeat
    if theta.item_trend.size:
        margin += (theta.user_trend[user] + theta.item_trend[item]) * x.trend
        margin -= (theta.user_trend[user] + theta.item_trend[other]) * y.trend
    return margin


@borrowing
def step_user_terms(
    theta: Parameters, user: np.int32, step: np.float32, shrink: np.float32, start: np.float32, x: Signals
) -> None:
    """Step on the user's weights, which are regularized toward their initial values."""
    if theta.item_repeat.size:
        theta.user_repeat[user] = shrink_toward(start, theta.user_repeat[user], shrink) + step * x.repeat
    if theta.item_trend.size:
        weight = shrink_toward(USER_TREND_START, theta.user_trend[user], shrink)
        theta.user_trend[user] = weight + step * x.trend


@borrowing
def step_item_terms(
    theta: Parameters, item: np.int64, step: np.float32, shrink: np.float32, x: Signals
) -> None:
    """Step on an item's weights."""
    if theta.item_repeat.size:
        theta.item_repeat[item] = shrink * theta.item_repeat[item] + step * x.repeat
    if theta.item_trend.size:
        theta.item_trend[item] = shrink * theta.item_trend[item] + step * x.trend


@borrowing
def shrink_toward(start: np.float32, weight: np.float32, shrink: np.float32) -> np.float32:
    """Return a weight after regularization toward its initial value."""
    return start + shrink * (weight - start)


@borrowing
def add_basket(
    counts: RepeatSignal,
    n_history: int,
    basket: Ints,  # items; ~item: a drawn example
    place: Place,
    log_decay: np.float32,
) -> int:
    """Record the items of a basket; return the number of distinct items of the user."""
    for code in basket:
        if code >= 0:
            n_history = add_purchase(counts, n_history, code, place.user, place.group, log_decay)
    return n_history
