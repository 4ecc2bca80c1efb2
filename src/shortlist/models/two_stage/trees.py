"""Boosted trees: trained by LightGBM, stored in its text format, evaluated by a kernel to the same bits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.special import expit
from shortlist.core.threads import map_slices
from shortlist.errors import ConfigError, ModelFileError
from shortlist.kernels.leaf_masks import ALL, MAX_LEAVES, SplitIndex, sum_splits
from shortlist.kernels.rows import starts
from shortlist.kernels.trees import Forest, sum_contributions, sum_trees
from shortlist.types import Bools, Doubles, Floats, Ints

Text = npt.NDArray[np.uint8]
MAX_BIN = 127
BIN_ROWS = 50_000  # rows whose values determine the bins
BATCH = 8192  # rows per task of a thread
MAX_RAW = 50.0  # keeps exp finite
MAX_LEAF = 1e6  # a larger value in a leaf is not the result of training


def _exp(raw: Doubles) -> Doubles:
    return np.exp(np.minimum(raw, MAX_RAW))


LINKS: dict[str, Callable[[Doubles], Doubles]] = {
    "binary": expit,
    "poisson": _exp,
}  # from sums over the trees to predictions


@dataclass(frozen=True)
class TreeParams:
    """How an ensemble is trained."""

    objective: str = "binary"
    n_rounds: int = 120
    lr: float = 0.08
    n_leaves: int = 31
    min_leaf: int = 100
    columns: float = 1.0  # share of the columns that each tree uses
    rows: float = 1.0  # share of the rows that each tree is trained on
    l2: float = 5.0
    seed: int = 0


def fit_trees(columns: Floats, y: Bools | Doubles, weight: Floats | None, params: TreeParams) -> Text:
    """Train an ensemble on columns (n_rows, n_columns); return LightGBM's text as bytes."""
    return grow_trees(bin_columns(columns, y, weight), params)


def bin_columns(columns: Floats, y: Bools | Doubles, weight: Floats | None) -> Any:
    """The columns in LightGBM's form, a byte per value; several ensembles can be trained on it."""
    # with the filter, columns would depend on the smallest leaf of the ensemble that is trained first
    settings = {
        "max_bin": MAX_BIN,
        "bin_construct_sample_cnt": BIN_ROWS,
        "feature_pre_filter": False,
        "num_threads": 1,
        "verbose": -1,
    }
    return _lightgbm().Dataset(columns, y, weight=weight, params=settings).construct()


def take_examples(binned: Any, rows: Ints, weight: Floats) -> Any:
    """Some rows (n,) of the result of `bin_columns`, in increasing order, with these weights (n,)."""
    taken = binned.subset(rows).construct()
    taken.set_weight(weight)
    return taken


def grow_trees(binned: Any, params: TreeParams) -> Text:
    """Train an ensemble on the result of `bin_columns`; return LightGBM's text as bytes."""
    settings = {
        "objective": params.objective,
        "learning_rate": params.lr,
        "num_leaves": params.n_leaves,
        "min_data_in_leaf": params.min_leaf,
        "feature_fraction": params.columns,
        "lambda_l2": params.l2,
        "max_bin": MAX_BIN,
        "feature_pre_filter": False,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": params.seed % 2**31,
        "verbose": -1,
    }
    if params.rows < 1:  # costs a prediction for the rows that a tree is not trained on
        settings |= {"bagging_fraction": params.rows, "bagging_freq": 1}
    booster = _lightgbm().train(settings, binned, params.n_rounds)
    return np.frombuffer(booster.model_to_string().encode(), np.uint8)


