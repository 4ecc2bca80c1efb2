"""GFCF: a graph filter in closed form (Shen et al., 2021)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.checks import check_array, check_starts
from shortlist.core.engine import map_slices
from shortlist.core.params import MAX_SEED, Range, Space, check_number, check_whole
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.kernels.graph import WeightedRows, diagonalize, follow_paths, orthonormalize
from shortlist.kernels.rows import read_only
from shortlist.kernels.tiles import SIDE, multiply_tiles
from shortlist.models.als import confidence_matrix, outer_products, pad_columns
from shortlist.models.base import FitOptions, ModelState, Recommender, WeightParams
from shortlist.recommend.request import Contributions, RecommendRequest, Scores, largest_first
from shortlist.types import Doubles, Floats, Ints

N_ITERATIONS = 8  # of the subspace iteration
TASK = 4 * SIDE  # users, or columns of a product, that a thread handles at a time
GIGABYTE = 1e9


@dataclass(frozen=True, eq=False, kw_only=True)
class GFCFState(ModelState):
    """The normalized matrix and the low-pass filter."""

    matrix: csr_array  # (n_learned_users, n_items) values divided by the roots of both degrees
    basis: Floats  # (n_factors, n_items) orthonormal rows: the first right singular vectors of the matrix
    roots: Floats  # (n_items,) root of the item's degree
    low_pass: float
    fits: bool  # whether an item–item matrix fits into the memory that the user allowed

    @property
    def inverse_roots(self) -> Floats:
        """(n_items,) 1 / root; 0 for items without users."""
        return np.divide(1, self.roots, where=self.roots > 0, out=np.zeros_like(self.roots))

    @cached_property
    def dense(self) -> Floats:
        """(n_items, n_items) what item i adds to the score of item j."""
        product = (self.matrix.T @ self.matrix).toarray()
        padded = pad_columns(self.basis)
        filtered = multiply_transposed(padded, padded)[: len(product), : len(product)]
        filtered *= self.inverse_roots[:, None]
        filtered *= self.low_pass * self.roots
        filtered += product
        return filtered

    @cached_property
    def by_item(self) -> WeightedRows:
        """(n_items, n_users) the normalized matrix, transposed."""
        return weighted_rows(csr_array(self.matrix.T))

    @cached_property
    def outputs(self) -> Floats:
        """(n_factors, width) what a filtered unit adds to the score of each item."""
        return pad_columns(self.basis * (np.float32(self.low_pass) * self.roots))


def weighted_rows(matrix: csr_array) -> WeightedRows:
    """The matrix in the form that kernels expect."""
    return WeightedRows(
        read_only(matrix.indptr.astype(np.int64)),
        read_only(matrix.indices.astype(np.int32)),
        read_only(matrix.data.astype(np.float32)),
    )


def multiply_transposed(a: Floats, b: Floats, n_threads: int = 0) -> Floats:
    """a'b for columns padded to multiples of SIDE, the same bits on any number of threads."""
    out = np.empty((a.shape[1], b.shape[1]), np.float32)
    right = read_only(b)
    map_slices(
        lambda rows: multiply_tiles(read_only(a[:, rows]), right, out[rows]), a.shape[1], TASK, n_threads
    )
    return out


