"""Boosted trees under our terms: the `trees` extra, the same bits for the same seed, kept as text."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import ConfigError
from shortlist.types import Bools, Doubles, Floats

Text = npt.NDArray[np.uint8]
BINS = 127


@dataclass(frozen=True)
class Growth:
    """How trees are grown."""

    objective: str = "binary"
    n_rounds: int = 120
    lr: float = 0.08
    n_leaves: int = 31
    min_leaf: int = 100
    columns: float = 0.5  # share of the columns each tree may look at
    rows: float = 0.7  # share of the rows each tree learns from
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
        "lambda_l2": 5.0,
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
    """An ensemble read back."""

    def __init__(self, text: Text) -> None:
        self._booster: Any = _lightgbm().Booster(model_str=text.tobytes().decode())

    def predict(self, columns: Floats, *, raw: bool) -> Doubles:
        """(n_rows,) log-odds or log-means where `raw`, else probabilities or means."""
        if not columns.shape[0]:
            return np.empty(0)
        return np.asarray(self._booster.predict(columns, raw_score=raw, num_threads=1), np.float64)

    def gains(self) -> Doubles:
        """(n_columns,) what each column has brought, as shares."""
        gain = np.asarray(self._booster.feature_importance("gain"), np.float64)
        total: float = max(float(gain.sum()), 1e-12)
        return np.divide(gain, total)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(
            "boosted trees need LightGBM, which is not installed; pip install 'shortlist[trees]'."
        ) from None
    return lightgbm
