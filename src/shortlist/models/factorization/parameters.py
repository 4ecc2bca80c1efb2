"""The parameters of factor models: their shapes, their start, and their form in a file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from shortlist.content.features import (
    FeatureSpace,
    align_rows,
    pack_matrix,
    replace_rows,
    resize_matrix,
    unpack_matrix,
)
from shortlist.core.checks import check_array, check_whole_value
from shortlist.data.ids import IdMap
from shortlist.data.items import Items
from shortlist.kernels.rng import GOLDEN, fill_uniform, stream
from shortlist.kernels.sgd import TERMS, Parameters
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

USERS, ITEMS = 4, 5  # ids of random streams
MAX_SIZE = 1e12  # of a number in a file; inner products of larger ones could overflow


def initialize_parameters(
    first_user: int,
    last_user: int,  # one past the last
    *,
    n_items: int,
    n_factors: int,
    init: float,
    t: float,
    bias: bool,
    start_weights: tuple[float | None, ...],  # for each of TERMS, of a user; None where the term is off
    seed: int,
) -> Parameters:
    """Small random factors; row n depends only on the seed and n, so that rows can be appended later."""
    scale = np.float32(init * np.sqrt(3 / n_factors))  # standard deviation init / √n_factors
    n_users = last_user - first_user

    def draw(name: int, first: int, last: int) -> Floats:
        skipped = first * n_factors // 2  # pairs of numbers
        values = np.empty(last * n_factors - 2 * skipped, np.float32)
        with np.errstate(over="ignore"):
            key = stream(seed, name)[0] + np.uint64(skipped) * GOLDEN
        fill_uniform(key, scale, values)
        return values[first * n_factors - 2 * skipped :].reshape(last - first, n_factors)

    terms: list[Floats] = []
    for weight in start_weights:
        on = weight is not None
        terms.append(np.full(n_users if on else 0, weight or 0, np.float32))
        terms.append(np.zeros(n_items if on else 0, np.float32))
    return Parameters(
        draw(USERS, first_user, last_user),
        np.full(n_users, t, np.float32),
        draw(ITEMS, 0, n_items),
        np.zeros(n_items if bias else 0, np.float32),
        *terms,
    )


def parameter_shapes(
    n_users: int, n_items: int, n_factors: int, bias: bool, terms_on: tuple[bool, ...]
) -> dict[str, tuple[int, ...]]:
    """The shape of each of the parameters."""
    shapes: dict[str, tuple[int, ...]] = {
        "user": (n_users, n_factors),
        "boundary": (n_users,),
        "item": (n_items, n_factors),
        "bias": (n_items if bias else 0,),
    }
    for (by_user, by_item), on in zip(TERMS, terms_on, strict=True):
        shapes |= {by_user: (n_users if on else 0,), by_item: (n_items if on else 0,)}
    return shapes


def user_fields(theta: Parameters) -> dict[str, Floats]:
    """The parameters of users that the model has, by name."""
    names = ("user", "boundary", *(by_user for by_user, _ in TERMS))
    return {name: array for name in names if (array := theta._asdict()[name]).size}


def block_sums(theta: Parameters, trained: Bools, cuts: Longs) -> dict[str, Doubles]:
    """The sum of each user parameter over the trained users of each block, (n_blocks, …)."""
    return {
        name: np.array(
            [
                array[low:high][trained[low:high]].sum(axis=0, dtype=np.float64)
                for low, high in pairwise(cuts.tolist())
            ]
        )
        for name, array in user_fields(theta).items()
    }


def mean_of_sums(sums: Mapping[str, Doubles], n: int) -> dict[str, Any]:
    """The mean over n users; the sums of blocks are added exactly, so that it has the same bits anywhere."""
    return {
        name: np.array([math.fsum(column) / n for column in blocks.reshape(blocks.shape[0], -1).T])
        .reshape(blocks.shape[1:])
        .astype(np.float32)
        for name, blocks in sums.items()
    }


def mean_user(theta: Parameters, trained: Bools, cuts: Longs) -> dict[str, Any]:
    """The mean of each parameter over the users that have training pairs, or over all if none has.

    `cuts` are the first users of the blocks that training divided the users into.
    """
    rows = trained if trained.any() else np.ones(trained.size, np.bool_)
    return mean_of_sums(block_sums(theta, rows, cuts), int(rows.sum()))


def set_untrained_users(theta: Parameters, trained: Bools, means: Mapping[str, Any]) -> Parameters:
    """The parameters, with those of the mean user for users without training pairs."""
    if trained.all():
        return theta
    fields = user_fields(theta)
    shaped = {name: trained.reshape(-1, *[1] * (array.ndim - 1)) for name, array in fields.items()}
    return theta._replace(
        **{name: np.where(shaped[name], array, means[name]) for name, array in fields.items()}
    )


def freeze(theta: Parameters) -> Parameters:
    """Make the arrays read-only, so that an index built on them stays valid."""
    for array in theta:
        array.flags.writeable = False
    return theta


def load_parameters(
    arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], prefix: str = ""
) -> Parameters:
    """The parameters of a file, writable, if they have these shapes and are finite."""
    checked = (
        check_array(arrays, prefix + name, np.float32, shape, limit=MAX_SIZE)
        for name, shape in shapes.items()
    )
    return Parameters(*(np.require(array, None, "W") for array in checked))


CONTENT_WEIGHT = 32.0  # how much the features of an item count beside its own vector
SHARES_PER_EPOCH = 8


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

    def add_items(self, items: Items, ids: IdMap) -> tuple["ItemFeatures", Ints, csr_array]:
        """With new items, or new content of known ones; `ids` holds them all, the known ones first.

        Also (n,) the numbers of these items, and how their rows of X change.
        """
        rows, fresh = ids.align(items.ids), self.space.transform(items)
        before = resize_matrix(self.content, len(ids) - self.content.shape[0], 0)  # empty for new items
        longer = replace(self, content=replace_rows(before, rows, fresh))
        return longer, rows, csr_array(self._scaled(fresh) - self._scaled(csr_array(before[rows])))

    def add_to(self, theta: Parameters, rows: Ints, change: csr_array) -> Parameters:
        """The parameters after `add_items`."""
        n = self.content.shape[0]
        by_item = {name: pad_rows(theta._asdict()[name], n) for _, name in TERMS}
        item, bias = pad_rows(theta.item, n), pad_rows(theta.bias, n)
        item[rows] += change @ self.vectors
        if bias.size:
            bias[rows] += change @ self.biases
        return theta._replace(item=item, bias=bias, **by_item)

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


def pad_rows(values: Floats, n: int, value: float | Floats = 0.0) -> Floats:
    """(n, …) a copy that ends with rows of `value`; nothing if the model does not have the parameter."""
    if not values.size:
        return values.copy()
    return np.concatenate([values, np.full((n - values.shape[0], *values.shape[1:]), value, np.float32)])


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
