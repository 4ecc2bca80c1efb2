"""SelectionReport: which ranker and which decider were taken, out of which, and why."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class SelectionReport:
    """What was tried on validation and what came of it; `str` and rich show it as two tables.

    A row of `rankers` holds ranker, params, N and f1 (at its best fixed N); a row of `deciders` decider and
    f1 (each user judged by a decider that was fitted on others). The chosen ones come first.
    """

    how: str  # what was held back
    rankers: list[dict[str, Any]]
    deciders: list[dict[str, Any]]
    left_out: dict[str, str] = field(default_factory=dict)  # ranker: why it was not tried
    because: str = ""  # of the decider

    def __str__(self) -> str:
        first = self.rankers[0]
        lines = [self.title, f"Validation: {self.how}.", ""]
        lines += _table(("ranker", "N", "F1 at its best N"), self._ranker_rows())
        lines += [f"  not tried: {name}, {why}" for name, why in self.left_out.items()]
        lines += ["", *_table((f"decider of {first['ranker']}", "F1"), self._decider_rows())]
        return "\n".join([*lines, f"  {self.because}"])

    @property
    def title(self) -> str:
        """The outcome in one line."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.rankers[0]["params"].items())
        return f"{self.rankers[0]['ranker']}({settings}), cut by {self.deciders[0]['decider']}"

    def _ranker_rows(self) -> list[tuple[str, ...]]:
        return [(row["ranker"], str(row["N"]), f"{row['f1']:.4f}") for row in self.rankers]

    def _decider_rows(self) -> list[tuple[str, ...]]:
        return [(row["decider"], f"{row['f1']:.4f}") for row in self.deciders]

    def __rich__(self) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
            made = Table(box=box.SIMPLE_HEAD)
            for number, head in enumerate(heads):
                made.add_column(head, justify="right" if number else "left")
            for number, row in enumerate(rows):
                made.add_row(*map(Text, row), style="" if number else "bold")
            return made

        return Group(
            Text(self.title, style="bold"),
            Text(f"Validation: {self.how}."),
            table(("ranker", "N", "F1 at its best N"), self._ranker_rows()),
            *(Text(f"not tried: {name}, {why}") for name, why in self.left_out.items()),
            table((f"decider of {self.rankers[0]['ranker']}", "F1"), self._decider_rows()),
            Text(self.because),
        )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Columns in line, the first to the left and the others to the right; * marks the chosen row."""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    lines = []
    for number, row in enumerate((heads, *rows)):
        cells = [row[0].ljust(widths[0]), *(row[at].rjust(widths[at]) for at in range(1, len(row)))]
        lines.append(("* " if number == 1 else "  ") + "  ".join(cells))
    return lines
