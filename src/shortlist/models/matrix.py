"""What models of a plain matrix of users and items share."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from shortlist.content.features import to_rows
from shortlist.core.ragged import row_owners
from shortlist.core.threads import map_slices
from shortlist.data.interactions import Interactions
from shortlist.kernels.graph import multiply_sparse, rotate_rows
from shortlist.kernels.rows import read_only
from shortlist.kernels.tiles import SIDE, multiply_tiles, sum_outer
from shortlist.models.base import Recommender, WeightParams
from shortlist.models.weighting import WeightTransform, decayed_counts
from shortlist.recommend.request import Contributions, RecommendRequest, largest_first
from shortlist.types import Doubles, Floats, Ints

GIGABYTE = 1e9
ROWS = 4096  # of a matrix that a thread handles at a time
TASK = 4 * SIDE  # users, or columns of a product, that a thread handles at a time
DIAGONAL = 1e-5  # share of the largest square up to which sums of products are rounding errors
DEPENDENT = 1e-10  # share of the largest squared norm below which a column is a combination of others


def item_matrix(data: Interactions, values: Floats | Doubles) -> csr_array:
    """(n_users, n_items) with a value for every entry of data.item_sets."""
    sets = data.item_sets
    return csr_array((values, sets.items, sets.indptr), shape=(data.n_users, data.n_items))


def membership(data: Interactions) -> csr_array:
    """(n_users, n_items) 1 for every item of the user."""
    return item_matrix(data, np.ones(data.item_sets.items.size, np.float32))


def normalize_degrees(matrix: csr_array) -> csr_array:
    """The signs of the entries, divided by the root of entries of the row · entries of the column."""
    per_row = np.diff(matrix.indptr)[row_owners(matrix.indptr)]
    per_column = np.bincount(matrix.indices, minlength=matrix.shape[1])[matrix.indices]
    values = (np.sign(matrix.data) / np.sqrt(per_row * per_column)).astype(np.float32)
    return csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def confidence_matrix(data: Interactions, transform: WeightTransform | None) -> csr_array:
    """(n_users, n_items) what the rows of user and item count together; entries as in data.item_sets."""
    if transform is None:
        return membership(data)
    return item_matrix(data, decayed_counts(data, 1.0, transform))


def pad_columns(vectors: Floats) -> Floats:
    """The vectors with columns of zeros, so that their number is a multiple of SIDE."""
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % SIDE)))


def multiply_transposed(a: Floats, b: Floats) -> Floats:
    """a'b for columns padded to multiples of SIDE, the same bits on any number of threads."""
    out = np.empty((a.shape[1], b.shape[1]), np.float32)
    right = read_only(b)
    map_slices(lambda rows: multiply_tiles(read_only(a[:, rows]), right, out[rows]), a.shape[1], TASK)
    return out


def score_vectors(vectors: Floats, outputs: Floats) -> Floats:
    """vectors @ outputs with padded columns: the same bits on any number of threads, whatever is beside."""
    queries = pad_columns(np.ascontiguousarray(vectors.T))
    return multiply_transposed(queries, outputs)[: len(vectors)]


def outer_products(vectors: Floats) -> Doubles:
    """(width, width) sum of the outer products, the same bits on any number of threads."""

    def sum_part(rows: slice) -> Doubles:
        total = np.zeros((vectors.shape[1], vectors.shape[1]))
        sum_outer(read_only(vectors[rows]), total)
        return total

    parts = map_slices(sum_part, len(vectors), ROWS)
    return sum(parts[1:], start=parts[0])


def find_basis(vectors: Floats, n: int) -> tuple[Floats, Doubles]:
    """(width, width) a rotation of the first n dimensions after which sums of products are 0, and squares."""
    width = vectors.shape[1]
    basis, squares = np.zeros((width, width), np.float32), np.zeros(width)
    products = outer_products(vectors)[:n, :n]
    squares[:n] = products.diagonal()
    if np.abs(products - np.diag(squares[:n])).max() <= DIAGONAL * squares.max():
        basis[:n, :n] = np.eye(n)
    else:
        with threadpool_limits(1, "blas"):  # whose bits depend on the number of threads
            squares[:n], basis[:n, :n] = eigh(products)
    return basis, np.maximum(squares, 0)


def rotate(vectors: Floats, basis: Floats) -> Floats:
    """vectors @ basis, the same bits on any number of threads."""
    out = np.empty_like(vectors)
    map_slices(lambda rows: rotate_rows(vectors[rows], basis, out[rows]), len(vectors), ROWS)
    return out


def sparse_product(matrix: csr_array, dense: Floats) -> Floats:
    """matrix @ dense, the same bits on any number of threads."""
    rows, right = to_rows(matrix), read_only(dense)
    out = np.empty((matrix.shape[0], dense.shape[1]), np.float32)
    map_slices(
        lambda task: multiply_sparse(
            rows._replace(indptr=rows.indptr[task.start : task.stop + 1]), right, out[task]
        ),
        len(out),
        ROWS,
    )
    return out


def singular_columns(matrix: csr_array, n: int, n_iterations: int, seed: int) -> Floats:
    """(n_columns, width) orthonormal columns that span about the first n right singular vectors.

    By orthogonal iteration. Columns that the matrix has no rank for are 0.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    columns, transposed = (
        pad_columns(rng.standard_normal((matrix.shape[1], n), np.float32)),
        csr_array(matrix.T),
    )
    for _ in range(n_iterations):
        columns = sparse_product(transposed, sparse_product(matrix, columns))
        columns = orthonormal(columns, n)
    return orthonormal(columns, n)  # once more, because rounding leaves them a little dependent


def orthonormal(columns: Floats, n: int) -> Floats:
    """Orthonormal columns with the same span; dependent ones are 0."""
    basis, squares = find_basis(columns, n)
    whole = squares > DEPENDENT * squares.max()
    scale = np.where(whole, 1 / np.sqrt(np.where(whole, squares, 1)), 0)
    return rotate(columns, (basis * scale).astype(np.float32))


@dataclass(kw_only=True, eq=False, repr=False)
class MatrixModel(WeightParams, Recommender):
    """Base class of the models that know a user by the user's items alone."""

    uses_new_items: ClassVar[bool] = False
    is_tried_by_fit: ClassVar[bool] = True

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        return "users have several baskets, which it would not distinguish" if data.has_baskets else None

    def _history_matrix(self, request: RecommendRequest[Any]) -> csr_array:
        """(n, n_items) what the items of the users count."""
        return confidence_matrix(request.history, self.weight_transform)

    @abstractmethod
    def _shares(self, state: Any, row: csr_array, items: Ints) -> Doubles:
        """(n_history, n) what each item of the history of one user, `row`, adds to the scores of `items`."""

    def contributions(self, request: RecommendRequest[Any], items: Ints) -> Contributions:
        """The items of the user's history, each with its part of the score."""
        row = self._history_matrix(request)
        names = request.state.history.item_labels(row.indices)
        return [largest_first(names, amounts) for amounts in self._shares(request.state, row, items).T]
