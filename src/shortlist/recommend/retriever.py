"""Retriever: the best candidates of each user, by the fastest exact method for the form of the scores."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shortlist.core.ragged import ItemSets, no_sets
from shortlist.errors import DataError
from shortlist.recommend.index import ItemIndex
from shortlist.recommend.retrieval import (
    Hits,
    score_all,
    score_candidates,
    search_index,
    select_dense,
    select_ragged,
)
from shortlist.recommend.sparse import search_sparse
from shortlist.types import Floats, Ints

if TYPE_CHECKING:
    from shortlist.recommend.scores import Factors, Scores

# Building an index costs about as much as scoring every item for this many users.
INDEX_USERS = 64
TRIAL_USERS, TRIAL_ITEMS = 32, 20  # size of the search that times an index


@dataclass(eq=False)
class Retriever:
    """Searches the `shared` candidates of a request (None: all items) for `n_users` users in total."""

    n_items: int
    shared: Ints | None  # (n,) ascending
    n_users: int
    n_threads: int = 0
    index: ItemIndex | None = field(default=None, init=False)

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
        if index is not None:
            return search_index(index, vectors, floors, excluded, limit, self.n_threads)
        items = self._columns()
        return score_all(vectors, item_factors, bias, items, floors, excluded, limit, self.n_threads)

    def _columns(self) -> Ints:
        """The items of the columns of dense scores."""
        return np.arange(self.n_items, dtype=np.int32) if self.shared is None else self.shared

    def _find_index(self, factors: "Factors") -> ItemIndex | None:
        """The index of this request or of the model; a new one if there are enough users."""
        if self.index is None and self.shared is None and factors.index_cache is not None:
            self.index = factors.index_cache.index
        if self.index is None and self.n_users >= INDEX_USERS:
            self.index = build_index(factors, self.shared, self.n_threads)
            if self.shared is None and factors.index_cache is not None:
                factors.index_cache.index = self.index
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


def build_index(factors: "Factors", shared: Ints | None, n_threads: int) -> ItemIndex:
    """An index ordered for these users' vectors, with or without early bound checks, whichever is faster."""
    norms = np.linalg.norm(np.asarray(factors.vectors[:1024], np.float64), axis=1)
    norms = norms[np.isfinite(norms)]
    index = ItemIndex.build(
        factors.item_factors,
        factors.bias,
        items=shared,
        vector_norm=float(norms.mean()) if norms.size else 1.0,
        n_threads=n_threads,
    )
    return choose_faster(index, index.without_stages(), np.asarray(factors.vectors[:TRIAL_USERS], np.float32))


def choose_faster(first: ItemIndex, second: ItemIndex, vectors: Floats) -> ItemIndex:
    """The index that takes less processor time for these users; both find the same items."""
    floors, nothing = np.full(len(vectors), -np.inf, np.float32), no_sets(len(vectors))

    def cost(index: ItemIndex) -> float:
        start = time.thread_time()
        search_index(index, vectors, floors, nothing, TRIAL_ITEMS, 1)
        return time.thread_time() - start

    cost(first)  # compiles
    trials = [(cost(first), cost(second)) for _ in range(2)]
    return first if min(a for a, _ in trials) <= min(b for _, b in trials) else second
