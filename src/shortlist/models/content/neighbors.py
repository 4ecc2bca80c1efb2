"""Items with similar content, and the interactions of others with them.

A new item has no interactions, but items with similar content have. An item is represented by its nearest
items, of which it is the first if it has interactions itself; a user by the items that users with common
items interacted with. The product of the two is how much the item's neighborhood is liked by the user's
neighborhood.
"""

import numpy as np
from scipy.sparse import csr_array

from shortlist.content.matrices import to_rows
from shortlist.core.ragged import starts
from shortlist.core.threads import map_slices
from shortlist.recommend.sparse import SparseItems, SparseScores, top_items
from shortlist.types import Bools, Doubles, Ints, Longs

SLICE = 256  # items per task of a thread


def find_neighbors(content: csr_array, rows: Ints | Longs, allowed: Longs, k: int) -> csr_array:
    """(n_rows, n_items) similarity of these items to the k nearest `allowed` ones, perhaps themselves."""
    n_items = content.shape[0]
    if not k or not allowed.size:
        return no_entries(rows.size, n_items)
    index = SparseItems.of(content[allowed])
    postings = index.postings
    scores = SparseScores(to_rows(content[rows]), index)
    width = min(k + 1, allowed.size)
    parts = map_slices(lambda part: top_items(scores.part(part), index, postings, width), rows.size, SLICE, 0)
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    owner = np.repeat(np.arange(rows.size), lengths)
    items = allowed[np.concatenate([part.items for part in parts])]
    values = np.concatenate([part.scores for part in parts])
    keep = (items != rows[owner]) & (values > 0)
    nearest = np.asarray(content[rows].multiply(content[rows]).sum(axis=1), np.float32)  # to itself
    np.maximum.at(nearest, owner[keep], values[keep])
    own = np.flatnonzero(np.isin(rows, allowed) & (nearest > 0))
    entries = np.append(owner[keep], own), np.append(items[keep], rows[own])
    values = np.append(values[keep], nearest[own])
    return keep_largest(csr_array((values, entries), shape=(rows.size, n_items)), k)


def no_entries(n_rows: int, n_columns: int) -> csr_array:
    """An empty matrix."""
    nothing = (np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(n_rows + 1, np.int64))
    return csr_array(nothing, shape=(n_rows, n_columns))


def keep_largest(matrix: csr_array, k: int) -> csr_array:
    """The k largest entries of every row; ties go to the smaller column."""
    matrix.sort_indices()
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, row))
    rank = np.arange(order.size) - matrix.indptr[row]
    keep = np.zeros(order.size, np.bool_)
    keep[order[rank < k]] = True
    lengths = np.bincount(row[keep], minlength=matrix.shape[0])
    return csr_array((matrix.data[keep], matrix.indices[keep], starts(lengths)), shape=matrix.shape)


def neighborhood_rows(neighbors: csr_array, allowed: Bools | None, k: int) -> csr_array:
    """(n_items, n_items) the k nearest allowed items of every item, in unit length."""
    if allowed is not None:
        keep = allowed[neighbors.indices]
        row = np.repeat(np.arange(neighbors.shape[0]), np.diff(neighbors.indptr))[keep]
        at = starts(np.bincount(row, minlength=neighbors.shape[0]))
        neighbors = csr_array((neighbors.data[keep], neighbors.indices[keep], at), shape=neighbors.shape)
    near = keep_largest(neighbors, k)
    row = np.repeat(np.arange(near.shape[0]), np.diff(near.indptr))
    values = near.data.astype(np.float64)
    norms: Doubles = np.sqrt(np.bincount(row, weights=values**2, minlength=near.shape[0]))
    return csr_array(((values / norms[row]).astype(np.float32), near.indices, near.indptr), shape=near.shape)


def normalize_readers(indptr: Longs, items: Ints, n_items: int) -> csr_array:
    """(n_users, n_items) 1 / sqrt(items of the user · users of the item) for every interaction."""
    n_users = indptr.size - 1
    per_user = np.repeat(np.maximum(np.diff(indptr), 1), np.diff(indptr))
    per_item = np.maximum(np.bincount(items, minlength=n_items), 1)[items]
    values = 1 / np.sqrt(per_user * per_item.astype(np.float64))
    return csr_array((values.astype(np.float32), items, indptr), shape=(n_users, n_items))


def expand_histories(histories: csr_array, readers: csr_array, damping: float) -> csr_array:
    """(n, n_items) what users with common items interacted with, dampened, in unit length."""
    common = csr_array(histories @ readers.T)
    found = csr_array(common @ readers)
    found.sort_indices()
    row = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    values = np.sign(found.data) * np.abs(found.data.astype(np.float64)) ** damping
    norms = np.sqrt(np.bincount(row, weights=values**2, minlength=found.shape[0]))
    values = values / np.where(norms > 0, norms, 1)[row]
    return csr_array((values.astype(np.float32), found.indices, found.indptr), shape=found.shape)
