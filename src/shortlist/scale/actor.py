"""WorkerProcess: the class of the Ray actors; it sets the environment before anything is compiled."""

import os
import pickle
import socket
from collections.abc import Callable
from typing import Any


class WorkerProcess:
    """Holds one object, made by a function, and calls its methods."""

    def __init__(self, environment: dict[str, str]) -> None:
        os.environ.update(environment)  # before Numba reads it
        self.held: Any = None
        self.kept: dict[str, Any] = {}

    def describe(self) -> tuple[dict[str, str], str, str]:
        """(code stamp, name of the machine, its address)."""
        import ray

        from shortlist.scale.code_stamp import code_stamp

        return code_stamp(), socket.gethostname(), ray.util.get_node_ip_address()

    def create(self, factory: Callable[..., Any], *args: Any) -> None:
        """Make the object."""
        self.held = factory(*args)

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the object."""
        return method(self.held, *args)

    def keep(self, name: str, value: Any) -> None:
        """Keep a copy of another worker's value, in case its node is lost."""
        self.kept[name] = value


latest: dict[str, Callable[[Any], Any]] = {}  # the last function that this process called, by name


def run_task(
    environment: dict[str, str], stamp: dict[str, str], name: str, function: list[Any], task: Any
) -> Any:
    """Call the function that a reference stands for, in a process with this environment and the same code."""
    if name in latest:
        return latest[name](task)
    os.environ.update(environment)

    import ray

    from shortlist.errors import ConfigError
    from shortlist.scale.code_stamp import code_stamp, find_difference

    difference = find_difference(stamp, code_stamp())
    if difference:
        raise ConfigError(
            f"all nodes must run the same code, but {socket.gethostname()} has {difference}; "
            "install the same versions on every node."
        )
    latest.clear()
    data, arrays = ray.get(function[0])
    latest[name] = pickle.loads(data, buffers=arrays)
    return latest[name](task)
