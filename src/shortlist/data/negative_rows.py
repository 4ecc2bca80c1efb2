"""Negative feedback: which rows count as dislikes or returns, and whether they are dropped or kept."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shortlist.core.estimator import is_finite, short_repr
from shortlist.errors import ConfigError, DataError
from shortlist.types import Bools, Floats

if TYPE_CHECKING:
    from shortlist.data.columns import Table
    from shortlist.data.interactions import Interactions

NegativeWeights = Literal["drop", "keep"]


def check_options(negative_weights: Any, min_rating: Any) -> None:
    """Raise ConfigError unless negative weights are dropped or kept, and min_rating is a number or None."""
    if negative_weights not in ("drop", "keep"):
        raise ConfigError(
            f"negative_weights must be 'drop' or 'keep', got {short_repr(negative_weights)}; choose one.",
            parameter="negative_weights",
        )
    if min_rating is not None and not is_finite(min_rating):
        raise ConfigError(
            f"min_rating must be a number, got {short_repr(min_rating)}; pass the lowest rating that counts "
            "as liked, such as 4.",
            parameter="min_rating",
        )


def subtract_min_rating(weight: Floats, min_rating: float | None) -> Floats:
    """(n_rows,) ratings below `min_rating` become their negative distance from it; the others stay."""
    if min_rating is None:
        return weight
    return np.where(weight < min_rating, weight - np.float32(min_rating), weight).astype(np.float32)


def select_rows(table: "Table", weight: Floats) -> Bools | None:
    """(n_rows,) the rows to keep; None if all are kept. What was found becomes a note of the table."""
    negative = weight < 0
    n = int(negative.sum())
    note_negative(table, n, weight.size)
    return None if not n or table.negative_weights == "keep" else ~negative


def note_negative(table: "Table", n: int, n_rows: int) -> None:
    """Add a note on n rows of negative weight to the table; DataError if dropping them leaves no row."""
    name = table.roles.get("weight")
    if table.min_rating is not None:
        found = describe_rows(n, n_rows, table.min_rating, table.negative_weights, f" (column {name!r})")
        table.note(found)
    elif n and table.negative_weights == "keep":
        table.note(
            f"{n:,} of {n_rows:,} rows have a negative weight (column {name!r}) and were kept as "
            "negative feedback; models use it if their weighting is not 'none'."
        )
    if not n or table.negative_weights == "keep":
        return
    if n == n_rows:
        rule = "a negative weight" if table.min_rating is None else f"a rating below {table.min_rating:g}"
        raise DataError(
            f"{n:,} of {n:,} rows have {rule} (column {name!r}), which leaves none; pass "
            'negative_weights="keep", or weight="" to ignore the column.',
            parameter="negative_weights" if table.min_rating is None else "min_rating",
        )
    if table.min_rating is None:
        table.doubt(
            f"{n:,} of {n_rows:,} rows have a negative weight (column {name!r}), such as a return or a "
            "dislike, and were dropped; the earlier purchase stays. Pass "
            'negative_weights="keep" (--negative_weights keep) to keep them.'
        )


def describe_rows(n: int, n_rows: int, min_rating: float, negative_weights: str, where: str = "") -> str:
    """A sentence on the rows below `min_rating`."""
    outcome = "dropped" if negative_weights == "drop" else "kept as negative feedback"
    return f"{n:,} of {n_rows:,} rows have a rating below {min_rating:g}{where} and were {outcome}."


def without_negative(data: "Interactions") -> "Interactions":
    """The rows without negative weight: returns and dislikes are not what a user wanted."""
    if data.weight is None or not (data.weight < 0).any():
        return data
    return data.where(data.weight >= 0)
