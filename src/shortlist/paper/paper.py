"""What the paper did and printed: models, settings, sweeps and Table 1 (F1, Cover-Ratio, NDCG)."""

from typing import NamedTuple


class Cells(NamedTuple):
    """One model on one dataset, as printed."""

    f1: float
    cover: float
    ndcg: float


MODELS = ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM")
TITLES = {"DKBPRMF": "DK-BPRMF", "DKHRM": "DK-HRM", "PersonalFrequency": "Personal frequency"}
ORIGINAL = {"DKBPRMF": "BPRMF", "DKHRM": "HRM"}  # what each dynamic model extends
BASELINES = ("Popularity", "PersonalFrequency")  # not in the paper, and hard to beat
SETTINGS = {
    "DKBPRMF": {"t": 1.0, "alpha": 0.5, "lambda_t": 1.0},
    "DKHRM": {"t": 2.0, "alpha": 0.5, "lambda_t": 1.0},
}
SWEEPS: dict[str, tuple[float, ...]] = {
    "t": (0.5, 1.0, 1.5, 2.0, 2.5),
    "lambda_t": (0.01, 0.1, 1.0, 10.0, 100.0),
    "alpha": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
}
BIASED = "t_biased"  # the sweep of t with item biases, which the paper's models do not have
LONGEST = 20  # Figure 2 goes from N = 1 to here
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
COVER = 0.7  # what to aim at on data the paper does not have


def title(model: str) -> str:
    """A model's name as people write it."""
    return TITLES.get(model, model)


def target_cover(dataset: str, model: str) -> float:
    """The Cover-Ratio the paper reports for one of its dynamic models."""
    return TABLE[dataset][model].cover if dataset in TABLE else COVER
