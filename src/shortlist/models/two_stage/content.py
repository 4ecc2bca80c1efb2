"""Content features of TwoStage, and new items whose content resembles what the user bought."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from scipy.sparse import csr_array, vstack

from shortlist.content.features import (
    FeatureSpace,
    Field,
    align_rows,
    resize_matrix,
    to_rows,
)
from shortlist.core.codec import MayBeNaN, Shape, Within
from shortlist.core.options import AtLeast, AtMost
from shortlist.core.ragged import ItemSets, no_sets, row_lengths, row_owners
from shortlist.data.history import MAX_TIME, History
from shortlist.data.items import Items
from shortlist.kernels.rows import starts
from shortlist.kernels.snapshot_features import DAY, LinkTable, Snapshots, UserLog
from shortlist.kernels.sparse import score_rows
from shortlist.types import Doubles, Floats, Ints, Longs

NEW_DAYS = 30  # items are new for so long after their first sale
SLOW, FAST = 0.95, 0.5  # what a basket counts one basket later: in the profile, and in the latest items
PREFIX = "content_"
ACROSS_FIELDS = ("linked", "companions")  # computed once, after the features of the fields


@dataclass(frozen=True, eq=False)
class ItemContent:
    """The content of all items: vectors that are compared, and values of numbers and dates."""

    space: FeatureSpace
    # every field in unit length
    vectors: Annotated[csr_array, Shape("history.n_items", "space.n_features"), Within(1e6)]
    # numbers and dates as they are; NaN for other fields
    values: Annotated[Doubles, Shape("history.n_items", "space.n_fields"), MayBeNaN()]
    # just after the last event of the training data
    learned_until: Annotated[int, AtLeast(-MAX_TIME), AtMost(MAX_TIME)]

    @classmethod
    def fit(cls, items: Items, history: History) -> "ItemContent":
        """The content of the items of a history, which has them all."""
        space, vectors = FeatureSpace.fit(items)
        rows = items.ids.align(history.items)
        values = _align_values(space.values(items), rows)
        return cls(space, align_rows(vectors, rows), values, history.end_time)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features, field by field."""
        by_field = (f"{PREFIX}{field.name}_{name}" for field in self.space.fields for name in _parts(field))
        return (*by_field, *(PREFIX + name for name in ACROSS_FIELDS))

    @cached_property
    def _by_field(self) -> list[csr_array]:
        """The vectors of each field."""
        edges = self.space.starts
        return [csr_array(self.vectors[:, low:high]) for low, high in pairwise(edges)]

    @cached_property
    def _compared(self) -> csr_array:
        """The vectors without numbers and dates: a similar price alone makes no candidate."""
        kinds = np.array([field.kind not in ("numbers", "dates") for field in self.space.fields])
        return csr_array(self.vectors[:, kinds[self.space.owner]])

    def resize(self, n_items: int) -> "ItemContent":
        """The same content, followed by items without any."""
        more = n_items - self.vectors.shape[0]
        if not more:
            return self
        values = np.pad(self.values, ((0, more), (0, 0)), constant_values=np.nan)
        return replace(self, vectors=resize_matrix(self.vectors, more, 0), values=values)

    def update(self, items: Items, history: History) -> "ItemContent":
        """With new items, or new content of known ones; the history has them all."""
        resized, n = self.resize(history.n_items), history.n_items
        place = np.arange(n, dtype=np.int32)
        place[history.items.align(items.ids)] = n + np.arange(len(items), dtype=np.int32)
        both = csr_array(vstack([resized.vectors, self.space.transform(items)], format="csr"))
        values = np.concatenate([resized.values, self.space.values(items)])
        return replace(self, vectors=align_rows(both, place), values=values[place])

    # ------------------------------------------------------------------ features
    def features(
        self, users: UserLog, together: LinkTable, snapshots: Snapshots, indptr: Longs, items: Ints
    ) -> Floats:
        """(n_candidates, n) features of the candidates of snapshots, which `indptr` separates."""
        slow, fast = (decayed_items(users, snapshots, decay, self.vectors.shape[0]) for decay in (SLOW, FAST))
        at = snapshots.at[row_owners(indptr)]
        columns: list[Any] = []
        for number, field in enumerate(self.space.fields):
            value = self.values[items, number]
            if field.kind == "dates":
                columns.append((at - value) / DAY)
            elif field.kind == "numbers":
                columns.append(_relative(value, self._usual(slow, number, indptr), self.values[:, number]))
            else:
                vectors = self._by_field[number]
                columns += [_similarity(shares @ vectors, vectors, indptr, items) for shares in (slow, fast)]
        columns += self._across_links(slow, together, indptr, items)
        return np.stack(columns, axis=1).astype(np.float32)

    def _across_links(
        self, shares: csr_array, together: LinkTable, indptr: Longs, items: Ints
    ) -> tuple[Floats, Floats]:
        """Similarity of a candidate to what is bought with the user's items, and the other way round.

        The other way round is the similarity of the user's items to what is bought with the candidate: 0
        if it has no sales, while the first needs none.
        """
        n, vectors = self.vectors.shape[0], self._compared
        links = csr_array((together.weight, together.other, together.starts), shape=(n, n))
        scale = 1 / np.maximum(together.total, 1.0)
        scaled = csr_array((shares.data * scale[shares.indices], shares.indices, shares.indptr), shares.shape)
        linked = _similarity(scaled @ links @ vectors, vectors, indptr, items)
        distinct, place = np.unique(items, return_inverse=True)
        companions = csr_array(links[distinct] @ vectors)
        similarity = _similarity(shares @ vectors, companions, indptr, place.astype(np.int32))
        return linked, (similarity * scale[items]).astype(np.float32)

    def _usual(self, shares: csr_array, number: int, indptr: Longs) -> Doubles:
        """(n_candidates,) the user's usual value of a field; NaN if none of the items has one."""
        values = self.values[:, number]
        has_value = np.isfinite(values)
        total = shares @ np.where(has_value, values, 0.0)
        weight = shares @ has_value.astype(np.float64)
        usual: Doubles = np.divide(total, weight, out=np.full(total.size, np.nan), where=weight > 0)
        return usual[row_owners(indptr)]

    # ------------------------------------------------------------------ candidates
    def propose(self, users: UserLog, snapshots: Snapshots, first_sales: Longs, end: int, n: int) -> ItemSets:
        """New items that resemble each user's profile most, at most n; items that the user has are left out.

        New items had their first sale within the last days. From `end` on, the end of the training data,
        items without a sale before the prediction are proposed too: earlier, it is unknown since when they
        could be bought.
        """
        earliest, latest = int(snapshots.at.min()) - NEW_DAYS * DAY, int(snapshots.at.max())
        pool = np.flatnonzero((first_sales >= earliest) & ((first_sales < latest) | (latest >= end)))
        vectors = self._compared
        pool = pool[row_lengths(vectors.indptr)[pool] > 0]
        if not pool.size:
            return no_sets(snapshots.at.size)
        slow = decayed_items(users, snapshots, SLOW, vectors.shape[0])
        scores = csr_array(slow @ vectors @ vectors[pool].T).toarray()
        age = snapshots.at[:, None] - first_sales[pool][None, :]
        is_unsold = (age <= 0) & (snapshots.at[:, None] >= end)
        is_new = is_unsold | ((age > 0) & (age <= NEW_DAYS * DAY))
        is_own = slow[:, pool].toarray() != 0
        scores[~is_new | is_own] = 0.0
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n]
        is_positive = np.take_along_axis(scores, order, axis=1) > 0
        return ItemSets(starts(is_positive.sum(axis=1)), pool[order[is_positive]].astype(np.int32))

    # ------------------------------------------------------------------ files


