"""What processes on other nodes must have in common with the driver: code, versions, environment."""

import os
import platform
import socket
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from shortlist.errors import ConfigError

REACH_SECONDS = 10.0  # to connect to the address of a cluster
PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "polars")


@cache
def code_stamp() -> dict[str, str]:
    """Versions of Python and of the packages that compute, and a digest of this package's sources."""
    folder, digest = Path(__file__).parents[1], sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    stamp = {"python": platform.python_version(), "machine": platform.machine()}
    return stamp | {name: version(name) for name in PACKAGES} | {"shortlist sources": digest.hexdigest()[:12]}


def check_code(expected: dict[str, str], actual: dict[str, str], host: str) -> None:
    """Raise ConfigError if a node runs other code than the driver."""
    for name, value in expected.items():
        if actual.get(name) != value:
            raise ConfigError(
                f"all nodes must run the same code, but {host} has {name} {actual.get(name, 'missing')} "
                f"instead of {value}; install the same versions on every node."
            )


def check_address(host: str, port: int) -> None:
    """Raise OSError if nothing listens there; clusters would wait for minutes."""
    socket.create_connection((host.strip("[]"), port), REACH_SECONDS).close()


def worker_environment(n_threads: int) -> dict[str, str]:
    """Environment variables of worker processes: they use the driver's cache of compiled code."""
    names = ("NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT")
    given = {name: os.environ[name] for name in names if name in os.environ}
    return given | {"OMP_NUM_THREADS": str(n_threads)}
