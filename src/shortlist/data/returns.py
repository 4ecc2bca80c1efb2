"""Returns: what users gave back, subtracted from their earlier purchases of the same item."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from shortlist.data.columns import NO_TIME
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.kernels.rows import take_rows
from shortlist.types import Bools, Floats, Ints, Longs

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions


def subtract_returns(user: Ints, item: Ints, time: Longs, weight: Floats) -> tuple[Floats, Bools, Bools]:
    """Subtract each negative weight from the latest earlier purchases of the same user and item.

    A purchase of which nothing is left is removed. Without times, all purchases of the pair are earlier.
    Returns (n_rows,) the weights, which rows are left, and which returns have an earlier purchase.
    """
    pair = user.astype(np.int64) * (int(item.max()) + 1) + item
    rows = np.flatnonzero(np.isin(pair, pair[weight < 0]))
    when = time[rows] if time.size else np.zeros(rows.size, np.int64)
    rows = rows[np.lexsort((rows, weight[rows] < 0, when, pair[rows]))]
    left, keep, is_matched = weight.astype(np.float64), weight >= 0, np.zeros(weight.size, np.bool_)
    stack, last = list[int](), -1
    for row in rows.tolist():
        if pair[row] != last:
            stack, last = [], int(pair[row])
        if weight[row] >= 0:
            stack.append(row)
            continue
        returned, is_matched[row] = -left[row], bool(stack)
        while stack and returned > 0:
            taken = min(returned, left[stack[-1]])
            left[stack[-1]] -= taken
            returned -= taken
            if left[stack[-1]] <= 0:
                keep[stack.pop()] = False
    return left.astype(np.float32), keep, is_matched


def list_returns(
    users: IdMap, items: IdMap, is_return: Bools, user: Ints, item: Ints, time: Longs, weight: Floats
) -> pl.DataFrame:
    """The rows of returns with their ids, times (null without times) and weights."""
    when = pl.Series(time[is_return] if time.size else [None] * int(is_return.sum()), dtype=pl.Int64)
    ids = {"user_id": users.to_ids(user[is_return]), "item_id": items.to_ids(item[is_return])}
    return pl.DataFrame(ids | {"time": when, "weight": weight[is_return]})


def subtract_from(data: "Interactions", returns: pl.DataFrame) -> "tuple[Interactions, Bools]":
    """The data without what was returned, and which returns (n,) have an earlier purchase in it.

    Without weights, a purchase counts 1, and a return takes one purchase away.
    """
    user, item = data.users.lookup(returns["user_id"]), data.items.lookup(returns["item_id"])
    matchable = np.flatnonzero((user != UNKNOWN) & (item != UNKNOWN))
    is_matched = np.zeros(returns.height, np.bool_)
    if not matchable.size:
        return data, is_matched
    buyers = np.unique(user[matchable])
    indptr, rows = take_rows(data.indptr, buyers)
    weight = np.repeat([1.0, -1.0], [rows.size, matchable.size])
    if data.weight is not None:
        weight = np.concatenate([data.weight[rows], returns["weight"].to_numpy()[matchable]])
    time = NO_TIME
    if data.time is not None:
        time = np.concatenate([data.time[rows], returns["time"].to_numpy()[matchable]])
    left, keep, matched = subtract_returns(
        np.concatenate([np.repeat(buyers, np.diff(indptr)), user[matchable]]),
        np.concatenate([data.item[rows], item[matchable]]),
        time,
        weight.astype(np.float32),
    )
    is_matched[matchable] = matched[rows.size :]
    keep_all = np.ones(data.n_rows, np.bool_)
    keep_all[rows] = keep[: rows.size]
    if data.weight is not None:
        weights = data.weight.copy()
        weights[rows] = left[: rows.size]
        data = replace(data, weight=weights)
    return data.where(keep_all), is_matched
