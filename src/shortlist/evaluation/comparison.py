"""Several models on one truth in one table, with intervals, p-values and marks."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist.core.files import atomic_write
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.evaluator import evaluate
from shortlist.evaluation.ground_truth import Lists
from shortlist.evaluation.report import METRICS, Report, View
from shortlist.evaluation.significance import Test, holm, paired_test
from shortlist.evaluation.tables import latex, markdown, plain, shown
from shortlist.types import Doubles

if TYPE_CHECKING:
    from rich.console import Group

Judged = Lists | Report
TESTS = ("p_bootstrap", "p_t", "p_wilcoxon")
COLUMNS: tuple[tuple[str, str, View], ...] = (
    ("F1", "f1", "all"),
    ("NDCG", "ndcg", "all"),
    ("precision", "precision", "all"),
    ("recall", "recall", "all"),
    ("length", "length", "all"),
    ("F1 covered", "f1", "covered"),
    ("NDCG covered (paper)", "ndcg_paper", "covered"),
)
COVERED = ("Cover-Ratio", "F1 covered", "NDCG covered (paper)")
MARKS = "+ better, - worse than {baseline}: paired bootstrap over users, Holm's p <= {alpha:g}."
NOTE = (
    "F1, NDCG, precision, recall, length: means over all users, an empty list counts 0; covered: over users "
    f"with a list. {MARKS}"
)
WIDTH = 80  # of a screen


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """`table` holds the figures, `tests` every test against the baseline; printing shows both as one."""

    reports: dict[str, list[Report]]
    baseline: str
    metrics: tuple[str, ...]
    level: float
    results: dict[tuple[str, str], Test]  # (model, metric) -> test against the baseline

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per model: means over runs, and the scatter of F1 over runs where there are several."""
        rows = []
        for name, runs in self.reports.items():
            row: dict[str, Any] = {"model": name, "runs": len(runs)}
            for title, metric, view in COLUMNS:
                row[title] = float(np.mean([run.mean(metric, view) for run in runs]))
            row["Cover-Ratio"] = float(np.mean([run.cover_ratio for run in runs]))
            row["F1 sd"] = float(np.std([run.f1 for run in runs], ddof=1)) if len(runs) > 1 else None
            rows.append(row)
        return pl.DataFrame(rows, schema_overrides={"F1 sd": pl.Float64})

    @cached_property
    def tests(self) -> pl.DataFrame:
        """One row per model and metric; p_*_holm are corrected over the whole table of that test."""
        rows = [{"model": m, "metric": metric, **asdict(test)} for (m, metric), test in self.results.items()]
        names = ("model", "metric", "difference", "low", "high", "level", *TESTS)
        schema = {name: pl.String if name in ("model", "metric") else pl.Float64 for name in names}
        table = pl.DataFrame(rows, schema=schema)
        return table.with_columns(pl.Series(f"{p}_holm", holm(table[p].to_list()), pl.Float64) for p in TESTS)

    @cached_property
    def printed(self) -> pl.DataFrame:
        """What people see: figures, marks, and the difference in the first metric with its interval and p."""
        table = self.table.drop("runs") if self.table["runs"].max() == 1 else self.table
        if table["F1 sd"].null_count() == len(table):
            table = table.drop("F1 sd")
        titles = {metric: title for title, metric, view in COLUMNS if view == "all"}
        for metric in self.metrics:
            if metric in titles:
                table = table.with_columns(self._marked(table[titles[metric]], metric))
        found = {row["model"]: row for row in self.tests.to_dicts() if row["metric"] == self.metrics[0]}
        label = f"difference in {titles.get(self.metrics[0], self.metrics[0])}"
        return table.with_columns(
            pl.Series(label, [_interval(found.get(name)) for name in self.reports], pl.String),
            pl.Series("p (Holm)", [_small(found.get(name)) for name in self.reports], pl.String),
        )

    def _marked(self, figures: pl.Series, metric: str) -> pl.Series:
        """Figures as text with a + or - where the difference from the baseline is more than chance."""
        found = {row["model"]: row for row in self.tests.to_dicts() if row["metric"] == metric}
        marks = []
        for name in self.reports:
            test = found.get(name)
            sure = test is not None and test["p_bootstrap_holm"] <= 1 - self.level + 1e-12
            marks.append(("+" if test["difference"] > 0 else "-") if test is not None and sure else "")
        return pl.Series(figures.name, [shown(f) + mark for f, mark in zip(figures, marks, strict=True)])

    @property
    def pieces(self) -> dict[str, pl.DataFrame]:
        """What people see, in tables that a screen is wide enough for."""
        figures, tests = self.printed.drop(self.printed.columns[-2:]), self.printed.columns[-2:]
        pieces = {
            "all users, an empty list counts 0": figures.drop(COVERED),
            "covered users: those who were shown anything": figures.select("model", *COVERED),
        }
        if self.results:
            others = self.printed.filter(pl.col("model") != self.baseline)
            pieces[f"against {self.baseline}, with a {self.level:.0%} interval"] = others.select(
                "model", *tests
            )
        return pieces

    def _note(self, text: str = NOTE) -> str:
        return text.format(baseline=self.baseline, alpha=round(1 - self.level, 10))

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.reports)}; baseline {self.baseline})"

    def __str__(self) -> str:
        pieces = [f"{title}\n{plain(piece)}" for title, piece in self.pieces.items()]
        return "\n\n".join([*pieces, fill(self._note(MARKS), WIDTH)] if self.results else pieces)

    def __rich__(self) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        tables: list[Table | Text] = []
        for title, piece in self.pieces.items():
            table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
            for name in piece.columns:
                first = name == "model"
                table.add_column(
                    name, justify="left" if first else "right", overflow="fold", no_wrap=not first
                )
            for row in piece.rows():
                table.add_row(*(Text(shown(cell)) for cell in row))
            tables.append(table)
        return Group(*tables, *([Text(self._note(MARKS))] if self.results else []))

    def to_markdown(self) -> str:
        """A pipe table and its note."""
        return f"{markdown(self.printed)}\n\n{self._note()}\n"

    def to_latex(self) -> str:
        """A booktabs tabular; the note is a comment."""
        return f"% {self._note()}\n{latex(self.printed)}\n"

    def to_csv(self) -> str:
        """Figures and tests side by side, full precision, one row per model."""
        wide = self.table
        for metric in self.metrics:
            one = self.tests.filter(pl.col("metric") == metric).drop("metric")
            wide = wide.join(
                one.rename({c: f"{metric} {c}" for c in one.columns if c != "model"}), on="model", how="left"
            )
        return wide.write_csv()

    def to_json(self) -> str:
        """Everything: figures, tests, and every run's report."""
        found = {
            "baseline": self.baseline,
            "table": self.table.to_dicts(),
            "tests": self.tests.to_dicts(),
            "reports": {name: [run.to_dict() for run in runs] for name, runs in self.reports.items()},
        }
        return json.dumps(_plain(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, path: str | Path) -> Path:
        """To .md, .tex, .csv, .json or .txt, by the ending."""
        target = Path(path)
        forms: dict[str, Callable[[], str]] = {
            ".md": self.to_markdown,
            ".tex": self.to_latex,
            ".csv": self.to_csv,
            ".json": self.to_json,
            ".txt": lambda: f"{self}\n",
        }
        if target.suffix not in forms:
            raise DataError(
                f"comparisons are written as {', '.join(forms)}, got {target.name!r}; change the ending."
            )
        with atomic_write(target) as temporary:
            temporary.write_text(forms[target.suffix](), encoding="utf-8")
        return target


def compare(
    results: Mapping[str, Judged | Sequence[Judged]],
    truth: Interactions | Any = None,
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = ("f1", "ndcg"),
    max_items: int = 20,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Judge models side by side and test each against the baseline (the first one unless named).

    A model may bring several runs (seeds): figures are means over runs, and tests pair each user's mean.
    """
    if not results:
        raise ConfigError("results must name at least one model, got none; pass {name: lists or report}.")
    baseline = next(iter(results)) if baseline is None else baseline
    if baseline not in results:
        raise ConfigError(f"baseline must be one of {', '.join(results)}, got {baseline!r}; choose one.")
    strangers = [metric for metric in metrics if metric not in METRICS]
    if strangers or not metrics:
        raise ConfigError(
            f"metrics must be among {', '.join(METRICS)}, got {list(metrics)}; choose from them."
        )
    truth = None if truth is None else Interactions.of(truth)
    reports = {name: _reports(name, one, truth, max_items) for name, one in results.items()}
    first = reports[baseline][0]
    for name, runs in reports.items():
        if not all(run.user_ids.equals(first.user_ids) and run.max_items == first.max_items for run in runs):
            raise DataError(
                f"models must be judged on the same users with the same max_items, got others for {name!r}; "
                "judge all on one truth."
            )
    found = {
        (name, metric): paired_test(
            _per_user(runs, metric),
            _per_user(reports[baseline], metric),
            resamples=resamples,
            level=level,
            seed=seed,
        )
        for name, runs in reports.items()
        if name != baseline
        for metric in metrics
    }
    return Comparison(reports, baseline, tuple(metrics), level, found)


def _reports(name: str, given: Any, truth: Interactions | None, max_items: int) -> list[Report]:
    """One report per run."""
    one = isinstance(given, (Report, RankedLists, pl.DataFrame, Mapping))
    runs = [given] if one else list(given)
    if not runs:
        raise DataError(f"{name!r} must bring at least one run, got none; leave the model out.")
    if truth is None and not all(isinstance(run, Report) for run in runs):
        raise ConfigError(f"{name!r} brings lists, which need a truth, got none; pass truth or reports.")
    return [run if isinstance(run, Report) else evaluate(run, truth, max_items=max_items) for run in runs]


def _per_user(runs: list[Report], metric: str) -> Doubles:
    """(n_users,) mean over runs."""
    total: Doubles = np.sum([run.values(metric) for run in runs], axis=0)
    return total / len(runs)


def _interval(test: dict[str, Any] | None) -> str:
    return "" if test is None else f"{test['difference']:+.4f} [{test['low']:+.4f}, {test['high']:+.4f}]"


def _small(test: dict[str, Any] | None) -> str:
    return "" if test is None else f"{test['p_bootstrap_holm']:.4f}"


def _plain(value: Any) -> Any:
    """JSON knows no NaN: what is unknown is null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and np.isnan(value) else value
