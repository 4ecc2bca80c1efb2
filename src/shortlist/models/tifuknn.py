"""TIFUKNN: decayed personal frequencies, mixed with those of the most similar users (Hu et al., 2020)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from shortlist.core.codec import Ascending, Shape, Sparse, Within, file_error
from shortlist.core.options import AtLeast, Count, Probability
from shortlist.core.ragged import row_owners
from shortlist.core.threads import map_slices
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions
from shortlist.kernels.sparse import SparseRows, UserVectors, score_with_neighbors
from shortlist.models.base import FitOptions, ModelState, Recommender, WeightParams
from shortlist.models.search_space import Range, Space
from shortlist.models.weighting import WeightTransform
from shortlist.recommend.request import Contributions, RecommendRequest, Scores, largest_first
from shortlist.types import Floats, Ints

MANY_USERS = 100_000  # compared with each other in about a minute; the time grows with the square
BLOCK = 256  # users that a thread compares with all others at once


class Decay(NamedTuple):
    """How older baskets count less."""

    group_size: Count
    basket_decay: Probability
    group_decay: Probability


@dataclass(frozen=True, eq=False, kw_only=True)
class TIFUKNNState(ModelState):
    """The users' vectors; those of users with new rows are computed when they are first needed."""

    decay: Decay
    transform: WeightTransform | None
    # the vectors before the last rows
    earlier: Annotated[csr_array, Sparse(np.float64), Shape("n_known_users", "n_known_items"), Within(1e30)]
    # users with other vectors than in `earlier`
    changed: Annotated[Ints, Shape("n_changed"), AtLeast(0), Ascending(strict=True)]

    def _check_loaded(self) -> None:
        """Raise ModelFileError unless every user has a vector in `earlier`, or is in `changed`."""
        (n_users, n_items), history = self.earlier.shape, self.history
        is_new = ~np.isin(np.arange(history.n_users), self.changed)
        fits = n_users <= history.n_users and n_items <= history.n_items and not is_new[n_users:].any()
        if not fits or self.changed.max(initial=0) >= history.n_users:
            raise file_error("earlier", "must have the vectors of all users that did not change")
        if not self.changed.size and n_items != history.n_items:
            raise file_error("earlier", f"must have {history.n_items} columns, got {n_items}")

    @cached_property
    def vectors(self) -> csr_array:
        """(n_users, n_items)."""
        history, n_known = self.history, self.earlier.shape[0]
        if not self.changed.size:
            return self.earlier
        fresh = user_vectors(history.rows_of(self.changed), self.decay, self.transform)
        earlier = csr_array(
            (self.earlier.data, self.earlier.indices, self.earlier.indptr), shape=(n_known, history.n_items)
        )
        row = np.arange(history.n_users)
        row[self.changed] = n_known + np.arange(self.changed.size)
        return csr_array(vstack([earlier, fresh], format="csr")[row])

    @cached_property
    def compared(self) -> UserVectors:
        """The vectors of all users, in the form in which users are compared."""
        norms = np.asarray(self.vectors.multiply(self.vectors).sum(axis=1))
        return UserVectors(sparse_rows(self.vectors), sparse_rows(csr_array(self.vectors.T)), norms)


def sparse_rows(matrix: csr_array) -> SparseRows:
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)


