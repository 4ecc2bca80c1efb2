"""Scores as products of sparse vectors: exact search through an inverted index."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from shortlist.content.matrices import to_rows
from shortlist.core.ragged import ItemSets, read_only, starts
from shortlist.core.threads import map_slices
from shortlist.kernels.postings import (
    Postings,
    SparseRows,
    fill_postings,
    score_grid_rows,
    score_rows,
    search_postings,
)
from shortlist.kernels.topk import unpack_keys
from shortlist.recommend.retrieval import CELLS, Hits, concat_hits, select_dense, select_ragged
from shortlist.types import Floats, Ints

SLICE = 64  # users per task of a thread
BLOCK = 1 << 16  # items whose scores are computed together; they fit into the cache


@dataclass(frozen=True, eq=False)
class SparseItems:
    """Sparse item vectors, and their inverted index, which is built when it is first needed."""

    rows: SparseRows  # (n_items, n_features)
    n_features: int
    shared: dict[str, Postings] = field(default_factory=dict)  # the index, kept when empty items are added

    @classmethod
    def of(cls, matrix: csr_array) -> "SparseItems":
        """The items of a sparse matrix with sorted columns."""
        return cls(to_rows(matrix), matrix.shape[1])

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.rows.indptr.size - 1

    @cached_property
    def matrix(self) -> csr_array:
        """(n_items, n_features)."""
        rows = self.rows
        return csr_array((rows.values, rows.columns, rows.indptr), shape=(self.n_items, self.n_features))

    @property
    def postings(self) -> Postings:
        """The inverted index."""
        if "index" not in self.shared:
            indptr = starts(np.bincount(self.rows.columns, minlength=self.n_features))
            n, n_features = int(indptr[-1]), self.n_features
            entries = np.empty(n, np.int32), np.empty(n, np.float32)
            index = Postings(indptr, *entries, np.zeros(n_features, np.float32))
            fill_postings(self.rows, index, indptr[:-1].copy())
            for part in index:
                part.flags.writeable = False
            self.shared["index"] = index
        return self.shared["index"]

    def pad(self, n_items: int) -> "SparseItems":
        """These items followed by others without content."""
        more = np.full(n_items - self.n_items, self.rows.indptr[-1])
        indptr = read_only(np.concatenate([self.rows.indptr, more]))
        return SparseItems(self.rows._replace(indptr=indptr), self.n_features, self.shared)


class SparseScores(NamedTuple):
    """Scores as inner products: queries @ items.T. Items that share no feature with a query have no score."""

    queries: SparseRows  # (n_users, n_features)
    items: SparseItems

    def part(self, rows: slice) -> SparseRows:
        """The queries of consecutive users."""
        at = self.queries.indptr[rows.start : rows.stop + 1]
        return SparseRows(
            read_only(at - at[0]),
            read_only(self.queries.columns[at[0] : at[-1]]),
            read_only(self.queries.values[at[0] : at[-1]]),
        )


def dense_scores(scores: SparseScores, items: Ints) -> Floats:
    """(n_users, n_items) scores of these items; -inf where nothing is shared."""
    queries = scores.queries
    found = np.empty((queries.indptr.size - 1, items.size), np.float32)
    scratch = np.zeros(scores.items.n_features, np.float32)
    score_grid_rows(queries, scores.items.rows, read_only(items), scratch, found)
    found[found == 0] = -np.inf
    return found


def search_sparse(
    scores: SparseScores,
    shared: Ints | None,  # (n,) the candidates of all users; None: all items
    floors: Floats,  # (n_users,) only scores strictly above count
    excluded: ItemSets,
    own: ItemSets | None,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """The best `limit` items of each user above the floor, from own or shared candidates or all items."""
    items, n_users = scores.items, floors.size
    if own is not None:

        def search_own(rows: slice) -> Hits:
            mine = own.part(rows)
            found = np.empty(mine.items.size, np.float32)
            scratch = np.zeros(items.n_features, np.float32)
            score_rows(scores.part(rows), items.rows, mine.indptr, mine.items, scratch, found)
            found[found == 0] = -np.inf
            return select_ragged(mine, found, floors[rows], excluded.part(rows), limit)

        return concat_hits(map_slices(search_own, n_users, SLICE, n_threads))
    if shared is not None or limit is None:
        columns = np.arange(items.n_items, dtype=np.int32) if shared is None else shared

        def search_shared(rows: slice) -> Hits:
            part = SparseScores(scores.part(rows), items)
            return select_dense(
                dense_scores(part, columns), columns, floors[rows], excluded.part(rows), limit
            )

        return concat_hits(
            map_slices(search_shared, n_users, max(CELLS // max(columns.size, 1), 1), n_threads)
        )
    index = items.postings

    def search_all(rows: slice) -> Hits:
        banned = excluded.part(rows)
        width = min(limit + 1 + int(np.diff(banned.indptr).max(initial=0)), items.n_items)
        best = top_items(scores.part(rows), items, index, width)
        return select_ragged(ItemSets(best.indptr, best.items), best.scores, floors[rows], banned, limit)

    return concat_hits(map_slices(search_all, n_users, SLICE, n_threads))


def top_items(
    queries: SparseRows, items: SparseItems, index: Postings, width: int, block: int = BLOCK
) -> Hits:
    """The best `width` items of each query, best first."""
    n = queries.indptr.size - 1
    keys, found = np.empty((n, width), np.uint64), np.zeros(n, np.int64)
    size = min(block, max(items.n_items, 1))
    search_postings(
        queries,
        items.rows,
        index,
        np.zeros(items.n_features, np.float32),
        np.zeros(size, np.float32),
        np.zeros(size, np.bool_),
        keys,
        found,
    )
    more = found > width
    np.minimum(found, width, out=found)
    indptr = np.concatenate([[0], np.cumsum(found)]).astype(np.int64)
    best, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    unpack_keys(keys, found, indptr, best, values)
    return Hits(indptr, best, values, more)
