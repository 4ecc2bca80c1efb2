"""Models of the content of items."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import polars as pl
from scipy.sparse import csr_array, hstack

from shortlist.content.features import (
    FeatureSpace,
    align_rows,
    extend_items,
    replace_rows,
    resize_matrix,
    to_rows,
)
from shortlist.core.codec import Shape, Within
from shortlist.core.glm import LOGISTIC, glm_fit
from shortlist.core.options import AtLeast, AtMost, Fraction, Probability, Seed, Whole
from shortlist.core.ragged import row_lengths, row_owners
from shortlist.core.threads import map_slices
from shortlist.data.history import History, NewRows
from shortlist.data.interactions import Interactions, in_last_basket
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.kernels.retrieval import top_k
from shortlist.kernels.rows import starts
from shortlist.models.base import FitOptions, ModelState, Recommender, WeightParams
from shortlist.models.matrix import item_matrix, membership, normalize_degrees
from shortlist.models.weighting import WeightTransform, decayed_counts
from shortlist.recommend.request import Contributions, RecommendRequest, Scores, largest_first
from shortlist.recommend.retrieval import Hits, SparseItems, SparseScores, top_items
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

NAMES = "item_name"  # the column of a model that knows items by their names alone
SLICE = 256  # items per task of a thread


def find_neighbors(content: csr_array, rows: Ints | Longs, allowed: Longs, k: int) -> csr_array:
    """(n_rows, n_items) similarity of these items to the k nearest `allowed` ones, perhaps themselves."""
    n_items = content.shape[0]
    if not k or not allowed.size:
        return no_entries(rows.size, n_items)
    index = SparseItems.of(content[allowed])
    postings = index.postings
    scores = SparseScores(to_rows(content[rows]), index)
    width = min(k + 1, allowed.size)
    parts = map_slices(lambda some: top_items(scores.part(some), index, postings, width), rows.size, SLICE)
    hits = Hits.concat(parts)
    owner, items, values = hits.owner, allowed[hits.items], hits.scores
    keep = (items != rows[owner]) & (values > 0)
    nearest = np.asarray(content[rows].multiply(content[rows]).sum(axis=1), np.float32)  # to itself
    np.maximum.at(nearest, owner[keep], values[keep])
    itself = np.flatnonzero(np.isin(rows, allowed) & (nearest > 0))
    entries = np.append(owner[keep], itself), np.append(items[keep], rows[itself])
    values = np.append(values[keep], nearest[itself])
    return keep_largest(csr_array((values, entries), shape=(rows.size, n_items)), k)


def no_entries(n_rows: int, n_columns: int) -> csr_array:
    """An empty matrix."""
    nothing = (np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(n_rows + 1, np.int64))
    return csr_array(nothing, shape=(n_rows, n_columns))


def keep_largest(matrix: csr_array, k: int) -> csr_array:
    """The k largest entries of every row; ties go to the smaller column."""
    indptr = matrix.indptr.astype(np.int64)
    at, columns, values = top_k(indptr, matrix.indices.astype(np.int32), matrix.data, k)
    largest = csr_array((values, columns, at), shape=matrix.shape)
    largest.sort_indices()
    return largest


def neighborhood_rows(neighbors: csr_array, allowed: Bools, k: int) -> csr_array:
    """(n_items, n_items) the k nearest allowed items of every item, in unit length."""
    keep = allowed[neighbors.indices]
    row = row_owners(neighbors.indptr)[keep]
    at = starts(np.bincount(row, minlength=neighbors.shape[0]))
    allowed_only = csr_array((neighbors.data[keep], neighbors.indices[keep], at), shape=neighbors.shape)
    near = keep_largest(allowed_only, k)
    return _in_unit_length(near, near.data.astype(np.float64))


def _in_unit_length(matrix: csr_array, values: Doubles) -> csr_array:
    """The matrix with these values instead of its own, divided by the length of their row."""
    row = row_owners(matrix.indptr)
    norms: Doubles = np.sqrt(np.bincount(row, weights=values**2, minlength=matrix.shape[0]))
    values = values / np.where(norms > 0, norms, 1)[row]
    return csr_array((values.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def expand_histories(histories: csr_array, readers: csr_array, damping: float) -> csr_array:
    """(n, n_items) what users with common items interacted with, dampened, in unit length."""
    common = csr_array(histories @ readers.T)
    expanded = csr_array(common @ readers)
    expanded.sort_indices()
    values = np.sign(expanded.data) * np.abs(expanded.data.astype(np.float64)) ** damping
    return _in_unit_length(expanded, values)


class ProfileRules(NamedTuple):
    """How a history becomes a profile."""

    decay: float  # how much an item counts one basket later
    damping: float  # exponent of the summed features
    transform: WeightTransform | None = None  # what every row counts


class Catalog(NamedTuple):
    """What profiles and items are made of; the columns are the features of the content, then the items."""

    space: FeatureSpace
    content: csr_array  # (n_items, n_features)
    readers: csr_array  # (n_users, n_items) interactions of all users, normalized

    @property
    def owner(self) -> Ints:
        """(n_columns,) the field of each column; the neighborhood counts as one more field."""
        n_fields, n_items = len(self.space.fields), self.content.shape[0]
        return np.concatenate([self.space.owner, np.full(n_items, n_fields, np.int32)])


def build_queries(
    history: Interactions,
    rules: ProfileRules,
    catalog: Catalog,
    weights: Floats,  # (n_fields + 1,) of each field and of the neighborhood
) -> csr_array:
    """(n_users, n_columns) profiles; each field has unit length times its weight."""
    rows = item_matrix(history, decayed_counts(history, rules.decay, rules.transform))
    profiles = _content_profiles(rows, rules, catalog, weights[:-1])
    if not weights[-1]:
        near = no_entries(rows.shape[0], catalog.content.shape[0])
    else:
        near = expand_histories(rows, catalog.readers, rules.damping)
        near.data *= weights[-1]
    return csr_array(hstack([profiles, near], format="csr", dtype=np.float32))


def _content_profiles(rows: csr_array, rules: ProfileRules, catalog: Catalog, weights: Floats) -> csr_array:
    """(n_users, n_features) the sum of the users' items, dampened and normalized field by field."""
    summed = csr_array(rows @ catalog.content)
    summed.sort_indices()
    values = np.sign(summed.data) * np.abs(summed.data.astype(np.float64)) ** rules.damping
    n_fields = weights.size
    row = row_owners(summed.indptr)
    key = row * n_fields + catalog.space.owner[summed.indices]
    norms: Doubles = np.sqrt(np.bincount(key, weights=values**2, minlength=summed.shape[0] * n_fields))
    scale = np.tile(weights.astype(np.float64), summed.shape[0]) / np.where(norms > 0, norms, 1)
    return csr_array(
        ((values * scale[key]).astype(np.float32), summed.indices, summed.indptr), shape=summed.shape
    )


