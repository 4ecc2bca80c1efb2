"""Hybrid factors: an item's vector is its own plus the weighted sum of the vectors of its features (LightFM).

Training makes its steps on the sums v_i = q_i + Σ_f x_if w_f, as without content. A step changes v_i by
-lr ∂L/∂v_i, which is what q_i must change by; by the chain rule, w_f must change by -lr Σ_i x_if ∂L/∂v_i.
So the changes Δ of all items since the last time are collected several times per epoch, and shared:
w += Xᵀ Δ and v += X Xᵀ Δ. The penalty is on v_i. A new item has no vector of its own: v = Σ_f x_f w_f.

Kula, "Metadata Embeddings for User and Item Cold-start Recommendations", CBRecSys 2015.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from shortlist.content.matrices import pack_matrix, unpack_matrix
from shortlist.content.space import FeatureSpace, align_rows
from shortlist.core.checks import check_array, check_whole_value
from shortlist.core.engine import ThreadEngine
from shortlist.data.id_map import UNKNOWN, IdMap
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.kernels.mf import TERMS, Parameters
from shortlist.models.contract import FitOptions
from shortlist.types import Floats, Ints

CONTENT_WEIGHT = 32.0  # how much the features of an item count beside its own vector
SHARES_PER_EPOCH = 8
MAX_SIZE = 1e12


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """The content of items, and the learned vectors of its features."""

    space: FeatureSpace
    content: csr_array  # (n_items, n_features)
    scale: Floats  # (n_features,) what an entry of the content counts
    vectors: Floats  # (n_features, n_factors)
    biases: Floats  # (n_features,), or (0,) for a model without biases
    n_trained: int  # number of items that training saw

    @classmethod
    def of(cls, items: Items, ids: IdMap, n_factors: int, bias: bool) -> "ItemFeatures":
        """The content of items with these ids; all vectors are 0 before training."""
        space, features = FeatureSpace.fit(items)
        content = align_rows(features, items.ids.align(ids))
        n = space.n_features
        vectors = np.zeros((n, n_factors), np.float32)
        scale = _feature_scale(content)
        return cls(space, content, scale, vectors, np.zeros(n if bias else 0, np.float32), len(ids))

    @cached_property
    def matrix(self) -> csr_array:
        """(n_items, n_features) the scaled content X."""
        return self._scaled(self.content)

    def _scaled(self, content: csr_array) -> csr_array:
        values = content.data * self.scale[content.indices]
        return csr_array((values, content.indices, content.indptr), shape=content.shape)

    def align(self, rows: Ints) -> "ItemFeatures":
        """The content of the items at these numbers, all of which take part in training."""
        return replace(self, content=align_rows(self.content, rows), n_trained=rows.size)

    def add_items(self, items: Items, ids: IdMap, theta: Parameters) -> tuple["ItemFeatures", Parameters]:
        """With new items, or new content of known ones; `ids` holds them all, the known ones first."""
        n_known, n = theta.item.shape[0], len(ids)
        rows, fresh = ids.align(items.ids), self.space.transform(items)
        place = np.concatenate([np.arange(n_known), np.full(n - n_known, UNKNOWN)]).astype(np.int32)
        before = align_rows(self.content, place)  # empty for new items
        place = np.arange(n, dtype=np.int32)
        place[rows] = n + np.arange(len(items), dtype=np.int32)
        longer = replace(self, content=align_rows(csr_array(vstack([before, fresh], format="csr")), place))
        change = self._scaled(fresh) - self._scaled(csr_array(before[rows]))
        by_item = {name: _pad(theta._asdict()[name], n) for _, name in TERMS}
        item, bias = _pad(theta.item, n), _pad(theta.bias, n)
        item[rows] += change @ self.vectors
        if bias.size:
            bias[rows] += change @ self.biases
        return longer, theta._replace(item=item, bias=bias, **by_item)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, notes) that `from_arrays` reads."""
        arrays, fields = self.space.to_arrays()
        arrays |= pack_matrix("content", self.content)
        arrays |= {
            "feature_scale": self.scale,
            "feature_vectors": self.vectors,
            "feature_biases": self.biases,
        }
        return arrays, {"fields": fields, "n_trained": self.n_trained}

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, Any], notes: dict[str, Any], n_items: int, n_factors: int, bias: bool
    ) -> "ItemFeatures":
        """The features that were saved; ModelFileError if they are not valid."""
        space = FeatureSpace.from_arrays(arrays, notes["fields"])
        n = space.n_features
        return cls(
            space,
            unpack_matrix("content", arrays, n_items, n),
            check_array(arrays, "feature_scale", np.float32, (n,), low=0, limit=MAX_SIZE),
            check_array(arrays, "feature_vectors", np.float32, (n, n_factors), limit=MAX_SIZE),
            check_array(arrays, "feature_biases", np.float32, (n if bias else 0,), limit=MAX_SIZE),
            check_whole_value(notes, "n_trained", 1, n_items),
        )


