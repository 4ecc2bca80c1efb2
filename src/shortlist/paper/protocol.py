"""The paper's protocol: models, settings, readings of its test set, Table 1, and variants of them."""

from typing import Any, NamedTuple

import numpy as np

from shortlist.core.params import Range, Space
from shortlist.data.interactions import Interactions
from shortlist.types import Ints


class Cells(NamedTuple):
    """One model on one dataset, as printed in the paper."""

    f1: float
    cover_ratio: float
    ndcg: float


DATASETS = ("ml-100k", "ta-feng")
MODELS = ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM")
TITLES = {"DKBPRMF": "DK-BPRMF", "DKHRM": "DK-HRM"}
ORIGINAL = {"DKBPRMF": "BPRMF", "DKHRM": "HRM"}  # the top-N model that each dynamic model extends
SETTINGS: dict[str, dict[str, float | str]] = {
    "DKBPRMF": {"t": 1.0, "alpha": 0.5, "lambda_t": 1.0, "boundary": "learned"},
    "DKHRM": {"t": 2.0, "alpha": 0.5, "lambda_t": 1.0, "boundary": "learned"},
}
_NO_TERMS: dict[str, Any] = {"repeat_decay": None, "trend_half_life": None}
PLAIN: dict[str, dict[str, Any]] = {  # the paper's models where our defaults go beyond them
    "HRM": _NO_TERMS,
    "DKHRM": _NO_TERMS | {"negatives": 10.0},
    "DKBPRMF": {"negatives": 10.0},
}
SWEEPS: dict[str, tuple[float, ...]] = {
    "t": (0.5, 1.0, 1.5, 2.0, 2.5),
    "lambda_t": (0.01, 0.1, 1.0, 10.0, 100.0),
    "alpha": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
}
BIASED_SWEEP = "t_biased"  # the sweep of t with item biases, which the paper's models do not have
MAX_ITEMS = 20  # Figure 2 shows N = 1 … 20
MAX_LENGTH = 100  # candidates per user; no list is longer
CAPS = (MAX_ITEMS, MAX_LENGTH)  # longest list
LENGTHS = range(1, MAX_ITEMS + 1)
METRICS = {"f1": "F1", "ndcg": "NDCG"}
HARMONIC = "harmonic"  # F1 as the harmonic mean of the mean precision and the mean recall
FAIR = "ndcg_fair"  # NDCG that does not depend on the length of the list, to compare over all users
HOLDS, COVERED, FAILS = "holds", "holds only for covered users", "does not hold"
P_LEVEL = 0.05
TABLE: dict[str, dict[str, Cells]] = {
    "ta-feng": {
        "BPRMF": Cells(0.033, 1.0, 0.075),
        "LogMF": Cells(0.042, 1.0, 0.071),
        "CRRMF": Cells(0.041, 1.0, 0.074),
        "DKBPRMF": Cells(0.048, 0.69, 0.11),
        "HRM": Cells(0.052, 1.0, 0.08),
        "DKHRM": Cells(0.06, 0.7, 0.12),
    },
    "ml-100k": {
        "BPRMF": Cells(0.018, 1.0, 0.067),
        "LogMF": Cells(0.028, 1.0, 0.058),
        "CRRMF": Cells(0.026, 1.0, 0.068),
        "DKBPRMF": Cells(0.021, 0.9, 0.135),
        "HRM": Cells(0.03, 1.0, 0.117),
        "DKHRM": Cells(0.035, 0.68, 0.12),
    },
}
DEFAULT_COVER_RATIO = 0.7  # target on datasets that the paper does not use


class ProtocolReading(NamedTuple):
    """One way to read the paper's description of its test set."""

    name: str
    single: bool = False  # only the last item of the last basket counts
    min_baskets: int = 2  # of a tested user, test basket included

    def truth(self, truth: Interactions) -> Interactions:
        """The interactions that count; of items with the same time, the last one in the data."""
        if not self.single:
            return truth
        last = np.zeros(truth.n_rows, np.bool_)
        last[truth.indptr[1:][np.diff(truth.indptr) > 0] - 1] = True
        return truth.where(last)

    def users(self, history: Interactions, truth: Interactions) -> Ints:
        """Users with truth and enough earlier baskets."""
        users = truth.active_users
        return users[np.diff(history.user_baskets)[users] >= self.min_baskets - 1]


READINGS: dict[str, tuple[ProtocolReading, ...]] = {
    "ml-100k": (
        ProtocolReading("all items of the last second"),
        ProtocolReading("single last item", single=True),
    ),
    "ta-feng": (ProtocolReading("all users"), ProtocolReading("users with ≥ 3 baskets", min_baskets=3)),
    "sample": (ProtocolReading("all users"), ProtocolReading("single last item", single=True)),
}


def title(model: str) -> str:
    """The model's name as printed in the paper."""
    return TITLES.get(model, model)


def target_cover_ratio(dataset: str, model: str) -> float:
    """The Cover-Ratio that the paper reports for a dynamic model."""
    return TABLE[dataset][model].cover_ratio if dataset in TABLE else DEFAULT_COVER_RATIO


def printed_cells(dataset: str, model: str) -> dict[str, float] | None:
    """The paper's figures; None for other datasets and models."""
    cells = TABLE.get(dataset, {}).get(model)
    return None if cells is None else cells._asdict()


# ---------------------------------------------------------------------- variants
PAIRWISE, NEGATIVE_SAMPLING = "pairwise", "negative sampling"
LOSSES = (PAIRWISE, NEGATIVE_SAMPLING)  # of HRM: the ranking loss, and that of the paper on HRM
SAMPLED_EPOCHS = 8  # epochs of negative sampling for one of the ranking loss; one is eight times as fast
_Values = Range | tuple[Any, ...]
_SGD: dict[str, _Values] = {
    "lr": Range(0.01, 1.0),
    "reg": Range(1e-4, 0.1),
    "init": (0.01, 0.1, 1.0),
}
_RANKING: dict[str, _Values] = {**_SGD, "negative_draws": (1, 5, 20)}
SPACES: dict[tuple[str, str], Space] = {
    ("BPRMF", PAIRWISE): _RANKING,
    ("LogMF", PAIRWISE): {**_SGD, "c": Range(0.5, 32), "negatives": Range(1, 32)},
    ("CRRMF", PAIRWISE): {**_RANKING, "alpha": Range(0.1, 0.9, log=False)},
    ("DKBPRMF", PAIRWISE): {**_RANKING, "negatives": Range(1, 256)},
    ("HRM", PAIRWISE): _RANKING,
    ("HRM", NEGATIVE_SAMPLING): {**_SGD, "negatives": Range(2, 32)},
    ("DKHRM", PAIRWISE): {**_RANKING, "negatives": Range(1, 256)},
}

BIASES = (True, False)
SELECTED_BY = ("f1", HARMONIC, "ndcg")  # what selects the settings


def measures_of(model: str) -> tuple[str, ...]:
    """What selects settings of a model; a top-N model has an N of its own for NDCG instead."""
    return SELECTED_BY if model in ORIGINAL else SELECTED_BY[:2]
