"""Lists as a function of Arrow tables, which Spark, Ray, Dask and DuckDB can call on their data."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from shortlist.data.lists import RankedLists, find_list_column
from shortlist.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 1 << 17  # rows of whole users that `batches` holds at once


def file_bytes(save: Callable[[Path], Any]) -> bytes:
    """The bytes that a method writes to a file."""
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        path = Path(folder) / "file"
        save(path)
        return path.read_bytes()


@dataclass(frozen=True, eq=False)
class ArrowFunction(ABC):
    """A function from an Arrow table with all rows of its users to an Arrow table with their lists.

    `arrow` of a model or a cutoff returns one. It can be sent to other processes: it holds the bytes of a
    file, which each copy loads when it is first called. Nothing else decides on the lists.

    Examples
    --------
    >>> data = sl.load_dataset("sample")
    >>> make_lists = sl.PersonalFrequency().fit(data).arrow(N=3)
    >>> make_lists(data.to_frame().to_arrow()).num_rows
    900
    """

    __name__ = "make_lists"  # Ray Data asks functions for their names

    content: bytes  # of the file

    @abstractmethod
    def _load(self, path: Path) -> Any:
        """What the file holds."""

    @abstractmethod
    def _make_lists(self, frame: pl.DataFrame) -> RankedLists:
        """The lists of the users of a table."""

    @abstractmethod
    def _item_type(self, schema: "pa.Schema") -> "pa.DataType":
        """The type of item ids in lists made from a table with this schema."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def loaded(self) -> Any:
        """What the file holds, loaded once."""
        with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
            path = Path(folder) / "file"
            path.write_bytes(self.content)
            return self._load(path)

    def schema(self, source: "pa.Schema") -> "pa.Schema":
        """Return the schema of lists, in which users have the type that they have in the table.

        Parameters
        ----------
        source
            The schema of a table of users.
        """
        user, item = source.field(_user_column(source.names)).type, self._item_type(source)
        return list_schema(user, item)

    def __call__(self, table: Any) -> "pa.Table":
        """Return the lists of the users of a table, with the columns of `RankedLists.to_frame`.

        Parameters
        ----------
        table
            A table or batch of Arrow that has all rows of its users.
        """
        pa = _import_pyarrow()
        table = pa.table(table)
        schema = self.schema(table.schema)
        if not table.num_rows:  # engines call functions with empty tables to learn the columns
            return schema.empty_table()
        return self._make_lists(pl.DataFrame(table)).to_frame().to_arrow().cast(schema)

    def batches(self, batches: Iterable["pa.RecordBatch"], n_rows: int = BLOCK_ROWS) -> Iterator["pa.Table"]:
        """Yield the lists of a stream of rows sorted by user; a user may have rows in several batches.

        Parameters
        ----------
        batches
            Batches of Arrow, such as those of a `pyarrow.RecordBatchReader`.
        n_rows
            Number of rows that are processed at once, more if a user has more.

        Raises
        ------
        DataError
            If the rows are not sorted by user.
        """
        for block in user_blocks(batches, n_rows):
            yield self(block)


def list_schema(user: "pa.DataType", item: "pa.DataType") -> "pa.Schema":
    """The schema of lists whose ids have these types."""
    pa = _import_pyarrow()
    columns = {"user_id": user, "rank": pa.int32(), "item_id": item, "score": pa.float32()}
    columns |= {"probability": pa.float64(), "length": pa.int32(), "boundary": pa.float32()}
    return pa.schema(columns | {"reason": pa.string()})


def user_blocks(batches: Iterable["pa.RecordBatch"], n_rows: int = BLOCK_ROWS) -> Iterator["pa.Table"]:
    """Tables of whole users, of about n_rows rows, from batches that are sorted by user."""
    pa = _import_pyarrow()
    waiting: list[Any] = []
    n_waiting, n_needed = 0, n_rows
    for batch in batches:
        waiting.append(batch)
        n_waiting += batch.num_rows
        if n_waiting < n_needed:
            continue
        block = pa.Table.from_batches(waiting)
        start = _start_of_last_user(block)
        if start:
            yield block[:start]
        waiting = block[start:].to_batches()
        n_waiting = block.num_rows - start
        n_needed = max(n_rows, 2 * n_waiting)
    if n_waiting:
        block = pa.Table.from_batches(waiting)
        _start_of_last_user(block)
        yield block


def _start_of_last_user(block: "pa.Table") -> int:
    """The first row of the last user, whose rows may go on in the next batch; DataError unless sorted."""
    users = pl.Series(block[_user_column(block.column_names)])
    if not users.is_sorted():
        raise DataError("rows must be sorted by user, got a user after a larger one; sort them by user.")
    return int(users.search_sorted(users[-1], side="left"))


def _user_column(names: list[str]) -> str:
    """The column of users."""
    name = find_list_column("user_id", names)
    if name is None:
        raise DataError(
            f"user_id must be a column of the table, got {', '.join(map(repr, names[:12]))}; rename one."
        )
    return name


def _import_pyarrow() -> Any:
    """pyarrow, or ConfigError."""
    try:
        import pyarrow
    except ImportError:
        raise ConfigError("Arrow tables need pyarrow, which is missing; run pip install pyarrow.") from None
    return pyarrow
