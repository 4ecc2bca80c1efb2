"""ContentProfile: recommends items whose content resembles the items of the user's history."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array, hstack, vstack

from shortlist.content.matrices import pack_matrix, resize_matrix, to_rows, unpack_matrix
from shortlist.content.space import FeatureSpace, align_rows, extend_items
from shortlist.core.checks import check_array, check_float_value
from shortlist.core.estimator import MAX_SEED, check_fraction, check_number, check_whole
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.models.content.neighbors import (
    find_neighbors,
    keep_largest,
    neighborhood_rows,
    normalize_readers,
)
from shortlist.models.content.queries import Catalog, ProfileRules, build_queries
from shortlist.models.content.weights import LearnedWeights, learn_weights
from shortlist.models.contract import FitOptions, ModelState
from shortlist.models.new_items import NAMES, ContentRecommender
from shortlist.models.weighting import WeightParams
from shortlist.recommend.explain import Contributions, largest_first
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.recommend.sparse import SparseItems, SparseScores
from shortlist.types import Ints, Longs

MAX_BATCH = 512  # users at once; their profiles are sparse


@dataclass(frozen=True, eq=False, kw_only=True)
class ContentState(ModelState):
    """The features of all items, their nearest items, and how much each field counts."""

    space: FeatureSpace
    content: csr_array  # (n_items, n_features)
    neighbors: csr_array  # (n_items, n_items) similarity to the nearest items
    weights: LearnedWeights

    @cached_property
    def catalog(self) -> Catalog:
        """What profiles are made of."""
        history = self.history.merged
        return Catalog(self.space, self.content, normalize_readers(*history.item_sets, history.n_items))

    @cached_property
    def items(self) -> SparseItems:
        """(n_items, n_features + n_items) content and neighborhood of every item."""
        near = neighborhood_rows(self.neighbors, None, self.neighbors.shape[0])
        return SparseItems.of(csr_array(hstack([self.content, near], format="csr", dtype=np.float32)))

    def with_history(self, history: History) -> "ContentState":
        """The same items, and new ones without content, with another history."""
        n_new = history.n_items - self.content.shape[0]
        longer = replace(
            self,
            history=history,
            content=resize_matrix(self.content, n_new, 0),
            neighbors=resize_matrix(self.neighbors, n_new, n_new),
        )
        if not n_new and "items" in vars(self):
            vars(longer)["items"] = self.items  # the index stays
        return longer


@dataclass(kw_only=True, eq=False, repr=False)
class ContentProfile(WeightParams, ContentRecommender):
    """Recommend items whose words and attributes resemble the user's items; new items need no interactions.

    Words are weighted by TF-IDF, categories and tags by how rare they are; numbers and dates are placed
    between the deciles of all items; vectors are compared by their cosine. A profile is the sum of the user's
    items. How much each field counts is learned from the training data, as is the neighborhood: what users
    with common items interacted with, among the items with similar content. An item that shares nothing with
    the profile is never recommended.

    Parameters
    ----------
    decay
        How much an item of the user's history counts one basket later.
    damping
        Exponent of the summed features: below 1, a word that many items of the history share counts less, as
        does an item that many users with common items interacted with.
    n_neighbors
        How many items with similar content stand for an item: it is also recommended to users whose neighbors
        (users with common items) interacted with those. 0 uses the content alone. Finding them takes one
        search per item.
    weighting, weight_cap
        As in `Popularity`: whether rows count by their weight. A row of negative weight makes similar items
        less likely.
    seed
        Seed of the sample that the weights of the fields are learned from.

    References
    ----------
    Salton and Buckley, "Term-weighting approaches in automatic text retrieval", 1988. Singhal, Buckley and
    Mitra, "Pivoted document length normalization", SIGIR 1996.

    Examples
    --------
    >>> import polars as pl
    >>> data = sl.load_dataset("sample")
    >>> table = pl.DataFrame({"item_id": data.items.values}).with_columns(
    ...     pl.lit("aisle ") .add((pl.int_range(pl.len()) % 5).cast(pl.String)).alias("text")
    ... )
    >>> model = sl.ContentProfile().fit(data, items=table)
    >>> new = pl.DataFrame({"item_id": ["new"], "text": ["aisle 3"]})
    >>> lists = model.add_items(new).recommend(candidates=["new"], N=1)
    """

    decay: float = 1.0
    damping: float = 0.7
    n_neighbors: int = 40
    seed: int = 0

    def _check_params(self) -> None:
        check_fraction(decay=self.decay)
        check_number(0, damping=self.damping)
        if self.damping > 1:
            raise ConfigError(f"damping must lie between 0 and 1, got {self.damping}; 0.7 is usual.")
        check_whole(0, n_neighbors=self.n_neighbors)
        self.weight_transform.check()
        check_whole(0, MAX_SEED, seed=self.seed)

    @property
    def _rules(self) -> ProfileRules:
        return ProfileRules(self.decay, self.damping, self.weight_transform)

    # ------------------------------------------------------------------ learning
    def _learn(self, train: Interactions, options: FitOptions) -> ContentState:
        items = options.items
        if items is None:
            if train.item_names is None:
                raise ConfigError(
                    "ContentProfile needs the content of items, got none; call fit(train, items=items) with "
                    "sl.Items, a table or sl.read_items('items.parquet').",
                    parameter="items",
                )
            names = pl.DataFrame({"item_id": train.items.values, NAMES: train.item_names})
            items = Items.from_frame(names, text=[NAMES])
        space, features = FeatureSpace.fit(items)
        history = extend_items(History.of(train), items)
        content = align_rows(features, items.ids.align(history.items))
        return self._build_state(history.merged, space, content)

    def _build_state(self, train: Interactions, space: FeatureSpace, content: csr_array) -> ContentState:
        k, warm = self.n_neighbors, np.flatnonzero(train.item_counts)
        everything = np.arange(train.n_items, dtype=np.int32)
        neighbors = find_neighbors(content, everything, warm, k + k // 2)  # some are hidden while learning
        catalog = Catalog(space, content, normalize_readers(*train.item_sets, train.n_items))
        weights = learn_weights(train, catalog, neighbors, k, self._rules, self.seed)
        near = keep_largest(neighbors, k)
        history = History.of(train)
        return ContentState(history=history, space=space, content=content, neighbors=near, weights=weights)

    def _learn_more(
        self, state: ContentState, more: Interactions, options: FitOptions, n_epochs: int | None
    ) -> ContentState:
        joined = state.history.merged.concat(more)
        rows = state.history.items.align(joined.items)
        return self._build_state(joined, state.space, align_rows(state.content, rows))

    def _add_history(self, state: ContentState, history: Interactions, users: Ints) -> ContentState:
        return state.with_history(History.of(history))

    def _observe(self, state: ContentState, history: History, new: NewRows) -> ContentState:
        return state.with_history(history)

    def _space(self, state: ContentState) -> FeatureSpace:
        return state.space

    def _with_items(self, state: ContentState, items: Items, history: History) -> ContentState:
        return self._with_content(state.with_history(history), items)

    def _with_content(self, state: ContentState, items: Items) -> ContentState:
        """The state with the content of these items, all of which it knows."""
        rows = state.history.items.align(items.ids)
        place = np.arange(state.history.n_items, dtype=np.int32)
        place[rows] = state.history.n_items + np.arange(len(items), dtype=np.int32)
        fresh = state.space.transform(items)
        content = align_rows(csr_array(vstack([state.content, fresh], format="csr")), place)
        warm = np.flatnonzero(state.history.totals.item_counts)
        near = find_neighbors(content, rows, warm, self.n_neighbors)
        neighbors = align_rows(csr_array(vstack([state.neighbors, near], format="csr")), place)
        return replace(state, content=content, neighbors=neighbors)

    # ------------------------------------------------------------------ serving
    def batch_size(self, state: ContentState) -> int:
        return MAX_BATCH

    def score(self, request: RecommendRequest[ContentState]) -> Scores:
        """The similarity of every item to the profile, as sparse vectors."""
        state = request.state
        shift = state.weights.shift(np.diff(request.history.item_sets[0]))
        return Scores(sparse=SparseScores(to_rows(self._queries(request)), state.items), log_odds_shift=shift)

    def _queries(self, request: RecommendRequest[ContentState]) -> csr_array:
        """(n, n_columns) the profiles, each field times its weight."""
        state = request.state
        return build_queries(request.history, self._rules, state.catalog, state.weights.fields)

    def contributions(self, request: RecommendRequest[ContentState], items: Ints) -> Contributions:
        """The words, attributes and similar items that match the profile, each with its part of the score."""
        state = request.state
        query = self._queries(request)
        dense = np.zeros(query.shape[1])
        dense[query.indices] = query.data
        found: Contributions = []
        for item in items:
            row = state.items.matrix[[int(item)]]
            amounts = row.data * dense[row.indices]
            shared = row.indices[amounts != 0].astype(np.int64)
            labels, which = np.unique(self._labels(state, shared), return_inverse=True)
            parts = np.zeros(labels.size)
            np.add.at(parts, which, amounts[amounts != 0])
            found.append(largest_first(labels.tolist(), parts))
        return found

    def _labels(self, state: ContentState, columns: Longs) -> list[str]:
        """What each column means: a feature of the content, or an item that others interacted with."""
        n_features = state.space.n_features
        near = (columns[columns >= n_features] - n_features).astype(np.int32)
        others = [f"users of {name}" for name in state.history.item_labels(near)]
        return [*state.space.labels(columns[columns < n_features]), *others]

    # ------------------------------------------------------------------ files
    def _to_arrays(self, state: ContentState) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, fields = state.space.to_arrays()
        arrays |= pack_matrix("content", state.content) | pack_matrix("neighbors", state.neighbors)
        arrays["fields"] = state.weights.fields
        notes = {"intercept": state.weights.intercept, "activity": state.weights.activity}
        return arrays, notes | {"fields": fields}

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> ContentState:
        space = FeatureSpace.from_arrays(arrays, notes.get("fields"))
        fields = check_array(arrays, "fields", np.float32, (len(space.fields) + 1,), low=0, limit=1e6)
        intercept, activity = (
            check_float_value(notes, name, -1e3, 1e3) for name in ("intercept", "activity")
        )
        return ContentState(
            history=History.of(history),
            space=space,
            content=unpack_matrix("content", arrays, history.n_items, space.n_features),
            neighbors=unpack_matrix("neighbors", arrays, history.n_items, history.n_items),
            weights=LearnedWeights(fields, intercept, activity),
        )
