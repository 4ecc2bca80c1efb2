"""The paper's protocol: models, settings, parameter sweeps and the printed Table 1."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.metrics import discounts, ideal_dcg
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


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


MAX_LENGTH = 100  # candidates per user; no list is longer
CAPS = (MAX_ITEMS, MAX_LENGTH)  # longest list
STRATA = np.array([1, 2, 3, 5, 9])  # shortest history of each stratum, in baskets
DRAW_STREAM = 12  # second seed of the drawn validation users


class Reading(NamedTuple):
    """One way to read the paper's description of its test set."""

    name: str
    single: bool = False  # only the last item of the last basket counts
    min_baskets: int = 2  # of a tested user, test basket included


READINGS: dict[str, tuple[Reading, ...]] = {
    "ml-100k": (Reading("all items of the last second"), Reading("single last item", single=True)),
    "ta-feng": (Reading("all users"), Reading("users with ≥ 3 baskets", min_baskets=3)),
    "sample": (Reading("all users"), Reading("single last item", single=True)),
}


def read_truth(truth: Interactions, reading: Reading) -> Interactions:
    """The interactions that count; of items with the same time, the last one in the data."""
    if not reading.single:
        return truth
    last = np.zeros(truth.n_rows, np.bool_)
    last[truth.indptr[1:][np.diff(truth.indptr) > 0] - 1] = True
    return truth.where(last)


def users_to_test(history: Interactions, truth: Interactions, reading: Reading) -> Ints:
    """Users with truth and enough earlier baskets."""
    users = truth.active_users
    return users[np.diff(history.user_baskets)[users] >= reading.min_baskets - 1]


