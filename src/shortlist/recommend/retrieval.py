"""Exact selection of the best items, from an index, from factors, or from dense or ragged scores."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from shortlist.core.ragged import ItemSets, read_only
from shortlist.core.threads import map_slices, thread_count
from shortlist.kernels.product import select_from_product
from shortlist.kernels.retrieve import TILE, Query, retrieve_from_factors
from shortlist.kernels.simd_blocks import BLOCK
from shortlist.kernels.topk import score_pairs, select_top, unpack_keys
from shortlist.recommend.index import NO_BIAS, ItemIndex, ProductIndex, relative_slack
from shortlist.types import Bools, Floats, Ints, Longs, State

SLICE = 2 * TILE  # users per task of a thread
CAPACITY = 1024  # hits per user that fit before a search without limit must be repeated
CELLS = 1 << 22  # dense scores in memory at once, per thread
ROWS, COLUMNS = 1024, 256  # of a part of the matrix product, which stays in the cache
ROUND_UP = 1.000001  # more than what rounding a norm could lose


class Hits(NamedTuple):
    """The selected items, best first; equal scores by smaller item index."""

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n_hits,)
    scores: Floats  # (n_hits,)
    truncated: Bools  # (n_users,) whether the limit removed hits


def concat_hits(parts: Sequence[Hits]) -> Hits:
    """The hits of consecutive users, joined."""
    if len(parts) == 1:
        return parts[0]
    lengths = [np.diff(part.indptr) for part in parts]
    return Hits(
        np.concatenate([[0], *lengths]).cumsum().astype(np.int64),
        np.concatenate([np.empty(0, np.int32), *(part.items for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.scores for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.truncated for part in parts)]),
    )


def search_index(
    index: ItemIndex | ProductIndex,
    vectors: Floats,  # (n_users, n_factors)
    floors: Floats,  # (n_users,) only scores strictly above count; NaN selects nothing
    excluded: ItemSets,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """The best `limit` items of each user above the floor; most items are never scored."""
    if isinstance(index, ProductIndex):
        return search_product(index, vectors, floors, excluded, limit, n_threads)
    vectors, floors = read_only(np.asarray(vectors, np.float32)), read_only(floors)

    def search(rows: slice) -> Hits:
        query = Query(vectors[rows], floors[rows], *excluded.part(rows))

        def run(keys: State, found: Longs) -> None:
            retrieve_from_factors(index.items, index.blocks, query, index.slack, keys, found)

        return _collect(run, rows.stop - rows.start, limit, index.n_items)

    return concat_hits(map_slices(search, floors.size, SLICE, n_threads))


def search_product(
    index: ProductIndex,
    vectors: Floats,  # (n_users, n_factors)
    floors: Floats,  # (n_users,)
    excluded: ItemSets,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """The best `limit` items by a matrix product of users and items; see `kernels.product`."""
    vectors, floors = read_only(np.asarray(vectors, np.float32)), read_only(floors)
    (factors, bias), (norm, shift) = index.items, index.largest
    slack = relative_slack(vectors.shape[1])

    def search(rows: slice) -> Hits:
        own = vectors[rows]
        query = Query(own, floors[rows], *excluded.part(rows))
        with np.errstate(all="ignore"):  # infinite and NaN factors are allowed
            largest = (np.linalg.norm(own.astype(np.float64), axis=1) * norm + shift) * ROUND_UP
            most = largest.astype(np.float32)

        def run(keys: State, found: Longs) -> None:
            products: Floats = np.empty((0, 0), np.float32)
            offsets: Floats = products
            for start in range(0, index.n_items, COLUMNS):
                part = index.chosen[start : start + COLUMNS]
                width = -(-part.size // BLOCK) * BLOCK  # the kernel reads whole blocks
                if products.shape[1] != width:
                    products, offsets = np.zeros((len(own), width), np.float32), np.zeros(width, np.float32)
                of_part = factors[start : start + part.size] if index.has_all else factors[part]
                with np.errstate(all="ignore"):
                    np.matmul(own, of_part.T, out=products[:, : part.size])
                if bias.size:
                    offsets[: part.size] = bias[part]
                select_from_product(products, offsets, part, index.items, query, most, slack, keys, found)

        return _collect(run, rows.stop - rows.start, limit, index.n_items)

    rows = min(ROWS, max(-(-floors.size // thread_count(n_threads)), 1))
    return concat_hits(map_slices(search, floors.size, rows, n_threads))


def score_candidates(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats | None,  # (n_items,)
    candidates: ItemSets,
    floors: Floats,  # (n_users,)
    excluded: ItemSets,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """The best `limit` items of each user's own candidates."""
    vectors, item_factors, offsets = _as_kernel_arrays(vectors, item_factors, bias)

    def search(rows: slice) -> Hits:
        own = candidates.part(rows)
        scores = np.empty(own.items.size, np.float32)
        score_pairs(vectors[rows], item_factors, offsets, *own, scores)
        return select_ragged(own, scores, floors[rows], excluded.part(rows), limit)

    return concat_hits(map_slices(search, floors.size, SLICE, n_threads))


def select_dense(scores: Floats, items: Ints, floors: Floats, excluded: ItemSets, limit: int | None) -> Hits:
    """The best of dense (n_users, n_columns) scores; `items` are the items of the columns."""
    indptr = np.arange(len(scores) + 1, dtype=np.int64) * items.size
    values = np.asarray(scores, np.float32).ravel()
    return select_ragged(ItemSets(indptr, items), values, floors, excluded, limit)


def select_ragged(
    candidates: ItemSets, scores: Floats, floors: Floats, excluded: ItemSets, limit: int | None
) -> Hits:
    """The best of each user's scored candidates; `candidates.items` may be shared, see `select_top`."""
    indptr, items, values = read_only(candidates.indptr), read_only(candidates.items), read_only(scores)
    floors = read_only(floors)
    excluded_at, excluded_items = read_only(excluded.indptr), read_only(excluded.items)

    def run(keys: State, counts: Longs) -> None:
        select_top(indptr, items, values, floors, excluded_at, excluded_items, keys, counts)

    return _collect(run, floors.size, limit, int(np.diff(indptr).max(initial=0)))


def _as_kernel_arrays(
    vectors: Floats, item_factors: Floats, bias: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """The arrays as the scoring kernels expect them."""
    offsets = NO_BIAS if bias is None else np.asarray(bias, np.float32)
    return (
        read_only(np.asarray(vectors, np.float32)),
        read_only(np.asarray(item_factors, np.float32)),
        read_only(offsets),
    )


def _collect(run: Callable[[State, Longs], None], n_users: int, limit: int | None, most: int) -> Hits:
    """Run a selection kernel with enough capacity and sort its hits; no user has more than `most`."""
    # one more than the limit, to know whether the limit removes hits
    width = min(CAPACITY if limit is None else limit + 1, most)
    while True:
        keys, found = np.empty((n_users, width), np.uint64), np.zeros(n_users, np.int64)
        run(keys, found)
        if limit is not None or not (found > width).any():
            break
        width = min(width * 8, most)
    np.minimum(found, width, out=found)
    wanted = found if limit is None else np.minimum(found, limit)
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(wanted, out=indptr[1:])
    items, scores = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    unpack_keys(keys, found, indptr, items, scores)
    return Hits(indptr, items, scores, found > wanted)
