"""Calls of an experiment: by threads of this process, or as tasks of a cluster, with the same results."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from shortlist.core.engine import Engine, Fixed, ThreadEngine
from shortlist.core.threads import thread_count
from shortlist.paper.runs import Experiment


@dataclass(frozen=True)
class Calls:
    """Where the runs of an experiment are computed."""

    experiment: Experiment
    engine: Engine
    n_jobs: int  # parallel runs in this process; 0: one per core

    def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(experiment, *args), here or on the cluster."""
        if isinstance(self.engine, ThreadEngine):
            return function(self.experiment, *args)
        return next(iter(self.engine.map(self._bound, [(function, args)])))

    @cached_property
    def _bound(self) -> Fixed:
        """One function for all tasks, so that a cluster gets the experiment once."""
        return Fixed(partial(_apply, self.experiment))

    def map(self, job: Callable[[Any], Any], points: Iterable[Any]) -> list[Any]:
        """The results of a job, in the order of the points; as many at once as there are places."""
        is_local = isinstance(self.engine, ThreadEngine)
        with ThreadPoolExecutor(thread_count(self.n_jobs) if is_local else self.engine.n_tasks) as pool:
            return list(pool.map(job, points))


def _apply(experiment: Experiment, task: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, args = task
    return function(experiment, *args)
