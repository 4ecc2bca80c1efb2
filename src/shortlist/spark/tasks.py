"""What a Python worker of Spark does: cut, recommend and allocate, for blocks of whole users.

The model or the cutoff travels as the bytes of its file, in one broadcast, and each worker loads it once.
This module imports nothing that computes, because workers set their environment before they import the rest.
"""

import os
import platform
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from shortlist.core.ragged import row_lengths, row_owners
from shortlist.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from shortlist.data.ids import IdMap
    from shortlist.data.lists import RankedLists

BLOCK_ROWS = 1 << 17  # rows of whole users that a task holds at once
ROW = "shortlist_row"  # number of a row among those of its user
Batches = Iterator["pa.RecordBatch"]
Run = Callable[..., "Iterator[pl.DataFrame]"]
_loaded: dict[str, dict[str, Any]] = {}  # name of the last files of this process → what they hold
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


def worker_environment() -> dict[str, str]:
    """Environment variables of workers: one thread each, and the driver's cache of compiled code."""
    names = ("NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_DISABLE_JIT")
    given = {name: os.environ[name] for name in names if name in os.environ}
    return given | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}


@dataclass(frozen=True)
class Task:
    """What a Python worker does with its Arrow batches; it needs plain values and the bytes of files."""

    run: Run  # a block of rows, what the files hold, and the options → tables
    schema: Any  # of these tables
    name: str  # digest of the files
    files: Any  # broadcast of {name: bytes}; None without files
    options: Mapping[str, Any]
    stamp: Mapping[str, str]
    environment: Mapping[str, str]
    by_user: bool = True  # blocks are whole users of a sorted partition; False: the batches as they come

    @classmethod
    def of(
        cls,
        run: Run,
        session: "SparkSession",
        schema: Any,
        files: Mapping[str, bytes] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> "Task":
        """A task whose files are broadcast."""
        digest = sha256()
        for name, content in (files or {}).items():
            digest.update(name.encode() + content)
        shared = session.sparkContext.broadcast(dict(files)) if files else None
        stamp, environment = code_stamp(), worker_environment()
        return cls(run, schema, digest.hexdigest(), shared, options or {}, stamp, environment)

    def __call__(self, batches: Batches) -> Batches:
        """Run in a worker; the first block of new files has the machine's turn to compile kernels."""
        os.environ.update(self.environment)  # before Numba and polars read it
        check_code(dict(self.stamp), code_stamp(), socket.gethostname())
        import polars as pl
        from pyspark.sql.pandas.types import to_arrow_schema

        from shortlist.core.threads import limit_threads

        schema = to_arrow_schema(self.schema)
        is_new = self.name not in _loaded
        blocks = user_blocks(batches) if self.by_user else map(pl.DataFrame, batches)
        for block in blocks:
            with _turn_to_compile() if is_new else nullcontext(), limit_threads(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of doubts about single blocks
                tables = list(self.run(block, self._load(), **self.options))
            is_new = False
            for table in tables:
                yield from _to_batches(table, schema)
        _forget_zip_files()

    def _load(self) -> dict[str, Any]:
        """What the files hold, loaded once per process."""
        if self.name not in _loaded:
            with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
                held = {}
                for name, content in ({} if self.files is None else self.files.value).items():
                    path = Path(folder) / name
                    path.write_bytes(content)
                    held[name] = _load_file(name, path)
            vars(self.files or self).pop("_value", None)  # the bytes are not needed any more
            _loaded.clear()
            _loaded[self.name] = held
        return _loaded[self.name]


def _forget_zip_files() -> None:
    """Drop Python's cached readers of zip files, from which Spark imports pyspark.

    Before each task Spark makes all of them read their directory again, which takes 0.1 seconds.
    """
    for path, reader in list(sys.path_importer_cache.items()):
        if isinstance(reader, zipimporter):
            del sys.path_importer_cache[path]


def _load_file(name: str, path: Path) -> Any:
    """What a file of the broadcast holds."""
    from shortlist.core.serialization import load_artifact
    from shortlist.cutoff.base import Cutoff
    from shortlist.data.history import restore_interactions
    from shortlist.models.base import load_model

    if name in ("model", "cutoff"):
        return load_model(path) if name == "model" else Cutoff.load(path)
    artifact = load_artifact(path, name)
    if name == "plan":
        return artifact
    data = restore_interactions(artifact.arrays, artifact.series)
    return replace(data, has_basket_order=artifact.notes.get("has_basket_order") is not False)


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


def _to_batches(table: "pl.DataFrame", schema: "pa.Schema") -> Batches:
    """The columns of the schema; those that the table lacks are null."""
    import pyarrow as pa

    arrow = table.to_arrow()
    columns = [
        arrow[field.name].cast(field.type)
        if field.name in arrow.column_names
        else pa.nulls(len(arrow), field.type)
        for field in schema
    ]
    yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


def user_blocks(batches: Batches, n_rows: int = BLOCK_ROWS) -> "Iterator[pl.DataFrame]":
    """Tables of whole users, of about n_rows rows, from batches of `_sort_by_user`."""
    import polars as pl

    waiting: list[pl.DataFrame] = []
    n_waiting, wanted = 0, n_rows
    for batch in batches:
        waiting.append(pl.DataFrame(batch))
        n_waiting += batch.num_rows
        if n_waiting < wanted:
            continue
        block = pl.concat(waiting)
        last = (block[ROW] == 1).arg_true()[-1]  # where the last user begins, who may go on
        if last:
            yield block[:last].drop(ROW)
        waiting, n_waiting = [block[last:]], len(block) - last
        wanted = max(n_rows, 2 * n_waiting)
    if n_waiting:
        yield pl.concat(waiting).drop(ROW)


def cut_block(block: "pl.DataFrame", held: dict[str, Any]) -> "Iterator[pl.DataFrame]":
    """The lists of whole users."""
    from shortlist.data.lists import RankedLists

    if "score" not in block.columns:
        block = block.sort("item_id")  # equal ranks, whose rows have no order here
    yield held["cutoff"].apply(RankedLists.from_frame(block), history=held.get("history")).to_frame()


def recommend_block(block: "pl.DataFrame", held: dict[str, Any], **options: Any) -> "Iterator[pl.DataFrame]":
    """The lists of these users, or of the users at these numbers."""
    import numpy as np

    model, sessions = held["model"], held.get("history")
    if "number" in block.columns:
        source = options["history"]
        ids = model.users_ if sessions is None and source is None else session_users(source or sessions)
        users = ids.to_ids(block["number"].to_numpy())
    else:
        users = block["user_id"]
    if sessions is not None:
        options["history"] = sessions.where(np.isin(sessions.user, sessions.users.lookup(users)))
    elif options["history"] is not None:
        options["history"] = {user: options["history"][user] for user in users.to_list()}
    yield from lists_of(held, users, options)


def recommend_sessions(
    block: "pl.DataFrame", held: dict[str, Any], **options: Any
) -> "Iterator[pl.DataFrame]":
    """The lists of whole users whose histories these rows are."""
    from shortlist.data.interactions import Interactions

    yield from lists_of(held, None, options | {"history": Interactions.of(block)})


def lists_of(held: dict[str, Any], users: Any, options: dict[str, Any]) -> "Iterator[pl.DataFrame]":
    """The lists of a request, in batches."""
    from shortlist.recommend.request import RequestOptions

    given = {} if "cutoff" not in held else {"cutoff": held["cutoff"]}
    for lists in held["model"].plan(users, RequestOptions(**options | given)).batches():
        yield lists.to_frame()


def read_offers(block: "pl.DataFrame", plan: Any) -> tuple["RankedLists", Any, Any, Any]:
    """(candidates, problem, offers, their positions in the lists) of whole users."""
    import numpy as np

    from shortlist.cutoff.allocation import candidate_values, read_probabilities
    from shortlist.cutoff.allocation_solver import AllocationProblem, build_offers
    from shortlist.data.ids import IdMap
    from shortlist.kernels.allocation import UserLimits

    if "rank" in block.columns:
        block = block.sort("item_id")  # equal ranks, whose rows have no order here
    differs, gains, groups = plan.notes["differs"], plan.arrays["gains"], plan.arrays["groups"]
    lists = read_probabilities(block, IdMap(plan.series["items"]) if differs else None)
    if not differs:
        n_items = len(lists.item_ids)
        gains, groups = np.full(n_items, gains[0]), np.empty((n_items, 0), np.int32)
    problem = AllocationProblem(
        lists=candidate_values(lists, gains, plan.notes["cost"]),
        limits=UserLimits(plan.notes["max_items"], groups, plan.arrays["group_limits"]),
    )
    return lists, problem, *build_offers(problem, problem.limits)


def offer_block(block: "pl.DataFrame", held: dict[str, Any]) -> "Iterator[pl.DataFrame]":
    """User and value of each offer, as its bits."""
    import numpy as np
    import polars as pl

    lists, _, offers, _ = read_offers(block, held["plan"])
    owner = row_owners(offers.indptr)
    yield pl.DataFrame({"user_id": lists.users.to_ids(owner), "bits": offers.values.view(np.int64)})


def allocate_block(
    block: "pl.DataFrame", held: dict[str, Any], limit: dict[str, Any]
) -> "Iterator[pl.DataFrame]":
    """The lists of whole users: offers above a value, and of that value those of the first users."""
    import numpy as np

    from shortlist.cutoff.allocation import select_items
    from shortlist.cutoff.allocation_solver import AllocationSolution

    plan, (lists, problem, offers, positions) = held["plan"], read_offers(block, held["plan"])
    shown = offers.values > limit["value"]
    if limit["user"] is not None:
        users, sizes = lists.users.values, row_lengths(offers.indptr)
        tied = offers.values == limit["value"]
        shown |= tied & np.repeat((users < limit["user"]).to_numpy(), sizes)
        last = np.flatnonzero(tied & np.repeat((users == limit["user"]).to_numpy(), sizes))
        shown[last[: limit["n"]]] = True
    prices = np.zeros(problem.lists.gains.size)
    solution = AllocationSolution(offers, positions, shown, 0.0, 0.0, limit["value"], 0.0, prices)
    by_value = np.ptp(plan.arrays["gains"]) > 0
    yield select_items(lists, problem, solution, by_value=by_value).to_frame()


def session_users(history: Any) -> "IdMap":
    """The users of sessions."""
    from shortlist.data.ids import IdMap
    from shortlist.data.interactions import Interactions

    return IdMap.of(list(history)) if isinstance(history, Mapping) else Interactions.of(history).users
