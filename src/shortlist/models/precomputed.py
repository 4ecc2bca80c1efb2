"""PrecomputedScores: the scores of another ranker behind the interface of a model."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from shortlist.core.codec import MayBeNaN, NotStored, Shape, Sparse, file_error
from shortlist.core.options import AtLeast
from shortlist.core.ragged import row_owners
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import MAX_BATCH, FitOptions, ModelState, Recommender
from shortlist.models.matrix import membership
from shortlist.recommend.request import Contributions, Factors, RecommendRequest, Scores
from shortlist.recommend.retrieval import ItemIndexCache
from shortlist.types import Floats, Ints

StoredScores = (
    Annotated[npt.NDArray[Any], Shape("n_scored", "history.n_items"), MayBeNaN()]
    | Annotated[csr_array, Sparse(None), Shape("n_scored", "history.n_items"), MayBeNaN()]
    | tuple[
        Annotated[Floats, Shape("n_scored", "n_factors"), MayBeNaN()],
        Annotated[Floats, Shape("history.n_items", "n_factors"), MayBeNaN()],
    ]
)
NEIGHBORS = 100  # users whose scores are averaged for a session


@dataclass(frozen=True, eq=False, kw_only=True)
class PrecomputedState(ModelState):
    """The scores, in the form in which they were given."""

    n_scored: Annotated[int, AtLeast(1)]  # users with scores; users that `observe` added follow them
    scores: StoredScores  # or a function, which cannot be saved
    index: Annotated[ItemIndexCache | None, NotStored()] = None

    def _check_loaded(self) -> None:
        """Raise ModelFileError if more users have scores than the history has."""
        if self.n_scored > self.history.n_users:
            raise file_error("n_scored", f"must be at most {self.history.n_users}, got {self.n_scored}")

    @cached_property
    def users_by_item(self) -> Any:
        """(n_scored, n_items) in CSC form: 1 where the user has the item."""
        scored = np.arange(self.n_scored, dtype=np.int32)
        return membership(self.history.rows_of(scored)).tocsc()


@dataclass(kw_only=True, eq=False, repr=False)
class PrecomputedScores(Recommender):
    """Use the scores of any ranker; `fit` only checks them against the data.

    Rows and columns follow the id tables of the data given to `fit` (`data.users`, `data.items`). Lists for
    users that the ranker never scored (`recommend(history=…)`, or added by `observe`) are the mean of the
    scores of known users with the most items in common.

    Parameters
    ----------
    scores
        A dense (n_users, n_items) array; a SciPy matrix, whose stored entries are the candidates; a pair
        (user factors, item factors); or a function from an array of user indices to (n, n_items) scores.

    Examples
    --------
    >>> data = sl.load_dataset("sample")
    >>> scores = np.random.default_rng(0).random((data.n_users, data.n_items))
    >>> model = sl.PrecomputedScores(scores=scores).fit(data)
    >>> lists = model.recommend(N=5)
    """

    uses_new_items: ClassVar[bool] = False
    has_flags: ClassVar[bool] = False

    scores: Annotated[Any, NotStored()] = None  # the state has them

    def _check_together(self) -> None:
        if self.scores is not None:
            self._shape()

    def _learn(self, train: Interactions, options: FitOptions) -> PrecomputedState:
        shape = self._shape()
        if shape is not None and shape != (train.n_users, train.n_items):
            raise DataError(
                f"scores must be {train.n_users} users × {train.n_items} items like the data, got {shape}; "
                "order them like data.users.values and data.items.values."
            )
        return _build_state(train, self.scores)

    def _shape(self) -> tuple[int, int] | None:
        scores: Any = self.scores
        if callable(scores):
            return None
        if isinstance(scores, tuple):
            pair = len(scores) == 2 and np.ndim(scores[0]) == 2
            if not pair or np.shape(scores[0])[1:] != np.shape(scores[1])[1:]:
                raise ConfigError(
                    "a factor pair must be two 2-D arrays with the same number of columns, got shapes "
                    f"{[np.shape(factors) for factors in scores]}; pass (user factors, item factors)."
                )
            return len(scores[0]), len(scores[1])
        if issparse(scores) or (isinstance(scores, np.ndarray) and scores.ndim == 2):
            n_users, n_items = cast(Any, scores).shape
            return n_users, n_items
        raise ConfigError(
            "scores must be a 2-D array, a SciPy matrix, a factor pair or a function, "
            f"got {type(scores).__name__}."
        )

    def batch_size(self, state: PrecomputedState) -> int:
        """Large for factor pairs, which need no dense scores."""
        return MAX_BATCH if isinstance(state.scores, tuple) else super().batch_size(state)

    def score(self, request: RecommendRequest[PrecomputedState]) -> Scores:
        """The given scores; entries that a sparse matrix does not store are -inf, that is, never shown."""
        state, users = request.state, request.users
        unscored = request.rows if request.is_session else request.rows[users >= state.n_scored]
        if unscored.size:
            values = np.empty((len(request), state.history.n_items), np.float32)
            values[unscored] = self._neighbor_scores(request, unscored)
            scored = np.setdiff1d(request.rows, unscored)
            values[scored] = self._dense(state, users[scored])
            return Scores(values=values)
        if isinstance(state.scores, tuple):
            user, item = state.scores
            return Scores(factors=Factors(user[users], item, None, state.index))
        return Scores(values=self._dense(state, users))

    def _dense(self, state: PrecomputedState, users: Ints) -> Floats:
        """(n, n_items) scores of known users."""
        if isinstance(state.scores, tuple):
            return np.asarray(state.scores[0][users] @ state.scores[1].T, np.float32)
        if issparse(state.scores):
            rows = cast(Any, state.scores)[users]
            dense = np.full(rows.shape, -np.inf, np.float32)
            dense[row_owners(rows.indptr), rows.indices] = rows.data
            return dense
        rows = state.scores(users) if callable(state.scores) else state.scores[users]
        try:
            block = np.asarray(rows, np.float32)
        except (TypeError, ValueError):
            raise DataError(
                f"the function must return an array of numbers, got a {type(rows).__name__} of others; "
                "return one row of scores per user."
            ) from None
        if block.shape != (users.size, state.history.n_items):
            raise DataError(
                f"the function must return {users.size} × {state.history.n_items} scores, got {block.shape}; "
                "return one row per user and one column per item."
            )
        return block

    def _neighbor_scores(self, request: RecommendRequest[PrecomputedState], rows: Ints) -> Floats:
        """(n, n_items) for users without scores, the mean of the users with the most items in common."""
        scores = np.full((rows.size, request.state.history.n_items), -np.inf, np.float32)
        users_by_item = request.state.users_by_item
        sets = request.history.item_sets
        for row, user in enumerate(rows):
            common = np.asarray(users_by_item[:, sets.row(user)].sum(axis=1)).ravel()
            nearest = np.flatnonzero(common == common.max(initial=0))[:NEIGHBORS].astype(np.int32)
            if common.max(initial=0) > 0:
                scores[row] = self._dense(request.state, nearest).mean(axis=0)
        return scores

    def contributions(self, request: RecommendRequest[PrecomputedState], items: Ints) -> Contributions:
        """The given score, undivided."""
        scores = self.score(request).dense(request.state.history.n_items)[0, items]
        return [[("precomputed score", float(value))] for value in scores]

    def _item_vectors(self, state: PrecomputedState) -> Floats | None:
        return state.scores[1] if isinstance(state.scores, tuple) else None

    def _state_fields(self, state: PrecomputedState) -> dict[str, Any]:
        if callable(state.scores):
            raise ConfigError(
                "scores given as a function cannot be saved; save the array it returns instead."
            )
        return super()._state_fields(state)

    def _build_state(self, learned: dict[str, Any]) -> PrecomputedState:
        state = _build_state(learned["history"].merged, learned["scores"])
        vars(self)["scores"] = state.scores
        return state


def _build_state(data: Interactions, scores: Any) -> PrecomputedState:
    """Factors are copied and made read-only, so that an index over them stays valid."""
    history = History.of(data)
    if isinstance(scores, tuple):
        user, item = np.ascontiguousarray(scores[0], np.float32), np.array(scores[1], np.float32)
        item.flags.writeable = False
        pair, index = (user, item), ItemIndexCache()
        return PrecomputedState(history=history, scores=pair, n_scored=len(user), index=index)
    matrix = csr_array(cast(Any, scores)) if issparse(scores) else scores
    n_scored = data.n_users if callable(scores) else matrix.shape[0]
    return PrecomputedState(history=history, scores=matrix, n_scored=n_scored)


def from_implicit(model: Any, train: Interactions) -> PrecomputedScores:
    """Wrap a fitted factor model of the implicit library.

    Parameters
    ----------
    model
        A fitted ALS, BPR or LMF model, trained on `train.to_csr()`.
    train
        The interactions it was trained on.

    Returns
    -------
    A fitted model with implicit's scores.

    Raises
    ------
    ConfigError
        If the model has no factors.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = sl.load_dataset("sample")
    >>> rng = np.random.default_rng(0)
    >>> other = SimpleNamespace(
    ...     user_factors=rng.random((data.n_users, 4)), item_factors=rng.random((data.n_items, 4)))
    >>> lists = sl.from_implicit(other, data).recommend(N=5)
    """
    pair = []
    for name in ("user_factors", "item_factors"):
        values = getattr(model, name, None)
        if values is None:
            raise ConfigError(
                f"from_implicit needs a fitted factor model (ALS, BPR, LMF), got {type(model).__name__} "
                f"without {name}; fit it first, or pass its scores to PrecomputedScores."
            )
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
        pair.append(np.array(values, np.float32))
    return PrecomputedScores(scores=(pair[0], pair[1])).fit(train)
