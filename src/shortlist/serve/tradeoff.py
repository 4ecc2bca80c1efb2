"""The trade-off between precision and coverage, as the model in service expects it."""

from typing import Any

import numpy as np

from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.expected import ExpectedUtility
from shortlist.cutoff.search import coverage_threshold
from shortlist.errors import ConfigError
from shortlist.serve.deployment import Served
from shortlist.serve.observing import sample_users

SAMPLE_USERS = 2_000
STEPS = 20


def compute_tradeoff(served: Served) -> dict[str, Any]:
    """Expected precision and length if only the most certain users are sent a list, in steps of 5%."""
    model = served.model
    sample = sample_users(model, SAMPLE_USERS)
    lists = model.recommend(sample, n_threads=1)
    if lists.probabilities is None:
        raise ConfigError(
            "the lists of this model have no probabilities; fit it with a cutoff such as ExpectedF1."
        )
    sums = np.concatenate(([0.0], np.cumsum(lists.probabilities)))
    hits = sums[lists.indptr[1:]] - sums[lists.indptr[:-1]]  # expected relevant items of each list
    lengths = lists.lengths
    precision = np.divide(hits, lengths, out=np.zeros(len(lists)), where=lengths > 0)
    certain = np.lexsort((np.arange(len(lists)), -precision))  # most certain first
    certain = certain[lengths[certain] > 0]
    points = []
    for step in range(1, STEPS + 1):
        n = min(round(len(lists) * step / STEPS), certain.size)
        shown = certain[:n]
        if n == 0:
            continue
        points.append(
            {
                "coverage": n / len(lists),
                "precision": float(hits[shown].sum() / lengths[shown].sum()),
                "items_per_list": float(lengths[shown].mean()),
                "relevant_per_1000_users": float(hits[shown].sum() / len(lists) * 1000),
                "items_per_1000_users": float(lengths[shown].sum() / len(lists) * 1000),
            }
        )
        if n == certain.size:
            break
    return {
        "points": points,
        "n_users": len(lists),
        "can_activate": isinstance(model.cutoff_, ExpectedUtility),
        "note": "Expected by the probabilities of the model on its users; not measured.",
    }


def cutoff_with_coverage(served: Served, coverage: float) -> Cutoff:
    """The cutoff in service with a floor that leaves this share of the users with a list."""
    model = served.model
    cutoff = model.cutoff_
    if not isinstance(cutoff, ExpectedUtility):
        raise ConfigError(
            "only ExpectedF1, ExpectedNDCG and ExpectedValue can be given a coverage; "
            "fit the model with one of them."
        )
    sample = sample_users(model, SAMPLE_USERS)
    candidates = model.recommend(sample, N=cutoff.candidates_needed(), n_threads=1)
    utility = cutoff.expected_utility(candidates, history=model.history_)
    best = np.array([part.max(initial=0.0) for part in np.split(utility, candidates.indptr[1:-1])])
    return cutoff.with_floor(max(coverage_threshold(best, len(candidates), coverage), 0.0))
