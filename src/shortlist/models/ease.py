"""EASE: a linear item–item model in closed form (Steck, 2019)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.content.features import to_rows
from shortlist.core.codec import Shape, Within
from shortlist.core.glm import fit_item_weights
from shortlist.core.options import Count, Fraction, NotNegative, Positive
from shortlist.core.ragged import row_owners
from shortlist.core.threads import map_slices
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.kernels.graph import solve_neighbors
from shortlist.kernels.retrieval import top_k
from shortlist.models.base import FitOptions, ModelState
from shortlist.models.matrix import GIGABYTE, MatrixModel, confidence_matrix, item_matrix
from shortlist.models.search_space import Range, Space
from shortlist.models.weighting import baskets_since, decayed_counts, set_places
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Doubles, Floats, Ints, Longs

DENSE_BYTES = 24  # per pair of items, while the matrix is inverted
MANY_ITEMS = 6_000  # with more, models of baskets are tried instead
DENSE_REG, SPARSE_REG = 300.0, 100.0  # of reg=None
ITEMS = 512  # whose neighbors a thread selects at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class EASEState(ModelState):
    """The item–item weights, sparse if there are many items."""

    # what item i adds to the score of item j
    weights: (
        Annotated[Floats, Shape("history.n_items", "history.n_items")]
        | Annotated[csr_array, Shape("history.n_items", "history.n_items"), Within(1e6)]
    )


def fit_sparse_weights(matrix: csr_array, reg: float, n_neighbors: int) -> csr_array:
    """(n_items, n_items) weights of EASE where every item is explained by its nearest items alone."""
    by_item = csr_array(matrix.T)
    by_item.sort_indices()
    rows, n_items = to_rows(by_item), matrix.shape[1]
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=0), np.float64) + reg)

    def solve(task: slice) -> tuple[Longs, Ints, Floats]:
        targets = np.arange(task.start, task.stop, dtype=np.int32)
        indptr, neighbors = nearest_items(by_item[task] @ matrix, targets, norms, n_neighbors)
        weights = np.empty(neighbors.size, np.float32)
        solve_neighbors(rows, matrix.shape[0], targets, indptr, neighbors, reg, weights)
        return np.diff(indptr), neighbors, weights

    sizes, neighbors, weights = zip(*map_slices(solve, n_items, ITEMS), strict=True)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    columns = csr_array(
        (np.concatenate(weights), np.concatenate(neighbors), indptr), shape=(n_items, n_items)
    )
    by_source = csr_array(columns.T)
    by_source.sort_indices()
    return by_source


def nearest_items(products: csr_array, targets: Ints, norms: Doubles, n_neighbors: int) -> tuple[Longs, Ints]:
    """(indptr, items): those with the largest inner products, divided by the norms, without the targets."""
    owner = row_owners(products.indptr)
    near = np.abs(products.data) / (norms[targets[owner]] * norms[products.indices])
    is_other = products.indices != targets[owner]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owner[is_other], minlength=targets.size))])
    nearest = top_k(
        indptr, products.indices[is_other].astype(np.int32), near[is_other].astype(np.float32), n_neighbors
    )
    return nearest[0], nearest[1]


@dataclass(kw_only=True, eq=False, repr=False)
class EASE(MatrixModel):
    """Score items by a weighted sum over the user's items; the weights come from one matrix inversion.

    The memory of an inversion grows with the square of the number of items. Where it would be more than
    `max_memory`, every item is explained by its `n_neighbors` nearest items alone: one small system of
    equations per item, and sparse weights. This is the inverse restricted to a given pattern, column by
    column, like that of SANSA, whose pattern comes from a factorization; regression on nearest items is that
    of fsSLIM. With as many neighbors as items, the weights are those of the inversion.

    Parameters
    ----------
    reg
        L2 penalty on the weights. None: 300 where the matrix is inverted, 100 for sparse weights. Of 10 to
        1,000, 100 had the best recall@20 on a part of the training items of Last.fm and CiteULike-t.
    decay
        How much an item of the user's history counts one basket later, when scoring.
    n_neighbors
        How many items explain an item where the weights are sparse. Nearest are those that share the most
        users, in relation to the numbers of users of both plus `reg`.
    max_memory
        Gigabytes that the inversion may take. With 1, up to 6,454 items are inverted at once.
    weighting, weight_cap
        As in `Popularity`. With "none", an item counts once however often the user has it; otherwise its rows
        are added. `reg` then has to fit the size of the weights.

    References
    ----------
    Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019.
    Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems", ICDM 2011 (fsSLIM).
    Spišák et al., "Scalable Approximate NonSymmetric Autoencoder for Collaborative Filtering", RecSys 2023.

    Examples
    --------
    >>> model = sl.EASE(reg=100).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    search_space: ClassVar[Space] = {"reg": Range(20, 2000), "decay": Range(0.6, 1.0, log=False)}
    warmup_params: ClassVar[dict[str, Any]] = {"max_memory": 0.0, "n_neighbors": 4}

    reg: Positive | None = None
    decay: Fraction = 1.0
    n_neighbors: Count = 100
    max_memory: NotNegative = 1.0

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        if data.has_baskets and data.n_items > MANY_ITEMS:
            return f"users have several baskets, and {data.n_items:,} items are more than {MANY_ITEMS:,}"
        return None

    def _learn(self, train: Interactions, options: FitOptions) -> EASEState:
        matrix = confidence_matrix(train, self.weight_transform)
        weights: Floats | csr_array
        if DENSE_BYTES * train.n_items**2 <= self.max_memory * GIGABYTE:
            weights = fit_item_weights(matrix.astype(np.float64), self.reg or DENSE_REG)
        else:
            weights = fit_sparse_weights(matrix, self.reg or SPARSE_REG, self.n_neighbors)
        return EASEState(history=History.of(train), weights=weights)

    def score(self, request: RecommendRequest[EASEState]) -> Scores:
        """The weighted sum over each user's items."""
        rows, weights = self._history_matrix(request), request.state.weights
        if not isinstance(weights, csr_array):
            return Scores(values=np.asarray(rows @ weights, np.float32))
        values = (rows @ weights).toarray()
        values[values == 0] = -np.inf  # no item of the history is a neighbor
        return Scores(values=values)

    def _history_matrix(self, request: RecommendRequest[EASEState]) -> csr_array:
        """(n, n_items) the users' items, decayed by the baskets since the last one with the item.

        If rows count by their weight, each is decayed by the baskets since, and an item's rows are added.
        """
        history = request.history
        if self.weight_transform is not None:
            return item_matrix(history, decayed_counts(history, self.decay, self.weight_transform))
        recency = np.zeros(history.item_sets.items.size, np.float32)
        decayed = (self.decay ** baskets_since(history)).astype(np.float32)
        np.maximum.at(recency, set_places(history), decayed)
        return item_matrix(history, recency)

    def _shares(self, state: EASEState, row: csr_array, items: Ints) -> Doubles:
        weights = state.weights[row.indices][:, items]
        dense = weights.toarray() if isinstance(weights, csr_array) else weights
        shares: Doubles = row.data[:, None].astype(np.float64) * dense
        return shares
