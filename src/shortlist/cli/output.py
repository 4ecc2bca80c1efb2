"""Output: results on stdout, notes and errors on stderr."""

import json
import mmap
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shortlist.text import clean_message, json_safe, printable

Json = Annotated[bool, Parameter(help="Print one JSON document, for scripts.", show_default=False)]
ASCII_MARKS = str.maketrans(
    {"─": "-", "█": "#", "✓": "x", "…": "...", "–": "-", "−": "-", "×": "x", "±": "+-", "→": "->", "·": "|"}
)  # instead of the typographic marks that only UTF-8 can show
LIBRARIES_BYTES = 1 << 30  # that NumPy, SciPy, Numba and polars map with one thread each: 0.75 GiB
READING_BYTES = 3 << 28  # that polars maps for its threads and buffers when it reads
MANY_THREADS_BYTES = 8 << 30  # of memory below which libraries get one thread each
STALLED_SECONDS = 5.0  # without processor time, under a memory limit
STALLED_SHARE = 0.005  # processor time below this share of the seconds counts as none
PLAIN_WIDTH = 120  # a pipe has no width; wide enough that no table wraps


def print_error(sentence: str, code: int) -> int:
    """Print one line on stderr; returns the exit code for the caller to return."""
    sys.stderr.write(f"shortlist: {clean_message(' '.join(sentence.split()))}\n")
    return code


def print_note(sentence: str) -> None:
    """Print a line on stderr, so that stdout contains only the result."""
    sys.stderr.write(f"{printable(sentence)}\n")
    sys.stderr.flush()


@contextmanager
def guard_reading(source: str | Path) -> Iterator[None]:
    """Read a file without the output of panics, and never wait for ever under a memory limit.

    A thread of polars that cannot allocate ends without telling the thread that waits for it. A database may
    take its time, so it is not watched.
    """
    stopped, path = threading.Event(), Path(source)
    if _has_memory_limit() and "://" not in str(source):
        check_memory(READING_BYTES + (path.stat().st_size if path.is_file() else 0))
        threading.Thread(target=_end_if_stalled, args=(stopped,), daemon=True).start()
    try:
        with _hide_panics(path):
            yield
    finally:
        stopped.set()


@contextmanager
def _hide_panics(path: Path) -> Iterator[None]:
    """Drop what polars prints on stderr if a damaged Parquet file makes it panic: an error follows anyway."""
    if path.suffix.lower() not in (".parquet", ".pq", ".gz", ".zst") and not path.is_dir():
        yield
        return
    try:
        saved = os.dup(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # stderr is not a file
        yield
        return
    with tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        os.dup2(held.fileno(), sys.stderr.fileno())
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, sys.stderr.fileno())
            os.close(saved)
            held.seek(0)
            text = held.read().decode(errors="replace")
            sys.stderr.write("" if "panicked at" in text else text)


def _has_memory_limit() -> bool:
    return _memory_limit() < float("inf")


def _memory_limit() -> float:
    """Bytes that the process may map (ulimit -v or -d); infinity without a limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return float("inf")
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=float("inf"))


def prepare_memory() -> None:
    """Before NumPy, SciPy, Numba and polars are loaded: make sure that they fit below a memory limit.

    Each of their threads maps up to 128 MiB. Where that fails, polars aborts the process and OpenBLAS tries
    again for ever, so one thread must do below a low limit. Results do not depend on the number of threads.
    """
    if _memory_limit() < MANY_THREADS_BYTES:
        for name in ("OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
            os.environ.setdefault(name, "1")
    check_memory(LIBRARIES_BYTES)


def check_memory(n_bytes: int) -> None:
    """Raise MemoryError if there is a memory limit and less than `n_bytes` below it."""
    if not _has_memory_limit():
        return
    try:
        mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError from None


def _end_if_stalled(stopped: threading.Event) -> None:
    used = -1.0
    while not stopped.wait(STALLED_SECONDS):
        before, used = used, time.process_time()
        if used - before < STALLED_SHARE * STALLED_SECONDS and not _has_busy_thread():
            os._exit(print_error("not enough memory: reading stopped; use fewer rows or a higher limit.", 2))


def _has_busy_thread() -> bool:
    """Whether another thread of this process waits for a processor (R) or a disk (D)."""
    this = str(threading.get_native_id())
    states = []
    for path in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            states += path.read_text().rpartition(")")[2].split()[: path.parent.name != this]
    return bool({"R", "D"} & set(states))


def progress_lines() -> Callable[[str], None] | None:
    """Callback for plain lines where the library shows no bar by itself; None on a terminal."""
    return None if sys.stderr.isatty() else print_note


def show(*parts: Any) -> None:
    """Print rich text or tables on stdout: colored and fitted on a terminal, plain and wide elsewhere."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    with console.capture() as captured:  # rich would exit by itself if the pipe is closed
        for renderable in parts:
            lines = console.render_lines(renderable, pad=False, new_lines=True)
            clean = [
                Segment(printable(segment.text, "\n"), segment.style) for line in lines for segment in line
            ]
            console.print(Segments(clean), end="")
    sys.stdout.write(_plain_marks(captured.get()))


def show_text(text: str) -> None:
    """Print lines on stdout as they are: no markup, no wrapping."""
    sys.stdout.write(_plain_marks(f"{printable(text, keep=chr(10))}\n"))


def _is_utf8() -> bool:
    """Whether stdout can show every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _plain_marks(text: str) -> str:
    """The text with lines, bars and typographic marks in ASCII if stdout is not UTF-8."""
    return text if _is_utf8() else text.translate(ASCII_MARKS)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout; NaN and infinity become null."""
    from shortlist.core.tables import without_nan

    show_json_text(json.dumps(without_nan(value), indent=2, ensure_ascii=not _is_utf8(), default=str))


def show_json_text(text: str) -> None:
    """Print JSON on stdout, without raw control characters; the values stay the same."""
    sys.stdout.write(f"{json_safe(text)}\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """Print a table: numbers right-aligned with thousands separators, everything else left-aligned."""
    from rich import box
    from rich.table import Table

    cells = [list(row) for row in rows]
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numbers = bool(cells) and all(type(row[index]) in (int, float) for row in cells)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*(_cell(value) for value in row))
    show(table)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    from rich.markup import escape

    return escape(printable(value))
