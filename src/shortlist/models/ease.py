"""EASE: every item's score is a weighted sum over what the user took, in closed form (Steck, 2019)."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import Recommender, at_least
from shortlist.types import Floats, Ints


@dataclass(kw_only=True, eq=False)
class EASE(Recommender):
    """Item–item weights that best rebuild each user's items from their other items; none from itself.

    Memory and time grow with the square and the cube of the number of items: 11,000 take 1 GB.
    """

    reg: float = 300.0
    decay: float = 1.0  # of a basket per basket since, when scoring

    def fit(self, train: Interactions) -> Self:
        """Invert the regularised item–item matrix."""
        at_least(1e-9, reg=self.reg)
        at_least(0, decay=self.decay)
        if not 0 < self.decay <= 1:
            raise ConfigError(
                f"decay must lie above 0 and be at most 1, got {self.decay}; 1 forgets nothing."
            )
        self.check_data(train)
        indptr, items = train.item_sets
        taken = csr_array((np.ones(items.size), items, indptr), shape=(train.n_users, train.n_items))
        self.weights_ = item_weights(taken, self.reg)
        self.remember(train)
        return self

    def score(self, users: Ints) -> Floats:
        weights: Floats = self.need("weights_")
        return np.asarray(self._rows(users) @ weights, np.float32)

    def _rows(self, users: Ints) -> csr_array:
        """(n, n_items) what the users took, each item as of its last basket."""
        past = self.history
        indptr, items = past.item_sets
        if self.decay == 1:
            rows = csr_array(
                (np.ones(items.size, np.float32), items, indptr), shape=(past.n_users, past.n_items)
            )
            return rows[users]
        owner = np.repeat(np.arange(past.n_users), np.diff(past.user_baskets))
        back = np.repeat(past.user_baskets[owner + 1] - 1 - np.arange(past.n_baskets), np.diff(past.baskets))
        keys = np.repeat(np.arange(past.n_users), np.diff(indptr)) * past.n_items + items
        place = np.searchsorted(keys, past.user.astype(np.int64) * past.n_items + past.item)
        fresh = np.zeros(items.size, np.float32)
        np.maximum.at(fresh, place, (self.decay**back).astype(np.float32))
        return csr_array((fresh, items, indptr), shape=(past.n_users, past.n_items))[users]

    def partial_fit(self, more: Interactions) -> Self:
        """Solve again with more data; new users and items are appended."""
        return self.fit(self.history.concat(more))

    def fold_in(self, newcomers: dict[Any, Any]) -> Self:
        """Take in the items of new or known users; the weights stay as they are."""
        weights = self.need("weights_")
        self.remember(self.history.add_baskets(newcomers))
        self.weights_ = weights
        return self

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"weights": self.need("weights_")}, {}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        self.weights_ = arrays["weights"]


def item_weights(taken: csr_array, reg: float) -> Floats:
    """(n_items, n_items) what having the row's item adds to the column's; taken holds 0 and 1."""
    gram = np.asfortranarray((taken.T @ taken).toarray())
    gram[np.diag_indices_from(gram)] += reg
    weights = _inverse(gram)
    weights /= -np.diag(weights)[None, :]
    np.fill_diagonal(weights, 0.0)
    return np.asarray(weights, np.float32)


def _inverse(gram: Any) -> Any:
    """Inverse of a positive definite matrix, through Cholesky in its own memory."""
    upper, failed = lapack.dpotrf(gram, lower=0, overwrite_a=1)
    if not failed:
        upper, failed = lapack.dpotri(upper, lower=0, overwrite_c=1)
    if failed:
        raise DataError("the item–item matrix must be positive definite, got one that is not; raise reg.")
    inverse = np.triu(upper)
    inverse += np.triu(upper, 1).T
    return inverse
