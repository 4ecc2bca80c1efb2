"""DataSource: what was read, which columns were used, and what was changed on the way."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shortlist.core.checks import file_error
from shortlist.text import printable

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions


@dataclass(frozen=True)
class DataSource:
    """Where interactions come from: the column of each role, the unused columns, and notes.

    Parameters
    ----------
    label
        File, folder, kind of database or name of the dataset.
    columns
        Role → column, for the roles that were found among user_id, item_id, timestamp, weight, basket_id and
        item_name.
    unused
        Columns that were not read.
    notes
        What was changed, dropped or is in doubt, one sentence each.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"customer": ["ann", "bob"], "sku": [7, 8], "price": [1.5, 2.0]})
    >>> sl.Interactions.from_frame(table).source.describe()
    'columns: user_id = customer, item_id = sku; not used: price'
    """

    label: str
    columns: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the columns in one line: which were used and which were not."""
        used = ", ".join(f"{role} = {_short(name)}" for role, name in self.columns.items())
        shown = ", ".join(map(_short, self.unused[:MAX_SHOWN]))
        more = f" and {len(self.unused) - MAX_SHOWN} more" if len(self.unused) > MAX_SHOWN else ""
        return f"columns: {used}; not used: {shown or 'none'}{more}"


MAX_SHOWN = 12  # unused columns that are listed


def _short(name: str) -> str:
    """A column name of bounded length, without control characters."""
    text = printable(name)
    return text if len(text) <= 40 else text[:39] + "…"


def source_to_notes(data: "Interactions") -> dict[str, Any]:
    """What a saved model keeps of the source: no label, so that equal models are equal files."""
    if data.source is None:
        return {"has_basket_order": data.has_basket_order}
    source = asdict(replace(data.source, label=""))
    return {"has_basket_order": data.has_basket_order, "source": source}


def source_from_notes(notes: Mapping[str, Any]) -> DataSource | None:
    """The source that `source_to_notes` described; ModelFileError if it is malformed."""
    found = notes.get("source")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise file_error("source", "must be an object")
    columns, unused, sentences = found.get("columns"), found.get("unused"), found.get("notes")
    if not (isinstance(columns, dict) and isinstance(unused, list) and isinstance(sentences, list)):
        raise file_error("source", "must hold names of columns")
    if not all(isinstance(text, str) for text in (*columns, *columns.values(), *unused, *sentences)):
        raise file_error("source", "must hold names of columns")
    return DataSource("", columns, tuple(unused), tuple(sentences))
