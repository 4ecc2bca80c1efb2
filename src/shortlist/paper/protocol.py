"""The paper's protocol: models, settings, parameter sweeps and the printed Table 1."""

from typing import NamedTuple


class Cells(NamedTuple):
    """One model on one dataset, as printed in the paper."""

    f1: float
    cover_ratio: float
    ndcg: float


DATASETS = ("ml-100k", "ta-feng")
MODELS = ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM")
TITLES = {"DKBPRMF": "DK-BPRMF", "DKHRM": "DK-HRM", "PersonalFrequency": "Personal frequency"}
ORIGINAL = {"DKBPRMF": "BPRMF", "DKHRM": "HRM"}  # the top-N model that each dynamic model extends
BASELINES = ("Popularity", "PersonalFrequency")  # not in the paper
SETTINGS: dict[str, dict[str, float | str]] = {
    "DKBPRMF": {"t": 1.0, "alpha": 0.5, "lambda_t": 1.0, "boundary": "learned"},
    "DKHRM": {"t": 2.0, "alpha": 0.5, "lambda_t": 1.0, "boundary": "learned"},
}
SWEEPS: dict[str, tuple[float, ...]] = {
    "t": (0.5, 1.0, 1.5, 2.0, 2.5),
    "lambda_t": (0.01, 0.1, 1.0, 10.0, 100.0),
    "alpha": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
}
BIASED_SWEEP = "t_biased"  # the sweep of t with item biases, which the paper's models do not have
MAX_ITEMS = 20  # Figure 2 shows N = 1 … 20
LENGTHS = range(1, MAX_ITEMS + 1)
METRICS = {"f1": "F1", "ndcg": "NDCG"}
FIXED, BOUNDARY, EXPECTED_F1, ORACLE = "fixed N", "learned boundary", "expected F1", "oracle"
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


def title(model: str) -> str:
    """The model's name as printed in the paper."""
    return TITLES.get(model, model)


def headline(model: str) -> str:
    """The lists that Table 1 reports for a model: its boundary, or the best fixed N."""
    return BOUNDARY if model in ORIGINAL else FIXED


def target_cover_ratio(dataset: str, model: str) -> float:
    """The Cover-Ratio that the paper reports for a dynamic model."""
    return TABLE[dataset][model].cover_ratio if dataset in TABLE else DEFAULT_COVER_RATIO
