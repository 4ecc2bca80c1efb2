"""What interactions look like before a model learns from them: counts, doubts and pictures."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.charts import Figure, bar_chart
from shortlist.data.columns import is_future, sql_name
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.read_options import advise_reading
from shortlist.errors import warn
from shortlist.text import escape_html, printable
from shortlist.types import Longs

MAX_SIZE = 10  # items per basket with a bar of their own
MAX_PERIODS = 36  # bars of the times
PERIODS = (
    ("1d", "%Y-%m-%d", "day"),
    ("1w", "%Y-%m-%d", "week"),
    ("1mo", "%Y-%m", "month"),
    ("1y", "%Y", "year"),
)


@dataclass(frozen=True)
class DataCheck:
    """Counts of interactions, what was read, and what is in doubt; notebooks show it with pictures.

    Parameters
    ----------
    counts
        Name → value: rows, users, items, baskets, items per basket, users with several baskets, repeats and
        the span of the times.
    columns
        Which columns were used and which were not.
    notes
        What was recognized, changed or dropped.
    doubts
        What is probably wrong, each with what settles it. No doubt is no proof that the data is right.
    figures
        Items per basket, rows per user and rows over time.

    Examples
    --------
    >>> check = sl.check_data(sl.load_dataset("sample"))
    >>> check.counts["baskets"], check.doubts
    (3145, ())
    """

    counts: dict[str, Any]
    columns: str
    notes: tuple[str, ...]
    doubts: tuple[str, ...]
    figures: tuple[Figure, ...]

    def __str__(self) -> str:
        width = max(map(len, self.counts))
        lines = [f"{name:<{width}}  {_show(value)}" for name, value in self.counts.items()]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"warning: {doubt}" for doubt in self.doubts] or ["no doubts"]
        return printable("\n".join(lines), keep="\n")

    def to_dict(self) -> dict[str, Any]:
        """Return counts, columns, notes and doubts as plain values."""
        return self.counts | {"columns": self.columns, "notes": list(self.notes), "doubts": list(self.doubts)}

    def to_html(self) -> str:
        """Return a section of a page: counts, notes, doubts and pictures."""
        rows = "".join(
            f"<tr><th>{escape_html(name)}</th><td>{escape_html(_show(value))}</td></tr>"
            for name, value in self.counts.items()
        )
        doubts = "".join(f"<li><strong>Doubt:</strong> {escape_html(text)}</li>" for text in self.doubts)
        notes = "".join(f"<li>{escape_html(text)}</li>" for text in (self.columns, *self.notes) if text)
        figures = "".join(f"<figure>{figure._repr_html_()}</figure>" for figure in self.figures)
        return (
            f'<section class="data-check"><table>{rows}</table><ul>{doubts}{notes}</ul>'
            f'<div class="data-figures">{figures}</div></section>'
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def check_data(data: Interactions | Any) -> DataCheck:
    """Describe interactions before a model learns from them.

    Parameters
    ----------
    data
        Interactions, or what `Interactions.of` accepts.

    Returns
    -------
    DataCheck

    Examples
    --------
    >>> print(sl.check_data(sl.load_dataset("sample")))
    rows                        13,786
    users                       300
    items                       140
    baskets                     3,145
    items per basket            4.38
    users with several baskets  300
    repeats                     52.4%
    merged duplicates           0
    first day                   2024-01-01
    last day                    2024-06-28
    no doubts
    """
    data = Interactions.of(data)
    source = data.source
    doubts = () if source is None else source.doubts
    doubts = (*doubts, *(doubt for doubt in find_doubts(data) if doubt not in doubts))
    notes = () if source is None else source.notes
    return DataCheck(
        count_data(data),
        "" if source is None else source.describe(),
        tuple(note for note in notes if note not in doubts),
        doubts,
        _draw(data),
    )


def count_data(data: Interactions) -> dict[str, Any]:
    """Counts by their names, as a check shows them."""
    n_baskets = data.basket_counts
    counts: dict[str, Any] = {
        "rows": data.n_rows,
        "users": int(data.active_users.size),
        "items": int((data.item_counts > 0).sum()),
        "baskets": data.n_baskets,
        "items per basket": round(data.mean_basket_size, 2),
        "users with several baskets": int((n_baskets > 1).sum()),
        "repeats": round(1 - data.item_sets.items.size / max(data.n_rows, 1), 4),
        "merged duplicates": data.duplicates,
    }
    if data.time is not None and data.n_rows:
        days = [_day(int(edge)) for edge in (data.time.min(), data.time.max())]
        counts |= {"first day": days[0], "last day": days[1]}
    return counts


def _day(micros: int) -> str:
    """The day of a time in UTC; small numbers are no times but an order."""
    if not 0 < micros < 4e15:
        return str(micros)
    return datetime.fromtimestamp(micros / 1e6, UTC).date().isoformat()


def _draw(data: Interactions) -> tuple[Figure, ...]:
    """Items per basket, rows per user, and rows over time."""
    sizes = np.bincount(np.minimum(data.basket_sizes, MAX_SIZE + 1), minlength=MAX_SIZE + 2)[1:]
    labels = [*map(str, range(1, MAX_SIZE + 1)), f">{MAX_SIZE}"]
    rows = data.user_counts
    powers = np.bincount(np.log2(rows[rows > 0]).astype(np.int64)) if rows.any() else np.zeros(1, np.int64)
    steps = [str(2**k) for k in range(powers.size)]
    charts = [
        ("Items per basket", "items", "baskets", labels, sizes),
        ("Rows per user", "rows, from this number to the next", "users", steps, powers),
    ]
    if data.time is not None and data.n_rows and int(data.time.max()) < 4e15:
        charts.append(_count_periods(data))
    return tuple(
        Figure(title, bar_chart(title, x, y, names, values.tolist(), style))
        for style, (title, x, y, names, values) in enumerate(charts)
    )


def _count_periods(data: Interactions) -> tuple[str, str, str, list[str], Any]:
    """Rows of each day, week, month or year."""
    times = pl.DataFrame({"time": pl.Series(data.time).cast(pl.Datetime("us"))})
    for every, _, name in PERIODS:
        counts = (
            times.group_by(pl.col("time").dt.truncate(every)).len().sort("time").upsample("time", every=every)
        )
        if counts.height <= MAX_PERIODS or name == "year":
            break
    counts = counts.with_columns(pl.col("len").fill_null(0)).tail(MAX_PERIODS)
    shown = next(shown for _, shown, period in PERIODS if period == name)
    labels = counts["time"].dt.strftime(shown).to_list()
    return f"Rows per {name}", name, "rows", labels, counts["len"].to_numpy()


def _show(value: Any) -> str:
    """A count with commas, a share in percent, or a text."""
    if isinstance(value, float):
        return f"{value:.1%}" if value < 1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


STYLE = """
.data-check { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; }
.data-check table { border-collapse: collapse; }
.data-check th { text-align: left; font-weight: 400; padding: .1rem 1.5rem .1rem 0; }
.data-check td { text-align: right; font-variant-numeric: tabular-nums; }
.data-figures { display: flex; flex-wrap: wrap; gap: 1rem; }
.data-figures figure { margin: 0; }
"""


def render_page(check: DataCheck, title: str) -> str:
    """A page that needs no other file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape_html(title)}</title><style>body {{ margin: 2rem; }}{STYLE}</style></head>"
        f"<body><h1>{escape_html(title)}</h1>{check.to_html()}</body></html>\n"
    )


