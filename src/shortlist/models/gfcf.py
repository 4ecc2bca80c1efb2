"""GFCF: a graph filter in closed form (Shen et al., 2021)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.content.features import to_rows
from shortlist.core.codec import Shape, Within
from shortlist.core.options import AtLeast, Dimensions, NotNegative, Seed
from shortlist.core.ragged import row_owners
from shortlist.core.threads import map_slices
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.kernels.graph import follow_paths
from shortlist.kernels.rows import read_only
from shortlist.kernels.sparse import SparseRows
from shortlist.models.als import MAX_SIZE
from shortlist.models.base import FitOptions, ModelState
from shortlist.models.matrix import (
    GIGABYTE,
    TASK,
    MatrixModel,
    confidence_matrix,
    find_basis,
    multiply_transposed,
    pad_columns,
    rotate,
    singular_columns,
    sparse_product,
)
from shortlist.models.search_space import Range, Space
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Doubles, Floats, Ints

N_ITERATIONS, MORE = 6, 16  # of the subspace iteration, and vectors beyond those that are kept


@dataclass(frozen=True, eq=False)
class GraphFilter:
    """The normalized matrix and the filter; read-only."""

    # R, whose largest singular value is 1
    matrix: Annotated[csr_array, Shape("n_learned", "history.n_items"), Within(1e6)]
    # orthonormal rows: the first right singular vectors of the matrix
    basis: Annotated[Floats, Shape("n_factors", "history.n_items"), Within(1.001)]
    # what the filter adds to the squared singular value of each
    gains: Annotated[Floats, Shape("n_factors"), Within(MAX_SIZE)]
    powers: Annotated[Floats, Shape("history.n_items"), AtLeast(0)]  # degree^item_power
    fits: bool  # whether an item–item matrix fits into the memory that the user allowed

    def __post_init__(self) -> None:
        self.basis.flags.writeable = self.gains.flags.writeable = self.powers.flags.writeable = False

    @property
    def inverse_powers(self) -> Floats:
        """(n_items,) degree^−item_power; 0 for items without users."""
        return np.divide(1, self.powers, where=self.powers > 0, out=np.zeros_like(self.powers))

    @cached_property
    def dense(self) -> Floats:
        """(n_items, n_items) what item i adds to the score of item j."""
        product = (self.matrix.T @ self.matrix).toarray()
        padded = pad_columns(self.basis)
        filtered = multiply_transposed(pad_columns(self.basis * self.gains[:, None]), padded)
        filtered = filtered[: len(product), : len(product)]
        filtered += product
        filtered *= self.inverse_powers[:, None]
        filtered *= self.powers
        return filtered

    @cached_property
    def by_item(self) -> SparseRows:
        """(n_items, n_users) the normalized matrix, transposed."""
        return to_rows(csr_array(self.matrix.T))

    @cached_property
    def by_user(self) -> SparseRows:
        """(n_users, n_items) the normalized matrix, multiplied by the powers."""
        rows = to_rows(self.matrix)
        return rows._replace(values=read_only(rows.values * self.powers[rows.columns]))

    @cached_property
    def inputs(self) -> Floats:
        """(n_items, n_factors) what an item of a history adds to each factor."""
        return np.ascontiguousarray((self.basis * self.inverse_powers * self.gains[:, None]).T)

    @cached_property
    def outputs(self) -> Floats:
        """(n_factors, width) the basis times the powers, with columns of zeros after the last one."""
        return pad_columns(self.basis * self.powers)


@dataclass(frozen=True, eq=False, kw_only=True)
class GFCFState(ModelState):
    """The filter."""

    filter: GraphFilter


def singular_basis(matrix: csr_array, n: int, seed: int) -> tuple[Floats, Doubles]:
    """(n, n_columns) the first right singular vectors and (n,) their squared values; 0 beyond the rank."""
    width = n + MORE
    columns = singular_columns(matrix, width, N_ITERATIONS, seed)
    basis, energy = find_basis(sparse_product(matrix, columns), width)
    order = np.argsort(-energy, kind="stable")[:n]
    vectors = rotate(columns, basis)
    return np.ascontiguousarray(vectors[:, order].T), energy[order]


def filter_rows(state: GraphFilter, rows: csr_array) -> Floats:
    """(n, n_items) the filtered rows; without an item–item matrix, if it does not fit."""
    if state.fits:
        return np.asarray(rows @ state.dense, np.float32)
    queries = pad_columns(np.ascontiguousarray(sparse_product(rows, state.inputs).T))
    scores = multiply_transposed(queries, state.outputs)
    weight = rows.data * state.inverse_powers[rows.indices]
    starts = csr_array((weight, rows.indices, rows.indptr), shape=rows.shape)

    def add_paths(users: slice) -> None:
        follow_paths(to_rows(starts[users]), state.by_item, state.by_user, scores[users])

    map_slices(add_paths, rows.shape[0], TASK)
    return np.ascontiguousarray(scores[: rows.shape[0], : rows.shape[1]])


def filter_shares(learned: GraphFilter, row: csr_array, items: Ints) -> Doubles:
    """(n_history, n) what each item of the history of one user adds to the scores of `items`."""
    mine, columns = row.indices, learned.matrix.tocsc()
    shared = (columns[:, mine].T @ columns[:, items]).toarray().astype(np.float64)
    basis = learned.basis.astype(np.float64)
    filtered = (basis[:, mine] * learned.gains[:, None]).T @ basis[:, items]
    scale = learned.inverse_powers[mine][:, None] * learned.powers[items]
    shares: Doubles = row.data[:, None] * (shared + filtered) * scale
    return shares


@dataclass(kw_only=True, eq=False, repr=False)
class GFCF(MatrixModel):
    """Score items by a graph filter in closed form: shared users and the first singular vectors.

    R is the matrix of users and items, divided by (degree of the user)^(user_power / 2) and by the root of
    the degree of the item, and scaled so that its largest singular value is 1. V are its first right singular
    vectors, λ their squared values, and D the degrees of items. The scores of a user's items r are

        r · D^(−item_power) · (R'R + V·diag(g)·V') · D^item_power,    g = (λ + low_pass)(1 − sharpen·λ) − λ.

    So R'R, which counts shared users, is replaced on V by a filter that keeps all of V alive (the ideal
    low-pass of GF-CF) and reduces what everybody has in common (the sharpening of BSPM). The powers are those
    of LinkProp. Nothing is trained in epochs, and users that are new, or have new items, are scored like
    all others.

    The defaults were chosen on a part of the training items of MovieLens-1M, Last.fm and CiteULike-t; other
    data may prefer more factors, so `search_space` is worth trying.

    Parameters
    ----------
    n_factors
        Number of singular vectors.
    low_pass
        What the filter adds to every squared singular value.
    sharpen
        How much the largest squared singular values are reduced; 0 leaves them, 1 removes the first.
    user_power
        How much less the items of users with many items say about each other.
    item_power
        0 treats rare items like frequent ones; larger values favor frequent ones.
    max_memory
        Gigabytes that an item–item matrix may take. With 1, up to 15,811 items have one. More items are
        scored along the paths item – user – item, which needs no more memory than the data.
    seed
        Seed of the start of the iteration for singular vectors. The same seed gives the same model, bit for
        bit, on any number of threads.
    weighting, weight_cap
        As in `Popularity`. With "none", an item counts once however often the user has it; otherwise its rows
        are added.

    References
    ----------
    Shen et al., "How Powerful is Graph Convolution for Recommendation?", CIKM 2021 (GF-CF).
    Fu et al., "Revisiting Neighborhood-based Link Prediction for Collaborative Filtering",
    WWW 2022 (LinkProp).
    Choi et al., "Blurring-Sharpening Process Models for Collaborative Filtering", SIGIR 2023 (BSPM).

    Examples
    --------
    >>> model = sl.GFCF(n_factors=64).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(["u1", "u2"], N=5)
    """

    search_space: ClassVar[Space] = {
        "n_factors": (128, 256, 512),
        "low_pass": Range(0.05, 1.0),
        "sharpen": Range(0.2, 0.8, log=False),
        "user_power": Range(0.4, 1.0, log=False),
        "item_power": Range(0.1, 0.45, log=False),
    }
    warmup_params: ClassVar[dict[str, Any]] = {"n_factors": 30, "max_memory": 0.0}

    n_factors: Dimensions = 256
    low_pass: NotNegative = 0.3
    sharpen: NotNegative = 0.6
    user_power: NotNegative = 0.6
    item_power: NotNegative = 0.3
    max_memory: NotNegative = 1.0
    seed: Seed = 0

    def _learn(self, train: Interactions, options: FitOptions) -> GFCFState:
        rows = confidence_matrix(train, self.weight_transform)
        size = abs(rows)
        user_degree = np.asarray(size.sum(axis=1, dtype=np.float64))
        item_degree = np.asarray(size.sum(axis=0, dtype=np.float64))
        owner = row_owners(rows.indptr)
        scale = np.sqrt(user_degree[owner] ** self.user_power * item_degree[rows.indices])
        values = np.divide(rows.data, scale, where=scale > 0, out=np.zeros_like(scale))
        matrix = csr_array((values.astype(np.float32), rows.indices, rows.indptr), shape=rows.shape)
        basis, energy = singular_basis(matrix, self.n_factors, self.seed)
        largest = max(float(energy[0]), 1e-30)
        matrix.data = (matrix.data / np.sqrt(largest)).astype(np.float32)
        energy = energy / largest
        gains = (energy + self.low_pass) * (1 - self.sharpen * energy) - energy
        powers = np.where(item_degree > 0, item_degree, 1) ** self.item_power * (item_degree > 0)
        fits = 4.0 * train.n_items**2 <= self.max_memory * GIGABYTE
        learned = GraphFilter(matrix, basis, gains.astype(np.float32), powers.astype(np.float32), fits)
        return GFCFState(history=History.of(train), filter=learned)

    def score(self, request: RecommendRequest[GFCFState]) -> Scores:
        """The filtered histories."""
        return Scores(values=filter_rows(request.state.filter, self._history_matrix(request)))

    def _shares(self, state: GFCFState, row: csr_array, items: Ints) -> Doubles:
        return filter_shares(state.filter, row, items)

    def _item_vectors(self, state: GFCFState) -> Floats | None:
        return np.ascontiguousarray(state.filter.basis.T)
