"""Rows of different lengths, one after the other: ragged arrays, sets, grouping by user, sorting by time."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Bools, Doubles, Floats, Ints, Longs, State


@inlined
def sort_ascending(values: Ints | State) -> None:
    """Sort numbers (n,) in place, by Shell's method; rows that are sorted already cost one pass per gap."""
    gap = values.size
    while gap > 1:
        gap = 1 if gap < 5 else gap * 5 // 11  # the ratio recommended by Gonnet and Baeza-Yates
        for start in range(gap, values.size):
            value, at = values[start], start
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value


@inlined
def order_ascending(values: npt.NDArray[Any], order: Longs) -> None:
    """Fill order (n,) with the positions of values (n,) in ascending order, by Shell's method; equals stay.

    Compiles in a tenth of the time of `np.argsort`.
    """
    for at in range(values.size):
        order[at] = at
    gap = values.size
    while gap > 1:
        gap = 1 if gap < 5 else gap * 5 // 11
        for start in range(gap, values.size):
            position, at = order[start], start
            while at >= gap:
                before = order[at - gap]
                if values[before] < values[position]:
                    break
                if values[before] == values[position] and before < position:
                    break
                order[at] = before
                at -= gap
            order[at] = position


@inlined
def kth_smallest(values: Floats, k: int) -> np.float32:
    """The number that would be at position k if values (n,), which are reordered, were sorted (Hoare, 1961).

    `np.partition` also compiles the texts of its errors and `np.unique`, two seconds.
    """
    low, high = 0, values.size - 1
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while pivot < values[right]:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if k <= right:
            high = right
        elif k >= left:
            low = left
        else:
            break
    smallest: np.float32 = values[k]
    return smallest


SHORT = 12  # insertion sort is fastest up to this many rows


@kernel
def mark_present(ids: npt.NDArray[np.integer], low: int, table: Ints) -> None:
    """Set table[id - low] to 1 for every id that occurs."""
    for row in range(ids.size):
        table[ids[row] - low] = 1


@kernel
def look_up_codes(ids: npt.NDArray[np.integer], low: int, table: Ints, codes: Ints) -> None:
    """Set codes[row] to table[id - low]."""
    for row in range(ids.size):
        codes[row] = table[ids[row] - low]


@kernel
def fill_user_starts(user: Ints, indptr: Longs) -> None:
    """Fill indptr (n_users + 1, zeros) with the start of each user's rows."""
    for row in range(user.size):
        indptr[user[row] + 1] += 1
    for u in range(1, indptr.size):
        indptr[u] += indptr[u - 1]


@kernel
def group_rows(
    user: Ints,  # (n_rows,)
    first: int,  # rows of users before this one, or after the last of `free`, are skipped
    free: Longs,  # (n_copied_users,) where each user's next row goes, advanced in place
    item: Ints,
    time: Longs,
    basket: Ints,
    weight: Floats,
    to_item: Ints,
    to_time: Longs,
    to_basket: Ints,
    to_weight: Floats,
) -> None:
    """Copy rows to the range of their user, in the given order; an absent column has length 0."""
    for row in range(user.size):
        u = user[row] - first
        if u < 0 or u >= free.size:
            continue
        place = free[u]
        free[u] = place + 1
        to_item[place] = item[row]
        if time.size:
            to_time[place] = time[row]
        if basket.size:
            to_basket[place] = basket[row]
        if weight.size:
            to_weight[place] = weight[row]


@inlined
def _is_after(time: Longs, basket: Ints, item: Ints, a: int, b: int) -> bool:
    """Return whether row a sorts after row b; equal rows stay in their order."""
    if time.size and time[a] != time[b]:
        return bool(time[a] > time[b])
    if basket.size and basket[a] != basket[b]:
        return bool(basket[a] > basket[b])
    return bool(item[a] > item[b] or (item[a] == item[b] and a > b))


@inlined
def _is_sorted(time: Longs, basket: Ints, item: Ints, start: int, end: int) -> bool:
    for row in range(start + 1, end):  # noqa: SIM110  a generator does not compile
        if _is_after(time, basket, item, row - 1, row):
            return False
    return True


@inlined
def _order_rows(time: Longs, basket: Ints, item: Ints, order: Longs) -> None:
    """Sort the rows in `order` by Shell's method; by insertion alone if they are few."""
    gap = 2 if order.size <= SHORT else order.size
    while gap > 1:
        gap = 1 if gap < 5 else gap * 5 // 11
        for number in range(gap, order.size):
            at, row = number, order[number]
            while at >= gap and _is_after(time, basket, item, order[at - gap], row):
                order[at] = order[at - gap]
                at -= gap
            order[at] = row


@inlined
def _reorder(column: npt.NDArray[Any], start: int, order: Longs) -> None:
    """Reorder in place, by a loop: an array assignment compiles slower, because of its error message."""
    old = column[start : start + order.size].copy()
    for k in range(order.size):
        column[start + k] = old[order[k] - start]


