"""Tables as aligned text, Markdown, LaTeX, HTML and for a terminal: the one renderer of all reports."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist.text import escape_html as escape
from shortlist.text import printable

if TYPE_CHECKING:
    from rich.table import Table

LATEX = str.maketrans({"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"})
ROWS, CHARACTERS = 60, 80  # limits of a table in a notebook


def cell_text(value: Any) -> str:
    """One cell: four decimals for a float, nothing for null and NaN."""
    if value is None or value != value:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else printable(value)


def plain(table: pl.DataFrame) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    cells = [table.columns, *([cell_text(value) for value in row] for row in table.rows())]
    widths = [max(len(row[k]) for row in cells) for k in range(table.width)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells
    ]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([lines[0], rule, *lines[1:]])


def markdown(table: pl.DataFrame) -> str:
    """A pipe table."""
    alignment = ["---", *["---:"] * (table.width - 1)]
    rows = [table.columns, alignment, *([cell_text(value) for value in row] for row in table.rows())]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)


def latex(table: pl.DataFrame) -> str:
    """A booktabs tabular."""
    align = "l" + "r" * (table.width - 1)

    def line(cells: list[str]) -> str:
        return " & ".join(cell.translate(LATEX) for cell in cells) + r" \\"

    body = [line([cell_text(value) for value in row]) for row in table.rows()]
    parts = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", line(table.columns), r"\midrule", *body]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}"])


def html(table: pl.DataFrame, caption: str = "", n_total: int | None = None) -> str:
    """An escaped table for a notebook; long tables and cells are cut. It has the first of `n_total` rows."""

    def line(tag: str, cells: list[str]) -> str:
        short = [cell if len(cell) <= CHARACTERS else f"{cell[: CHARACTERS - 1]}…" for cell in cells]
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in short)}</tr>"

    rows = [line("td", [cell_text(value) for value in row]) for row in table.head(ROWS).rows()]
    cut = (len(table) if n_total is None else n_total) - len(rows)
    note = f"<p>… and {cut:,} more rows</p>" if cut > 0 else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = f"<thead>{line('th', table.columns)}</thead>"
    return f"<table>{title}{head}<tbody>{''.join(rows)}</tbody></table>{note}"


def rich_table(table: pl.DataFrame, title: str = "") -> "Table":
    """A table for a terminal; only the first column may be folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for k, name in enumerate(table.columns):
        shown.add_column(
            Text(printable(name)), justify="right" if k else "left", overflow="fold", no_wrap=k > 0
        )
    for row in table.rows():
        shown.add_row(*(Text(cell_text(cell)) for cell in row))
    return shown


def without_nan(value: Any) -> Any:
    """The same nested value for JSON, which has no NaN and infinity: such a number is null."""
    if isinstance(value, dict):
        return {str(key): without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
