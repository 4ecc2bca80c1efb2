"""The cut alone: lists of any ranker, cut with a cutoff that was fitted on earlier lists and outcomes."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.expected import ExpectedF1, ExpectedNDCG
from shortlist.cutoff.expected_value import ExpectedValue
from shortlist.cutoff.guarantee import Guarantee
from shortlist.cutoff.threshold import Threshold
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.data.reasons import REASON_TEXT
from shortlist.errors import ConfigError, DataError
from shortlist.serve.schemas import CutBody, CutFitBody, ScoredList

MIN_LISTS = 20  # to fit a cutoff on
KINDS: dict[str, type[Cutoff]] = {
    kind.__name__: kind for kind in (ExpectedF1, ExpectedNDCG, ExpectedValue, Threshold, Guarantee)
}


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
    kind = KINDS[body.cutoff]
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
