"""What judging found: one row per user with truth or asked, and the figures that follow from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl

from shortlist.core.metrics import calibration_error, ideal_dcg
from shortlist.data.id_map import IdMap
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.tables import plain
from shortlist.types import Bools, Doubles, Ints, Longs

View = Literal["all", "covered"]
METRICS = (
    "f1",
    "ndcg",
    "ndcg_paper",
    "precision",
    "recall",
    "average_precision",
    "reciprocal_rank",
    "hits",
    "length",
)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 10


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """How often each item was shown to, hit for, and taken by the judged users."""

    ids: IdMap
    shown: Longs  # (n_items,)
    hits: Longs  # (n_items,)
    taken: Longs  # (n_items,)
    strangers: int  # shown items the truth's item table does not know

    @property
    def coverage(self) -> float:
        """Share of the catalogue that was shown to anybody."""
        catalogue = len(self.ids) + self.strangers
        return (int((self.shown > 0).sum()) + self.strangers) / catalogue


@dataclass(frozen=True, eq=False)
class Repeats:
    """What the judged users' history says about their lists."""

    history_lengths: Ints  # (n_users,) interactions before
    popularity: Longs  # (n_items,) interactions of everybody before
    known: Ints  # (n_users,) truth items the user had taken before
    shown: Ints  # (n_users,) shown items the user had taken before
    hits: Ints  # (n_users,) hits the user had taken before


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Every judged user has a place in the arrays; an empty list has zeros and is not covered."""

    user_ids: pl.Series  # (n_users,)
    max_items: int
    sizes: Ints  # (n_users,) distinct items of the truth, 0 for some who were asked; as long are all below
    lengths: Ints
    hits: Ints
    first: Ints  # rank of the first hit, 0 where there is none
    dcg: Doubles
    dcg_capped: Doubles  # of the first max_items
    precision_sum: Doubles
    confidence: Doubles  # first probability, or first score; NaN for an empty list
    expected: Doubles | None  # sum of shown probabilities
    cells: Doubles | None  # (n_cells, 3) shown, sum of probabilities, hits by predicted probability
    items: ItemCounts
    unlisted: int  # users judged who have no list: as if it were empty
    ignored: int  # lists of users without truth who were not asked either: not judged
    repeats: Repeats | None = None

    # ------------------------------------------------------------------ per user
    @property
    def covered(self) -> Bools:
        """(n_users,) who was shown anything."""
        return self.lengths > 0

    def values(self, metric: str) -> Doubles:
        """(n_users,) one metric, 0 where the list is empty."""
        if metric not in METRICS:
            raise ConfigError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}; choose one.")
        return self._metrics[metric]

    @cached_property
    def _metrics(self) -> dict[str, Doubles]:
        hits, length = self.hits, self.lengths
        size = np.maximum(self.sizes, 1)  # of one who took nothing: no hits, whatever they are divided by
        shown = np.maximum(length, 1)
        fixed = np.minimum(self.max_items, size)
        ideal = ideal_dcg(int(size.max(initial=0)))
        return {
            "f1": 2 * hits / (length + size),
            "ndcg": self.dcg_capped / ideal[fixed],
            "ndcg_paper": self.dcg / ideal[np.minimum(shown, size)],
            "precision": hits / shown,
            "recall": hits / size,
            "average_precision": self.precision_sum / fixed,
            "reciprocal_rank": np.divide(1, self.first, where=self.first > 0, out=np.zeros(hits.size)),
            "hits": hits.astype(np.float64),
            "length": length.astype(np.float64),
        }

    @cached_property
    def users(self) -> pl.DataFrame:
        """One row per user judged."""
        columns: dict[str, Any] = {
            "user_id": self.user_ids,
            "taken": self.sizes,
            "length": self.lengths,
            "covered": self.covered,
            "hits": self.hits,
            **{name: values for name, values in self._metrics.items() if name not in ("hits", "length")},
            "confidence": pl.Series(self.confidence).fill_nan(None),
        }
        if self.expected is not None:
            error = np.abs(self.expected - self.hits) / np.maximum(self.lengths, 1)
            columns["expected_hits"] = self.expected
            columns["calibration_error"] = pl.Series(np.where(self.covered, error, np.nan)).fill_nan(None)
        if self.repeats is not None:
            columns["history_length"] = self.repeats.history_lengths
            columns["repeat_hits"] = self.repeats.hits
            columns["explore_hits"] = self.hits - self.repeats.hits
        return pl.DataFrame(columns)

    # ------------------------------------------------------------------ over users
    @property
    def n_users(self) -> int:
        """Users judged: those with truth, and those asked."""
        return int(self.sizes.size)

    @property
    def cover_ratio(self) -> float:
        """Share of users who were shown anything."""
        return float(self.covered.mean())

    def mean(self, metric: str, view: View = "all") -> float:
        """Over all users (an empty list counts 0) or over covered users; NaN where nobody is covered."""
        total = float(self.values(metric).sum())
        n = self.n_users if view == "all" else int(self.covered.sum())
        return total / n if n else float("nan")

    @property
    def f1(self) -> float:
        """The headline: mean F1 over all users."""
        return self.mean("f1")

    @property
    def ndcg(self) -> float:
        """Mean NDCG over all users, each with a normaliser that does not depend on the list's length."""
        return self.mean("ndcg")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row per metric: over all users, and over covered users only."""
        return pl.DataFrame(
            {
                "metric": METRICS,
                "all": [self.mean(metric) for metric in METRICS],
                "covered": [self.mean(metric, "covered") for metric in METRICS],
            }
        )

    @cached_property
    def length_quantiles(self) -> dict[float, float]:
        """How long lists are over all users, empty ones included."""
        return dict(zip(QUANTILES, map(float, np.quantile(self.lengths, QUANTILES)), strict=True))

    @cached_property
    def calibration(self) -> pl.DataFrame:
        """Predicted against observed, in bins of about as many shown items each."""
        if self.cells is None:
            raise DataError(
                "calibration needs probabilities, got lists without them; calibrate the scores first."
            )
        counts = self.cells[:, 0]
        total = counts.sum()
        # a cell belongs to the bin its middle item falls into, so bins are unions of cells
        middle = np.cumsum(counts) - counts / 2
        bins = np.minimum((middle * BINS / max(total, 1)).astype(np.int64), BINS - 1)
        n, predicted, hits = (np.bincount(bins, self.cells[:, k], BINS) for k in range(3))
        filled = n > 0
        return pl.DataFrame(
            {
                "shown": n[filled].astype(np.int64),
                "predicted": predicted[filled] / n[filled],
                "observed": hits[filled] / n[filled],
            }
        )

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error of the shown items; None where lists carry no probabilities."""
        if self.cells is None or not self.cells[:, 0].any():
            return None
        bins = self.calibration
        return calibration_error(*(bins[name].to_numpy() for name in ("shown", "predicted", "observed")))

    @cached_property
    def repeat_explore(self) -> pl.DataFrame:
        """Items the user had taken before (repeat) and had not (explore): shown, hit, taken."""
        if self.repeats is None:
            raise DataError("repeats need a history, got none; pass history= to evaluate.")
        known = np.array([self.repeats.shown.sum(), self.repeats.hits.sum(), self.repeats.known.sum()])
        total = np.array([self.lengths.sum(), self.hits.sum(), self.sizes.sum()])
        shown, hits, taken = np.stack([known, total - known], axis=1)
        return pl.DataFrame(
            {
                "kind": ["repeat", "explore"],
                "shown": shown,
                "hits": hits,
                "taken": taken,
                "precision": hits / np.maximum(shown, 1),
                "recall": hits / np.maximum(taken, 1),
                "share_of_hits": hits / max(int(total[1]), 1),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the per-user table, ready for JSON."""
        found: dict[str, Any] = {
            "users": self.n_users,
            "covered_users": int(self.covered.sum()),
            "users_without_list": self.unlisted,
            "lists_ignored": self.ignored,
            "max_items": self.max_items,
            "cover_ratio": self.cover_ratio,
            "item_coverage": self.items.coverage,
            "all": {metric: self.mean(metric) for metric in METRICS},
            "covered": {metric: _known(self.mean(metric, "covered")) for metric in METRICS},
            "length_quantiles": {f"{q:g}": n for q, n in self.length_quantiles.items()},
            "calibration_error": self.calibration_error,
        }
        if self.repeats is not None:
            found["repeat_explore"] = self.repeat_explore.to_dicts()
        return found

    def __repr__(self) -> str:
        figures = f"F1 {self.f1:.4f}, NDCG {self.ndcg:.4f}, {self.cover_ratio:.0%} covered"
        return f"Report({self.n_users:,} users, {figures})"

    def __str__(self) -> str:
        """The summary for people."""
        lengths = ", ".join(f"{q:.0%} {n:g}" for q, n in self.length_quantiles.items())
        lines = [
            plain(self.summary.rename({"all": "all users", "covered": "covered users"})),
            f"{self.n_users:,} users, {self.cover_ratio:.1%} covered; {self.unlisted:,} had no list "
            f"(judged as empty), {self.ignored:,} lists of users without truth left out",
            f"list length: mean {self.mean('length'):.2f}; quantiles {lengths}",
            f"items: {self.items.coverage:.1%} of the catalogue shown",
        ]
        if self.calibration_error is not None:
            lines.append(f"calibration error of shown items: {self.calibration_error:.4f}")
        if self.repeats is not None:
            share = self.repeat_explore["share_of_hits"]
            lines.append(f"hits: {share[0]:.1%} repeats, {share[1]:.1%} new to the user")
        return "\n".join(lines)


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else value
