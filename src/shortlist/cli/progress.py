"""How a fit is going: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shortlist.cli.screen import say

if TYPE_CHECKING:
    from shortlist.models.training import Progress

PAUSE = 5.0  # seconds between two plain lines


@contextmanager
def epochs(label: str) -> "Iterator[Callable[[Progress], None]]":
    """A callback for `fit(progress=…)`."""
    if not sys.stderr.isatty():
        yield plain_lines(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def update(state: "Progress") -> None:
            bar.update(
                task, description=f"{label}: {figures(state)}", completed=state.epoch, total=state.n_epochs
            )

        yield update


def plain_lines(label: str) -> "Callable[[Progress], None]":
    """One line at the first epoch, then one every few seconds."""
    last = -PAUSE

    def tell(state: "Progress") -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            last = time.monotonic()
            say(f"{label}: epoch {state.epoch} of at most {state.n_epochs}, {figures(state)}")

    return tell


def figures(state: "Progress") -> str:
    score = "" if state.score is None else f", validation F1 {state.score:.4f}"
    return f"loss {state.loss:.4f}{score}, {state.updates_per_second / 1e6:.1f}M updates/s"