def _parts(field: Field) -> tuple[str, ...]:
    """What is computed for a field: two similarities, or one comparison of numbers or dates."""
    if field.kind == "dates":
        return ("days",)
    return ("relative",) if field.kind == "numbers" else ("profile", "latest")


def _align_values(values: Doubles, rows: Ints) -> Doubles:
    """The rows at these numbers; NaN for -1."""
    return np.where((rows >= 0)[:, None], values[np.maximum(rows, 0)], np.nan)


def decayed_items(users: UserLog, snapshots: Snapshots, decay: float, n_items: int) -> csr_array:
    """(n_snapshots, n_items) the share of each item in the user's history before the snapshot."""
    owner, items, values = [], [], []
    for number, (user, at) in enumerate(zip(snapshots.user.tolist(), snapshots.at.tolist(), strict=True)):
        first, last = users.user_baskets[user].tolist()
        end = first + int(np.searchsorted(users.time[first:last], at))
        rows = slice(int(users.baskets[first]), int(users.baskets[end]))
        sizes = np.diff(users.baskets[first : end + 1])
        weight = np.repeat(decay ** np.arange(end - first - 1, -1, -1), sizes)
        items.append(users.item[rows])
        values.append(weight / max(weight.sum(), 1e-300))
        owner.append(np.full(weight.size, number))
    joined = np.concatenate(values), (np.concatenate(owner), np.concatenate(items))
    return csr_array(joined, shape=(snapshots.at.size, n_items))


def _similarity(profiles: csr_array, vectors: csr_array, indptr: Longs, items: Ints) -> Floats:
    """(n_candidates,) the product of each candidate's vector and the profile of its snapshot."""
    profiles, vectors = (array.astype(np.float32, copy=False) for array in (profiles, vectors))
    profiles.sort_indices()
    products, scratch = np.empty(items.size, np.float32), np.zeros(vectors.shape[1], np.float32)
    score_rows(to_rows(profiles), to_rows(vectors), indptr, items, scratch, products)
    return products


def _relative(value: Doubles, usual: Doubles, all_values: Doubles) -> Doubles:
    """A value against the user's usual one: the logarithm of the ratio if all values are positive."""
    if np.nanmin(all_values, initial=1.0) > 0:
        return np.asarray(np.log(value / usual))
    return np.asarray(value - usual)
