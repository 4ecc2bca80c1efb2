"""Cuts of other rankers' lists."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.data.lists import REASON_TEXT, RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.serve.schemas import CutBody, ScoredList


def parse_lists(scored: Sequence[ScoredList]) -> RankedLists:
    """Lists in order of the scores; equal scores stay in the given order."""
    if len({type(given.user_id) for given in scored}) > 1:
        raise DataError("user_id must be an integer everywhere or a text everywhere; use one type.")
    if len({type(item.item_id) for given in scored for item in given.items}) > 1:
        raise DataError("item_id must be an integer everywhere or a text everywhere; use one type.")
    if len({given.user_id for given in scored}) < len(scored):
        raise DataError("a user may have one list per request; send several requests.")
    rows: list[tuple[Any, Any, float, float | None, int]] = []
    for given in scored:
        if len({item.item_id for item in given.items}) < len(given.items):
            raise DataError("a list must hold an item once; remove the repetitions.")
        ranked = sorted(given.items, key=lambda item: -item.score)
        rows += [
            (given.user_id, item.item_id, item.score, item.probability, rank)
            for rank, item in enumerate(ranked, 1)
        ]
        if not ranked:
            rows.append((given.user_id, None, 0.0, None, 0))
    columns = ["user_id", "item_id", "score", "probability", "rank"]
    frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    if frame["probability"].null_count():
        frame = frame.drop("probability")
    return RankedLists.from_frame(frame)


def cut_lists(body: CutBody, cutoff: Cutoff | str) -> dict[str, Any]:
    """Cut each list; the lists are answered in the order of the request."""
    if isinstance(cutoff, str):
        raise ConfigError("cutoff must be the name of a file; `shortlist cut --save` writes one.")
    if not body.lists:
        return {"lists": []}
    cut = cutoff.apply(parse_lists(body.lists))
    answers = []
    for given in body.lists:
        shown = cut[given.user_id]
        probabilities = [None] * len(shown) if shown.probabilities is None else shown.probabilities.tolist()
        answers.append(
            {
                "user_id": given.user_id,
                "items": [
                    {"item_id": item, "score": score, "probability": probability}
                    for item, score, probability in zip(
                        shown.items, shown.scores.tolist(), probabilities, strict=True
                    )
                ],
                "reason": shown.reason,
                "explanation": REASON_TEXT.get(shown.reason or ""),
                "withheld": len(given.items) - len(shown),
            }
        )
    return {"lists": answers}
