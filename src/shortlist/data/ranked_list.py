"""RankedList: the list of one user."""

from dataclasses import dataclass
from typing import Any

from shortlist.types import Doubles, Floats


@dataclass(frozen=True)
class RankedList:
    """The list of one user, best item first.

    Parameters
    ----------
    user_id
        The user.
    items
        Item ids, best first.
    scores
        (n,) score of each item.
    probabilities
        (n,) probability that each item is relevant, if the model predicts it.
    boundary
        The score at which the list ends, for models with a boundary.
    reason
        Why the list ends, one of `shortlist.data.reasons.REASONS`.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"user_id": ["ann", "ann"], "item_id": ["milk", "tea"], "rank": [1, 2]})
    >>> sl.RankedLists.from_frame(table)["ann"].items
    ['milk', 'tea']
    """

    user_id: Any
    items: list[Any]
    scores: Floats
    probabilities: Doubles | None
    boundary: float | None
    reason: str | None

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        shown = ", ".join(repr(item)[:40] for item in self.items[:5]) + (", …" if len(self) > 5 else "")
        user = repr(self.user_id)[:40]
        return f"RankedList(user {user}, {len(self)} items: [{shown}], reason={self.reason!r})"
