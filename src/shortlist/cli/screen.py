"""Output: results on stdout, notes and errors on stderr."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shortlist.text import clean_message, json_safe, printable

Json = Annotated[bool, Parameter(help="Print one JSON document, for scripts.", show_default=False)]
PLAIN_WIDTH = 120  # a pipe has no width; wide enough that no table wraps


def print_error(sentence: str, code: int) -> int:
    """Print one line on stderr; returns the exit code for the caller to return."""
    sys.stderr.write(f"shortlist: {clean_message(' '.join(sentence.split()))}\n")
    return code


def print_note(sentence: str) -> None:
    """Print a line on stderr, so that stdout contains only the result."""
    sys.stderr.write(f"{printable(sentence)}\n")
    sys.stderr.flush()


@contextmanager
def hide_panics(source: str | Path) -> Iterator[None]:
    """Drop what polars prints on stderr if a damaged Parquet file makes it panic: an error follows anyway."""
    if Path(source).suffix.lower() not in (".parquet", ".pq", ".gz", ".zst") and not Path(source).is_dir():
        yield
        return
    try:
        saved = os.dup(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # stderr is not a file
        yield
        return
    with tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        os.dup2(held.fileno(), sys.stderr.fileno())
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, sys.stderr.fileno())
            os.close(saved)
            held.seek(0)
            text = held.read().decode(errors="replace")
            sys.stderr.write("" if "panicked at" in text else text)


def progress_lines() -> Callable[[str], None] | None:
    """Callback for plain lines where the library shows no bar by itself; None on a terminal."""
    return None if sys.stderr.isatty() else print_note


def show(*parts: Any) -> None:
    """Print rich text or tables on stdout: colored and fitted on a terminal, plain and wide elsewhere."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    with console.capture() as captured:  # rich would exit by itself if the pipe is closed
        for part in parts:
            lines = console.render_lines(part, pad=False, new_lines=True)
            clean = [Segment(printable(one.text, "\n"), one.style) for line in lines for one in line]
            console.print(Segments(clean), end="")
    sys.stdout.write(captured.get())


def show_text(text: str) -> None:
    """Print lines on stdout as they are: no markup, no wrapping."""
    sys.stdout.write(f"{printable(text, keep=chr(10))}\n")


def show_json(value: Any) -> None:
    """Print one JSON document on stdout; NaN and infinity become null."""
    show_json_text(json.dumps(_without_nan(value), indent=2, ensure_ascii=False, default=str))


def show_json_text(text: str) -> None:
    """Print JSON on stdout, without raw control characters; the values stay the same."""
    sys.stdout.write(f"{json_safe(text)}\n")


def _without_nan(value: Any) -> Any:
    from numpy import generic

    if isinstance(value, dict):
        return {str(key): _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    if isinstance(value, generic):  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


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
