"""SelectionReport: which model and cutoff were selected, what else was tried, and why."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from shortlist.core.checks import check_float_value, check_names, check_text, file_error
from shortlist.text import escape_html as escape

if TYPE_CHECKING:
    from rich.console import Group

METRIC_NAMES = {"f1": "F1", "ndcg": "NDCG"}


@dataclass(frozen=True)
class SelectionReport:
    """What `sl.fit` tried on validation data and what it selected.

    `str`, rich and notebooks show it as two tables; the selected rows come first.

    Parameters
    ----------
    validation
        What was held out.
    models
        One row per model: `model`, `params`, `N` (its best fixed N) and `score` (the metric at that N).
    cutoffs
        One row per cutoff: `cutoff` and `score`. Each user is scored by a cutoff fitted on other users.
    skipped
        Models that were not tried or not trained to the end, and why.
    reason
        Why the first cutoff was selected.
    metric
        Metric of the scores: `"f1"` or `"ndcg"`.
    held_out
        The metric on users that took no part in choosing: `score`, `standard_error`, `n_users` and `choices`
        (what each half of the validation users chose for the other half). None if it was not measured: with
        fewer than four validation users, and with a `Guarantee`.

    Notes
    -----
    The scores of `models` and `cutoffs` belong to the best of several candidates on the users that chose
    among them, so they tend to be too high for other users. `held_out` is not: model, settings, number of
    epochs and cutoff are chosen on every other validation user and scored on the rest, both ways. Each half
    chooses on fewer users than the model that is returned was chosen on. One dependence is left: while models
    are compared, their number of epochs comes from all validation users.

    Examples
    --------
    >>> model = sl.fit(sl.load_dataset("sample"), models="Popularity", budget="quick")
    >>> model.selection_.models[0]["model"]
    'Popularity'
    >>> 0 < model.selection_.held_out["score"] < 1
    True
    """

    validation: str
    models: list[dict[str, Any]]
    cutoffs: list[dict[str, Any]]
    skipped: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    metric: str = "f1"
    held_out: dict[str, Any] | None = None

    @classmethod
    def from_notes(cls, notes: Any) -> Self:
        """The report in the notes of a saved model.

        Parameters
        ----------
        notes
            What `dataclasses.asdict` returned.

        Raises
        ------
        ModelFileError
            If it is not the description of a report.
        """
        if not isinstance(notes, dict):
            raise file_error("selection", "must be an object")
        names = [one.name for one in fields(cls) if one.name != "held_out"]
        check_names(notes, names, ["held_out"])  # files of earlier versions do not have it
        for name in ("validation", "reason", "metric"):
            check_text(notes, name)
        skipped, models = notes["skipped"], notes["models"]
        if not isinstance(skipped, dict) or not all(isinstance(reason, str) for reason in skipped.values()):
            raise file_error("skipped", "must hold texts")
        _check_rows(models, "model", {"params", "N"})
        _check_rows(notes["cutoffs"], "cutoff", set())
        if not models or any(not isinstance(row["params"], dict) for row in models):
            raise file_error("models", "must have at least one row with params")
        _check_held_out(notes.get("held_out"))
        return cls(**notes)

    def __str__(self) -> str:
        lines = [self.title, *self._summary(), ""]
        for number, (columns, rows) in enumerate(self._tables()):
            lines += ["", *_table(columns, rows)] if number else _table(columns, rows)
            lines += [f"  {note}" for note in (self._notes()[number])]
        return "\n".join(lines)

    @property
    def title(self) -> str:
        """The selected model and cutoff in one line."""
        params = ", ".join(f"{name}={value!r}" for name, value in self.models[0]["params"].items())
        cutoff = self.cutoffs[0]["cutoff"] if self.cutoffs else "none"
        return f"{self.models[0]['model']}({params}), cutoff: {cutoff}"

    def _summary(self) -> list[str]:
        """Lines below the title."""
        lines = [f"Validation: {self.validation}."]
        if self.held_out is not None:
            metric, found = METRIC_NAMES.get(self.metric, self.metric), self.held_out
            chosen = list(dict.fromkeys(found["choices"]))
            halves = (
                f"both halves chose {chosen[0]}"
                if len(chosen) == 1
                else f"the halves chose {' and '.join(chosen)}"
            )
            lines.append(
                f"{metric} on users that took no part in choosing: {found['score']:.4f} "
                f"± {found['standard_error']:.4f} ({found['n_users']:,} users; {halves})."
            )
        return lines

    def _tables(self) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """Columns and rows of the two tables."""
        metric = METRIC_NAMES.get(self.metric, self.metric)
        models = [(row["model"], str(row["N"]), f"{row['score']:.4f}") for row in self.models]
        cutoffs = [(row["cutoff"], f"{row['score']:.4f}") for row in self.cutoffs]
        tables = [(("model", "best N", f"{metric} at best N"), models)]
        return [*tables, ((f"cutoff for {self.models[0]['model']}", metric), cutoffs)]  # type: ignore[list-item]

    def _notes(self) -> tuple[list[str], list[str]]:
        """Lines below each table."""
        skipped = [f"left out: {name} ({reason})" for name, reason in self.skipped.items()]
        return skipped, [f"Reason: {self.reason}."] if self.reason else []

    def __rich__(self) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = [Text(self.title, style="bold"), *map(Text, self._summary())]
        for (columns, rows), notes in zip(self._tables(), self._notes(), strict=True):
            table = Table(box=box.SIMPLE_HEAD)
            for number, column in enumerate(columns):
                table.add_column(column, justify="right" if number else "left")
            for number, row in enumerate(rows):
                table.add_row(*map(Text, row), style="" if number else "bold")
            parts += [table, *map(Text, notes)]
        return Group(*parts)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.title)}</b><br>{'<br>'.join(map(escape, self._summary()))}</p>"]
        for (columns, rows), notes in zip(self._tables(), self._notes(), strict=True):
            head = "".join(f"<th>{escape(column)}</th>" for column in columns)
            body = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
            lines = "".join(f"<tr>{row}</tr>" for row in body)
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>")
            parts += [f"<p>{escape(note)}</p>" for note in notes]
        return "".join(parts)


def _check_rows(rows: Any, name: str, others: set[str]) -> None:
    """Raise ModelFileError unless every row has a name, a score and the other keys."""
    if not isinstance(rows, list):
        raise file_error(f"{name}s", "must be a list")
    for row in rows:
        if not isinstance(row, dict) or not row.keys() >= others:
            raise file_error(f"{name}s", f"must hold {name}, score and {', '.join(sorted(others))}")
        check_text(row, name)
        check_float_value(row, "score")


def _check_held_out(found: Any) -> None:
    """Raise ModelFileError unless it is None or the score of a selection."""
    if found is None:
        return
    if not isinstance(found, dict):
        raise file_error("held_out", "must be an object")
    check_names(found, ("score", "standard_error", "n_users", "choices"))
    for name in ("score", "standard_error"):
        check_float_value(found, name)
    n_users, choices = found["n_users"], found["choices"]
    if isinstance(n_users, bool) or not isinstance(n_users, int):
        raise file_error("n_users", "must be a number of users")
    if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
        raise file_error("choices", "must hold texts")


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Aligned columns, the first to the left and the others to the right; * marks the selected row."""
    widths = [max(len(row[at]) for row in (columns, *rows)) for at in range(len(columns))]
    lines = []
    for number, row in enumerate((columns, *rows)):
        cells = [row[0].ljust(widths[0]), *(row[at].rjust(widths[at]) for at in range(1, len(row)))]
        lines.append(("* " if number == 1 else "  ") + "  ".join(cells))
    return lines
