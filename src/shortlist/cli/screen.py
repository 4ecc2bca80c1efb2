"""What a person or a script sees: results on stdout, everything said about them on stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

Json = Annotated[bool, Parameter(help="Print one JSON document, for scripts.", show_default=False)]
PLAIN_WIDTH = 120  # a pipe has no width; wide enough that no table breaks a line


def complain(sentence: str, code: int) -> int:
    """One line on stderr; returns the exit code so that the caller can return it."""
    sys.stderr.write(f"shortlist: {' '.join(sentence.split())}\n")
    return code


def say(sentence: str) -> None:
    """Narration, on stderr so that stdout stays the result."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def show(*parts: Any) -> None:
    """Rich text or tables on stdout: coloured and fitted on a terminal, plain and wide elsewhere."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    with console.capture() as captured:  # rich would end the process itself when the pipe is closed
        for part in parts:
            console.print(part)
    sys.stdout.write(captured.get())


def show_text(text: str) -> None:
    """Lines on stdout as they are: no markup, no wrapping."""
    sys.stdout.write(f"{text}\n")


def show_json(value: Any) -> None:
    """One JSON document on stdout; NaN has no place in JSON and becomes null."""
    sys.stdout.write(json.dumps(without_nan(value), indent=2, ensure_ascii=False, default=str) + "\n")


def without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()  # a NumPy scalar
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """A ruled table: numbers to the right, thousands separated, everything else to the left."""
    from rich import box
    from rich.table import Table

    kept = [list(row) for row in rows]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numbers = bool(kept) and all(type(row[index]) in (int, float) for row in kept)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in kept:
        table.add_row(*(cell(value) for value in row))
    show(table)


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    from rich.markup import escape

    return escape(str(value))
