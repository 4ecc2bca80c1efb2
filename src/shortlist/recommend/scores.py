"""Scores: a model's answer to a request."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from shortlist.core.ragged import ItemSets, take_rows
from shortlist.recommend.index import ItemIndexCache
from shortlist.recommend.sparse import SparseScores, dense_scores
from shortlist.types import Doubles, Floats, Longs


class Factors(NamedTuple):
    """Scores as inner products: vectors @ item_factors.T + bias."""

    vectors: Floats  # (n, n_factors)
    item_factors: Floats  # (n_items, n_factors), never modified
    bias: Floats | None = None  # (n_items,), never modified
    index_cache: ItemIndexCache | None = None  # keeps the index over the items between requests


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """A model's answer to a request: scores in one of four forms, and optional values per user.

    Dense `values` (n, n_items); ragged `values` with the `candidates` they belong to; `factors` or `sparse`
    vectors, which are multiplied out only as far as needed. NaN and -inf are never recommended.
    """

    values: Floats | None = None
    candidates: ItemSets | None = None
    factors: Factors | None = None
    sparse: SparseScores | None = None
    boundaries: Floats | None = None  # (n,) t_u
    log_odds_shift: Floats | None = None  # (n,) score + shift = log-odds of relevance
    expected_sizes: Doubles | None = None  # (n,) predicted number of items in the user's next basket
    size_dispersion: float | None = None  # of these sizes; if given, boundaries maximize the expected F1

    def take(self, numbers: Longs) -> Self:
        """The scores of these users, in this order."""
        if self.sparse is None and numbers.size == self._n_users and (np.diff(numbers) == 1).all():
            return self
        values, candidates, factors = self.values, self.candidates, self.factors
        assert self.sparse is None, "sparse scores have no boundaries, so no part of them is ever taken"
        if factors is not None:
            factors = factors._replace(vectors=factors.vectors[numbers])
        elif candidates is not None and values is not None:
            indptr, rows = take_rows(candidates.indptr, numbers)
            candidates, values = ItemSets(indptr, candidates.items[rows]), values[rows]
        elif values is not None:
            values = values[numbers]
        own = {
            name: None if (array := getattr(self, name)) is None else array[numbers]
            for name in ("boundaries", "log_odds_shift", "expected_sizes")
        }
        return replace(self, values=values, candidates=candidates, factors=factors, **own)

    @property
    def _n_users(self) -> int:
        if self.factors is not None:
            return len(self.factors.vectors)
        if self.candidates is not None:
            return self.candidates.indptr.size - 1
        assert self.values is not None
        return len(self.values)

    def dense(self, n_items: int) -> Floats:
        """(n, n_items) scores; -inf for items that are not candidates."""
        if self.factors is not None:
            vectors, items, bias, _ = self.factors
            scores: Floats = vectors @ items.T
            return scores if bias is None else scores + bias
        if self.sparse is not None:
            return dense_scores(self.sparse, np.arange(n_items, dtype=np.int32))
        assert self.values is not None
        if self.candidates is None:
            return self.values
        n_users = self.candidates.indptr.size - 1
        scores = np.full((n_users, n_items), -np.inf, np.float32)
        owner = np.repeat(np.arange(n_users), np.diff(self.candidates.indptr))
        scores[owner, self.candidates.items] = self.values
        return scores
