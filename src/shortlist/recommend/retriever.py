"""Retriever: the best candidates of each user, by the fastest exact method for the form of the scores."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shortlist.core.ragged import ItemSets, no_sets
from shortlist.errors import DataError
from shortlist.recommend.index import ItemIndex, ItemIndexCache, ProductIndex
from shortlist.recommend.retrieval import (
    Hits,
    score_candidates,
    search_index,
    select_dense,
    select_ragged,
)
from shortlist.recommend.sparse import search_sparse
from shortlist.types import Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shortlist.recommend.scores import Factors, Scores

AnyIndex = ItemIndex | ProductIndex

# Building an index costs about as much as scoring every item for this many users.
INDEX_USERS = 64
INDEX_ITEMS = 4096  # fewer items are scored by a matrix product, which takes a few microseconds a user
TRIAL_ITEMS, TRIAL_RUNS = 20, 3  # items per list and repetitions of the search that times an index
# With fewer users the time would not be that of a large request, with more the choice would take too long.
TRIAL_USERS, TRIAL_SCORES = (64, 256), 1 << 23


@dataclass(eq=False)
class Retriever:
    """Searches the `shared` candidates of a request (None: all items) for `n_users` users in total."""

    n_items: int
    shared: Ints | None  # (n,) ascending
    n_users: int
    n_threads: int = 0
    index: AnyIndex | None = field(default=None, init=False)

    def search(
        self, scores: "Scores", floors: Floats, excluded: ItemSets, own: ItemSets | None, limit: int | None
    ) -> Hits:
        """The best `limit` items (None: all) above the floor, from `own` candidates or the shared ones."""
        if scores.sparse is not None:
            return search_sparse(scores.sparse, self.shared, floors, excluded, own, limit, self.n_threads)
        if scores.factors is None:
            return self._select(scores, floors, excluded, own, limit)
        vectors, item_factors, bias, _ = scores.factors
        if own is not None:
            return score_candidates(vectors, item_factors, bias, own, floors, excluded, limit, self.n_threads)
        index = self._find_index(scores.factors)
        return search_index(index, vectors, floors, excluded, limit, self.n_threads)

    def _columns(self) -> Ints:
        """The items of the columns of dense scores."""
        return np.arange(self.n_items, dtype=np.int32) if self.shared is None else self.shared

    def _find_index(self, factors: "Factors") -> AnyIndex:
        """The index of this request or of the model; a new one if there are enough users."""
        cache = factors.index_cache if self.shared is None and factors.index_cache else ItemIndexCache()
        if self.index is None and cache.index is None and self.n_users >= INDEX_USERS:
            cache.index = build_index(factors, self.shared, self.n_threads)
        if self.index is None:
            self.index = cache.index
        if self.index is None:
            if cache.product is None:
                cache.product = ProductIndex.build(factors.item_factors, factors.bias, items=self.shared)
            self.index = cache.product
        return self.index

    def _select(
        self, scores: "Scores", floors: Floats, excluded: ItemSets, own: ItemSets | None, limit: int | None
    ) -> Hits:
        """Select from scores that are already computed."""
        values = np.asarray(scores.values, np.float32)
        if scores.candidates is not None:
            return select_ragged(scores.candidates, values, floors, excluded, limit)
        if values.shape != (floors.size, self.n_items):
            raise DataError(
                f"score() must return one row per user and one column per item, "
                f"{(floors.size, self.n_items)}, got {values.shape}."
            )
        if own is not None:
            owner = np.repeat(np.arange(floors.size), np.diff(own.indptr))
            return select_ragged(own, values[owner, own.items], floors, excluded, limit)
        rows = values if self.shared is None else values[:, self.shared]
        return select_dense(rows, self._columns(), floors, excluded, limit)


def build_index(factors: "Factors", shared: Ints | None, n_threads: int) -> AnyIndex:
    """The fastest way to search these items for these users; all ways find the same items, bit for bit."""
    product = ProductIndex.build(factors.item_factors, factors.bias, items=shared)
    if product.n_items < INDEX_ITEMS:
        return product
    norms = np.linalg.norm(np.asarray(factors.vectors[:1024], np.float64), axis=1)
    norms = norms[np.isfinite(norms)]
    index = ItemIndex.build(
        factors.item_factors,
        factors.bias,
        items=shared,
        vector_norm=float(norms.mean()) if norms.size else 1.0,
        n_threads=n_threads,
    )
    ways = index, index.without_stages(), product
    return choose_fastest(ways, sample_vectors(factors.vectors, product.n_items))


def sample_vectors(vectors: Floats, n_items: int) -> Floats:
    """Vectors (n, n_factors) of users spread over the request, for a trial search among `n_items`."""
    wanted = int(np.clip(TRIAL_SCORES // n_items, *TRIAL_USERS))
    rows = np.linspace(0, len(vectors) - 1, min(wanted, len(vectors))).astype(np.int64)
    return np.asarray(vectors[rows], np.float32)


def choose_fastest(ways: "Sequence[AnyIndex]", vectors: Floats) -> AnyIndex:
    """The index that takes the least processor time for these users."""
    floors, nothing = np.full(len(vectors), -np.inf, np.float32), no_sets(len(vectors))

    def cost(index: AnyIndex) -> float:
        # of the process, because a matrix product may use threads of its own
        start = time.process_time()
        search_index(index, vectors, floors, nothing, TRIAL_ITEMS, 1)
        return time.process_time() - start

    for index in ways:
        cost(index)  # compiles
    trials = [[cost(index) for index in ways] for _ in range(TRIAL_RUNS)]
    return ways[int(np.min(trials, axis=0).argmin())]