class TreeEnsemble:
    """Ensembles of one kind, read from their texts; their outputs are averaged. Does not need LightGBM."""

    def __init__(self, *texts: Text) -> None:
        self._n = len(texts)
        try:
            parts = [text.tobytes().decode() for text in texts]
            self._link = LINKS[_field(parts[0], "objective").split()[0]]
            self._n_columns = int(_field(parts[0], "max_feature_idx")) + 1
            trees = [tree for model in parts for tree in _trees(model, self._n_columns)]
            self._forest, self._index = _join(trees), _index_splits(trees, self._n_columns)
        except (ArithmeticError, ValueError, KeyError, IndexError) as error:
            raise ModelFileError(f"the trees cannot be read ({error}); fit the model again.") from None

    def check_kind(self, objective: str, n_columns: int) -> None:
        """Raise ModelFileError if the trees have another objective or need more columns."""
        if self._link is not LINKS[objective] or self._n_columns > n_columns:
            raise ModelFileError(
                f"the trees must be {objective} with at most {n_columns} columns; fit the model again."
            )

    @property
    def base(self) -> float:
        """The raw score before any split."""
        return float(self._forest.value[self._forest.roots].sum() / self._n)

    def raw_scores(self, columns: Floats) -> Doubles:
        """(n_rows,) log-odds, or log-means if the objective is "poisson"."""
        self._check(columns)
        total = np.zeros(columns.shape[0])

        def add(rows: slice) -> None:
            if self._index is None:
                sum_trees(self._forest, columns[rows], total[rows])
            else:
                sum_splits(self._index, columns[rows], total[rows])

        map_slices(add, columns.shape[0], BATCH)
        return total / self._n

    def contributions(self, columns: Floats) -> Doubles:
        """(n_rows, n_columns) what each column adds to the raw score; a row sums to raw score - `base`."""
        self._check(columns)
        total = np.zeros(columns.shape)
        sum_contributions(self._forest, columns, total)
        return total / self._n

    def predict(self, columns: Floats) -> Doubles:
        """(n_rows,) probabilities or means."""
        return np.asarray(self._link(self.raw_scores(columns)))

    def _check(self, columns: Floats) -> None:
        if columns.shape[1] < self._n_columns:
            raise ModelFileError(
                f"the trees need {self._n_columns} columns, got {columns.shape[1]}; fit the model again."
            )


def _field(text: str, name: str) -> str:
    """The value in the line `name=value`."""
    _, separator, after = text.partition(f"\n{name}=")
    if not separator:
        raise ValueError(f"no {name}")
    return after.partition("\n")[0]


def _trees(text: str, n_columns: int) -> list[Forest]:
    """Every tree of an ensemble."""
    whole, separator, _ = text.partition("\nend of trees")
    if not separator:
        raise ValueError("truncated")
    return [_tree(tree, n_columns) for tree in whole.split("\nTree=")[1:]]


def _join(trees: list[Forest]) -> Forest:
    """One forest of all trees."""
    firsts = np.cumsum([0, *(tree.left.size for tree in trees[:-1])]).astype(np.uint32)
    moved = [
        tree._replace(roots=tree.roots + first, left=tree.left + first)
        for tree, first in zip(trees, firsts, strict=True)
    ]
    return Forest(*(np.concatenate(parts) for parts in zip(*moved, strict=True)))


def _index_splits(trees: list[Forest], n_columns: int) -> SplitIndex | None:
    """The splits by column; None if a tree has too many leaves."""
    if max(tree.left.size for tree in trees) > 2 * MAX_LEAVES - 1:
        return None
    values, masks, inner = [], [], []
    for tree in trees:
        inner.append(tree.left != np.arange(tree.left.size))
        first, mask = _number_leaves(tree.left.tolist(), inner[-1].tolist())
        masks.append(mask[inner[-1]])
        leaves = np.flatnonzero(~inner[-1])
        values.append(tree.value[leaves[np.argsort(first[leaves])]])
    column, threshold = (
        np.concatenate([getattr(tree, name)[is_inner] for tree, is_inner in zip(trees, inner, strict=True)])
        for name in ("column", "threshold")
    )
    owner = np.repeat(np.arange(len(trees)), [is_inner.sum() for is_inner in inner])
    order = np.lexsort((threshold, column))
    return SplitIndex(
        np.searchsorted(column[order], np.arange(2 * n_columns + 1)),
        threshold[order],
        owner[order],
        np.concatenate(masks)[order],
        starts(np.array([array.size for array in values]))[:-1].astype(np.uint64),
        np.concatenate(values),
    )


