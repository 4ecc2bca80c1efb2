"""Task: what a Python worker of Spark does, a function of Arrow tables on blocks of whole users.

The function travels in a broadcast, which each worker loads once. This module imports nothing that computes,
because workers set their environment before they import the rest.
"""

import gc
import os
import platform
import socket
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shortlist.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROW = "shortlist_row"  # number of a row among those of its user
PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "polars")


class TableFunction(Protocol):
    """A function from an Arrow table with all rows of its users to another table."""

    def schema(self, source: "pa.Schema") -> "pa.Schema":
        """The schema of what is made from tables with this schema."""

    def __call__(self, table: "pa.Table") -> "pa.Table":
        """What is made from a table."""


def apply_by_user(function: TableFunction, rows: "DataFrame") -> "DataFrame":
    """What a function makes from the rows of all users; Spark computes it when it is used.

    All rows of a user must follow each other in one partition. A window needs exactly this, and Spark moves
    no rows for it if they are divided by user already: in a table with buckets, or after a join or an
    aggregation by user. Rows of equal rank have no order on Spark; they are sorted by item.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    order = ["user_id", "item_id"] if "rank" in rows.columns else ["user_id"]
    numbered = rows.withColumn(ROW, sf.row_number().over(Window.partitionBy("user_id").orderBy(*order)))
    schema = from_arrow_schema(function.schema(to_arrow_schema(rows.schema)))
    content = rows.sparkSession.sparkContext.broadcast(function)
    return numbered.mapInArrow(Task(content, code_stamp(), worker_environment()), schema)


@dataclass(frozen=True)
class Task:
    """A function from tables of whole users to tables, and what a worker needs to run it."""

    function: Any  # in a broadcast
    stamp: Mapping[str, str]
    environment: Mapping[str, str]

    def __call__(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Run in a worker; the first block of a new function has the machine's turn to compile kernels."""
        os.environ.update(self.environment)  # before Numba and polars read it
        check_code(self.stamp, code_stamp(), socket.gethostname())
        from shortlist.core.threads import limit_threads
        from shortlist.data.arrow import user_blocks

        is_new = not hasattr(self.function, "_value")  # the broadcast is not loaded yet
        for block in user_blocks(batches):
            with _turn_to_compile() if is_new else nullcontext(), limit_threads(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of doubts about single blocks
                table = self.function.value(block.drop_columns([ROW]))
            if is_new:  # Spark collects garbage after each task: 0.1 seconds for what modules and models hold
                gc.freeze()
            is_new = False
            yield from table.to_batches()


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
