"""EASE: a linear item–item model in closed form (Steck, 2019)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.checks import check_array
from shortlist.core.glm import fit_item_weights
from shortlist.core.params import check_fraction, check_number
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.models.base import FitOptions, ModelState, Recommender
from shortlist.models.weighting import WeightParams, decayed_counts
from shortlist.recommend.explain import Contributions, largest_first
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Doubles, Floats, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class EASEState(ModelState):
    """The item–item weights."""

    weights: Floats  # (n_items, n_items)


@dataclass(kw_only=True, eq=False, repr=False)
class EASE(WeightParams, Recommender):
    """Score items by a weighted sum over the user's items; the weights come from one matrix inversion.

    Memory grows with the square of the number of items and time with its cube: 11,000 items take 1 GB.

    Parameters
    ----------
    reg
        L2 penalty on the weights.
    decay
        How much an item of the user's history counts one basket later, when scoring.
    weighting, weight_cap
        As in `Popularity`. With "none", an item counts once however often the user has it; otherwise its rows
        are added. `reg` then has to fit the size of the weights.

    References
    ----------
    Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019.

    Examples
    --------
    >>> model = sl.EASE(reg=100).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    uses_new_items: ClassVar[bool] = False

    reg: float = 300.0
    decay: float = 1.0

    def _check_params(self) -> None:
        check_number(1e-9, reg=self.reg)
        check_fraction(decay=self.decay)
        self.weight_transform.check()

    def _learn(self, train: Interactions, options: FitOptions) -> EASEState:
        indptr, items = train.item_sets
        values = np.ones(items.size)
        if self.weight_transform.is_used:
            values = decayed_counts(train, 1.0, self.weight_transform).astype(np.float64)
        matrix = csr_array((values, items, indptr), shape=(train.n_users, train.n_items))
        return EASEState(history=History.of(train), weights=fit_item_weights(matrix, self.reg))

    def _add_history(self, state: EASEState, history: Interactions, users: Ints) -> EASEState:
        return replace(state, history=History.of(history))

    def score(self, request: RecommendRequest[EASEState]) -> Scores:
        """The weighted sum over each user's items."""
        rows = self._history_matrix(request)
        return Scores(values=np.asarray(rows @ request.state.weights, np.float32))

    def _history_matrix(self, request: RecommendRequest[EASEState]) -> csr_array:
        """(n, n_items) the users' items, decayed by the baskets since the last one with the item.

        If rows count by their weight, each is decayed by the baskets since, and an item's rows are added.
        """
        indptr, items = request.history.item_sets
        if self.weight_transform.is_used:
            values = decayed_counts(request.history, self.decay, self.weight_transform)
        else:
            values = self._recency(request.history)
        return csr_array((values, items, indptr), shape=(len(request), request.history.n_items))

    def _recency(self, history: Interactions) -> Floats:
        """For every entry of history.item_sets, decay^(baskets since the last one with the item)."""
        indptr, items = history.item_sets
        if self.decay == 1:
            return np.ones(items.size, np.float32)
        owner = np.repeat(np.arange(history.n_users), np.diff(history.user_baskets))
        back = np.repeat(
            history.user_baskets[owner + 1] - 1 - np.arange(history.n_baskets), np.diff(history.baskets)
        )
        keys = np.repeat(np.arange(history.n_users), np.diff(indptr)) * history.n_items + items
        place = np.searchsorted(keys, history.user.astype(np.int64) * history.n_items + history.item)
        recency = np.zeros(items.size, np.float32)
        np.maximum.at(recency, place, (self.decay**back).astype(np.float32))
        return recency

    def contributions(self, request: RecommendRequest[EASEState], items: Ints) -> Contributions:
        """The items of the user's history, each with its part of the score."""
        row = self._history_matrix(request)
        names = request.state.history.item_labels(row.indices)
        parts: Doubles = row.data[:, None].astype(np.float64) * request.state.weights[row.indices][:, items]
        return [largest_first(names, column) for column in parts.T]

    def _to_arrays(self, state: EASEState) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"weights": state.weights}, {}

    def _from_arrays(self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]) -> EASEState:
        shape = (history.n_items, history.n_items)
        weights = check_array(arrays, "weights", np.float32, shape)
        return EASEState(history=History.of(history), weights=weights)
