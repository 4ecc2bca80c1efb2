"""Where a verb's interactions come from: a dataset's name, a file, a folder or a database."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

import shortlist as sl
from shortlist.cli.screen import say
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions

Source = Annotated[
    str,
    Parameter(help="CSV, TSV, Parquet, JSON Lines, a folder, a database URI, or a dataset's name."),
]
COLUMNS = Group("Columns, where their names do not say it", sort_key=9)


@Parameter(name="*", group=COLUMNS)
@dataclass(frozen=True)
class Reading:
    """How to read a source; None means by convention or alias."""

    user_id: Annotated[str | None, Parameter(help="Column of the user.")] = None
    item_id: Annotated[str | None, Parameter(help="Column of the item.")] = None
    timestamp: Annotated[str | None, Parameter(help="Column of the moment.")] = None
    weight: Annotated[str | None, Parameter(help="Column of a weight; it is kept, no model uses it.")] = None
    basket_id: Annotated[str | None, Parameter(help="Column of the basket; else a moment is one.")] = None
    item_name: Annotated[str | None, Parameter(help="Column of what people call the item.")] = None
    time_format: Annotated[str | None, Parameter(help="How times are written, such as %d.%m.%Y.")] = None
    separator: Annotated[str | None, Parameter(help="Between the fields of a text file.")] = None
    query: Annotated[str | None, Parameter(help="SQL to run, where the source is a database.")] = None
    table: Annotated[str | None, Parameter(help="Table to read, where the source is a database.")] = None


AS_NAMED = Reading()


def interactions(source: str, reading: Reading = AS_NAMED, *, training: bool = True) -> "Interactions":
    """The rows of a source, and a line about what was found; a bare word is a dataset's name."""
    bare = not Path(source).exists() and not any(mark in source for mark in "./\\:*")
    data = (
        sl.load_dataset(source, progress=say)
        if bare
        else sl.read_interactions(source, training=training, **asdict(reading))
    )
    folded = f"; {data.duplicates:,} duplicate rows folded" if data.duplicates else ""
    say(f"{source}: {data.n_rows:,} rows, {data.n_users:,} users, {data.n_items:,} items{folded}")
    if folded and training and data.n_baskets == data.active_users.size and data.time is None:
        say(
            "without times or baskets a second purchase looks like a duplicate; if users take items again, "
            "name the column with --timestamp or --basket_id"
        )
    if data.weight is not None and training:
        say("its weights (ratings, quantities, …) are kept; no model uses them, every row counts as taken")
    return data


def write_rows(data: "Interactions", path: Path) -> None:
    """Interactions as a table that `interactions` reads back: .parquet or .csv."""
    from shortlist.core.files import atomic_write

    writers = {".parquet": "write_parquet", ".csv": "write_csv"}
    if path.suffix not in writers:
        raise DataError(f"rows are written as {' or '.join(writers)}, got {path.name!r}; change the ending.")
    with atomic_write(path) as temporary:
        getattr(data.to_frame(), writers[path.suffix])(temporary)
