"""Boosted trees under our terms: grown by LightGBM, kept as text, walked by a kernel, the same bits ever."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from shortlist.errors import ConfigError, ModelFileError
from shortlist.kernels.trees import Forest, trees_sum
from shortlist.types import Bools, Doubles, Floats

Text = npt.NDArray[np.uint8]
BINS = 127
PART = 8192  # rows a thread walks at a time
LINKS = {"binary": expit, "poisson": np.exp}  # from sums over the trees to what is foretold


@dataclass(frozen=True)
class Growth:
    """How trees are grown."""

    objective: str = "binary"
    n_rounds: int = 120
    lr: float = 0.08
    n_leaves: int = 31
    min_leaf: int = 100
    columns: float = 1.0  # share of the columns each tree may look at
    rows: float = 1.0  # share of the rows each tree learns from
    l2: float = 5.0
    seed: int = 0


def trees_grow(columns: Floats, y: Bools | Doubles, weight: Floats | None, growth: Growth) -> Text:
    """The ensemble as the bytes of its text; columns (n_rows, n_columns)."""
    lightgbm = _lightgbm()
    settings = {
        "objective": growth.objective,
        "learning_rate": growth.lr,
        "num_leaves": growth.n_leaves,
        "min_data_in_leaf": growth.min_leaf,
        "feature_fraction": growth.columns,
        "bagging_fraction": growth.rows,
        "bagging_freq": 1,
        "lambda_l2": growth.l2,
        "max_bin": BINS,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": growth.seed,
        "verbose": -1,
    }
    data = lightgbm.Dataset(columns, y, weight=weight, params={"max_bin": BINS, "verbose": -1})
    booster = lightgbm.train(settings, data, growth.n_rounds)
    return np.frombuffer(booster.model_to_string().encode(), np.uint8)


class Trees:
    """Ensembles of one kind, read back from their texts; what they say is averaged. Needs no LightGBM."""

    def __init__(self, *texts: Text) -> None:
        self._n = len(texts)
        try:
            parts = [text.tobytes().decode() for text in texts]
            self._link = LINKS[_field(parts[0], "objective").split()[0]]
            self._n_columns = int(_field(parts[0], "max_feature_idx")) + 1
            self._forest = _planted([tree for part in parts for tree in _trees(part, self._n_columns)])
        except (ValueError, KeyError, IndexError) as error:
            raise ModelFileError(f"the trees cannot be read ({error}); fit the model again.") from None

    def odds(self, columns: Floats, n_threads: int = 1) -> Doubles:
        """(n_rows,) log-odds, or log-means where sizes are foretold."""
        if columns.shape[1] < self._n_columns:
            raise ModelFileError(
                f"the trees ask for {self._n_columns} columns, got {columns.shape[1]}; fit the model again."
            )
        total = np.zeros(columns.shape[0])
        starts = range(0, columns.shape[0], PART)

        def walk(start: int) -> None:
            part = slice(start, start + PART)
            trees_sum(self._forest, columns[part], total[part])

        if n_threads == 1 or len(starts) == 1:
            list(map(walk, starts))
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(walk, starts))
        return total / self._n

    def predict(self, columns: Floats) -> Doubles:
        """(n_rows,) probabilities or means."""
        return np.asarray(self._link(self.odds(columns)))


def _field(text: str, name: str) -> str:
    """The value of a line `name=value`."""
    _, found, after = text.partition(f"\n{name}=")
    if not found:
        raise ValueError(f"no {name}")
    return after.partition("\n")[0]


def _trees(text: str, n_columns: int) -> list[Forest]:
    """Every tree of an ensemble."""
    whole, found, _ = text.partition("\nend of trees")
    if not found:
        raise ValueError("cut short")
    return [_tree(tree, n_columns) for tree in whole.split("\nTree=")[1:]]


def _planted(trees: list[Forest]) -> Forest:
    """One forest of all of them."""
    firsts = np.cumsum([0, *(tree.left.size for tree in trees[:-1])]).astype(np.uint32)
    moved = [
        tree._replace(roots=tree.roots + first, left=tree.left + first)
        for tree, first in zip(trees, firsts, strict=True)
    ]
    return Forest(*(np.concatenate(parts) for parts in zip(*moved, strict=True)))


def _tree(text: str, n_columns: int) -> Forest:
    """A tree out of LightGBM's text: the children of split k become nodes 2k + 1 and 2k + 2."""
    if _field(text, "num_cat") != "0":
        raise ValueError("a split by category")

    def numbers(name: str, kind: type) -> Any:
        return np.array(_field(text, name).split(), kind)

    feature, how = numbers("split_feature", int), numbers("decision_type", int)
    bound, leaves = numbers("threshold", float), numbers("leaf_value", float)
    children = np.stack([numbers("left_child", int), numbers("right_child", int)], axis=1).ravel()
    n = feature.size
    node = np.concatenate([[0 if n else -1], children])  # a split's number, or ~ that of a leaf
    inner = node >= 0
    if not (
        how.size == bound.size == children.size // 2 == n
        and np.array_equal(np.sort(node[inner]), np.arange(n))
        and np.array_equal(np.sort(~node[~inner]), np.arange(leaves.size))
        and (children > np.arange(children.size) // 2)[inner[1:]].all()
        and ((feature >= 0) & (feature < n_columns)).all()
    ):
        raise ValueError("a tree is broken")
    missing_left = np.where(how >> 2 == 2, how & 2 > 0, bound >= 0)  # 2: else what is missing counts as 0
    height = np.zeros(2 * n + 1, np.int64)
    for at in np.flatnonzero(inner):
        height[2 * node[at] + 1 : 2 * node[at] + 3] = height[at] + 1
    column, threshold = np.zeros(node.size, np.uint32), np.full(node.size, np.inf, np.float32)
    left, value = np.arange(node.size, dtype=np.uint32), np.zeros(node.size)
    column[inner] = (2 * feature + ~missing_left)[node[inner]]
    threshold[inner] = _at_most(bound)[node[inner]]
    left[inner] = 2 * node[inner] + 1
    value[~inner] = leaves[~node[~inner]]
    return Forest(np.zeros(1, np.uint32), np.array([height.max()]), column, threshold, left, value)


def _at_most(bound: Doubles) -> Floats:
    """The largest number of single precision that is not larger: it parts columns of that precision alike."""
    near = bound.astype(np.float32)
    return np.where(near > bound, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(
            "boosted trees need LightGBM, which is not installed; pip install 'shortlist[trees]'."
        ) from None
    return lightgbm
