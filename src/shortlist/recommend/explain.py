"""explain: one user's candidates, which of them are shown, and what contributed to each score."""

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist.data.ids import UNKNOWN
from shortlist.errors import UnknownIdError
from shortlist.types import Doubles, Floats, Ints

if TYPE_CHECKING:
    from shortlist.recommend.recommend import BatchRecommender

WITHHELD = 5  # candidates below the cut that are also explained if N is None
Contributions = list[list[tuple[str, float]]]  # per item: (source, amount), largest first


def explain_list(recommender: "BatchRecommender[Any]", N: int | None) -> tuple[pl.DataFrame, Ints]:
    """(table, items) of the request's only user; `shown` follows the cutoff in force.

    The rows are the first N candidates; without N, the whole list and the next few candidates.
    """
    request = recommender.request
    if request.users[0] == UNKNOWN:
        user_id = request.user_ids[0]
        if not request.is_session:
            request.state.history.users.index(user_id, "user id")  # raises and names similar ids
        raise UnknownIdError(f"the session {user_id!r} has no item that the model knows; nothing to explain.")
    shown = recommender.lists()
    n_shown = int(shown.lengths[0])
    n_rows = N or n_shown + WITHHELD
    cutoff = recommender.cutoff
    needed = n_rows if cutoff is None else max(n_rows, cutoff.candidates_needed())
    top = recommender.top_candidates(needed)
    if cutoff is not None:
        top = cutoff.with_probabilities(top, history=request.history)
    top = top.head(n_rows)
    scores = top.scores.astype(np.float64)
    boundary = shown.boundary if shown.boundary is not None else top.boundary
    limit = np.full(scores.size, np.nan if boundary is None else boundary[0])
    frame = pl.DataFrame(
        {
            "rank": top.positions + 1,
            "item_id": top.item_ids.to_ids(top.items),
            "score": scores,
            "boundary": limit,
            "margin": scores - limit,
            "probability": np.full(scores.size, np.nan) if top.probabilities is None else top.probabilities,
            "shown": np.arange(scores.size) < n_shown,
        }
    ).with_columns(pl.col("boundary", "margin", "probability").fill_nan(None))
    names = request.state.history.item_names
    if names is not None:
        frame.insert_column(2, names.gather(pl.Series(top.items)).alias("item_name"))
    return frame, top.items


def contributions_column(found: Contributions, n: int) -> pl.Series:
    """The n largest contributions of each item, as a list of (source, amount) structs."""
    rows = [[{"source": name, "amount": amount} for name, amount in each[:n]] for each in found]
    kind = pl.List(pl.Struct({"source": pl.String, "amount": pl.Float64}))
    return pl.Series("contributions", rows, dtype=kind)


def largest_first(names: list[str], amounts: Doubles) -> list[tuple[str, float]]:
    """Contributions other than 0, largest absolute amount first."""
    order = np.argsort(-np.abs(amounts), kind="stable")
    return [(names[at], float(amounts[at])) for at in order if amounts[at] != 0]


def similar_items(item_factors: Floats, item: int, N: int) -> tuple[Ints, Floats]:
    """(items, cosines) of the N other items with the most similar vectors; equal ones by item index."""
    norms = np.linalg.norm(item_factors, axis=1) * np.linalg.norm(item_factors[item])
    cosine = np.divide(item_factors @ item_factors[item], norms, where=norms > 0, out=np.zeros_like(norms))
    nearest = np.argsort(-cosine, kind="stable")
    nearest = nearest[nearest != item][:N]
    return nearest.astype(np.int32), cosine[nearest]