def user_vectors(data: Interactions, decay: Decay, transform: WeightTransform | None = None) -> csr_array:
    """(n_users, n_items); the oldest group may hold fewer baskets."""
    n_baskets, owner = data.basket_counts, row_owners(data.user_baskets)
    back = data.user_baskets[owner + 1] - 1 - np.arange(data.n_baskets)
    group = back // decay.group_size
    n_groups = -(-n_baskets // decay.group_size)
    size = np.minimum(decay.group_size, n_baskets[owner] - group * decay.group_size)
    factor = decay.basket_decay ** (back % decay.group_size) * decay.group_decay**group
    weight = (factor / size / n_groups[owner])[data.basket]
    amount = None if transform is None else transform.of_rows(data)
    if amount is not None:
        weight *= amount
    rows = csr_array((weight, data.item, data.indptr), shape=(data.n_users, data.n_items), copy=True)
    rows.sum_duplicates()
    return rows


@dataclass(kw_only=True, eq=False, repr=False)
class TIFUKNN(WeightParams, Recommender):
    """Mix the user's decayed item frequencies with the mean of those of the nearest users.

    Baskets are grouped; a user's vector is the mean of the group vectors, a group's vector the mean of its
    baskets, both decayed by age. score = own · (user's vector) + (1 − own) · (mean vector of the neighbors).

    Parameters
    ----------
    n_neighbors
        How many of the nearest users to average, by Euclidean distance.
    group_size
        Baskets per group.
    basket_decay
        How much a basket counts one basket later, within its group.
    group_decay
        How much a group counts one group later.
    own
        Weight of the user's own vector, between 0 and 1.
    weighting, weight_cap
        As in `Popularity`.

    References
    ----------
    Hu et al., "Modeling Personalized Item Frequency Information for Next-basket Recommendation", SIGIR 2020.

    Examples
    --------
    >>> model = sl.TIFUKNN(n_neighbors=50).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    answers_past: ClassVar[bool] = False  # neighbors have their later baskets, too
    is_tried_by_fit: ClassVar[bool] = True
    search_space: ClassVar[Space] = {
        "n_neighbors": (50, 100, 300, 900),
        "group_size": (1, 3, 7, 15),
        "basket_decay": Range(0.6, 1.0, log=False),
        "group_decay": Range(0.5, 1.0, log=False),
        "own": Range(0.2, 0.95, log=False),
    }

    n_neighbors: Count = 300
    group_size: Count = 7
    basket_decay: Probability = 0.9
    group_decay: Probability = 0.7
    own: Probability = 0.7

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        return f"{data.n_users:,} users are more than {MANY_USERS:,}" if data.n_users > MANY_USERS else None

    def _learn(self, train: Interactions, options: FitOptions) -> TIFUKNNState:
        decay = Decay(self.group_size, self.basket_decay, self.group_decay)
        return TIFUKNNState(
            history=History.of(train),
            decay=decay,
            transform=self.weight_transform,
            earlier=user_vectors(train, decay, self.weight_transform),
            changed=np.empty(0, np.int32),
        )

    def _observe(self, state: TIFUKNNState, history: History, new: NewRows | None) -> TIFUKNNState:
        if new is None:
            merged = history.merged
            return replace(self._learn(merged, FitOptions()), history=history)
        touched = np.union1d(new.user, new.reweighted)
        earlier, changed = state.earlier, np.union1d(state.changed, touched)
        if "vectors" in vars(state):  # computed for a request
            earlier, changed = state.vectors, touched
        return replace(state, history=history, earlier=earlier, changed=changed.astype(np.int32))

    def score(self, request: RecommendRequest[TIFUKNNState]) -> Scores:
        """The mix of own and neighbors' frequencies."""
        return Scores(values=self._mix(request, self.own, 1 - self.own))

    def _mix(self, request: RecommendRequest[TIFUKNNState], own: float, others: float) -> Floats:
        """(n, n_items) own · (users' vectors) + others · (mean vectors of the nearest other users)."""
        state = request.state
        mine = user_vectors(request.history, state.decay, state.transform)
        numbers = np.full(len(request), -1) if request.is_session else request.users.astype(np.int64)
        k = min(self.n_neighbors, state.history.n_users)
        mixed = np.empty(mine.shape, np.float32)

        def fill(block: slice) -> None:
            users = sparse_rows(mine[block])
            score_with_neighbors(users, numbers[block], state.compared, k, own, others, mixed[block])

        map_slices(fill, len(request), BLOCK)
        return mixed

    def contributions(self, request: RecommendRequest[TIFUKNNState], items: Ints) -> Contributions:
        """The parts of the user's own baskets and of the neighbors'."""
        sources = self._mix(request, self.own, 0.0), self._mix(request, 0.0, 1 - self.own)
        both = np.stack([scores[0, items] for scores in sources], axis=1)
        return [largest_first(["own baskets", "neighbors"], row) for row in both]