def _feature_scale(content: csr_array) -> Floats:
    """(n_features,) scale that bounds the effect of all items on one by CONTENT_WEIGHT: common ones less."""
    row = np.repeat(np.arange(content.shape[0]), np.diff(content.indptr))
    size = np.abs(content.data).astype(np.float64)
    total = np.bincount(row, weights=size, minlength=content.shape[0])
    shared = np.bincount(content.indices, weights=size * total[row], minlength=content.shape[1])
    return np.sqrt(CONTENT_WEIGHT / np.where(shared > 0, shared, np.inf)).astype(np.float32)


def _pad(values: Floats, n: int) -> Floats:
    """A copy with rows of 0 at the end; nothing if the model does not have the parameter."""
    if not values.size:
        return values.copy()
    return np.concatenate([values, np.zeros((n - values.shape[0], *values.shape[1:]), np.float32)])


class SharedSteps:
    """The vectors of features in training."""

    def __init__(self, features: ItemFeatures) -> None:
        self.features = features
        self.vectors, self.biases = features.vectors.copy(), features.biases.copy()
        self.rows = features.matrix  # in the order of theta
        self.seen: tuple[Floats, Floats] | None = None  # item vectors and biases when last shared
        self.before = self.vectors, self.biases
        self.kept: tuple[Floats, Floats] | None = None

    def begin_epoch(self, theta: Parameters, label: Ints) -> None:
        """Start from the current items, whose positions are `label`; keep a copy of the vectors."""
        self.rows = csr_array(self.features.matrix[np.argsort(label)])
        self.before = self.vectors.copy(), self.biases.copy()
        self.seen = theta.item.copy(), theta.bias.copy()

    def is_due(self, round_index: int, n_rounds: int) -> bool:
        """Whether the changes are shared after this round."""
        return (round_index + 1) % max(n_rounds // SHARES_PER_EPOCH, 1) == 0 or round_index + 1 == n_rounds

    def share(self, theta: Parameters) -> None:
        """Move the features by what their items moved since the last time, and all items with them."""
        item, bias = self.seen or (theta.item, theta.bias)
        self.vectors += self._spread(theta.item, item)
        if theta.bias.size:
            self.biases += self._spread(theta.bias, bias)
        self.seen = theta.item.copy(), theta.bias.copy()

    def _spread(self, now: Floats, seen: Floats) -> Floats:
        """Add X Xᵀ Δ to the items in place; return Xᵀ Δ."""
        step: Floats = self.rows.T @ (now - seen)
        now += self.rows @ step
        return step

    def undo_epoch(self) -> None:
        """Return to the vectors before the epoch."""
        self.vectors, self.biases = self.before[0].copy(), self.before[1].copy()

    def keep_best(self) -> None:
        """Remember the current vectors as the best ones."""
        self.kept = self.vectors.copy(), self.biases.copy()

    def finish(self) -> ItemFeatures:
        """The best vectors, or the current ones if there are no best ones."""
        vectors, biases = self.kept or (self.vectors, self.biases)
        return replace(self.features, vectors=vectors, biases=biases)


def check_options(options: FitOptions) -> None:
    """Raise ConfigError for options of `fit` that do not go with items."""
    if not isinstance(options.engine, ThreadEngine):
        raise ConfigError(
            f"engine must be None or ThreadEngine() with items, got {options.engine!r:.60}; the content of "
            "items is trained in one process.",
            parameter="engine",
        )
    if options.checkpoint is not None:
        raise ConfigError(
            "checkpoint must be None with items, which it does not hold; omit one of them.",
            parameter="checkpoint",
        )
