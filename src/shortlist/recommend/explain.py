"""explain: one user's ranked head, how far each item stands from the boundary, and what pulled it there."""

from typing import Any

import numpy as np
import polars as pl

from shortlist.errors import ConfigError
from shortlist.recommend.recommend import recommend
from shortlist.recommend.scorer import Scorer
from shortlist.types import Doubles, Ints


def explain(scorer: Scorer, user_id: Any, *, N: int = 10, n_past: int = 3, **wishes: Any) -> pl.DataFrame:
    """The first N candidates: rank, item_id, score, boundary, margin, shown, probability, pulled_by.

    `pulled_by`, for factor models: the `n_past` past items that pull hardest. The pull of a past item is the
    inner product of its vector with the recommended one's, where positive, as a share of all such pulls.
    Other wishes (candidates, filter_seen, exclude) are those of `recommend`.
    """
    user = scorer.users_.index(user_id)
    if n_past < 0:
        raise ConfigError(f"n_past must be at least 0, got {n_past}; 0 leaves the past out.")
    head = recommend(scorer, [user_id], N=N, **wishes)
    boundary = np.nan if head.boundary is None else float(head.boundary[0])
    scores = head.scores.astype(np.float64)
    frame = pl.DataFrame(
        {
            "rank": head.positions + 1,
            "item_id": scorer.items_.to_ids(head.items),
            "score": scores,
            "boundary": np.full(scores.size, boundary),
            "margin": scores - boundary,
            "probability": np.full(scores.size, np.nan) if head.probabilities is None else head.probabilities,
            "shown": scores > boundary,
        }
    ).with_columns(pl.col("boundary", "margin", "probability").fill_nan(None))
    names = scorer.history.item_names
    if names is not None:
        frame.insert_column(2, names.gather(pl.Series(head.items)).alias("item_name"))
    if np.isnan(boundary):
        frame = frame.with_columns(shown=pl.lit(None, pl.Boolean))
    return frame.with_columns(pulled_by=_pulled_by(scorer, user, head.items, n_past))


def pulls(item_factors: Any, items: Ints, past: Ints) -> Doubles:
    """(n_items, n_past) the share of each past item in what pulls an item; all 0 where nothing pulls."""
    vectors = np.asarray(item_factors, np.float64)
    positive = np.maximum(vectors[items] @ vectors[past].T, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    shares: Doubles = np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)
    return shares


def _pulled_by(scorer: Scorer, user: int, items: Ints, n_past: int) -> pl.Series:
    parts = scorer.factors(np.array([user], np.int32))
    kind = pl.List(pl.Struct({"item_id": scorer.items_.values.dtype, "share": pl.Float64}))
    indptr, seen = scorer.seen_items
    past = seen[indptr[user] : indptr[user + 1]]
    if parts is None or past.size == 0 or n_past == 0:
        return pl.Series([None] * items.size, dtype=kind)
    rows = []
    for share in pulls(parts[1], items, past):
        hardest = np.argsort(-share, kind="stable")[:n_past]
        hardest = hardest[share[hardest] > 0]
        names = scorer.items_.to_ids(past[hardest]).to_list()
        rows.append([{"item_id": n, "share": s} for n, s in zip(names, share[hardest].tolist(), strict=True)])
    return pl.Series(rows, dtype=kind)
