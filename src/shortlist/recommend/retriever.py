"""Retriever: one scorer's best items among the allowed ones, by whichever exact path is quickest."""

import time
from dataclasses import dataclass, field

import numpy as np

from shortlist.errors import DataError
from shortlist.recommend.index import ItemIndex, keep_index, kept_index
from shortlist.recommend.retrieve import (
    Hits,
    Sets,
    from_factors,
    from_index,
    from_pairs,
    from_ragged,
    from_rows,
    no_sets,
)
from shortlist.recommend.scorer import Scorer
from shortlist.types import Floats, Ints

# An index costs about as much as scoring every item for this many users, and pays back with each one more.
INDEX_USERS = 64
TRIAL_USERS, TRIAL_ITEMS = 32, 20
CHUNK = 8192  # users with vectors at hand at once
CELLS = 1 << 24  # dense scores at hand at once


@dataclass(eq=False)
class Retriever:
    """`shared` are everybody's candidates (None: all items); `n_asked` users will be asked for in all."""

    scorer: Scorer
    shared: Ints | None  # (n,) ascending
    n_asked: int
    n_threads: int = 0
    index: ItemIndex | None = field(default=None, init=False)

    @property
    def chunk(self) -> int:
        """How many users to ask for at a time, so that memory stays flat."""
        if self.scorer.factors(np.empty(0, np.int32)) is not None:
            return CHUNK
        return max(1, min(CHUNK, CELLS // max(len(self.scorer.items_), 1)))

    def find(self, users: Ints, floors: Floats, excluded: Sets, own: Sets | None, limit: int | None) -> Hits:
        """The best `limit` (None: all) above the floor and not excluded, of `own` candidates or the shared."""
        parts = self.scorer.factors(users)
        if parts is None:
            return self._dense(users, floors, excluded, own, limit)
        vectors, item_factors, bias = parts
        if own is not None:
            return from_pairs(vectors, item_factors, bias, own, floors, excluded, limit, self.n_threads)
        index = self._index(vectors, item_factors, bias)
        if index is None:
            return from_factors(
                vectors, item_factors, bias, self._columns(), floors, excluded, limit, self.n_threads
            )
        return from_index(index, vectors, floors, excluded, limit, self.n_threads)

    def _columns(self) -> Ints:
        return np.arange(len(self.scorer.items_), dtype=np.int32) if self.shared is None else self.shared

    def _index(self, vectors: Floats, item_factors: Floats, bias: Floats | None) -> ItemIndex | None:
        """The index at hand, kept from before, or worth building now."""
        if self.index is None and self.shared is None:
            self.index = kept_index(self.scorer, item_factors, bias)
        if self.index is None and self.n_asked >= INDEX_USERS:
            self.index = built_index(vectors, item_factors, bias, self.shared, self.n_threads)
            if self.shared is None:
                keep_index(self.scorer, item_factors, bias, self.index)
        return self.index

    def _dense(
        self, users: Ints, floors: Floats, excluded: Sets, own: Sets | None, limit: int | None
    ) -> Hits:
        scores = np.asarray(self.scorer.score(users), np.float32)
        if scores.shape != (users.size, len(self.scorer.items_)):
            raise DataError(
                f"a scorer must return one row per user and one column per item, "
                f"{(users.size, len(self.scorer.items_))}, got {scores.shape}; return full rows."
            )
        if own is not None:
            owner = np.repeat(np.arange(users.size), np.diff(own.indptr))
            return from_ragged(own, scores[owner, own.items], floors, excluded, limit)
        rows = scores if self.shared is None else scores[:, self.shared]
        return from_rows(rows, self._columns(), floors, excluded, limit)


def built_index(
    vectors: Floats, item_factors: Floats, bias: Floats | None, shared: Ints | None, n_threads: int
) -> ItemIndex:
    """An index whose order suits these users."""
    lengths = np.linalg.norm(np.asarray(vectors[:1024], np.float64), axis=1)
    lengths = lengths[np.isfinite(lengths)]
    reach = float(lengths.mean()) if lengths.size else 1.0
    index = ItemIndex.build(item_factors, bias, items=shared, reach=reach, n_threads=n_threads)
    return quicker(index, index.unhurried(), np.asarray(vectors[:TRIAL_USERS], np.float32))


def quicker(first: ItemIndex, second: ItemIndex, vectors: Floats) -> ItemIndex:
    """Whichever finds these users' best items in less processor time; what they find is the same."""
    floors, nothing = np.full(len(vectors), -np.inf, np.float32), no_sets(len(vectors))

    def cost(index: ItemIndex) -> float:
        start = time.thread_time()
        from_index(index, vectors, floors, nothing, TRIAL_ITEMS, 1)
        return time.thread_time() - start

    cost(first)  # compiles
    trials = [(cost(first), cost(second)) for _ in range(2)]
    return first if min(a for a, _ in trials) <= min(b for _, b in trials) else second


def prepare(scorer: Scorer, *, n_threads: int = 0) -> None:
    """Index a model with fixed item vectors now, so that a single user asked for later does not wait."""
    some = np.arange(min(len(scorer.users_), 1024), dtype=np.int32)
    parts = scorer.factors(some)
    if parts is not None and kept_index(scorer, *parts[1:]) is None:
        keep_index(scorer, *parts[1:], built_index(parts[0], parts[1], parts[2], None, n_threads))
