"""The connection to a Ray cluster, and tasks that run anywhere on it."""

import logging
import pickle
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import ray

from shortlist.core.engine import Fixed
from shortlist.errors import ConfigError
from shortlist.scale.actor import run_task
from shortlist.scale.code_stamp import code_stamp
from shortlist.scale.ray_cluster import node_cpus, worker_environment

Task = TypeVar("Task")
Result = TypeVar("Result")
fixed_functions: WeakKeyDictionary[Fixed, tuple[str, str, list[Any]]] = WeakKeyDictionary()
sharing = threading.Lock()
SMALL, LARGE = 1 << 16, 1 << 26  # bytes of an array
TASKS_PER_CPU = 2  # submitted at once, so that no CPU waits for the driver


def connect(address: str | None) -> bool:
    """Connect to the cluster unless this process is connected; return whether a connection was made."""
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"address": "local", "include_dashboard": False}  # not a cluster that happens to run here
    elif not address.startswith("ray://"):
        options["address"] = address
    try:
        ray.init(**(options if "address" in options else {"address": address}))
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"address {address!r} of the Ray cluster cannot be reached: {reason}; start one with `ray start "
            "--head`, or pass None for a cluster on this machine.",
            parameter="address",
        ) from None
    return True


def disconnect() -> None:
    """Close the connection of this process."""
    ray.shutdown()


def pack(function: Callable[..., Any]) -> tuple[bytes, list[npt.NDArray[np.uint8]]]:
    """A pickled function and its large arrays, which Ray keeps once per node.

    Arrays in the store are read-only. Kernels would be compiled again for those that were not, so they are
    copied by every process, unless they are very large.
    """
    arrays: list[npt.NDArray[np.uint8]] = []

    def is_copied(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL or (not raw.readonly and raw.nbytes < LARGE):
            return True
        arrays.append(np.frombuffer(raw, np.uint8))
        return False

    return ray.cloudpickle.dumps(function, protocol=5, buffer_callback=is_copied), arrays


def _share(function: Callable[..., Any]) -> tuple[str, list[Any]]:
    """A name, and a reference to the function in the store; the same for every call with a `Fixed` function.

    The reference is in a list, so that Ray does not load the function before the code is compared.
    """
    if not isinstance(function, Fixed):
        return secrets.token_hex(8), [ray.put(pack(function))]
    session = ray.get_runtime_context().get_job_id()
    with sharing:
        known = fixed_functions.get(function)
        if known is None or known[0] != session:
            known = fixed_functions[function] = session, secrets.token_hex(8), [ray.put(pack(function))]
    return known[1], known[2]


def map_tasks(function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """Call the function on each task on the cluster; results are in order, lost tasks are repeated.

    Large arrays of the function are in the store of each node once. All its processes read them there.
    """
    environment, (name, shared) = worker_environment(1), _share(function)
    remote = ray.remote(run_task).options(num_cpus=1, max_retries=-1)
    waiting: deque[Any] = deque()
    limit = TASKS_PER_CPU * max(1, sum(node_cpus()))
    for task in tasks:
        if len(waiting) >= limit:
            yield ray.get(waiting.popleft())
        waiting.append(remote.remote(environment, code_stamp(), name, shared, task))
    while waiting:
        yield ray.get(waiting.popleft())
