"""TIFUKNN: fading personal counts, mixed with those of the most similar users (after Hu et al., 2020)."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.models.base import Recommender, at_least, whole
from shortlist.types import Doubles, Floats, Ints

BLOCK = 512  # users compared with all others at a time


@dataclass(kw_only=True, eq=False)
class TIFUKNN(Recommender):
    """A user is the mean of group vectors, a group the mean of `group_size` baskets; both fade with age.

    score = own · (the user's vector) + (1 − own) · (mean vector of the `n_neighbors` nearest other users).
    """

    n_neighbors: int = 300
    group_size: int = 7
    basket_decay: float = 0.9
    group_decay: float = 0.7
    own: float = 0.7

    def fit(self, train: Interactions) -> Self:
        """Add up every user's vector."""
        whole(1, n_neighbors=self.n_neighbors, group_size=self.group_size)
        at_least(0, basket_decay=self.basket_decay, group_decay=self.group_decay, own=self.own)
        for name in ("basket_decay", "group_decay", "own"):
            if getattr(self, name) > 1:
                raise ConfigError(f"{name} must lie between 0 and 1, got {getattr(self, name)}; lower it.")
        self.check_data(train)
        self.vectors_ = self._vectors(train)
        self.remember(train)
        return self

    def _vectors(self, train: Interactions) -> csr_array:
        """(n_users, n_items); the oldest group is the one that may be short, as are its baskets' ages."""
        n_baskets = np.diff(train.user_baskets)
        owner = np.repeat(np.arange(train.n_users), n_baskets)
        back = train.user_baskets[owner + 1] - 1 - np.arange(train.n_baskets)
        group = back // self.group_size
        n_groups = -(-n_baskets // self.group_size)
        size = np.minimum(self.group_size, n_baskets[owner] - group * self.group_size)
        fade = self.basket_decay ** (back % self.group_size) * self.group_decay**group
        weight = np.repeat(fade / size / n_groups[owner], np.diff(train.baskets))
        shape = (train.n_users, train.n_items)
        rows = csr_array((weight, train.item, train.indptr), shape=shape, copy=True)
        rows.sum_duplicates()
        return rows

    def score(self, users: Ints) -> Floats:
        vectors = self.need("vectors_")
        scores = np.empty((users.size, self.history.n_items), np.float32)
        lengths = np.asarray(vectors.multiply(vectors).sum(axis=1))
        for start in range(0, users.size, BLOCK):
            part = users[start : start + BLOCK]
            mine = vectors[part].toarray()
            scores[start : start + BLOCK] = self.own * mine + (1 - self.own) * self._others(part, lengths)
        return scores

    def _others(self, users: Ints, lengths: Doubles) -> Doubles:
        """(n, n_items) mean vectors of the nearest users by Euclidean distance, themselves left out."""
        n_users = self.history.n_users
        k = min(self.n_neighbors, n_users - 1)
        if k < 1:
            return np.zeros((users.size, self.history.n_items))
        product = (self.vectors_[users] @ self.vectors_.T).toarray()
        distance = lengths[None, :] - 2 * product  # the user's own length is the same for all
        distance[np.arange(users.size), users] = np.inf
        nearest = np.sort(np.argpartition(distance, k - 1, axis=1)[:, :k], axis=1)
        starts = np.arange(users.size + 1) * k
        picks = csr_array(
            (np.full(nearest.size, 1 / k), nearest.ravel(), starts), shape=(users.size, n_users)
        )
        return np.asarray((picks @ self.vectors_).toarray())

    def partial_fit(self, more: Interactions) -> Self:
        """Add more data up; new users and items are appended."""
        return self.fit(self.history.concat(more))

    def fold_in(self, newcomers: dict[Any, Any]) -> Self:
        """Add up the items of new or known users."""
        return self.fit(self.history.add_baskets(newcomers))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"weights": self.need("vectors_").data}, {}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        indptr, items = self.history.item_sets
        self.vectors_ = csr_array(
            (arrays["weights"], items, indptr), shape=(self.history.n_users, self.history.n_items)
        )
