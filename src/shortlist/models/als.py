"""ALS: implicit alternating least squares."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from shortlist.core.codec import NotStored, Shape, Within
from shortlist.core.options import Count, Dimensions, NotNegative, Positive, Seed
from shortlist.core.ragged import row_lengths, row_owners
from shortlist.core.threads import map_slices
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import TrainingError
from shortlist.kernels.als import ConfidenceRows, FixedSide, solve_rows
from shortlist.kernels.rows import read_only
from shortlist.models.base import MAX_BATCH, FitOptions, ModelState
from shortlist.models.matrix import (
    MatrixModel,
    confidence_matrix,
    find_basis,
    normalize_degrees,
    rotate,
    singular_columns,
    sparse_product,
)
from shortlist.models.search_space import Range, Space
from shortlist.recommend.request import Factors, RecommendRequest, Scores
from shortlist.recommend.retrieval import ItemIndexCache
from shortlist.types import Doubles, Floats, Ints

N_ITERATIONS = 2  # of the subspace iteration for the start
ROWS = 64  # vectors that a thread solves at a time
UNOBSERVED, MAX_UNOBSERVED = 400.0, 1.0  # of unobserved=None
STEPS = (2, 1e-3)  # of conjugate gradients in an epoch, at most, and the share of the residual where they end
FOLD_IN = (100, 1e-4)  # the same for users at the end, and for new ones
NOTHING = read_only(np.zeros((0, 0), np.float32))
MAX_SIZE = 1e12  # of a number in a file
KEYS = 20_080_115  # seed of the numbers that stand for items in fingerprints of histories


@dataclass(frozen=True, eq=False)
class ALSVectors:
    """What ALS learned, read-only."""

    items: Annotated[Floats, Shape("history.n_items", "n_factors"), Within(MAX_SIZE)]
    users: Annotated[Floats, Shape("n_learned", "n_factors"), Within(MAX_SIZE)]
    # of the histories that the vectors of users were solved for
    prints: Annotated[Doubles, Shape("n_learned")]

    def __post_init__(self) -> None:
        self.items.flags.writeable = self.users.flags.writeable = self.prints.flags.writeable = False

    @cached_property
    def squares(self) -> Doubles:
        """(n_factors,) sums of the squares of the items, in whose basis sums of products are 0."""
        return np.asarray(np.square(self.items, dtype=np.float64).sum(axis=0))

    @cached_property
    def mean_user(self) -> Floats:
        """(n_factors,) of users with a history: the vector of users without one."""
        active = self.users[self.prints != 0]
        if not len(active):
            return np.zeros(self.items.shape[1], np.float32)
        mean: Floats = active.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean


@dataclass(frozen=True, eq=False, kw_only=True)
class ALSState(ModelState):
    """The vectors; those of users whose history has changed are solved anew with every request."""

    vectors: ALSVectors
    index: Annotated[ItemIndexCache, NotStored()] = field(default_factory=ItemIndexCache)


def history_prints(matrix: csr_array) -> Doubles:
    """(n_users,) a number per row that changes when the row does; 0 for an empty row."""
    keys = np.random.Generator(np.random.PCG64(KEYS)).random(matrix.shape[1]) + 0.5
    owner = row_owners(matrix.indptr)
    amount = keys[matrix.indices] * matrix.data
    return np.asarray(np.bincount(owner, weights=amount, minlength=matrix.shape[0]), np.float64)


class HalfStep(NamedTuple):
    """What solves the vectors of rows: those of the columns, and how exactly."""

    vectors: Floats  # (n_columns, width) in a basis without sums of products
    gram: Floats  # (width,) unobserved · sums of their squares
    basis: Floats  # (width, width) that turns start values into that basis, or NOTHING: they are 0
    base: float  # weight of all unobserved pairs of a row
    n_steps: int
    tolerance: float


@dataclass(kw_only=True, eq=False, repr=False)
class ALS(MatrixModel):
    """Matrix factorization of implicit feedback by alternating least squares.

    The vectors w of users and v of items minimize Σ c (1 − w·v)² over the pairs in the data, plus
    `unobserved` · Σ (w·v)² over all pairs, plus an L2 penalty that grows with the number of pairs of a
    user or item (`reg`, `reg_power`). Items and users are solved in turn, from about the first singular
    vectors on. Before, both are rotated so that the sums over all pairs have no mixed terms: then a user
    with few items is solved exactly by a system of that size, others by steps of conjugate gradients.

    The vector of a user follows from the user's history in closed form. `observe` and sessions therefore
    change lists at once; the vectors of items stay.

    Parameters
    ----------
    n_factors
        Length of the user and item vectors. Memory and time are used in steps of 32.
    n_epochs
        Number of times that items and users are solved.
    unobserved
        Weight of the pairs that are not in the data, whose scores should be 0. None: 400 / n_items, at most
        1, which was about the best on MovieLens-100K and 1M, Online Retail, Ta-Feng (all without times),
        Last.fm and CiteULike-t, with 1,682 to 25,975 items.
    reg
        Strength of the L2 penalty.
    reg_power
        The penalty of a user is reg · (c of the user's pairs + unobserved · n_items) ^ reg_power, and that of
        an item likewise. 1 makes it proportional to the number of squared errors, 0 the same for all.
    seed
        The same seed gives the same model, bit for bit, on any number of threads.
    weighting, weight_cap
        As in `Popularity`. The confidence c of a pair is 1 with "none", otherwise the sum of its rows. Pairs
        whose sum is negative, such as dislikes, should score 0, with the confidence of their absolute value.

    References
    ----------
    Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008.
    Takács, Pilászy and Tikk, "Applications of the Conjugate Gradient Method for Implicit Feedback
    Collaborative Filtering", RecSys 2011.
    Rendle et al., "Revisiting the Performance of iALS on Item Recommendation Benchmarks", RecSys 2022.

    Examples
    --------
    >>> model = sl.ALS(n_factors=32, seed=7).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(["u1", "u2"], N=5)
    """

    search_space: ClassVar[Space] = {
        "n_factors": (128, 256, 512),
        "unobserved": Range(0.003, 0.5),
        "reg": Range(2e-3, 0.05),
    }
    warmup_params: ClassVar[dict[str, Any]] = {"n_factors": 32, "n_epochs": 1}

    n_factors: Dimensions = 256
    n_epochs: Count = 6
    unobserved: NotNegative | None = None
    reg: Positive = 0.01
    reg_power: NotNegative = 1.0
    seed: Seed = 0

    # ------------------------------------------------------------------ learning
    def _learn(self, train: Interactions, options: FitOptions) -> ALSState:
        matrix = confidence_matrix(train, self.weight_transform)
        columns = csr_array(matrix.T)
        columns.sort_indices()
        users, weight = self._start(matrix), self._weight(train.n_items)
        items = np.zeros((train.n_items, users.shape[1]), np.float32)
        for epoch in range(self.n_epochs):
            half = self._half_step(users, weight, STEPS)
            users = half.vectors
            self._solve(columns, half, items)
            half = self._half_step(items, weight, STEPS if epoch < self.n_epochs - 1 else FOLD_IN)
            items = half.vectors
            self._solve(matrix, half, users)
        if not (np.isfinite(items).all() and np.isfinite(users).all()):
            raise TrainingError("the vectors are no longer finite; lower the weights or raise reg.")
        n = self.n_factors
        items, users = np.ascontiguousarray(items[:, :n]), np.ascontiguousarray(users[:, :n])
        return ALSState(history=History.of(train), vectors=ALSVectors(items, users, history_prints(matrix)))

    def _start(self, matrix: csr_array) -> Floats:
        """Initial vectors of users: about the first left singular vectors of the normalized matrix."""
        by_item = csr_array(normalize_degrees(matrix).T)
        users = singular_columns(by_item, self.n_factors, N_ITERATIONS, self.seed)
        turned = sparse_product(by_item, users)
        users = rotate(users, find_basis(turned, self.n_factors)[0])
        return np.asarray(users * np.float32(np.sqrt(len(users) / self.n_factors)), np.float32)

    def _weight(self, n_items: int) -> float:
        """Weight of an unobserved pair after training with so many items."""
        if self.unobserved is not None:
            return float(self.unobserved)
        return min(UNOBSERVED / n_items, MAX_UNOBSERVED)

    def _half_step(self, fixed: Floats, weight: float, limits: tuple[int, float]) -> HalfStep:
        """What solves the other side, given vectors, which are rotated."""
        basis, squares = find_basis(fixed, self.n_factors)
        turned, gram = rotate(fixed, basis), (weight * squares).astype(np.float32)
        return HalfStep(turned, gram, basis, weight * len(fixed), *limits)

    def _user_step(self, state: ALSVectors) -> HalfStep:
        """What solves users from their histories."""
        weight = self._weight(len(state.items))
        gram = (weight * state.squares).astype(np.float32)
        return HalfStep(state.items, gram, NOTHING, weight * len(state.items), *FOLD_IN)

    def _solve(self, matrix: csr_array, half: HalfStep, vectors: Floats) -> None:
        """Update the vectors of the rows of a matrix; rows are solved alone, so slices change nothing."""
        indptr, penalty = matrix.indptr.astype(np.int64), read_only(self._penalties(matrix, half.base))
        columns = read_only(matrix.indices.astype(np.int32))
        confidence = read_only(matrix.data.astype(np.float32))
        fixed, basis = FixedSide(read_only(half.vectors), read_only(half.gram)), read_only(half.basis)
        limits = half.n_steps, np.float32(half.tolerance)

        def solve(rows: slice) -> None:
            first, last = indptr[rows.start], indptr[rows.stop]
            at = read_only(indptr[rows.start : rows.stop + 1] - first)
            pairs = ConfidenceRows(at, columns[first:last], confidence[first:last])
            solve_rows(pairs, fixed, penalty[rows], basis, *limits, vectors[rows])

        map_slices(solve, len(vectors), ROWS)

    def _penalties(self, matrix: csr_array, base: float) -> Floats:
        """(n,) the L2 penalty of each row."""
        owner = row_owners(matrix.indptr)
        totals = np.bincount(owner, weights=np.abs(matrix.data), minlength=matrix.shape[0])
        sizes = totals + base
        # above 0, so that the vector of a row without pairs is 0
        return np.asarray(np.maximum(self.reg * sizes**self.reg_power, 1e-9), np.float32)

    # ------------------------------------------------------------------ scores
    def score(self, request: RecommendRequest[ALSState]) -> Scores:
        """Inner products of the vectors of users and items."""
        state = request.state
        users = self._user_vectors(state.vectors, request)
        return Scores(factors=Factors(users, state.vectors.items, None, state.index))

    def _user_vectors(self, state: ALSVectors, request: RecommendRequest[Any]) -> Floats:
        """(n, n_factors) learned vectors where the history is the learned one, solved ones elsewhere."""
        matrix = confidence_matrix(request.history, self.weight_transform)
        vectors = np.tile(state.mean_user, (len(request), 1))
        prints, learned = history_prints(matrix), np.zeros(len(request), np.bool_)
        if not request.is_session:
            numbers = np.flatnonzero((request.users >= 0) & (request.users < len(state.users)))
            numbers = numbers[state.prints[request.users[numbers]] == prints[numbers]]
            vectors[numbers] = state.users[request.users[numbers]]
            learned[numbers] = True
        active = row_lengths(matrix.indptr) > 0
        vectors[~active] = state.mean_user
        new = np.flatnonzero(active & ~learned)
        if new.size:
            solved = np.zeros((new.size, self.n_factors), np.float32)
            self._solve(csr_array(matrix[new]), self._user_step(state), solved)
            vectors[new] = solved
        return vectors

    def batch_size(self, state: ALSState) -> int:
        """Large, because dense scores are not needed."""
        return MAX_BATCH

    def _shares(self, state: ALSState, row: csr_array, items: Ints) -> Doubles:
        return self._vector_shares(state.vectors, row, items)

    def _vector_shares(self, learned: ALSVectors, row: csr_array, items: Ints) -> Doubles:
        """Amounts that add up to the scores (Hu et al., 2008, section 5)."""
        vectors = learned.items.astype(np.float64)
        liked, weight = vectors[row.indices], np.abs(row.data.astype(np.float64))
        step = self._user_step(learned)
        system = np.diag(step.gram.astype(np.float64) + float(self._penalties(row, step.base)[0]))
        system += (liked.T * weight) @ liked
        similar = vectors[items] @ np.linalg.solve(system, liked.T)
        shares: Doubles = (similar * (weight * (row.data > 0))).T
        return shares

    def _item_vectors(self, state: ALSState) -> Floats | None:
        return state.vectors.items
