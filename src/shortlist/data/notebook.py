"""Small HTML tables for notebooks, and conversion to pandas."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from shortlist.errors import DataError
from shortlist.text import printable

if TYPE_CHECKING:
    import pandas

MAX_CHARS = 60  # longer cells are cut


def html_table(title: str, frame: pl.DataFrame, n_total: int | None = None) -> str:
    """An escaped HTML table under a title; `frame` has the first of `n_total` rows."""
    head = _cells("th", frame.columns)
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in frame.iter_rows())
    more = f"<p>… {n_total - len(frame):,} more rows</p>" if n_total and n_total > len(frame) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p><b>{escape(printable(title))}</b></p>{table}{more}</div>"


def _cells(tag: str, values: Sequence[Any]) -> str:
    return "".join(f"<{tag}>{escape(_shorten(value))}</{tag}>" for value in values)


def _shorten(value: Any) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else printable(value)
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"


def to_pandas(frame: pl.DataFrame) -> "pandas.DataFrame":
    """A pandas copy of a table."""
    try:
        return frame.to_pandas()
    except ImportError:
        raise DataError(
            "to_pandas needs the packages pandas and pyarrow; run pip install pandas pyarrow."
        ) from None
