"""Reasons why a list ends: names as stored in files, explanations, and codes as stored in arrays."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.errors import DataError

Codes: TypeAlias = npt.NDArray[np.uint8]

REASON_TEXT = {
    "top_n": "the same number of items for every user",
    "boundary": "the next item scores below this user's boundary",
    "max_items": "the maximum length is reached",
    "min_items": "filled up to the minimum length",
    "utility": "one more item would lower the expected utility of the list",
    "value": "one more item would cost more than its expected value",
    "guarantee": "the guarantee allows no more",
    "threshold": "the next item scores below the threshold",
    "no_candidate_above_boundary": "no item scores above this user's boundary",
    "no_candidates": "no candidates are left",
    "unknown_user": "unknown user",
    "fallback": "this user has no list, so the most popular items are shown",
    "below_floor": "even the best list has too low an expected utility",
    "all_candidates": "all candidates that the stopping rule considered are in the list",
}
REASONS = tuple(REASON_TEXT)  # the code of a reason is its position
REASON_CODE = {reason: code for code, reason in enumerate(REASONS)}


def reason_names(codes: Codes | None, n_lists: int) -> pl.Series:
    """(n_lists,) names of the reasons; nulls if lists have none."""
    if codes is None:
        return pl.Series([None] * n_lists, dtype=pl.String)
    return pl.Series(REASONS).gather(pl.Series(codes.astype(np.uint32)))


def parse_reasons(frame: pl.DataFrame) -> Codes | None:
    """Codes of the column `reason`; None if the column is absent or has nulls."""
    if "reason" not in frame.columns or frame["reason"].null_count():
        return None
    names = frame["reason"].to_list()
    unknown = sorted(set(names) - set(REASONS))
    if unknown:
        raise DataError(
            f"reason must be one of {', '.join(REASONS)}, got {unknown[0]!r}; correct the column."
        )
    return np.array([REASON_CODE[name] for name in names], np.uint8)
