"""Engines: where training, batch recommendation and trials run."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from shortlist.errors import ConfigError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(ABC):
    """Where work runs. The result of the work does not depend on it."""

    @abstractmethod
    def open_trainer(self, task: Any) -> AbstractContextManager[Any] | None:
        """Return what trains the factors of a task on a cluster; None: the threads of this process do.

        Parameters
        ----------
        task
            A `TrainingTask`.
        """

    @property
    @abstractmethod
    def n_tasks(self) -> int:
        """How many tasks run at once."""

    @abstractmethod
    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Call the function on each task, and yield the results in the order of the tasks.

        Parameters
        ----------
        function
            A function that can be pickled.
        tasks
            Its arguments.
        """


class FixedFunction:
    """A function whose data never changes: a cluster gets it once, for any number of calls of `map`."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, task: Any) -> Any:
        return self.function(task)


class ThreadEngine(Engine):
    """Run in this process, with as many threads as `n_threads` of a model or a call says: the default.

    Examples
    --------
    >>> model = sl.BPRMF(n_epochs=2).fit(sl.load_dataset("sample"), engine=sl.ThreadEngine())
    """

    def open_trainer(self, task: Any) -> AbstractContextManager[Any] | None:
        """Return None: the threads of this process train.

        Parameters
        ----------
        task
            A `TrainingTask`.
        """
        return None

    @property
    def n_tasks(self) -> int:
        """One: the task uses the threads."""
        return 1

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Call the function on one task after the other; the function may use threads.

        Parameters
        ----------
        function
            Any function.
        tasks
            Its arguments.
        """
        return map(function, tasks)

    def __repr__(self) -> str:
        return "ThreadEngine()"


def check_engine(engine: Any) -> Engine:
    """The engine; None: threads."""
    if engine is None:
        return ThreadEngine()
    if not isinstance(engine, Engine):
        raise ConfigError(
            f"engine must be ThreadEngine() or RayEngine(…), got {engine!r:.60}.", parameter="engine"
        )
    return engine


T = TypeVar("T")
Piece = TypeVar("Piece")
PARALLEL_ROWS = 1_000_000  # below this many rows, starting threads costs more than it saves


def thread_count(n_threads: int) -> int:
    """The number of threads to use; 0 means every core that this process may use."""
    if n_threads < 0:
        raise ConfigError(f"n_threads must be at least 0, got {n_threads}; 0 uses every core.")
    if n_threads > 0:
        return n_threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_slices(task: Callable[[slice], T], n: int, size: int, n_threads: int) -> list[T]:
    """Call `task` on slices of `size` that cover 0 … n - 1; results are in order."""
    if 0 < n <= size:
        return [task(slice(0, n))]
    slices = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    workers = min(thread_count(n_threads), len(slices))
    if workers <= 1:
        return [task(rows) for rows in slices]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, slices))


def run_each(function: Callable[[Piece], None], pieces: Iterable[Piece], n_rows: int) -> None:
    """Call the function on every piece, in parallel for large data; pieces must not share memory."""
    workers = rows_thread_count(n_rows)
    if workers == 1:
        for piece in pieces:
            function(piece)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(function, pieces))


def rows_thread_count(n_rows: int) -> int:
    """The number of threads that pay off for this many rows."""
    return min(thread_count(0), 8) if n_rows >= PARALLEL_ROWS else 1
