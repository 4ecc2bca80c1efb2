"""How lists look: for one user with the boundary as a line, for all users as a histogram of lengths."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from shortlist.data.reasons import REASON_TEXT
from shortlist.errors import DataError

if TYPE_CHECKING:
    from rich.table import Table

    from shortlist.data.id_map import IdMap
    from shortlist.data.interactions import Interactions
    from shortlist.data.ranked_lists import RankedList, RankedLists

BY_BOUNDARY = ("boundary", "no_candidate_above_boundary")
BAR = 40  # characters of the longest bar


def outside_ids(words: Iterable[str], ids: "IdMap") -> list[Any]:
    """IdMap as the model knows them: integers where its ids are integers."""
    if not ids.values.dtype.is_integer():
        return list(words)
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise DataError(
            f"ids of this model are integers, got {str(error).rpartition(': ')[2]}; pass a number."
        ) from None


def as_json(one: "RankedList", past: "Interactions") -> dict[str, Any]:
    """One list in plain values; names where the data has them."""
    from shortlist.reports.model_report import item_namer

    return {
        "user_id": one.user_id,
        "length": len(one),
        "boundary": one.boundary,
        "reason": one.reason,
        "items": one.items,
        "names": None if past.item_names is None else list(map(item_namer(past), one.items)),
        "scores": one.scores.tolist(),
        "probabilities": None if one.probabilities is None else one.probabilities.tolist(),
    }


def drawn(
    one: "RankedList",
    ranked: "RankedList",
    past: "Interactions",
    *,
    taken: Collection[Any] = (),
    most: int | None = None,
    withheld: int | None = None,
) -> "Table":
    """At most `most` shown rows, a line, at most `withheld` of those below it; ✓ marks the `taken`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from shortlist.reports.model_report import item_namer

    title = (
        f"user {one.user_id}: {len(one)} item{'' if len(one) == 1 else 's'}; "
        f"{REASON_TEXT.get(one.reason or '', '')}"
    )
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("", justify="right")
    table.add_column("item", overflow="fold", min_width=44)
    table.add_column("score", justify="right")
    table.add_column("probability", justify="right")
    name = item_namer(past)

    def add(which: "RankedList", at: int, rank: str, style: str = "") -> None:
        mark = " ✓" if which.items[at] in taken else ""
        chance = "" if which.probabilities is None else f"{which.probabilities[at]:.1%}"
        table.add_row(
            rank, Text(name(which.items[at]) + mark), f"{which.scores[at]:.3f}", chance, style=style
        )

    rows = len(one) if most is None else min(most, len(one))
    for at in range(rows):
        add(one, at, str(at + 1))
    if rows < len(one):
        table.add_row("", f"… and {len(one) - rows} more")
    level = f"{one.boundary:.3f}" if one.boundary is not None and one.reason in BY_BOUNDARY else ""
    table.add_row("", Text("─" * 12 + " the list ends here " + "─" * 12), level, style="bold")
    shown = set(one.items)
    for at in [at for at, item in enumerate(ranked.items) if item not in shown][:withheld]:
        add(ranked, at, "", "dim")
    return table


def lengths_drawn(lists: "RankedLists") -> "Table":
    """How many lists have which length, and why they end."""
    import numpy as np
    from rich import box
    from rich.table import Table

    found, counts = np.unique(lists.lengths, return_counts=True)
    edges = (
        found
        if found.size <= 12
        else np.unique(np.quantile(lists.lengths, np.linspace(0, 0.9, 10)).astype(int))
    )
    bins = np.searchsorted(edges, found, side="right") - 1
    heights = np.bincount(bins, weights=counts, minlength=edges.size).astype(int)
    title = f"{len(lists):,} lists, {lists.items.size:,} items shown, {lists.cover_ratio:.0%} covered"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("length", justify="right")
    table.add_column("users", justify="right")
    table.add_column("")
    for at, low in enumerate(edges):
        high = found[-1] if at + 1 == edges.size else edges[at + 1] - 1
        label = f"{low}" if high <= low else f"{low}–{high}"
        table.add_row(label, f"{heights[at]:,}", "█" * round(BAR * heights[at] / max(heights.max(), 1)))
    return table
