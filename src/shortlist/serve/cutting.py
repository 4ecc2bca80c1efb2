"""The cut alone: lists of any ranker, cut with a cutoff that was fitted on earlier lists and outcomes."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.expected import ExpectedUtility
from shortlist.cutoff.threshold import coverage_threshold
from shortlist.data.interactions import Interactions
from shortlist.data.lists import REASON_TEXT, RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.serve.deployment import Served
from shortlist.serve.events import sample_users
from shortlist.serve.schemas import CutBody, CutFitBody, ScoredList

MIN_LISTS = 20  # to fit a cutoff on


def build_lists(scored: Sequence[ScoredList]) -> RankedLists:
    """Lists in order of the scores; equal scores stay in the given order."""
    if len({type(one.user_id) for one in scored}) > 1:
        raise DataError("user_id must be an integer everywhere or a text everywhere; use one type.")
    kinds = {type(item.item_id) for one in scored for item in one.items}
    if len(kinds) > 1:
        raise DataError("item_id must be an integer everywhere or a text everywhere; use one type.")
    rows: list[tuple[Any, Any, float, float | None, int]] = []
    for one in scored:
        if len({item.item_id for item in one.items}) < len(one.items):
            raise DataError("a list must hold an item once; remove the repetitions.")
        ranked = sorted(one.items, key=lambda item: -item.score)
        rows += [
            (one.user_id, item.item_id, float(item.score), item.probability, rank)
            for rank, item in enumerate(ranked, 1)
        ]
        if not ranked:
            rows.append((one.user_id, None, 0.0, None, 0))
    if len({one.user_id for one in scored}) < len(scored):
        raise DataError("a user may have one list per request; send several requests.")
    columns = ["user_id", "item_id", "score", "probability", "rank"]
    frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    if frame["probability"].null_count():
        frame = frame.drop("probability")
    return RankedLists.from_frame(frame)


def cut_lists(body: CutBody, cutoff: Cutoff | str) -> dict[str, Any]:
    """Cut each list; the lists are answered in the order of the request."""
    if isinstance(cutoff, str):
        raise ConfigError("cutoff must be a cutoff_id; POST /v1/cut/fit returns one.")
    if not body.lists:
        return {"lists": []}
    lists = build_lists(body.lists)
    cut = cutoff.apply(lists)
    found = []
    for one in body.lists:
        shown = cut[one.user_id]
        probabilities = [None] * len(shown) if shown.probabilities is None else shown.probabilities.tolist()
        found.append(
            {
                "user_id": one.user_id,
                "items": [
                    {"item_id": item, "score": score, "probability": probability}
                    for item, score, probability in zip(
                        shown.items, shown.scores.tolist(), probabilities, strict=True
                    )
                ],
                "reason": shown.reason,
                "explanation": REASON_TEXT.get(shown.reason or ""),
                "withheld": len(one.items) - len(shown),
            }
        )
    return {"lists": found}


def fit_cutoff(body: CutFitBody) -> Cutoff:
    """Fit a cutoff on lists and the relevant items of their users."""
    if len(body.lists) < MIN_LISTS:
        raise DataError(f"lists must hold at least {MIN_LISTS} lists, got {len(body.lists)}; send more.")
    kind = Cutoff.classes()[body.cutoff]
    unknown = sorted(set(body.params) - {field.name for field in fields(kind)})
    if unknown:
        raise ConfigError(
            f"params has the unknown name {unknown[0][:60]!r}; see the documentation of {body.cutoff}."
        )
    lists = build_lists(body.lists)
    pairs = [(one.user_id, item) for one in body.outcomes for item in one.items]
    if not pairs:
        raise DataError("outcomes must hold at least one relevant item; send what users did next.")
    truth = Interactions.from_frame(pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row"))
    params: dict[str, Any] = dict(body.params)
    return kind(**params).fit(lists, truth)


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