def _number_leaves(left: list[int], inner: list[bool]) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint32]]:
    """Each node's first leaf from the left, and the leaves that remain where its split goes right."""
    n = len(left)
    count, first, mask = [1] * n, [0] * n, np.zeros(n, np.uint32)
    for node in range(n - 1, -1, -1):  # children come after their parent
        if inner[node]:
            count[node] = count[left[node]] + count[left[node] + 1]
    for node in range(n):
        if inner[node]:
            low, middle = first[node], first[node] + count[left[node]]
            first[left[node]], first[left[node] + 1] = low, middle
            mask[node] = int(ALL) ^ ((1 << middle) - (1 << low))
    return np.array(first), mask


def _tree(text: str, n_columns: int) -> Forest:
    """A tree from LightGBM's text: the children of split k become nodes 2k + 1 and 2k + 2."""
    if _field(text, "num_cat") != "0":
        raise ValueError("a categorical split")

    def numbers(name: str, kind: type) -> Any:
        return np.array(_field(text, name).split(), kind)

    feature, decision = numbers("split_feature", int), numbers("decision_type", int)
    bound, leaves = numbers("threshold", float), numbers("leaf_value", float)
    inner_value = numbers("internal_value", float)
    children = np.stack([numbers("left_child", int), numbers("right_child", int)], axis=1).ravel()
    n = feature.size
    node = np.concatenate([[0 if n else -1], children])  # k for split k, ~k for leaf k
    inner = node >= 0
    if not (
        decision.size == bound.size == inner_value.size == children.size // 2 == n
        and np.array_equal(np.sort(node[inner]), np.arange(n))
        and np.array_equal(np.sort(~node[~inner]), np.arange(leaves.size))
        and (children > np.arange(children.size) // 2)[inner[1:]].all()
        and ((feature >= 0) & (feature < n_columns)).all()
        and (np.abs(np.concatenate([leaves, inner_value])) <= MAX_LEAF).all()  # False for NaN
        and not np.isnan(bound).any()
    ):
        raise ValueError("an invalid tree")
    # bits 2 and 3 are the missing type; 2 sends NaN to the default side, the others treat NaN as 0
    missing_left = np.where(decision >> 2 == 2, decision & 2 > 0, bound >= 0)
    height = np.zeros(2 * n + 1, np.int64)
    for at in np.flatnonzero(inner):
        height[2 * node[at] + 1 : 2 * node[at] + 3] = height[at] + 1
    column, threshold = np.zeros(node.size, np.uint32), np.full(node.size, np.inf, np.float32)
    left, value = np.arange(node.size, dtype=np.uint32), np.zeros(node.size)
    column[inner] = (2 * feature + ~missing_left)[node[inner]]
    threshold[inner] = _round_down(bound)[node[inner]]
    left[inner] = 2 * node[inner] + 1
    value[inner] = inner_value[node[inner]]
    value[~inner] = leaves[~node[~inner]]
    return Forest(np.zeros(1, np.uint32), np.array([height.max()]), column, threshold, left, value)


def _round_down(bound: Doubles) -> Floats:
    """The largest finite single-precision number not above the bound: it splits such columns the same way.

    LightGBM writes inf for a split of missing against other values. It becomes the largest finite number:
    a missing value that goes right is compared as inf, which must be above the threshold.
    """
    finite = np.minimum(bound, np.finfo(np.float32).max)
    near = finite.astype(np.float32)
    return np.where(near > finite, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(
            "training boosted trees needs LightGBM, which is not installed; pip install lightgbm."
        ) from None
    return lightgbm