GIANT = 0.05  # share of all rows that is absurd for one user, if it is five times the mean
GIANT_ITEM = 0.1
MIN_DOUBTED = 200  # rows; fewer show nothing


def with_doubts(data: Interactions) -> Interactions:
    """The same data with doubts about its columns in `source`; they are warnings, too."""
    doubts = find_doubts(data)
    if not doubts or data.source is None:
        return data
    for doubt in doubts:
        warn(doubt)
    notes, before = (*data.source.notes, *doubts), data.source.doubts
    return replace(data, source=replace(data.source, notes=notes, doubts=(*before, *doubts)))


def find_doubts(data: Interactions) -> list[str]:
    """Sentences on what is probably wrong with the meaning of the columns, each with what settles it."""
    if data.n_rows < MIN_DOUBTED or data.source is None:
        return []
    columns = data.source.columns
    user, item = columns.get("user_id", "user_id"), columns.get("item_id", "item_id")
    rows = data.user_counts
    doubts = _find_giant(data.users, rows, user, "user", GIANT)
    doubts += _find_giant(data.items, data.item_counts, item, "item", GIANT_ITEM)
    if data.time is not None and (late := is_future(data.time)).any():
        doubts.append(
            f"{int(late.sum()):,} rows have a time in the future, which moves the lists of all users; drop "
            f"them by {advise_reading(future='drop')}."
        )
    return doubts


def _find_giant(ids: IdMap, counts: Longs, column: str, role: str, share: float) -> list[str]:
    """A sentence on a user or item that has an absurd share of the rows."""
    top, n_rows = int(counts.argmax()), int(counts.sum())
    if counts[top] < max(share * n_rows, 5 * counts.mean()):
        return []
    value = ids.values[top]
    example = f"{sql_name(column)} <> {value!r:.60}"
    what = "a guest, a bot or a test" if role == "user" else "a fee, a bag or an unknown item"
    return [
        f"{role} {value!r:.60} has {counts[top] / n_rows:.0%} of all rows (column {column!r}), as {what} "
        f"has; if so, leave it out by {advise_reading(where=example)}."
    ]
