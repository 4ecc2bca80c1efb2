"""Threads: how many there are, and calling a function on slices or pieces of data on several of them.

No result depends on their number. `set_threads` and the environment variable `SHORTLIST_THREADS` are the
setting of the process; `limit_threads` gives fewer to a part of the work, such as one request of the service.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TypeVar

from shortlist.core.options import Whole, check_value
from shortlist.errors import ConfigError

T = TypeVar("T")
Piece = TypeVar("Piece")
PARALLEL_ROWS = 1_000_000  # below this many rows, starting threads costs more than it saves
VARIABLE = "SHORTLIST_THREADS"
CGROUP, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

_limit: ContextVar[int | None] = ContextVar("thread limit", default=None)
_setting: int | None = None  # None: as the environment says


def set_threads(n: int) -> None:
    """Set the number of threads that this process uses; results do not depend on it.

    The environment variable `SHORTLIST_THREADS` sets it for a process that makes no such call. Reading tables
    and products of dense matrices use the threads of polars (`POLARS_MAX_THREADS`) and of NumPy
    (`OPENBLAS_NUM_THREADS`).

    Parameters
    ----------
    n
        Number of threads; 0, the default, is one per core that the process may use, which CPU affinity and
        the limits of a container can lower.

    Raises
    ------
    ConfigError
        If it is not a whole number of at least 0.

    Examples
    --------
    >>> sl.set_threads(1)
    >>> model = sl.BPRMF(n_epochs=2).fit(sl.load_dataset("sample"))
    >>> sl.set_threads(0)
    """
    global _setting
    check_value(Whole, n=n)
    _setting = int(n)


@contextmanager
def limit_threads(n: int) -> Iterator[None]:
    """Use at most n threads for what this context calls, whatever the setting of the process is."""
    token = _limit.set(n)
    try:
        yield
    finally:
        _limit.reset(token)


def thread_count() -> int:
    """The number of threads to use here."""
    limit = _limit.get()
    if limit == 1:
        return 1
    n = (_variable() if _setting is None else _setting) or core_count()
    return n if limit is None else min(n, limit)


def _variable() -> int:
    """The number in the environment, 0 without one."""
    text = os.environ.get(VARIABLE, "").strip() or "0"
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"{VARIABLE} must be a whole number of at least 0, got {text!r:.60}; 0 uses every core."
        )
    return int(text)


def core_count() -> int:
    """The number of cores that this process may use: by affinity, and by the limits of its cgroups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpu_limit()
    return cores if limit is None else max(1, min(cores, round(limit)))


@cache
def cpu_limit() -> float | None:
    """How many cores' time the cgroups (version 2) of this process allow; None without a limit."""
    try:
        lines = CGROUP.read_text().splitlines()
    except OSError:  # not Linux
        return None
    own = [CGROUPS / line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    folders = [above for folder in own for above in (folder, *folder.parents)]  # each may have a limit
    limits = [_read_cpu_limit(folder / "cpu.max") for folder in folders]
    return min((limit for limit in limits if limit is not None), default=None)


def _read_cpu_limit(path: Path) -> float | None:
    """The limit of one cgroup, such as 1.5 for "150000 100000"; None for "max 100000"."""
    try:
        limit, period = path.read_text().split()
        return float(limit) / float(period)
    except (OSError, ValueError):
        return None


def open_pool(n: int) -> ThreadPoolExecutor:
    """A pool of n threads, each of which computes alone: what it calls uses no further threads."""
    return ThreadPoolExecutor(n, initializer=_limit.set, initargs=(1,))


def map_slices(task: Callable[[slice], T], n: int, size: int) -> list[T]:
    """Call `task` on slices of `size` that cover 0 … n - 1; results are in order."""
    if 0 < n <= size:
        return [task(slice(0, n))]
    slices = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    workers = min(thread_count(), len(slices))
    if workers <= 1:
        return [task(rows) for rows in slices]
    with open_pool(workers) as pool:
        return list(pool.map(task, slices))


def run_each(function: Callable[[Piece], None], pieces: Iterable[Piece], n_rows: int) -> None:
    """Call the function on every piece, in parallel for large data; pieces must not share memory."""
    workers = rows_thread_count(n_rows)
    if workers == 1:
        for piece in pieces:
            function(piece)
        return
    with open_pool(workers) as pool:
        list(pool.map(function, pieces))


def rows_thread_count(n_rows: int) -> int:
    """The number of threads that pay off for this many rows."""
    return min(thread_count(), 8) if n_rows >= PARALLEL_ROWS else 1
