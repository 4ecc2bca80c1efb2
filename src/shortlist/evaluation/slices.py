"""Where lists are good and where they are not: by history length, basket size and item popularity."""

import numpy as np
import polars as pl

from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.report import Repeats, Report
from shortlist.types import Bools, Ints, Longs

# the smallest value of each slice; the last one is open
BASKET = (0, 1, 2, 3, 6, 11)
HISTORY = (0, 1, 5, 10, 20, 50, 100)
POPULARITY = 5  # slices of items that share the interactions equally, from the few popular to the many rare
FIGURES = ("f1", "ndcg", "precision", "recall", "hits", "length")


def sliced(report: Report, by: str) -> pl.DataFrame:
    """One row per slice of users (`by` "basket_size" or "history_length") or of items ("popularity").

    Users: how many, covered, and means over all of them. Items: how many, how often shown, hit and taken.
    """
    if by == "basket_size":
        return _of_users(report, report.sizes, BASKET)
    if by == "history_length":
        return _of_users(report, _history(report).history_lengths, HISTORY)
    if by == "popularity":
        return _of_items(report)
    raise ConfigError(f"by must be basket_size, history_length or popularity, got {by!r}; choose one.")


def _history(report: Report) -> Repeats:
    if report.repeats is None:
        raise DataError(
            "slices by history and popularity need a history, got none; pass history= to evaluate."
        )
    return report.repeats


def ranges(sizes: Ints, edges: tuple[int, ...]) -> list[tuple[str, Bools]]:
    """(label, who falls into it) of every slice that anybody falls into; `edges` are the smallest values."""
    which = np.searchsorted(edges, sizes, side="right") - 1
    return [(_label(edges, int(k)), which == k) for k in np.unique(which)]


def _of_users(report: Report, sizes: Ints, edges: tuple[int, ...]) -> pl.DataFrame:
    """Means per slice; slices nobody falls into are left out."""
    found = ranges(sizes, edges)
    return pl.DataFrame(
        {
            "slice": [label for label, _ in found],
            "users": [int(who.sum()) for _, who in found],
            "cover_ratio": [float(report.covered[who].mean()) for _, who in found],
            **{name: [float(report.values(name)[who].mean()) for _, who in found] for name in FIGURES},
        }
    )


def _label(edges: tuple[int, ...], k: int) -> str:
    """1, 3–5, 11+."""
    if k == len(edges) - 1:
        return f"{edges[k]}+"
    last = edges[k + 1] - 1
    return str(last) if last == edges[k] else f"{edges[k]}–{last}"


def _of_items(report: Report) -> pl.DataFrame:
    """Items from popular to rare, cut where each slice holds an equal share of the history."""
    counts, items = _history(report).popularity, report.items
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    slices = np.minimum(before * POPULARITY // max(int(counts.sum()), 1), POPULARITY - 1)
    which = np.empty(counts.size, np.int64)
    which[order] = slices

    def total(values: Longs) -> Longs:
        return np.bincount(which, values, POPULARITY).astype(np.int64)

    n = np.bincount(which, minlength=POPULARITY)
    shown, hits, taken = total(items.shown), total(items.hits), total(items.taken)
    share = 100 // POPULARITY
    table = pl.DataFrame(
        {
            "slice": [f"{share * k}–{share * (k + 1)}% of history" for k in range(POPULARITY)],
            "items": n,
            "items_shown": total((items.shown > 0).astype(np.int64)),
            "shown": shown,
            "hits": hits,
            "taken": taken,
            "precision": hits / np.maximum(shown, 1),
            "recall": hits / np.maximum(taken, 1),
        }
    )
    return table.filter(pl.col("items") > 0)
