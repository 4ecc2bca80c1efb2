"""RayEngine: the engine that runs on a Ray cluster. Ray is imported when the engine is first used."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, Self, TypeVar

from shortlist.core.engine import Engine
from shortlist.core.params import check_whole, short_repr
from shortlist.errors import ConfigError

Task = TypeVar("Task")
Result = TypeVar("Result")


class RayEngine(Engine):
    """Run on a Ray cluster, with the same result, bit for bit, as in one process.

    The engine connects when it is first used. As a context manager it closes the connection at the end.
    All nodes must have the same versions of Python, shortlist and its dependencies, and the same kind of CPU.

    Parameters
    ----------
    address
        "auto" for the cluster that this machine belongs to, `ray://host:10001` for a remote one, None to
        start a cluster on this machine.
    n_workers
        Number of training processes; None: one per node.
    threads_per_worker
        Threads, and CPUs, of each training process; None: an equal share of the CPUs.

    Raises
    ------
    ConfigError
        If ray is not installed, or an argument is invalid.

    Examples
    --------
    >>> engine = sl.RayEngine(address=None, n_workers=2)
    >>> # model = sl.BPRMF().fit(train, engine=engine)
    """

    def __init__(
        self,
        address: str | None = "auto",
        *,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
    ) -> None:
        if address == "":
            raise ConfigError(
                f'address must be "auto", None or the address of a cluster, got {short_repr(address)}.'
            )
        for name, value in (("n_workers", n_workers), ("threads_per_worker", threads_per_worker)):
            if value is not None:
                check_whole(1, **{name: value})
        if find_spec("ray") is None:
            raise ConfigError("RayEngine needs ray; run pip install ray")
        self.address, self.n_workers, self.threads_per_worker = address, n_workers, threads_per_worker
        self._is_owner = False  # whether this engine made the connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RayEngine({self.address!r})"

    def close(self) -> None:
        """Close the connection; a cluster that the engine started ends."""
        if self._is_owner:
            import ray

            ray.shutdown()
            self._is_owner = False

    def open_trainer(self, task: Any) -> AbstractContextManager[Any] | None:
        """Return what trains the factors of a task on the cluster.

        Parameters
        ----------
        task
            A `TrainingTask`.
        """
        self._connect()
        from shortlist.scale.cluster import RayCluster
        from shortlist.scale.trainer import RayTrainer

        return RayTrainer(task, RayCluster(self.n_workers, self.threads_per_worker))

    @property
    def n_tasks(self) -> int:
        """One per CPU of the cluster."""
        self._connect()
        from shortlist.scale.cluster import node_cpus

        return max(1, sum(node_cpus()))

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Call the function on each task, on any node, and yield the results in the order of the tasks.

        Parameters
        ----------
        function
            A function that can be pickled.
        tasks
            Its arguments.
        """
        self._connect()
        from shortlist.scale.cluster import map_tasks

        return map_tasks(function, tasks)

    def _connect(self) -> None:
        from shortlist.scale.cluster import connect

        self._is_owner = connect(self.address) or self._is_owner
