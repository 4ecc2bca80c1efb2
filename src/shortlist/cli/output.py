"""Output: results on stdout, notes and errors on stderr; lists and models as tables."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from shortlist.errors import DataError
from shortlist.text import clean_message, json_safe, printable

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from shortlist.data.ids import IdMap
    from shortlist.data.interactions import Interactions
    from shortlist.data.lists import RankedList, RankedLists
    from shortlist.models.base import Recommender

Json = Annotated[bool, Parameter(help="Print one JSON document, for scripts.", show_default=False)]
ASCII_MARKS = str.maketrans(
    {"─": "-", "█": "#", "✓": "x", "…": "...", "–": "-", "−": "-", "×": "x", "±": "+-", "→": "->", "·": "|"}
)  # instead of the typographic marks that only UTF-8 can show
PLAIN_WIDTH = 120  # a pipe has no width; wide enough that no table wraps


def print_error(sentence: str, code: int) -> int:
    """Print one line on stderr; returns the exit code for the caller to return."""
    sys.stderr.write(f"shortlist: {clean_message(' '.join(sentence.split()))}\n")
    return code


def print_note(sentence: str) -> None:
    """Print a line on stderr, so that stdout contains only the result."""
    sys.stderr.write(f"{printable(sentence)}\n")
    sys.stderr.flush()


def progress_lines() -> Callable[[str], None] | None:
    """Callback for plain lines where the library shows no bar by itself; None on a terminal."""
    return None if sys.stderr.isatty() else print_note


def show(*parts: Any) -> None:
    """Print rich text or tables on stdout: colored and fitted on a terminal, plain and wide elsewhere."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    with console.capture() as captured:  # rich would exit by itself if the pipe is closed
        for renderable in parts:
            lines = console.render_lines(renderable, pad=False, new_lines=True)
            clean = [
                Segment(printable(segment.text, "\n"), segment.style) for line in lines for segment in line
            ]
            console.print(Segments(clean), end="")
    sys.stdout.write(_plain_marks(captured.get()))


def show_text(text: str) -> None:
    """Print lines on stdout as they are: no markup, no wrapping."""
    sys.stdout.write(_plain_marks(f"{printable(text, keep=chr(10))}\n"))


def _is_utf8() -> bool:
    """Whether stdout can show every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _plain_marks(text: str) -> str:
    """The text with lines, bars and typographic marks in ASCII if stdout is not UTF-8."""
    return text if _is_utf8() else text.translate(ASCII_MARKS)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout; NaN and infinity become null."""
    from shortlist.core.tables import without_nan

    show_json_text(json.dumps(without_nan(value), indent=2, ensure_ascii=not _is_utf8(), default=str))