@kernel
def sort_rows(indptr: Longs, time: Longs, basket: Ints, item: Ints, weight: Floats) -> None:
    """Sort each user's rows by time, basket, item, in place; an absent column has length 0."""
    for u in range(indptr.size - 1):
        start, end = indptr[u], indptr[u + 1]
        if _is_sorted(time, basket, item, start, end):
            continue
        order = np.arange(start, end)
        _order_rows(time, basket, item, order)
        _reorder(item, start, order)
        if time.size:
            _reorder(time, start, order)
        if basket.size:
            _reorder(basket, start, order)
        if weight.size:
            _reorder(weight, start, order)


@kernel
def merge_duplicates(
    indptr: Longs, time: Longs, basket: Ints, item: Ints, weight: Floats, keep: Bools
) -> int:
    """Mark the first of equal rows in `keep` and add the weights of the others to it; return their count."""
    merged = 0
    for u in range(indptr.size - 1):
        first = indptr[u]
        for row in range(indptr[u], indptr[u + 1]):
            same = row > first and item[row] == item[first]
            same = same and (time.size == 0 or time[row] == time[first])
            same = same and (basket.size == 0 or basket[row] == basket[first])
            keep[row] = not same
            if same:
                merged += 1
                if weight.size:
                    weight[first] += weight[row]
            else:
                first = row
    return merged


@kernel
def find_baskets(indptr: Longs, time: Longs, basket: Ints, first: Bools, user_baskets: Longs) -> int:
    """Mark the first row of each basket and fill user_baskets (n_users + 1, zeros); return n_baskets."""
    total = 0
    for u in range(indptr.size - 1):
        for row in range(indptr[u], indptr[u + 1]):
            is_first = row == indptr[u]
            is_first = is_first or (time.size > 0 and time[row] != time[row - 1])
            is_first = is_first or (basket.size > 0 and basket[row] != basket[row - 1])
            first[row] = is_first
            total += is_first
        user_baskets[u + 1] = total
    return total


@kernel
def build_sets(indptr: Longs, item: Ints, out_indptr: Longs, out: Ints) -> None:
    """Write each user's distinct items, ascending, to the front of `out`; fill out_indptr (n_users + 1)."""
    at, latest = 0, np.int32(0)
    for u in range(indptr.size - 1):
        size = indptr[u + 1] - indptr[u]
        row = out[at : at + size]  # sorted where the distinct items are written, which are never more
        for k in range(size):
            row[k] = item[indptr[u] + k]
        sort_ascending(row)
        for k in range(size):
            if k == 0 or row[k] != latest:
                latest = row[k]
                out[at] = latest
                at += 1
        out_indptr[u + 1] = at


@kernel
def find_invalid_row(
    indptr: Longs, baskets: Longs, item: Ints, time: Longs, n_items: int, max_time: int
) -> int:
    """Return the first row that breaks the order of Interactions, or whose item or time is out of range.

    `indptr` and `baskets` are valid; `time` has length 0 if absent. -1 if there is no such row.
    """
    user = 0
    for b in range(baskets.size - 1):
        start, end = baskets[b], baskets[b + 1]
        if start == end:
            return int(start)  # an empty basket
        while indptr[user + 1] <= start:
            user += 1
        for row in range(start, end):
            if item[row] < 0 or item[row] >= n_items or (row > start and item[row] <= item[row - 1]):
                return int(row)
            if time.size and (time[row] < -max_time or time[row] > max_time):
                return int(row)
            if time.size and row > start and time[row] != time[row - 1]:
                return int(row)
        if time.size and start > indptr[user] and time[start] < time[start - 1]:
            return int(start)
    return -1


@kernel
def find_repeated_item(indptr: Longs, items: Ints, last_list: Ints) -> int:
    """Return where an item first repeats within its list, or -1; last_list (n_items,) is all -1."""
    for number in range(indptr.size - 1):
        for at in range(indptr[number], indptr[number + 1]):
            if last_list[items[at]] == number:
                return int(at)
            last_list[items[at]] = number
    return -1


@kernel
def mark_new_rows(
    before_indptr: Longs,  # (n_users + 1,)
    before_item: Ints,
    before_time: Longs,  # (0,) without times
    indptr: Longs,  # (n_users + 1,)
    item: Ints,
    time: Longs,
    is_new: Bools,  # (n_rows,) written
) -> None:
    """Mark the rows of each user that are not among those before, which come in the same order."""
    for user in range(indptr.size - 1):
        earlier = before_indptr[user]
        for row in range(indptr[user], indptr[user + 1]):
            same = earlier < before_indptr[user + 1] and item[row] == before_item[earlier]
            same = same and (time.size == 0 or time[row] == before_time[earlier])
            is_new[row] = not same
            earlier += same