MAX_USERS = 2000  # users to learn from
N_NEGATIVES = 300  # hidden items per user that are compared with those the user interacted with
HIDDEN_SHARE = 0.2
NEIGHBORHOOD_FACTORS = (1.0, 1.5, 2.0, 3.0)  # of the regression, which weighs easy items like hard ones
RIDGE = 1.0


class LearnedWeights(NamedTuple):
    """log-odds = fields · similarities + intercept + activity · log(1 + items of the user)."""

    # of each field and of the neighborhood
    fields: Annotated[Floats, Shape("space.n_fields + 1"), AtLeast(0), Within(1e6)]
    intercept: Annotated[float, AtLeast(-1e3), AtMost(1e3)]
    activity: Annotated[float, AtLeast(-1e3), AtMost(1e3)]

    def shift(self, n_items: Ints) -> Floats:
        """(n,) log-odds of an item that shares nothing with the user, by the size of the history."""
        log_odds: Floats = (self.intercept + self.activity * np.log1p(n_items)).astype(np.float32)
        return log_odds


class HiddenRows(NamedTuple):
    """What is hidden from the profiles of some users."""

    seen: Interactions  # the rest of the rows
    is_hidden: Bools  # (n_rows,) of the training data
    users: Longs
    pool: Longs  # items that are compared


class FieldExamples(NamedTuple):
    """Pairs of users and hidden items."""

    similarities: Doubles  # (n_pairs, n_fields + 1)
    log_items: Doubles  # (n_pairs,) log(1 + items of the user's profile)
    relevant: Bools  # (n_pairs,)
    weight: Doubles  # (n_pairs,) pairs that each stands for
    user: Longs  # (n_pairs,)


