"""Comparison: several models in one table, with intervals and p-values."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist.core.charts import Figure, Span, span_chart
from shortlist.core.files import write_text
from shortlist.core.metrics import ListValue, Metric
from shortlist.core.tables import html, latex, markdown, plain, rich_table, without_nan
from shortlist.errors import DataError
from shortlist.evaluation.report import Report, View
from shortlist.evaluation.significance import PairedTest, holm
from shortlist.text import escape_html as escape

if TYPE_CHECKING:
    from rich.console import Group


TESTS = ("p_bootstrap", "p_t", "p_wilcoxon")
COLUMNS: tuple[tuple[str, str, View], ...] = (
    (ListValue.title, "value", "all"),
    ("F1", "f1", "all"),
    ("NDCG", "ndcg", "all"),
    ("precision", "precision", "all"),
    ("recall", "recall", "all"),
    ("length", "length", "all"),
    ("F1 covered", "f1", "covered"),
    ("NDCG covered (paper)", "ndcg_paper", "covered"),
)
TITLES = {metric: title for title, metric, view in COLUMNS if view == "all"}
COVERED = ("Cover-Ratio", "F1 covered", "NDCG covered (paper)")
SIGNS = "+ better, - worse than {baseline}: paired bootstrap over users, Holm's p <= {alpha:g}."
NOTE = (
    "F1, NDCG, precision, recall, length: means over all users, an empty list counts as 0; covered: over "
    f"users with a list. {SIGNS}"
)
WIDTH = 80  # of a terminal
STYLES = {"+": 2, "-": 1, "": 7}  # colors of a chart: better, worse, neither
MAX_NAME = 22  # characters of a model's name in a chart


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Models evaluated on one truth, each tested against the baseline; the result of `compare`.

    Parameters
    ----------
    reports
        The reports of each model, one per run.
    baseline
        Name of the model that the others are tested against.
    metrics
        Metrics that were tested.
    level
        Confidence level of the intervals; the signs use 1 - level as the significance level.
    results
        The test of each (model, metric) pair against the baseline.

    Examples
    --------
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> found = sl.compare({"A": {"ann": ["tea"]}, "B": {"ann": ["tea"], "bob": ["jam"]}}, truth)
    >>> found
    Comparison(A, B; baseline A)
    >>> found.table.select("model", "F1").rows()
    [('A', 0.5), ('B', 1.0)]
    """

    reports: dict[str, list[Report]]
    baseline: str
    metrics: tuple[str, ...]
    level: float
    results: dict[tuple[str, str], PairedTest]

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per model: means over runs, and the standard deviation of F1 over several runs."""
        rows = []
        for name, runs in self.reports.items():
            row: dict[str, Any] = {"model": name, "runs": len(runs)}
            for title, metric, view in COLUMNS:
                if metric in runs[0].metrics:
                    mean = float(np.mean([run.mean(metric, view) for run in runs]))
                    row[title] = mean * metric_of(metric).scale
            row["Cover-Ratio"] = float(np.mean([run.cover_ratio for run in runs]))
            row["F1 sd"] = float(np.std([run.f1 for run in runs], ddof=1)) if len(runs) > 1 else None
            rows.append(row)
        return pl.DataFrame(rows, schema_overrides={"F1 sd": pl.Float64})

    @cached_property
    def tests(self) -> pl.DataFrame:
        """One row per model and metric; `p_*_holm` are corrected over all rows by Holm's method."""
        names = ("model", "metric", "difference", "low", "high", "level", *TESTS)
        tests = [{"model": m, "metric": metric, **asdict(test)} for (m, metric), test in self.results.items()]
        rows = [{name: row[name] for name in names} for row in tests]
        schema = {name: pl.String if name in ("model", "metric") else pl.Float64 for name in names}
        table = pl.DataFrame(rows, schema=schema)
        return table.with_columns(pl.Series(f"{p}_holm", holm(table[p].to_list()), pl.Float64) for p in TESTS)

    @cached_property
    def formatted(self) -> pl.DataFrame:
        """The table with signs, and the difference in the first metric with its interval and p-value."""
        table = self.table.drop("runs") if self.table["runs"].max() == 1 else self.table
        if table["F1 sd"].null_count() == len(table):
            table = table.drop("F1 sd")
        for metric in self.metrics:
            if metric in TITLES:
                signs = self._signs(metric)
                means = zip(table[TITLES[metric]], self.reports, strict=True)
                digits = metric_of(metric).digits
                cells = [f"{mean:,.{digits}f}{signs[name]}" for mean, name in means]
                table = table.with_columns(pl.Series(TITLES[metric], cells))
        tests = self._tests_of(self.metrics[0])
        label = f"difference in {TITLES.get(self.metrics[0], self.metrics[0])}"
        first = metric_of(self.metrics[0])
        intervals = [_interval(tests[name], first) if name in tests else "" for name in self.reports]
        p = [self._p_text(tests[name]) if name in tests else "" for name in self.reports]
        return table.with_columns(pl.Series(label, intervals, pl.String), pl.Series("p (Holm)", p, pl.String))

    def _p_text(self, row: dict[str, Any]) -> str:
        """The corrected p-value; with ≤ if no bootstrap sample was as far from 0."""
        bound = "≤ " if self.results[row["model"], row["metric"]].is_bound else ""
        return f"{bound}{row['p_bootstrap_holm']:.4f}"

    def _tests_of(self, metric: str) -> dict[str, dict[str, Any]]:
        """The row of `tests` of each model."""
        return {row["model"]: row for row in self.tests.to_dicts() if row["metric"] == metric}

    def _signs(self, metric: str) -> dict[str, str]:
        """For each model: + or - if it differs significantly from the baseline, else an empty string."""
        signs = dict.fromkeys(self.reports, "")
        for name, test in self._tests_of(metric).items():
            if test["p_bootstrap_holm"] <= 1 - self.level + 1e-12:
                signs[name] = "+" if test["difference"] > 0 else "-"
        return signs

    @property
    def _sections(self) -> dict[str, pl.DataFrame]:
        """`formatted` in tables that fit on a terminal."""
        tests = self.formatted.columns[-2:]
        means = self.formatted.drop(tests)
        sections = {
            "all users, an empty list counts as 0": means.drop(COVERED),
            "covered users: lists with at least one item": means.select("model", *COVERED),
        }
        if self.results:
            others = self.formatted.filter(pl.col("model") != self.baseline)
            title = f"against {self.baseline}, with a {self.level:.0%} interval"
            sections[title] = others.select("model", *tests)
        return sections

    def _note(self, text: str = NOTE) -> str:
        return text.format(baseline=self.baseline, alpha=round(1 - self.level, 10))

    def __repr__(self) -> str:
        names = list(self.reports)
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"Comparison({shown}; baseline {self.baseline})"

    def __str__(self) -> str:
        parts = [f"{title}\n{plain(section)}" for title, section in self._sections.items()]
        return "\n\n".join([*parts, fill(self._note(SIGNS), WIDTH)] if self.results else parts)

    def _repr_html_(self) -> str:
        parts = [html(section, title) for title, section in self._sections.items()]
        return "".join([*parts, f"<p>{escape(self._note(SIGNS))}</p>"] if self.results else parts)

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        tables = [rich_table(section, title) for title, section in self._sections.items()]
        return Group(*tables, *([Text(self._note(SIGNS))] if self.results else []))

    def plot(self) -> Figure:
        """Difference of each model from the baseline, with its interval, for every tested metric.

        Returns
        -------
        Figure
            An SVG figure that notebooks display; `save(path)` writes it to a file.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.compare({"A": {"ann": ["tea"]}, "B": {"bob": ["rice"]}}, truth).plot()
        Figure('Models against A, 95% intervals')
        """
        spans = []
        for metric in self.metrics:
            tests, signs = self._tests_of(metric), self._signs(metric)
            for name, runs in self.reports.items():
                middle, low, high = (tests.get(name, {}).get(k, 0.0) for k in ("difference", "low", "high"))
                short = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
                kind = metric_of(metric)
                label = f"{short} {kind.text(float(np.mean([run.mean(metric) for run in runs])))}"
                ends = (middle * kind.scale, low * kind.scale, high * kind.scale)
                spans.append(Span(TITLES.get(metric, metric), label, *ends, STYLES[signs[name]]))
        title = f"Models against {self.baseline}, {self.level:.0%} intervals"
        return Figure(title, span_chart(title, f"difference from {self.baseline}", spans))

    def to_markdown(self) -> str:
        """A Markdown table and a note that explains it.

        Returns
        -------
        str
            A pipe table with signs and p-values.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.compare({"A": {"ann": ["tea"]}}, truth).to_markdown().splitlines()[2][:14]
        '| A | 0.5000 |'
        """
        return f"{markdown(self.formatted)}\n\n{self._note()}\n"

    def to_latex(self) -> str:
        r"""A LaTeX booktabs tabular; the note is a comment.

        Returns
        -------
        str
            A `tabular` environment with signs and p-values.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.compare({"A": {"ann": ["tea"]}}, truth).to_latex().splitlines()[-1]
        '\\end{tabular}'
        """
        return f"% {self._note()}\n{latex(self.formatted)}\n"

    def to_csv(self) -> str:
        """Means and tests in one row per model, in full precision.

        Returns
        -------
        str
            A header and one row per model.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> sl.compare({"A": {"ann": ["tea"]}}, truth).to_csv().splitlines()[1][:7]
        'A,1,0.5'
        """
        wide = self.table
        for metric in self.metrics:
            tests = self.tests.filter(pl.col("metric") == metric).drop("metric")
            names = {column: f"{metric} {column}" for column in tests.columns if column != "model"}
            wide = wide.join(tests.rename(names), on="model", how="left")
        return wide.write_csv()

    def to_json(self) -> str:
        """Means, tests and every run's report as JSON text.

        Returns
        -------
        str
            An object with `baseline`, `table`, `tests` and `reports`.

        Examples
        --------
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> import json; json.loads(sl.compare({"A": {"ann": ["tea"]}}, truth).to_json())["baseline"]
        'A'
        """
        content = {
            "baseline": self.baseline,
            "table": self.table.to_dicts(),
            "tests": self.tests.to_dicts(),
            "reports": {name: [run.to_dict() for run in runs] for name, runs in self.reports.items()},
        }
        return json.dumps(without_nan(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, path: str | Path) -> Path:
        """Write the comparison in the format of the file's extension.

        Parameters
        ----------
        path
            A file that ends in .md, .tex, .csv, .json or .txt.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        DataError
            If the extension is another one or the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sl.compare({"A": {"ann": ["tea"]}}, truth).write(f"{folder}/table.md").name
        'table.md'
        """
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
                f"comparisons are written as {', '.join(forms)}, got {target.name!r}; change the extension."
            )
        write_text(target, forms[target.suffix]())
        return target


def metric_of(name: str) -> type[Metric]:
    """The metric of this name; the base class for those of weighted gains."""
    return Metric.registry.get(name, Metric)


def _interval(test: dict[str, Any], metric: type[Metric]) -> str:
    difference, low, high = (metric.text(test[name], "+") for name in ("difference", "low", "high"))
    return f"{difference} [{low}, {high}]"
