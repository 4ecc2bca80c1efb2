"""Progress of long operations: a bar on a terminal, lines in a notebook or for a callback, else nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shortlist.text import printable

if TYPE_CHECKING:
    from shortlist.models.factorization.training import Progress as Epoch


MIN_INTERVAL = 5.0  # seconds between two lines about the same step


class ProgressDisplay:
    """Shows nothing; subclasses show lines or a bar."""

    def line(self, text: str) -> None:
        """Show a finished step."""

    def update(self, text: str, done: float, total: float) -> None:
        """Show the current step and how much is done; `total` is 0 if it is not known."""

    def epochs(
        self, label: str, done: float = 0.0, step: float = 1.0, total: float = 1.0
    ) -> "Callable[[Epoch], None]":
        """Callback for `model.fit(progress=…)`, which is a step of all that is to be done."""

        def show(epoch: "Epoch") -> None:
            score = "" if epoch.score is None else f", validation F1 {epoch.score:.4f}"
            text = f"{label}: epoch {epoch.epoch} of {epoch.n_epochs}, loss {epoch.loss:.4f}{score}"
            self.update(text, done + step * epoch.epoch / epoch.n_epochs, total)

        return show


class LineProgress(ProgressDisplay):
    """Passes lines to a callable; at most one line about a running step every few seconds."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write, self.last = write, time.monotonic()

    def line(self, text: str) -> None:
        self.write(printable(text))
        self.last = time.monotonic()

    def update(self, text: str, done: float, total: float) -> None:
        if time.monotonic() - self.last >= MIN_INTERVAL:
            self.line(f"{text} ({done / total:.0%})" if total else f"{text} ({done:,})")


class BarProgress(ProgressDisplay):
    """Prints lines above one bar, which is removed at the end."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.task = bar, bar.add_task("", total=None)

    def line(self, text: str) -> None:
        self.bar.console.print(printable(text), markup=False, highlight=False)

    def update(self, text: str, done: float, total: float) -> None:
        if total:
            self.bar.update(self.task, completed=done, total=total)
        self.bar.update(self.task, description=printable(text))


class Compilations:
    """Shows which kernel is compiled; the first one with the reason why it takes longer than later runs."""

    def __init__(self, display: ProgressDisplay) -> None:
        self.display, self.n_compiled = display, 0

    def __call__(self, name: str) -> None:
        self.n_compiled += 1
        if self.n_compiled == 1:
            self.display.line("compiling kernels; only the first run waits for this")
        self.display.update(f"compiling {name}", self.n_compiled, 0)  # how many will follow is not known


@contextmanager
def show_progress(progress: Callable[[str], object] | None = None) -> Iterator[ProgressDisplay]:
    """Yield a display that writes to the callable, or one that suits the terminal, notebook or pipe."""
    from shortlist.kernels.jit import announce_compilation

    with _display(progress) as display, announce_compilation(Compilations(display)):
        yield display


@contextmanager
def _display(progress: Callable[[str], object] | None = None) -> Iterator[ProgressDisplay]:
    if progress is not None:
        yield LineProgress(progress)
    elif "ipykernel" in sys.modules:
        yield LineProgress(lambda text: sys.stdout.write(f"{text}\n"))
    elif sys.stderr is None or not sys.stderr.isatty():
        yield ProgressDisplay()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield BarProgress(bar)