def draw_like(wanted: Longs, available: Longs, seed: int, limit: int) -> Longs:
    """Positions in `available`, drawn so that histories are as long as those in `wanted`, ascending.

    Both arrays hold numbers of baskets. Strata without available users are left out.
    """
    target, found = (np.bincount(_stratum(one), minlength=STRATA.size) for one in (wanted, available))
    shares = np.where(found > 0, target, 0).astype(np.float64)
    if not shares.sum():
        shares = found.astype(np.float64)
    shares /= max(shares.sum(), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        n = float(np.where(shares > 0, found / shares, np.inf).min())
    sizes = np.floor(min(n, limit) * shares + 1e-9).astype(np.int64)
    shuffled = np.random.Generator(np.random.PCG64([seed, DRAW_STREAM])).permutation(available.size)
    strata = _stratum(available[shuffled])
    return np.sort(np.concatenate([shuffled[strata == s][: sizes[s]] for s in range(STRATA.size)]))


def _stratum(n_baskets: Longs) -> Longs:
    return np.maximum(np.searchsorted(STRATA, n_baskets, side="right") - 1, 0)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What happened to the candidates of n users; lists of any length are scored from it."""

    hits: Longs  # (n, MAX_LENGTH + 1) relevant items among the first k candidates
    dcg: Doubles  # (n, MAX_LENGTH + 1) of the first k candidates
    n_true: Longs  # (n,)
    n_candidates: Longs  # (n,)
    margins: Floats | None  # (n, MAX_LENGTH) score minus boundary, descending; -inf without a candidate

    @classmethod
    def of(cls, lists: RankedLists, truth: Interactions, users: Ints) -> "Outcomes":
        """The outcomes of these users; `lists` has one list for each user of a superset, ascending."""
        numbers = np.searchsorted(truth.users.lookup(lists.users.values), users)
        lists = lists.take(numbers)
        sizes = np.minimum(np.diff(lists.indptr), MAX_LENGTH)
        at = lists.positions < MAX_LENGTH
        row, position = np.repeat(np.arange(users.size), np.diff(lists.indptr))[at], lists.positions[at]
        pairs = np.unique(truth.user.astype(np.int64) * truth.n_items + truth.item)
        relevant = np.zeros((users.size, MAX_LENGTH))
        relevant[row, position] = np.isin(
            users[row].astype(np.int64) * truth.n_items + lists.items[at], pairs
        )
        margins = None
        if lists.boundary is not None:
            margins = np.full((users.size, MAX_LENGTH), -np.inf, np.float32)
            margins[row, position] = lists.scores[at] - lists.boundary[row]
        none = np.zeros((users.size, 1))
        return cls(
            np.hstack([none, relevant.cumsum(axis=1)]).astype(np.int64),
            np.hstack([none, (relevant * discounts(MAX_LENGTH)).cumsum(axis=1)]),
            np.bincount(pairs // truth.n_items, minlength=truth.n_users)[users],
            sizes.astype(np.int64),
            margins,
        )

    def f1(self, lengths: Longs | int) -> Doubles:
        """(n,) F1 of lists of these lengths; 0 for an empty list."""
        k = np.minimum(lengths, self.n_candidates)
        return np.asarray(2 * self.hits[np.arange(k.size), k] / (k + self.n_true))

    def ndcg(self, lengths: Longs | int) -> Doubles:
        """(n,) NDCG against the ideal list of the same length, as in the paper; 0 for an empty list."""
        k = np.minimum(lengths, self.n_candidates)
        ideal = ideal_dcg(MAX_LENGTH)[np.clip(np.minimum(k, self.n_true), 1, MAX_LENGTH)]
        return np.asarray(self.dcg[np.arange(k.size), k] / ideal)

    @cached_property
    def curves(self) -> dict[str, Doubles]:
        """Mean F1 and NDCG at every N of the paper's Figure 2."""
        return {
            "f1": np.array([self.f1(N).mean() for N in LENGTHS]),
            "ndcg": np.array([self.ndcg(N).mean() for N in LENGTHS]),
        }

    def above(self, shift: float = 0.0, cap: int = MAX_LENGTH) -> Longs:
        """(n,) candidates above the boundary, which is moved up by `shift`."""
        assert self.margins is not None
        return np.asarray(np.minimum((self.margins > shift).sum(axis=1), cap), np.int64)

    def shift_for(self, cover_ratio: float) -> float:
        """How far to move all boundaries so that this share of the users is covered."""
        assert self.margins is not None
        best = np.sort(self.margins[:, 0])[::-1]
        n = int(np.clip(round(cover_ratio * best.size), 1, best.size))
        lower = best[n] if n < best.size else best[n - 1] - 1.0
        return float((best[n - 1] + lower) / 2)


def covered_mean(values: Doubles, lengths: Longs) -> float:
    """Mean over users with a list; 0 if there is none."""
    covered: Bools = lengths > 0
    return float(values[covered].mean()) if covered.any() else 0.0


def best_lengths(figures: dict[str, Any]) -> dict[str, int]:
    """The best N of each metric, from its curve over N."""
    return {metric: int(np.argmax(figures[metric])) + LENGTHS[0] for metric in METRICS}


def fixed_values(found: Outcomes, lengths: dict[str, int]) -> dict[str, Doubles]:
    """The values of users at the N of F1, and NDCG at its own N."""
    return {
        "f1": found.f1(lengths["f1"]),
        "ndcg": found.ndcg(lengths["f1"]),
        "ndcg_own": found.ndcg(lengths["ndcg"]),
    }


def boundary_values(found: Outcomes, lengths: Longs | None = None) -> dict[str, Doubles]:
    """The values of users with lists of these lengths, by default up to the boundary, and who is covered."""
    lengths = found.above() if lengths is None else lengths
    values = {"covered": (lengths > 0).astype(np.float64)}
    for cap in CAPS:
        values[f"f1_{cap}"] = found.f1(np.minimum(lengths, cap))
        values[f"ndcg_{cap}"] = found.ndcg(np.minimum(lengths, cap))
    return values | {"long": (lengths > MAX_ITEMS).astype(np.float64)}