def learn_weights(
    train: Interactions, catalog: Catalog, neighbors: csr_array, k: int, rules: ProfileRules, seed: int
) -> LearnedWeights:
    """Logistic regression on hidden items; equal weights if there is nothing to learn from.

    `neighbors` has a few more than k entries per item, because those that are hidden do not count.
    """
    rng = np.random.default_rng(seed)
    hidden = _hide(train, catalog.content, rng)
    n_fields = len(catalog.space.fields) + 1
    examples = None if hidden is None else _compare(train, hidden, catalog, neighbors, k, rules, rng)
    if examples is None or not examples.relevant.any():
        rate = train.n_rows / max(train.n_users * train.n_items, 1)
        prior = float(np.log(rate / max(1 - rate, 1e-6)))
        return LearnedWeights(np.ones(n_fields, np.float32), min(prior, 0.0), 0.0)
    learned = _regress(examples, n_fields)
    best = max(NEIGHBORHOOD_FACTORS, key=lambda factor: _precision(examples, _boost(learned.fields, factor)))
    if best == 1 or not learned.fields[-1]:
        return learned
    # one regression more: the size of the scores, with the weights in the ratio that ranks best
    ratio = _boost(learned.fields, best)
    score = examples.similarities @ ratio.astype(np.float64)
    scaled = _regress(examples._replace(similarities=score[:, None]), 1)
    return scaled._replace(fields=ratio * scaled.fields[0])


def _boost(fields: Floats, factor: float) -> Floats:
    """The weights with another one of the neighborhood."""
    return np.append(fields[:-1], np.float32(factor) * fields[-1]).astype(np.float32)


def _precision(examples: FieldExamples, fields: Floats) -> float:
    """Mean average precision over users, if the sampled items stand for all: random ones are easy to rank."""
    score = examples.similarities @ fields.astype(np.float64)
    order = np.lexsort((-score, examples.user))
    user, relevant, weight = examples.user[order], examples.relevant[order], examples.weight[order]
    first = np.searchsorted(user, user)
    hits, rank = np.cumsum(relevant), np.cumsum(weight)
    hits, rank = hits - (hits - relevant)[first], rank - (rank - weight)[first]
    precision_sums = np.bincount(user, weights=np.where(relevant, hits / rank, 0.0))
    total = np.bincount(user, weights=relevant)
    return float((precision_sums[total > 0] / total[total > 0]).mean())


def _regress(examples: FieldExamples, n_fields: int) -> LearnedWeights:
    """The weights of all fields that raise the odds; the others are 0."""
    used = np.flatnonzero(examples.similarities.std(axis=0) > 0)
    while True:
        columns = np.column_stack([examples.similarities[:, used], examples.log_items])
        scale = np.maximum(columns.std(axis=0), 1e-9)
        y = examples.relevant.astype(np.float64)
        beta = glm_fit(columns / scale, y, LOGISTIC, weight=examples.weight, ridge=RIDGE)
        slopes = beta[1:] / scale
        if (slopes[:-1] > 0).all():
            break
        used = used[slopes[:-1] > 0]
    fields = np.zeros(n_fields, np.float32)
    fields[used] = slopes[:-1]
    if not used.size:
        fields[:] = 1
    return LearnedWeights(fields, float(beta[0]), float(slopes[-1]))


def _hide(train: Interactions, content: csr_array, rng: np.random.Generator) -> HiddenRows | None:
    """Hide last baskets, or a share of the items."""
    described = np.flatnonzero(row_lengths(content.indptr) > 0)
    if train.n_baskets > train.n_users:
        users = np.flatnonzero(train.basket_counts > 1)
        is_hidden, pool = in_last_basket(train), described
    else:
        pool = np.sort(rng.permutation(described)[: max(int(described.size * HIDDEN_SHARE), 1)])
        member = np.zeros(train.n_items, np.bool_)
        member[pool] = True
        is_hidden = member[train.item]
        users = np.unique(train.user[is_hidden])
    seen = train.where(~is_hidden)
    users = users[seen.user_counts[users] > 0]
    if not users.size or not pool.size:
        return None
    return HiddenRows(seen, is_hidden, np.sort(rng.permutation(users)[:MAX_USERS]), pool)


