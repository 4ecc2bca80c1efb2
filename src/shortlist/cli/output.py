"""Output: results on stdout, notes and errors on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from shortlist.text import clean_message, json_safe, printable

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