def show_json_text(text: str) -> None:
    """Print JSON on stdout, without raw control characters; the values stay the same."""
    sys.stdout.write(f"{json_safe(text)}\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """Print a table: numbers right-aligned with thousands separators, everything else left-aligned."""
    from rich import box
    from rich.table import Table

    cells = [list(row) for row in rows]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numbers = bool(cells) and all(type(row[index]) in (int, float) for row in cells)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*(_cell(value) for value in row))
    show(table)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    from rich.markup import escape

    return escape(printable(value))


# ---------------------------------------------------------------------- lists and models
BOUNDARY_REASONS = ("boundary", "no_candidate_above_boundary")
MAX_USERS = 2_000  # users whose lists are counted
BAR = 40  # length of the longest bar, in characters
Row = tuple[Any, float, float | None]  # item id, score, probability


def parse_words(words: Iterable[str], ids: "IdMap") -> list[Any]:
    """Convert ids from text to integers if the model has integer ids."""
    if not ids.values.dtype.is_integer():
        return list(words)
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise DataError(
            f"the ids of this model are integers, got {str(error).rpartition(': ')[2]}; pass an integer."
        ) from None


def list_as_json(ranked: "RankedList", data: "Interactions") -> dict[str, Any]:
    """One list in plain values, with item names if the data has them."""
    return {
        "user_id": ranked.user_id,
        "length": len(ranked),
        "boundary": ranked.boundary,
        "reason": ranked.reason,
        "items": ranked.items,
        "names": None if data.item_names is None else list(map(data.item_label, ranked.items)),
        "scores": ranked.scores.tolist(),
        "probabilities": None if ranked.probabilities is None else ranked.probabilities.tolist(),
    }


def rows_of(ranked: "RankedList") -> list[Row]:
    """Item id, score and probability of each item; None for items without a probability."""
    values = [None] * len(ranked) if ranked.probabilities is None else ranked.probabilities.tolist()
    probabilities = [None if p != p else p for p in values]  # NaN: an item of the fallback
    return list(zip(ranked.items, ranked.scores.tolist(), probabilities, strict=True))


def list_table(
    ranked: "RankedList",
    candidates: Sequence[Row],
    data: "Interactions",
    *,
    relevant: Collection[Any] = (),
    max_rows: int | None = None,
    max_withheld: int | None = None,
    is_calibrated: bool = True,
) -> "Table":
    """The list, a line where it ends, and the next candidates; ✓ marks relevant items.

    Probabilities that were not calibrated are not shown.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from shortlist.data.lists import REASON_TEXT

    length = f"{len(ranked)} item{'' if len(ranked) == 1 else 's'}"
    # two lines, because a title is not wider than its table
    title = f"{printable(f'user {ranked.user_id}: {length}')}\n{REASON_TEXT.get(ranked.reason or '', '')}"
    table = Table(title=Text(title.rstrip()), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("", justify="right")
    table.add_column("item", overflow="fold", min_width=44)
    rows = rows_of(ranked)
    has_probabilities = is_calibrated and any(row[2] is not None for row in (*rows, *candidates))
    ends_at_score = ranked.boundary is not None and ranked.reason in BOUNDARY_REASONS
    columns = ["score"] * (ends_at_score or not has_probabilities) + ["probability"] * has_probabilities
    for column in columns:  # a list is in the order of its probabilities, or of its scores if it has none
        table.add_column(column, justify="right")

    def add(row: Row, rank: str, style: str = "") -> None:
        item, score, probability = row
        mark = " ✓" if item in relevant else ""
        share = "" if probability is None else f"{probability:.1%}"
        texts = {"score": f"{score:.3f}", "probability": share}
        values = (texts[column] for column in columns)
        table.add_row(rank, Text(printable(data.item_label(item)) + mark), *values, style=style)

    for rank, row in enumerate(rows[:max_rows], 1):
        add(row, str(rank))
    if max_rows is not None and max_rows < len(rows):
        table.add_row("", f"… and {len(rows) - max_rows} more")
    level = f"{ranked.boundary:.3f}" if ends_at_score else ""
    table.add_row("", Text("─" * 12 + " the list ends here " + "─" * 12), level, style="bold")
    shown = set(ranked.items)
    for row in [row for row in candidates if row[0] not in shown][:max_withheld]:
        add(row, "", "dim")
    return table


def lengths_table(lists: "RankedLists") -> "Table":
    """Histogram of list lengths."""
    import numpy as np
    from rich import box
    from rich.table import Table

    lengths, counts = np.unique(lists.lengths, return_counts=True)
    edges = (
        lengths
        if lengths.size <= 12
        else np.unique(np.quantile(lists.lengths, np.linspace(0, 0.9, 10)).astype(int))
    )
    bins = np.searchsorted(edges, lengths, side="right") - 1
    heights = np.bincount(bins, weights=counts, minlength=edges.size).astype(int)
    title = f"{len(lists):,} lists, {lists.items.size:,} items in total, coverage {lists.cover_ratio:.0%}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("length", justify="right")
    table.add_column("users", justify="right")
    table.add_column("")
    for at, low in enumerate(edges):
        high = lengths[-1] if at + 1 == edges.size else edges[at + 1] - 1
        label = f"{low}" if high <= low else f"{low}–{high}"
        table.add_row(label, f"{heights[at]:,}", "█" * round(BAR * heights[at] / max(heights.max(), 1)))
    return table


def sample_lists(model: "Recommender") -> "RankedLists | None":
    """Lists of the first users; None for a model without cutoff and boundary."""
    if model.cutoff_ is None and not model.has_boundary:
        return None
    return model.recommend(model.users_.to_ids(model.history_.active_users[:MAX_USERS]))


def count_empty(summary: "pl.DataFrame") -> dict[str, int]:
    """Number of empty lists by reason, from a table with length and reason; most frequent first."""
    import polars as pl

    empty = summary.filter(pl.col("length") == 0)["reason"].fill_null("no reason").value_counts()
    return dict(sorted(empty.rows(), key=lambda row: (-row[1], row[0])))


def describe_empty(empty: dict[str, int], n_lists: int, n_users: int | None = None) -> str:
    """How many users get a list, and why the others get none; `n_users` if the lists are a sample."""
    from shortlist.data.lists import REASON_TEXT

    total = sum(empty.values())
    reasons = "; ".join(f"{count:,} {name} ({REASON_TEXT.get(name, name)})" for name, count in empty.items())
    others = f"; {total:,} get none: {reasons}" if total else ""
    if n_users is not None and n_users > n_lists:
        checked = f"checked on the first {n_lists:,} of {n_users:,} users"
        return f"{checked}: {n_lists - total:,} get a list{others}"
    return f"{n_lists - total:,} of {n_lists:,} users get a list{others}"


def plain_value(value: Any) -> Any:
    """A parameter as it is, or the shape and type of an array."""
    if isinstance(value, tuple) and any(hasattr(entry, "shape") for entry in value):
        return ", ".join(str(plain_value(entry)) for entry in value)
    if not hasattr(value, "shape"):
        return value
    return f"array {' × '.join(f'{n:,}' for n in value.shape)}, {value.dtype}"


def summarize_model(model: "Recommender", path: Path) -> dict[str, Any]:
    """What a saved model contains, in plain values."""
    data = model.history_
    training = {}
    if model.uses_epochs:
        training = {"n_epochs": model.n_epochs_, "stopped": model.stopped_}
    return {
        "model": str(path),
        "class": type(model).__name__,
        "cutoff": None if model.cutoff_ is None else type(model.cutoff_).__name__,
        "stopping_rule": None if model.cutoff_ is None else repr(model.cutoff_),
        "rows": data.n_rows,
        "users": data.n_users,
        "items": data.n_items,
        "data": data.fingerprint,
        "columns": None if data.source is None else data.source.describe().removeprefix("columns: "),
        **training,
        "params": {name: plain_value(value) for name, value in model.get_params().items()},
        "reason": None if model.selection_ is None else model.selection_.reason,
        "held_out": None if model.selection_ is None else model.selection_.held_out,
    }
