"""Engines: where training, batch recommendation and trials run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from shortlist.core.estimator import short_repr
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


class Fixed:
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
            f"engine must be ThreadEngine() or RayEngine(…), got {short_repr(engine)}.", parameter="engine"
        )
    return engine
