"""SelectionReport: which model and cutoff were selected, what else was tried, and why."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from shortlist.core.codec import file_error
from shortlist.core.metrics import Metric, Money
from shortlist.core.tables import html, plain, rich_table
from shortlist.text import escape_html as escape

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class SelectionReport:
    """What `sl.fit` tried on validation data and what it selected.

    `str`, rich and notebooks show it as two tables; the selected rows come first.

    Parameters
    ----------
    validation
        What was held out.
    models
        One row per model, the selected one first: `model`, `params`, `N` (its best fixed N) and `score` (the
        metric at that N). Models that are close to the best one also have `served_score`: the metric with the
        cutoff that would be served, and `recall` and `ndcg`: those of 20 items for everyone.
    cutoffs
        One row per cutoff: `cutoff` and `score`. Each user is scored by a cutoff fitted on other users.
    skipped
        Models that were not tried, or dropped on a sample of the users, and why.
    reason
        Why the first cutoff was selected.
    metric
        Metric of the scores: `"f1"`, `"ndcg"` or `"value"`.
    held_out
        The metric on users that took no part in choosing: `score`, `standard_error` (how much it would vary
        with other users at the same time), `n_users`, `choices` (what each half of the validation users chose
        for the other half)
        and `baselines`: 10 items and the best N for everyone, each with its score and the difference with its
        interval and p-value. None if it was not measured: with fewer than four validation users, and with a
        `Guarantee`.
    gain, cost
        What a shown item earns if the user takes it, and costs if not; None if money was not given.
    users
        Who was validated: `"buyers"`, users with held-out interactions, or `"everyone"`.
    horizon
        How long the held-out period is, such as `"604800s"`; None if baskets were held out.
    model_reason
        Why the first model was selected, if its score with a cutoff is within the noise of another one's.

    Notes
    -----
    The scores of `models` and `cutoffs` belong to the best of several candidates on the users that chose
    among them, so they tend to be too high for other users. `held_out` is not: model, settings and cutoff are
    chosen on every other validation user and scored on the rest, both ways. Each half chooses on fewer users
    than the model that is returned was chosen on. Users of an earlier, smaller sample take no part. One
    dependence is left: the number of epochs of a model that has some comes from all validation users.

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
    gain: float | None = None
    cost: float | None = None
    users: str = "buyers"
    horizon: str | None = None
    model_reason: str = ""

    def _check_loaded(self) -> None:
        """Raise ModelFileError if rows of the tables lack what is shown."""
        _check_rows("models", self.models, {"model": str, "score": float, "params": dict, "N": object})
        _check_rows("cutoffs", self.cutoffs, {"cutoff": str, "score": float})
        if not self.models:
            raise file_error("selection.models", "must have at least one row")
        if self.held_out is None:
            return
        names = {"score": float, "standard_error": float, "n_users": int, "choices": list}
        _check_rows("held_out", [self.held_out], names)
        baselines = self.held_out.get("baselines", [])
        numbers = dict.fromkeys(("score", "difference", "low", "high", "p"), float)
        _check_rows("held_out.baselines", baselines, {"name": str, **numbers})
        if not self.held_out["choices"] or not all(
            isinstance(name, str) for name in self.held_out["choices"]
        ):
            raise file_error("selection.held_out.choices", "must hold texts")

    def __str__(self) -> str:
        parts = ["\n".join([self.title, *self._summary()])]
        for table, notes in zip(self._tables(), self._notes(), strict=True):
            parts.append("\n".join([plain(table), *notes]))
        return "\n\n".join(parts)

    @property
    def title(self) -> str:
        """The selected model and cutoff in one line."""
        params = ", ".join(f"{name}={value!r}" for name, value in self.models[0]["params"].items())
        cutoff = self.cutoffs[0]["cutoff"] if self.cutoffs else "none"
        return f"{self.models[0]['model']}({params}), cutoff: {cutoff}"

    def _summary(self) -> list[str]:
        """Lines below the title."""
        lines = [f"Validation: {self.validation}."]
        if self.gain is not None and self.cost is not None:
            lines.append(f"Money: {Money(self.gain, self.cost)}.")
        if self.held_out is not None:
            metric, held_out = self._metric, self.held_out
            chosen = list(dict.fromkeys(held_out["choices"]))
            lines.append(
                f"{metric.title[0].upper()}{metric.title[1:]} on users that took no part in choosing: "
                f"{metric.text(held_out['score'])}, standard error {metric.text(held_out['standard_error'])} "
                f"({held_out['n_users']:,} users, each half with what the other half chose: "
                f"{' and '.join(chosen)})."
            )
            for row in held_out.get("baselines", ()):
                low, high = metric.text(row["low"], "+"), metric.text(row["high"], "+")
                lines.append(
                    f"{row['name']}: {metric.text(row['score'])}, the difference is "
                    f"{metric.text(row['difference'], '+')} (95% interval {low} to {high})."
                )
        return lines

    @property
    def _metric(self) -> type[Metric]:
        return Metric.registry.get(self.metric, Metric)

    def _tables(self) -> list[pl.DataFrame]:
        """Models and cutoffs; the selected row comes first."""
        title, text = self._metric.title, self._metric.text
        models = {
            "model": [row["model"] for row in self.models],
            "best N": [str(row["N"]) for row in self.models],
            f"{title} at best N": [text(row["score"]) for row in self.models],
        }
        if any("served_score" in row for row in self.models):
            served = [row.get("served_score") for row in self.models]
            models[f"{title} with a cutoff"] = ["" if value is None else text(value) for value in served]
        for name, head in (("recall", "recall@20"), ("ndcg", "NDCG@20")):
            if any(name in row for row in self.models):
                models[head] = [f"{row[name]:.4f}" if name in row else "" for row in self.models]
        cutoffs = {
            f"cutoff for {self.models[0]['model']}": [row["cutoff"] for row in self.cutoffs],
            title: [text(row["score"]) for row in self.cutoffs],
        }
        return [pl.DataFrame(columns, dict.fromkeys(columns, pl.String)) for columns in (models, cutoffs)]

    def _notes(self) -> tuple[list[str], list[str]]:
        """Lines below each table."""
        notes = [f"left out: {name} ({reason})" for name, reason in self.skipped.items()]
        if self.model_reason:
            notes.append(f"Within the noise of validation: {self.model_reason}.")
        return notes, [f"Reason: {self.reason}."] if self.reason else []

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [Text(self.title, style="bold"), *map(Text, self._summary())]
        for table, notes in zip(self._tables(), self._notes(), strict=True):
            parts += [rich_table(table), *map(Text, notes)]
        return Group(*parts)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.title)}</b><br>{'<br>'.join(map(escape, self._summary()))}</p>"]
        for table, notes in zip(self._tables(), self._notes(), strict=True):
            parts += [html(table), *(f"<p>{escape(note)}</p>" for note in notes)]
        return "".join(parts)


def _check_rows(place: str, rows: Any, types: dict[str, type]) -> None:
    """Raise ModelFileError unless rows have entries of these types; some numbers need not be there."""
    optional = dict.fromkeys(("served_score", "recall", "ndcg"), float)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise file_error(f"selection.{place}", "must be a list of objects")
    for row in rows:
        present = {name: kind for name, kind in optional.items() if row.get(name) is not None}
        for name, kind in (types | present).items():
            value = row.get(name)
            kinds = (int, float) if kind is float else (kind,)
            if value is None or not (kind is object or type(value) in kinds):
                raise file_error(f"selection.{place}", f"must hold {name}")
