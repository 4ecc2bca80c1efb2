"""How a fit is going: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shortlist.cli.screen import say

if TYPE_CHECKING:
    from shortlist.models.factorization.training import Progress as Epoch

PAUSE = 5.0  # seconds between two plain lines


@contextmanager
def bar(label: str) -> "Iterator[Callable[[str, int, int], None] | None]":
    """An update(text, done, all) for a bar on stderr; None where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(label, total=None)
        yield lambda text, done, total: drawn.update(task, description=text, completed=done, total=total)


@contextmanager
def epochs(label: str) -> "Iterator[Callable[[Epoch], None]]":
    """A callback for `fit(progress=…)`."""
    with bar(label) as update:
        if update is None:
            yield plain_lines(label)
        else:
            yield lambda state: update(f"{label}: {figures(state, 'F1')}", state.epoch, state.n_epochs)


@contextmanager
def counted(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, all) for work that is counted; silent where there is no terminal."""
    with bar(label) as update:
        yield None if update is None else lambda done, total: update(f"{label}: {done:,}", done, total)


def plain_lines(label: str) -> "Callable[[Epoch], None]":
    """One line at the first epoch, then one every few seconds."""
    last = -PAUSE

    def tell(state: "Epoch") -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            last = time.monotonic()
            say(f"{label}: epoch {state.epoch} of at most {state.n_epochs}, {figures(state)}")

    return tell


def figures(state: "Epoch", measure: str = "validation F1") -> str:
    score = "" if state.score is None else f", {measure} {state.score:.4f}"
    return f"loss {state.loss:.4f}{score}, {state.updates_per_second / 1e6:.1f}M updates/s"
