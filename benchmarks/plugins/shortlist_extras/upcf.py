"""UPCF: frequencies in the last baskets of the user and of similar users (Faggioli et al., 2020)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array, diags_array

from shortlist.core.options import Count, NotNegative, Probability
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.models.base import FitOptions, ModelState, Recommender
from shortlist.models.matrix import membership
from shortlist.models.search_space import Space
from shortlist.models.weighting import baskets_since
from shortlist.recommend.request import Contributions, RecommendRequest, Scores, largest_first
from shortlist.types import Bools, Doubles, Ints

BLOCK = 512  # users compared with all others at once


def recent_frequencies(data: Interactions, window: int | None) -> csr_array:
    """(n_users, n_items) share of the user's last baskets with the item; entries as in data.item_sets."""
    n_baskets = np.diff(data.user_baskets)
    used = (n_baskets if window is None else np.minimum(n_baskets, window))[data.user]
    share = np.where(baskets_since(data) < used, 1.0 / np.maximum(used, 1), 0.0)
    rows = csr_array((share, data.item, data.indptr), shape=(data.n_users, data.n_items), copy=True)
    rows.sum_duplicates()
    return rows


@dataclass(frozen=True, eq=False, kw_only=True)
class UPCFState(ModelState):
    """The matrices of all users; built from the history when they are first needed."""

    window: Count | None

    @cached_property
    def frequencies(self) -> csr_array:
        """(n_users, n_items) share of the last baskets with the item."""
        return recent_frequencies(self.history.merged, self.window)

    @cached_property
    def members(self) -> csr_array:
        """(n_users, n_items) 1 for every item of the user."""
        return membership(self.history.merged)


@dataclass(kw_only=True, eq=False, repr=False)
class UPCF(Recommender):
    """Sum the item frequencies of similar users in their last baskets, weighted by similarity.

    The similarity of users u and v with item sets I is |I_u ∩ I_v| / (|I_u|^alpha · |I_v|^(1 − alpha)), and 1
    for u itself. score(u, i) = Σ_v similarity(u, v)^locality · (share of the last baskets of v with item i),
    over the user and the nearest `n_neighbors` others.

    Parameters
    ----------
    window
        Number of last baskets that count; None counts all.
    n_neighbors
        How many similar users to sum over.
    alpha
        Asymmetry of the similarity, between 0 and 1; 0.5 is the cosine.
    locality
        Power of the similarity. Large values make near users count much more than far ones.

    References
    ----------
    Faggioli, Polato and Aiolli, "Recency Aware Collaborative Filtering for Next Basket Recommendation",
    UMAP 2020 (UP-CF).

    Examples
    --------
    >>> from shortlist_extras import UPCF
    >>> model = UPCF(n_neighbors=50).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    answers_past: ClassVar[bool] = False  # neighbors have their later baskets, too
    search_space: ClassVar[Space] = {
        "window": (1, 5, 25, 100, None),
        "n_neighbors": (10, 100, 300, 900),
        "alpha": (0.0, 0.25, 0.5, 0.75, 1.0),
        "locality": (1.0, 5.0, 10.0, 50.0),
    }

    window: Count | None = 5
    n_neighbors: Count = 100
    alpha: Probability = 0.25
    locality: NotNegative = 5.0

    def _learn(self, train: Interactions, options: FitOptions) -> UPCFState:
        return UPCFState(history=History.of(train), window=self.window)

    def score(self, request: RecommendRequest[UPCFState]) -> Scores:
        """The weighted frequencies of the user and of similar users."""
        mine, others = self._parts(request)
        return Scores(values=(mine + others).astype(np.float32))

    def _parts(self, request: RecommendRequest[UPCFState]) -> tuple[Doubles, Doubles]:
        """(n, n_items) the frequencies of the users themselves, and the weighted ones of similar users."""
        state = request.state
        mine, members = recent_frequencies(request.history, state.window), membership(request.history)
        others = np.zeros((len(request), state.history.n_items))
        for start in range(0, len(request), BLOCK):
            block = slice(start, start + BLOCK)
            users = None if request.is_session else request.users[block]
            weights = self._similarities(state, members[block], users)
            others[block] = (weights @ state.frequencies).toarray()
        return mine.toarray(), others

    def _similarities(self, state: UPCFState, members: csr_array, users: Ints | None) -> csr_array:
        """(n, n_users) similarity^locality of the nearest users, the users themselves left out."""
        sizes = np.diff(members.indptr).astype(np.float64)
        all_sizes = np.diff(state.members.indptr).astype(np.float64)
        scale = diags_array(_power(sizes, -self.alpha)) @ (members @ state.members.T)
        dense = (scale @ diags_array(_power(all_sizes, self.alpha - 1))).toarray()
        if users is not None:
            dense[np.arange(users.size), users] = 0.0
        keep = _largest(dense, self.n_neighbors)
        return csr_array(np.where(keep, dense**self.locality, 0.0))

    def contributions(self, request: RecommendRequest[UPCFState], items: Ints) -> Contributions:
        """The parts of the user's own baskets and of similar users."""
        mine, others = self._parts(request)
        both = np.stack([mine[0, items], others[0, items]], axis=1)
        return [largest_first(["own baskets", "similar users"], row) for row in both]


def _power(sizes: Doubles, exponent: float) -> Doubles:
    """sizes ** exponent; 0 for users without items."""
    return np.where(sizes > 0, np.maximum(sizes, 1.0) ** exponent, 0.0)


def _largest(values: Doubles, k: int) -> Bools:
    """(n, n_users) whether a value is one of the k largest positive ones of its row."""
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    keep = np.zeros(values.shape, np.bool_)
    np.put_along_axis(keep, order, True, axis=1)
    return keep & (values > 0)