def _compare(
    train: Interactions,
    hidden: HiddenRows,
    catalog: Catalog,
    neighbors: csr_array,
    k: int,
    rules: ProfileRules,
    rng: np.random.Generator,
) -> FieldExamples:
    """The similarities of hidden items: all that a user interacted with, and a sample of the others."""
    seen = hidden.seen
    visible = catalog._replace(readers=normalize_degrees(membership(seen)))
    n_fields = len(catalog.space.fields) + 1
    chosen = np.zeros(seen.n_users, np.bool_)
    chosen[hidden.users] = True
    ones = np.ones(n_fields, np.float32)
    profiles = build_queries(seen.where(chosen[seen.user]), rules, visible, ones)
    near = neighborhood_rows(neighbors, seen.item_counts > 0, k)
    items = csr_array(hstack([catalog.content, near], format="csr", dtype=np.float32))
    owner, has_content = catalog.owner, row_lengths(catalog.content.indptr) > 0
    parts = []
    for user in hidden.users:
        at = slice(train.indptr[user], train.indptr[user + 1])
        user_items = seen.item[seen.indptr[user] : seen.indptr[user + 1]]
        positive = np.setdiff1d(train.item[at][hidden.is_hidden[at]], user_items)
        positive = positive[has_content[positive]]
        drawn = hidden.pool[rng.integers(hidden.pool.size, size=N_NEGATIVES)]
        drawn = np.setdiff1d(drawn, np.concatenate([positive, user_items]))
        pair = np.concatenate([positive, drawn])
        relevant = np.arange(pair.size) < positive.size
        others = max(hidden.pool.size - positive.size, drawn.size) / max(drawn.size, 1)
        similar = _similarities(profiles[[int(user)]], items[pair], owner, n_fields)
        size = np.full(pair.size, np.log1p(np.unique(user_items).size))
        weight, number = np.where(relevant, 1.0, others), np.full(pair.size, user, np.int64)
        parts.append(FieldExamples(similar, size, relevant, weight, number))
    return FieldExamples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _similarities(profile: csr_array, items: csr_array, owner: Ints, n_fields: int) -> Doubles:
    """(n_items, n_fields) the product of each item and the profile, field by field."""
    dense = np.zeros(items.shape[1])
    dense[profile.indices] = profile.data
    row = row_owners(items.indptr)
    values = items.data * dense[items.indices]
    key = row * n_fields + owner[items.indices]
    sums = np.bincount(key, weights=values, minlength=items.shape[0] * n_fields)
    return sums.astype(np.float64).reshape(-1, n_fields)


MAX_BATCH = 512  # users at once; their profiles are sparse


