"""The paper's protocol: what it prints, every parameter of its models, and readings of its test set."""

from typing import Any, NamedTuple

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.models.search_space import Range, Space
from shortlist.types import Ints

MODELS = ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM")
PAPER = {  # Table 1, in the order of MODELS
    "ml-100k": {
        "f1": (0.018, 0.028, 0.026, 0.021, 0.03, 0.035),
        "cover_ratio": (1.0, 1.0, 1.0, 0.9, 1.0, 0.68),
        "ndcg": (0.067, 0.058, 0.068, 0.135, 0.117, 0.12),
    },
    "ta-feng": {
        "f1": (0.033, 0.042, 0.041, 0.048, 0.052, 0.06),
        "cover_ratio": (1.0, 1.0, 1.0, 0.69, 1.0, 0.7),
        "ndcg": (0.075, 0.071, 0.074, 0.11, 0.08, 0.12),
    },
}
OTHER_COVER_RATIO = 0.7  # target on datasets that the paper does not use
ORIGINAL = {"DKBPRMF": "BPRMF", "DKHRM": "HRM"}  # the top-N model that each dynamic model extends
TITLES = dict(zip(MODELS, ("BPRMF", "LogMF", "CRRMF", "DK-BPRMF", "HRM", "DK-HRM"), strict=True))

METRICS = {"f1": "F1", "ndcg": "NDCG"}
HARMONIC = "harmonic"  # F1 as the harmonic mean of the mean precision and the mean recall
FAIR = "ndcg_fair"  # NDCG that does not depend on the length of the list, to compare over all users
MEASURES = (*METRICS, HARMONIC, FAIR)
MAX_ITEMS = 20  # Figure 2 shows N = 1 … 20
MAX_LENGTH = 100  # candidates per user; no list is longer
CAPS = (MAX_ITEMS, MAX_LENGTH)  # longest list
LENGTHS = range(1, MAX_ITEMS + 1)

# ---------------------------------------------------------------------- parameters
# All of them are here or in SPACES, so that other defaults of the library change no figure.
_FACTORS: dict[str, Any] = {"reg_user": None, "reg_item": None, "reg_negative": None, "negative_draws": 1}
_FACTORS |= {"tol": 0.0, "patience": 15, "weighting": "none", "weight_cap": 5.0}
_FACTORS |= {"repeat_decay": None, "trend_half_life": None}
_BOUNDARY: dict[str, Any] = {"loss": "logistic", "penalty": "l2", "lambda_t_per": "step"}
_BASKETS: dict[str, Any] = {"pool_items": "average", "pool_user": "average", "window": 1}
_BASKETS |= {"negatives": None}
PARAMETERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("BPRMF", "LogMF", "CRRMF"), _FACTORS),
    "DKBPRMF": _FACTORS | _BOUNDARY,
    "HRM": _FACTORS | _BASKETS,
    "DKHRM": _FACTORS | _BASKETS | _BOUNDARY,
}
SETTINGS: dict[str, dict[str, Any]] = {  # the paper's, which Figure 1 varies
    "DKBPRMF": {"t": 1.0, "alpha": 0.5, "lambda_t": 1.0, "boundary": "learned"},
    "DKHRM": {"t": 2.0, "alpha": 0.5, "lambda_t": 1.0, "boundary": "learned"},
}
SWEEPS: dict[str, tuple[float, ...]] = {
    "t": (0.5, 1.0, 1.5, 2.0, 2.5),
    "lambda_t": (0.01, 0.1, 1.0, 10.0, 100.0),
    "alpha": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
}
BIASED_SWEEP = "t_biased"  # the sweep of t with item biases, which the paper's models do not have
PAIRWISE, NEGATIVE_SAMPLING = "pairwise", "negative sampling"  # losses; the paper on HRM has the second
SAMPLED_EPOCHS = 8  # epochs of negative sampling for one of the ranking loss; one is eight times as fast
_SGD: Space = {"lr": Range(0.01, 1.0), "reg": Range(1e-4, 0.1), "init": (0.01, 0.1, 1.0)}
_RANKING: Space = {**_SGD, "negative_draws": (1, 5, 20)}
SPACES: dict[tuple[str, str], Space] = {  # what is searched, by model and loss
    ("BPRMF", PAIRWISE): _RANKING,
    ("LogMF", PAIRWISE): {**_SGD, "c": Range(0.5, 32), "negatives": Range(1, 32)},
    ("CRRMF", PAIRWISE): {**_RANKING, "alpha": Range(0.1, 0.9, log=False)},
    ("DKBPRMF", PAIRWISE): {**_RANKING, "negatives": Range(1, 256)},
    ("HRM", PAIRWISE): _RANKING,
    ("HRM", NEGATIVE_SAMPLING): {**_SGD, "negatives": Range(2, 32)},
    ("DKHRM", PAIRWISE): {**_RANKING, "negatives": Range(1, 256)},
}


def selected_by(model: str) -> tuple[str, ...]:
    """What selects settings of a model; a top-N model has an N of its own for NDCG instead."""
    return ("f1", HARMONIC, "ndcg") if model in ORIGINAL else ("f1", HARMONIC)


def printed_cells(dataset: str, model: str) -> dict[str, float] | None:
    """The paper's figures; None for other datasets."""
    table, at = PAPER.get(dataset, {}), MODELS.index(model)
    return {name: cells[at] for name, cells in table.items()} or None


# ---------------------------------------------------------------------- readings
class Reading(NamedTuple):
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


READINGS = {
    "ml-100k": (Reading("all items of the last second"), Reading("single last item", single=True)),
    "ta-feng": (Reading("all users"), Reading("users with ≥ 3 baskets", min_baskets=3)),
    "sample": (Reading("all users"), Reading("single last item", single=True)),
}