@kernel
def find_last_baskets(
    place: Longs,  # (n_new,)
    time: Longs,  # (n_new,)
    starts: Longs,  # (n + 1,)
    known_time: Longs,  # (n_known,)
    known_basket: Ints,  # (n_known,)
    basket: Ints,  # (n_new,) set to the largest basket number of the user at that time, if there is one
) -> None:
    """Find the known baskets that new rows continue: the last one of the user at the same time."""
    for row in range(place.size):
        if place[row] >= 0:
            for earlier in range(starts[place[row]], starts[place[row] + 1]):
                if known_time[earlier] == time[row]:
                    basket[row] = max(basket[row], known_basket[earlier])


@kernel
def add_decayed(
    item: Ints,  # (n_rows,)
    time: Longs,  # (n_rows,) ascending
    amount: Doubles,  # (n_rows,) what each row counts, or (0,) if all count 1
    half_life: float,
    count: Doubles,  # (n_items,) decayed up to the item's time in `last`
    last: Longs,  # (n_items,)
) -> bool:
    """Add rows to `count`.

    Return False, with some rows added, if a row is older than the last one of its item.
    """
    for row in range(item.size):
        i = item[row]
        if count[i] != 0:  # 0 is 0 at any time
            if time[row] < last[i]:
                return False
            count[i] *= 0.5 ** ((time[row] - last[i]) / half_life)
        count[i] += amount[row] if amount.size else 1.0
        last[i] = time[row]
    return True


@kernel
def unite_sets(
    a_at: Longs,  # (n_users + 1,)
    a: Ints,  # ascending per user
    b_at: Longs,  # (n_users + 1,)
    b: Ints,  # ascending per user
    out_at: Longs,  # (n_users + 1,) written
    out: Ints,  # (a.size + b.size,) filled from the front
) -> None:
    """Write the union of both sets of each user."""
    end = 0
    out_at[0] = 0
    for user in range(a_at.size - 1):
        i, j = a_at[user], b_at[user]
        while i < a_at[user + 1] or j < b_at[user + 1]:
            from_a = j == b_at[user + 1] or (i < a_at[user + 1] and a[i] <= b[j])
            item = a[i] if from_a else b[j]
            if from_a:
                i += 1
            else:
                j += 1
            if end == out_at[user] or out[end - 1] != item:
                out[end] = item
                end += 1
        out_at[user + 1] = end


@kernel
def find_members(at: Longs, items: Ints, sets: Ints, wanted: Ints, out: Bools) -> None:
    """Write to out (n,) whether set number sets[n] contains the item wanted[n]; sets need not be sorted."""
    for n in range(sets.size):
        out[n] = False
        for row in range(at[sets[n]], at[sets[n] + 1]):
            if items[row] == wanted[n]:
                out[n] = True
                break


@kernel
def count_common(
    a_at: Longs,  # (n_users + 1,)
    a: Ints,  # ascending per user
    b_at: Longs,  # (n_users + 1,)
    b: Ints,  # ascending per user
    out: Longs,  # (n_users,) written
) -> None:
    """Count the items that both sets of each user contain."""
    for user in range(a_at.size - 1):
        i, j, common = a_at[user], b_at[user], 0
        while i < a_at[user + 1] and j < b_at[user + 1]:
            if a[i] == b[j]:
                common += 1
            step = a[i] <= b[j]
            if b[j] <= a[i]:
                j += 1
            if step:
                i += 1
        out[user] = common


Array = TypeVar("Array", bound=npt.NDArray[Any])


def take_rows(indptr: Longs, numbers: npt.NDArray[np.integer]) -> tuple[Longs, Longs]:
    """(starts, positions) of the entries of these rows; a negative number stands for an empty row."""
    if indptr.size < 2:
        return np.zeros(numbers.size + 1, np.int64), np.empty(0, np.int64)
    rows = np.maximum(numbers, 0)
    first = indptr[rows]
    lengths = indptr[rows + 1] - first
    lengths[numbers < 0] = 0
    at = starts(lengths)
    return at, np.repeat(first - at[:-1], lengths) + np.arange(at[-1])


def starts(lengths: npt.NDArray[np.integer]) -> Longs:
    """(n + 1,) where rows of these lengths start."""
    indptr = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def sum_rows(indptr: Longs, values: npt.NDArray[Any]) -> Any:
    """(n_rows,) the sum of the values (n,) of each row, as differences of the running sum."""
    if values.dtype == np.bool_:  # in a third of the time
        return np.diff(np.searchsorted(np.flatnonzero(values), indptr))
    return np.diff(np.concatenate([[0], np.cumsum(values)])[indptr])


def read_only(array: Array) -> Array:
    """A contiguous read-only view; a copy only if needed. Numba compiles once per kind of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view  # type: ignore[return-value]


def bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """The bytes of an array; contiguous arrays are not copied."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