@dataclass(frozen=True, eq=False, kw_only=True)
class ContentState(ModelState):
    """The features of all items, their nearest items, and how much each field counts."""

    space: FeatureSpace
    content: Annotated[csr_array, Shape("history.n_items", "space.n_features"), Within(1e6)]
    # similarity to the nearest items
    neighbors: Annotated[csr_array, Shape("history.n_items", "history.n_items"), Within(1e6)]
    weights: LearnedWeights

    @cached_property
    def catalog(self) -> Catalog:
        """What profiles are made of."""
        history = self.history.merged
        return Catalog(self.space, self.content, normalize_degrees(membership(history)))

    @cached_property
    def items(self) -> SparseItems:
        """(n_items, n_features + n_items) content and neighborhood of every item."""
        near = _in_unit_length(self.neighbors, self.neighbors.data.astype(np.float64))
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
class ContentRecommender(Recommender):
    """Base class of the models that `fit(train, items=items)` gives the content of items."""

    uses_content: ClassVar[bool] = True

    @property
    def has_content(self) -> bool:
        """Whether the model was fitted with the content of items."""
        return self._space(self._fitted_state()) is not None

    @property
    def content_columns(self) -> tuple[str, ...]:
        """The columns of the items that `fit` got; none if it used the names of the interactions alone."""
        space = self._space(self._fitted_state())
        names = () if space is None else tuple(field.name for field in space.fields)
        return () if names == (NAMES,) else names

    def add_items(self, items: Items | Any) -> Self:
        """Add items, or new content of known ones, without learning; other threads may request lists.

        Words that no item of `fit` has are ignored.

        Parameters
        ----------
        items
            `Items`, or a table with one row per item and the same columns as in `fit`.

        Returns
        -------
        The model itself.

        Raises
        ------
        DataError
            If an id occurs twice or a column holds another kind of content than in `fit`.
        ConfigError
            If the model was fitted without the content of items.

        Examples
        --------
        >>> import polars as pl
        >>> data = sl.load_dataset("sample")
        >>> table = pl.DataFrame({"item_id": data.items.values, "color": ["red", "blue"] * 30})
        >>> model = sl.ContentProfile().fit(data, items=table)
        >>> model = model.add_items(pl.DataFrame({"item_id": ["new"], "color": ["red"]}))
        >>> "new" in model.items_
        True
        """
        with self._lock:
            state = self._fitted_state()
            space = self._space(state)
            if space is None:
                raise ConfigError(
                    f"add_items needs a model fitted with the content of items, got a {type(self).__name__} "
                    "without it; call fit(train, items=items) first.",
                    parameter="items",
                )
            content = space.read(items)
            grown = self._with_items(state, content, extend_items(state.history, content))
            if grown.groups is not None:
                grown = replace(grown, groups=grown.groups.update(items, grown.history.items))
            self._state = grown
        return self

    @abstractmethod
    def _space(self, state: Any) -> FeatureSpace | None:
        """The features of the content; None if the model was fitted without items."""

    @abstractmethod
    def _with_items(self, state: Any, items: Items, history: History) -> Any:
        """The state with the content of these items, all of which the history has."""


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

    answers_past: ClassVar[bool] = False  # similar readers have their later items, too

    decay: Fraction = 1.0
    damping: Probability = 0.7
    n_neighbors: Whole = 40
    seed: Seed = 0

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
        train = history.merged
        k, warm = self.n_neighbors, np.flatnonzero(train.item_counts)
        everything = np.arange(train.n_items, dtype=np.int32)
        neighbors = find_neighbors(content, everything, warm, k + k // 2)  # some are hidden while learning
        catalog = Catalog(space, content, normalize_degrees(membership(train)))
        weights = learn_weights(train, catalog, neighbors, k, self._rules, self.seed)
        near = keep_largest(neighbors, k)
        history = History.of(train)
        return ContentState(history=history, space=space, content=content, neighbors=near, weights=weights)

    def _observe(self, state: ContentState, history: History, new: NewRows | None) -> ContentState:
        return state.with_history(history)

    def _space(self, state: ContentState) -> FeatureSpace:
        return state.space

    def _with_items(self, state: ContentState, items: Items, history: History) -> ContentState:
        state = state.with_history(history)
        rows = state.history.items.align(items.ids)
        content = replace_rows(state.content, rows, state.space.transform(items))
        warm = np.flatnonzero(state.history.totals.item_counts)
        near = find_neighbors(content, rows, warm, self.n_neighbors)
        return replace(state, content=content, neighbors=replace_rows(state.neighbors, rows, near))

    # ------------------------------------------------------------------ serving
    def batch_size(self, state: ContentState) -> int:
        return MAX_BATCH

    def score(self, request: RecommendRequest[ContentState]) -> Scores:
        """The similarity of every item to the profile, as sparse vectors."""
        state = request.state
        shift = state.weights.shift(request.history.item_sets.lengths)
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
        contributions: Contributions = []
        for item in items:
            row = state.items.matrix[[int(item)]]
            amounts = row.data * dense[row.indices]
            shared = row.indices[amounts != 0].astype(np.int64)
            labels, which = np.unique(self._labels(state, shared), return_inverse=True)
            parts = np.zeros(labels.size)
            np.add.at(parts, which, amounts[amounts != 0])
            contributions.append(largest_first(labels.tolist(), parts))
        return contributions

    def _labels(self, state: ContentState, columns: Longs) -> list[str]:
        """What each column means: a feature of the content, or an item that others interacted with."""
        n_features = state.space.n_features
        near = (columns[columns >= n_features] - n_features).astype(np.int32)
        others = [f"users of {name}" for name in state.history.item_labels(near)]
        return [*state.space.labels(columns[columns < n_features]), *others]
