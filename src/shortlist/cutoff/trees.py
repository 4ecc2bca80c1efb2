"""Boosted trees as a calibrator: the `trees` extra, always the same bits, kept as text and never pickled."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import ConfigError
from shortlist.types import Doubles

ROUNDS = 120
Text = npt.NDArray[np.uint8]


def trees_fit(columns: Doubles, y: Doubles, seed: int) -> Text:
    """The booster's text form as bytes; columns (n_rows, n_columns), y (n_rows,) in {0, 1}."""
    lightgbm = _lightgbm()
    settings = {
        "objective": "binary",
        "learning_rate": 0.08,
        "num_leaves": 15,
        "min_data_in_leaf": 100,
        "lambda_l2": 1.0,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbose": -1,
    }
    booster = lightgbm.train(settings, lightgbm.Dataset(columns, y, params={"verbose": -1}), ROUNDS)
    return np.frombuffer(booster.model_to_string().encode(), np.uint8)


def trees_predict(text: Text, columns: Doubles) -> Doubles:
    """Probabilities of the rows."""
    if not columns.size:
        return np.zeros(columns.shape[0])
    booster = _lightgbm().Booster(model_str=text.tobytes().decode())
    return np.asarray(booster.predict(columns, num_threads=1), np.float64)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(
            "calibration='trees' needs LightGBM, which is not installed; pip install 'shortlist[trees]'."
        ) from None
    return lightgbm
