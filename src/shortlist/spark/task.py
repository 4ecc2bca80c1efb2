"""Task: what a Python worker of Spark does, a function of Arrow tables on blocks of whole users.

The function travels as bytes in a broadcast, and each worker loads it once. This module imports nothing that
computes, because workers set their environment before they import the rest.
"""

import os
import platform
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from shortlist.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROW = "shortlist_row"  # number of a row among those of its user
PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "polars")
_loaded: dict[str, Any] = {}  # digest → the last function of this process


@dataclass(frozen=True)
class Task:
    """A function from tables of whole users to tables, and what a worker needs to run it."""

    content: Any  # broadcast of the pickled function
    digest: str
    stamp: Mapping[str, str]
    environment: Mapping[str, str]

    @classmethod
    def run(cls, function: Callable[[Any], Any], rows: "DataFrame", schema: "pa.Schema") -> "DataFrame":
        """What the function makes from rows sorted by user; Spark computes it when it is used."""
        from pyspark import cloudpickle
        from pyspark.sql.pandas.types import from_arrow_schema

        content = cloudpickle.dumps(function)
        shared = rows.sparkSession.sparkContext.broadcast(content)
        task = cls(shared, sha256(content).hexdigest(), code_stamp(), worker_environment())
        return rows.mapInArrow(task, from_arrow_schema(schema))

    def __call__(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Run in a worker; the first block of a new function has the machine's turn to compile kernels."""
        os.environ.update(self.environment)  # before Numba and polars read it
        check_code(self.stamp, code_stamp(), socket.gethostname())
        from shortlist.core.threads import limit_threads
        from shortlist.data.arrow import user_blocks

        is_new = self.digest not in _loaded
        for block in user_blocks(batches):
            with _turn_to_compile() if is_new else nullcontext(), limit_threads(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of doubts about single blocks
                table = self._load()(block.drop_columns([ROW]))
            is_new = False
            yield from table.to_batches()
        _forget_zip_files()

    def _load(self) -> Any:
        """The function, loaded once per process."""
        if self.digest not in _loaded:
            from pyspark import cloudpickle

            _loaded.clear()
            _loaded[self.digest] = cloudpickle.loads(self.content.value)
            vars(self.content).pop("_value", None)  # the bytes are not needed any more
        return _loaded[self.digest]


@cache
def code_stamp() -> dict[str, str]:
    """Versions of Python and of the packages that compute, and a digest of this package's sources."""
    folder, digest = Path(__file__).parents[1], sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    stamp = {"python": platform.python_version(), "machine": platform.machine()}
    return stamp | {name: version(name) for name in PACKAGES} | {"shortlist sources": digest.hexdigest()[:12]}


def check_code(expected: Mapping[str, str], actual: Mapping[str, str], host: str) -> None:
    """Raise ConfigError if a node runs other code than the driver."""
    for name, value in expected.items():
        if actual.get(name) != value:
            raise ConfigError(
                f"all nodes must run the same code, but {host} has {name} {actual.get(name, 'missing')} "
                f"instead of {value}; install the same versions on every node."
            )


def worker_environment() -> dict[str, str]:
    """Environment variables of workers: one thread each, and the driver's cache of compiled code."""
    names = ("NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT")
    values = {name: os.environ[name] for name in names if name in os.environ}
    return values | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}


@contextmanager
def _turn_to_compile() -> Iterator[None]:
    """One process of this machine at a time, so that the others find compiled kernels in the cache."""
    from shortlist.core.files import lock_file

    name = f"shortlist-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"
    descriptor = os.open(Path(tempfile.gettempdir()) / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock_file(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def _forget_zip_files() -> None:
    """Drop Python's cached readers of zip files, from which Spark imports pyspark.

    Before each task Spark makes all of them read their directory again, which takes 0.1 seconds.
    """
    for path, reader in list(sys.path_importer_cache.items()):
        if isinstance(reader, zipimporter):
            del sys.path_importer_cache[path]