def singular_basis(matrix: csr_array, n: int, seed: int, n_threads: int) -> Floats:
    """(n, n_columns) rows that span the first right singular vectors, by orthogonal iteration.

    Rows that the matrix has no rank for are 0.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    width = n + -n % SIDE
    columns = rng.standard_normal((matrix.shape[1], width), np.float32)
    transposed = csr_array(matrix.T)
    for _ in range(N_ITERATIONS):
        columns = _orthonormal(transposed @ (matrix @ columns), n_threads)
    # once more, because rounding leaves the columns a little dependent
    columns = _orthonormal(columns, n_threads)
    if n < width:  # all columns together span the first singular vectors, but not the first n of them
        energy, vectors = outer_products(np.asarray(matrix @ columns), n_threads), np.empty((width, width))
        diagonalize(energy, vectors)
        order = np.argsort(-np.diag(energy), kind="stable")
        turn = np.ascontiguousarray(vectors[order].T.astype(np.float32))
        columns = multiply_transposed(turn, pad_columns(np.ascontiguousarray(columns.T)), n_threads).T
    return np.ascontiguousarray(columns.T[:n, : matrix.shape[1]])


def _orthonormal(columns: Floats, n_threads: int) -> Floats:
    """(n, width) orthonormal columns with the same span."""
    change = np.empty((columns.shape[1], columns.shape[1]), np.float32)
    orthonormalize(outer_products(np.asarray(columns, np.float32), n_threads), change)
    turned = multiply_transposed(change, pad_columns(np.ascontiguousarray(columns.T)), n_threads)
    return np.ascontiguousarray(turned[:, : len(columns)].T)


@dataclass(kw_only=True, eq=False, repr=False)
class GFCF(WeightParams, Recommender):
    """Score items by a graph filter in closed form: shared users, plus an ideal low-pass.

    With R the matrix of users and items, divided by the roots of the degrees of its rows and columns, the
    scores of a user's items r are r·R'R + low_pass · r·D^(−½)·V·V'·D^(½), where V are the first right
    singular vectors of R and D the degrees of items. Nothing is trained in epochs, and users that are
    new, or have new items, are scored like all others.

    Parameters
    ----------
    n_factors
        Number of singular vectors.
    low_pass
        Weight of the low-pass filter against the item–item product.
    memory_gb
        Gigabytes that an item–item matrix may take. With 1, up to 15,811 items have one. More items are
        scored along the paths item – user – item, which needs no more memory than the data.
    seed
        Seed of the start of the iteration for singular vectors. The same seed gives the same model, bit for
        bit, on any number of threads.
    n_threads
        Number of threads; 0 uses every core.
    weighting, weight_cap
        As in `Popularity`. With "none", an item counts once however often the user has it; otherwise its rows
        are added.

    References
    ----------
    Shen et al., "How Powerful is Graph Convolution for Recommendation?", CIKM 2021 (GF-CF).

    Examples
    --------
    >>> model = sl.GFCF(n_factors=64).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(["u1", "u2"], N=5)
    """

    uses_new_items: ClassVar[bool] = False
    is_tried_by_fit: ClassVar[bool] = True
    search_space: ClassVar[Space] = {"n_factors": (32, 64, 128, 256, 512), "low_pass": Range(0.1, 10.0)}
    warmup_params: ClassVar[dict[str, Any]] = {"n_factors": 30, "memory_gb": 0.0}

    n_factors: int = 256
    low_pass: float = 0.3
    memory_gb: float = 1.0
    seed: int = 0
    n_threads: int = 0

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        has_baskets = data.n_baskets > data.active_users.size
        return "users have several baskets, which it would not distinguish" if has_baskets else None

    def _check_params(self) -> None:
        check_whole(1, 4096, n_factors=self.n_factors)
        check_number(0, low_pass=self.low_pass, memory_gb=self.memory_gb)
        check_whole(0, MAX_SEED, seed=self.seed)
        check_whole(0, n_threads=self.n_threads)
        self.weight_transform.check()

    def _learn(self, train: Interactions, options: FitOptions) -> GFCFState:
        rows = confidence_matrix(train, self.weight_transform)
        size = abs(rows)
        user_degree = np.asarray(size.sum(axis=1, dtype=np.float64))
        item_degree = np.asarray(size.sum(axis=0, dtype=np.float64))
        owner = np.repeat(np.arange(train.n_users), np.diff(rows.indptr))
        scale = np.sqrt(user_degree[owner] * item_degree[rows.indices])
        values = np.divide(rows.data, scale, where=scale > 0, out=np.zeros_like(scale))
        matrix = csr_array((values.astype(np.float32), rows.indices, rows.indptr), shape=rows.shape)
        basis = singular_basis(matrix, self.n_factors, self.seed, self.n_threads)
        return self._build_state(train, matrix, basis, np.sqrt(item_degree).astype(np.float32))

    def _build_state(
        self, history: Interactions, matrix: csr_array, basis: Floats, roots: Floats
    ) -> GFCFState:
        return GFCFState(
            history=History.of(history),
            matrix=matrix,
            basis=read_only(basis),
            roots=read_only(roots),
            low_pass=self.low_pass,
            fits=4.0 * history.n_items**2 <= self.memory_gb * GIGABYTE,
        )

    def _add_history(self, state: GFCFState, history: Interactions, users: Ints) -> GFCFState:
        return replace(state, history=History.of(history))

    def score(self, request: RecommendRequest[GFCFState]) -> Scores:
        """The filtered histories."""
        state = request.state
        rows = confidence_matrix(request.history, self.weight_transform)
        if state.fits:
            return Scores(values=np.asarray(rows @ state.dense, np.float32))
        return Scores(values=self._filter(state, rows, request.n_threads))

    @staticmethod
    def _filter(state: GFCFState, rows: csr_array, n_threads: int) -> Floats:
        """(n, n_items) scores without an item–item matrix."""
        inputs = np.ascontiguousarray((state.basis * state.inverse_roots).T)
        queries = pad_columns(np.ascontiguousarray((rows @ inputs).T))
        scores = multiply_transposed(queries, state.outputs, n_threads)
        by_user = weighted_rows(state.matrix)

        def add_paths(part: slice) -> None:
            follow_paths(weighted_rows(rows[part]), state.by_item, by_user, scores[part])

        map_slices(add_paths, rows.shape[0], TASK, n_threads)
        return np.ascontiguousarray(scores[: rows.shape[0], : rows.shape[1]])

    def contributions(self, request: RecommendRequest[GFCFState], items: Ints) -> Contributions:
        """The items of the user's history, each with its part of the score."""
        state = request.state
        row = confidence_matrix(request.history, self.weight_transform)
        mine, columns = row.indices, state.matrix.tocsc()
        shared = (columns[:, mine].T @ columns[:, items]).toarray().astype(np.float64)
        basis = state.basis.astype(np.float64)
        filtered = basis[:, mine].T @ basis[:, items]
        filtered *= state.inverse_roots[mine][:, None] * state.roots[items] * self.low_pass
        parts: Doubles = row.data[:, None] * (shared + filtered)
        names = state.history.item_labels(mine)
        return [largest_first(names, amounts) for amounts in parts.T]

    def _item_vectors(self, state: GFCFState) -> Floats | None:
        return np.ascontiguousarray(state.basis.T)

    def _to_arrays(self, state: GFCFState) -> tuple[dict[str, Any], dict[str, Any]]:
        return weighted_rows(state.matrix)._asdict() | {"basis": state.basis, "roots": state.roots}, {}

    def _from_arrays(self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]) -> GFCFState:
        n_items = history.n_items
        values = check_array(arrays, "values", np.float32, (None,), limit=1.001)
        columns = check_array(arrays, "columns", np.int32, (values.size,), low=0, high=n_items - 1)
        n_learned = check_array(arrays, "indptr", np.int64, (None,)).size - 1
        indptr = check_starts(arrays, "indptr", min(n_learned, history.n_users), values.size)
        matrix = csr_array((values, columns, indptr), shape=(indptr.size - 1, n_items))
        shape = (self.n_factors, n_items)
        basis = check_array(arrays, "basis", np.float32, shape, limit=1.001)
        roots = check_array(arrays, "roots", np.float32, (n_items,), low=0)
        return self._build_state(history, matrix, basis, roots)
