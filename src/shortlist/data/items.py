"""Items: what is known about items besides who interacted with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from shortlist.data.columns import check_distinct, find_column
from shortlist.data.data_source import DataSource
from shortlist.data.id_map import IdMap, id_series
from shortlist.data.item_columns import assign_kinds, check_columns, convert_column, to_frame
from shortlist.data.notebook import html_table
from shortlist.data.readers import SEPARATORS, parse_integers
from shortlist.data.sources import Format, detect_format, explain_read_error, find_files, open_sources
from shortlist.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Items:
    """Content of items, one row per item: categories, tags, text, numbers, dates and vectors; immutable.

    Built by `from_frame` and `read_items`. Values may be missing.

    Parameters
    ----------
    ids
        Item ids, in the order of the rows.
    table
        (n_items, n_columns) the columns that are used, in the form of their kind.
    kinds
        Column → kind: categories, tags, text, numbers, dates or vector.
    names
        (n_items,) names to display, or None.
    source
        What was read: the columns of each kind, the unused columns and why.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame(
    ...     {"item_id": ["a", "b"], "title": ["Deep lakes", "Lakes and rivers"], "year": [2001, 2009]}
    ... )
    >>> items = sl.Items.from_frame(table)
    >>> items
    Items(2 items, text: title, numbers: year)
    """

    ids: IdMap
    table: pl.DataFrame
    kinds: Mapping[str, str]
    names: pl.Series | None = None
    source: DataSource = field(default_factory=lambda: DataSource("table"))

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return `data` if it is Items, else convert a table.

        Parameters
        ----------
        data
            Items, or a polars, pandas or Arrow table.

        Raises
        ------
        DataError
            If the table cannot be converted.
        """
        return data if isinstance(data, cls) else cls.from_frame(data)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        item_id: str | None = None,
        item_name: str | None = None,
        categories: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        text: Sequence[str] | None = None,
        numbers: Sequence[str] | None = None,
        dates: Sequence[str] | None = None,
        vector: str | None = None,
    ) -> Self:
        """Build from a polars, pandas or Arrow table with one row per item.

        A column that is not named is recognized by its type: lists of strings are tags, lists of floats a
        vector, dates dates, numbers numbers, Booleans and categorical columns categories. Strings are text if
        they have two words or more on average, else categories if most values occur more than once. What no
        kind fits is listed in `source.unused`. As soon as one column of a kind is named, no other column is
        recognized as that kind.

        Parameters
        ----------
        frame
            The table.
        item_id
            Column of the ids; None finds it by its conventional name or a common alias.
        item_name
            Column of names to display; None finds it like `item_id`, "" uses none. The column may also be
            text.
        categories
            Columns with one category per item.
        tags
            Columns with a list of tags per item.
        text
            Columns of free text.
        numbers
            Columns of numbers, such as a price.
        dates
            Columns of dates.
        vector
            Column of vectors of one length, such as embeddings.

        Returns
        -------
        Items

        Raises
        ------
        DataError
            If the id column is missing, an id is missing or occurs twice, or a column does not fit its kind.

        Examples
        --------
        >>> import polars as pl
        >>> table = pl.DataFrame({"sku": [1, 2], "brand": ["x", "x"], "url": ["/1", "/2"]})
        >>> items = sl.Items.from_frame(table, categories=["brand"])
        >>> items.source.describe()
        'columns: item_id = sku, categories = brand; not used: url'
        """
        found = to_frame(frame)
        check_distinct(found.columns)
        id_column = _id_column(found, item_id)
        given = {
            "categories": categories,
            "tags": tags,
            "text": text,
            "numbers": numbers,
            "dates": dates,
            "vector": None if vector is None else [vector],
        }
        name_column = _name_column(found, item_name)
        kinds, unused = assign_kinds(found, given, id_column)
        if list(kinds.values()).count("vector") > 1:
            several = [name for name, kind in kinds.items() if kind == "vector"]
            raise DataError(
                f"items must have one vector column, got {several!r:.80}; pass vector={several[0]!r}."
            )
        unused.pop(name_column or "", None)
        return cls(
            IdMap(_check_item_ids(found[id_column])),
            pl.DataFrame([convert_column(found[name], kind) for name, kind in kinds.items()]),
            kinds,
            None if name_column is None else found[name_column].cast(pl.String),
            _describe(id_column, name_column, kinds, unused),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.ids)

    def __repr__(self) -> str:
        kinds = dict.fromkeys(self.kinds.values())
        parts = [f"{kind}: {', '.join(self.columns_of(kind))}" for kind in kinds]
        return f"Items({', '.join([f'{len(self):,} items', *parts])})"

    def _repr_html_(self) -> str:
        head = self.table.head(5).insert_column(0, self.ids.values.head(5).alias("item_id"))
        return html_table(repr(self), head, len(self))

    def columns_of(self, kind: str) -> list[str]:
        """Return the columns of one kind, in the order of the table.

        Parameters
        ----------
        kind
            categories, tags, text, numbers, dates or vector.
        """
        return [name for name, found in self.kinds.items() if found == kind]

    def merge(self, more: "Items") -> Self:
        """Return these items with others; a row of `more` replaces the row of the same id.

        Parameters
        ----------
        more
            Items with the same columns. Columns that these items do not have are ignored; missing ones are
            null.

        Raises
        ------
        DataError
            If ids have another type, or a column is of another kind.
        """
        self.ids.check_new(more.ids.values)
        for name, kind in self.kinds.items():
            if more.kinds.get(name, kind) != kind:
                raise DataError(
                    f"column {name!r:.60} must hold {kind} as before, got {more.kinds[name]}; name its kind."
                )
        at = self.ids.lookup(more.ids.values)
        kept = pl.Series(range(len(self)), dtype=pl.Int64)
        kept = kept.filter(~kept.is_in(pl.Series(at[at >= 0], dtype=pl.Int64).to_list()))
        table = pl.concat([self.table[kept], check_columns(self.table, more.table)])
        ids = pl.concat([self.ids.values.gather(kept), more.ids.values.cast(self.ids.values.dtype)])
        names = None
        if self.names is not None:
            fresh = more.ids.values.cast(pl.String) if more.names is None else more.names
            names = pl.concat([self.names.gather(kept), fresh.rename(self.names.name)])
        return replace(self, ids=IdMap(ids), table=table, names=names)


def read_items(
    source: str | Path | Sequence[str | Path],
    *,
    item_id: str | None = None,
    item_name: str | None = None,
    categories: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    numbers: Sequence[str] | None = None,
    dates: Sequence[str] | None = None,
    vector: str | None = None,
    format: Format | None = None,  # noqa: A002  the usual name of this option
) -> Items:
    """Read the content of items from files.

    Parameters
    ----------
    source
        File (Parquet, CSV, TSV or JSON Lines; also .gz or .zst), folder, glob pattern or list of files.
    item_id, item_name, categories, tags, text, numbers, dates, vector
        Columns, as in `Items.from_frame`.
    format
        File format, for files without a known extension.

    Returns
    -------
    Items

    Raises
    ------
    DataError
        If the file cannot be read, the id column is missing, or an id is missing or occurs twice.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("items.csv").write_text("sku,title,price\\n7,Green tea leaves,4.5\\n8,Black tea bags,3.0\\n")
    >>> sl.read_items("items.csv")
    Items(2 items, text: title, numbers: price)
    """
    frame, label = read_item_table(source, item_id=item_id, format=format)
    try:
        items = Items.from_frame(
            frame,
            item_id=item_id,
            item_name=item_name,
            categories=categories,
            tags=tags,
            text=text,
            numbers=numbers,
            dates=dates,
            vector=vector,
        )
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None
    return replace(items, source=replace(items.source, label=label))


def read_item_table(
    source: str | Path | Sequence[str | Path],
    *,
    item_id: str | None = None,
    format: Format | None = None,  # noqa: A002  as in read_items
) -> tuple[pl.DataFrame, str]:
    """(table, label) of files, for readers that know the kinds of the columns."""
    paths = find_files(source)
    kind = format or detect_format(paths)
    label = str(paths[0] if len(paths) == 1 or not isinstance(source, (str, Path)) else source)
    try:
        return _scan(open_sources(paths, kind), kind, item_id), label
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise explain_read_error(error, paths, kind, SEPARATORS.get(kind)) from None


def _scan(sources: Any, kind: str, item_id: str | None) -> pl.DataFrame:
    """The whole table; ids of text files are integers if all are written as integers."""
    if kind == "parquet":
        return pl.scan_parquet(sources, glob=False).collect()
    if kind == "jsonl":
        return pl.scan_ndjson(sources, infer_schema_length=None).collect()
    if kind not in SEPARATORS:
        raise ConfigError(f"format must be csv, tsv, parquet or jsonl, got {kind!r:.60}; choose one.")
    names = pl.scan_csv(sources, separator=SEPARATORS[kind], glob=False).collect_schema().names()
    own = find_column("item_id", names) if item_id is None else item_id
    frame = pl.scan_csv(
        sources,
        separator=SEPARATORS[kind],
        glob=False,
        infer_schema_length=None,
        try_parse_dates=True,
        schema_overrides={own: pl.String} if own in names else None,
    ).collect()
    return frame.with_columns(parse_integers(frame[own])) if own in names else frame


def _id_column(frame: pl.DataFrame, item_id: str | None) -> str:
    """The column of the ids."""
    found = find_column("item_id", frame.columns) if item_id is None else item_id
    if found is None or found not in frame.columns:
        listed = ", ".join(map(repr, frame.columns[:12]))
        got = "none" if item_id is None else repr(item_id)
        raise DataError(
            f"items need a column of ids, got {got:.60}; pass item_id= with one of {listed or 'no columns'}."
        )
    return found


def _name_column(frame: pl.DataFrame, item_name: str | None) -> str | None:
    """The column of the names to display, if there is one."""
    if item_name is None:
        return find_column("item_name", frame.columns)
    if item_name and item_name not in frame.columns:
        raise DataError(
            f'item_name must name a column of the table, got {item_name!r:.60}; pass "" to use none.'
        )
    return item_name or None


def _check_item_ids(column: pl.Series) -> pl.Series:
    """Distinct strings or integers, none missing."""
    if not len(column):
        raise DataError("items must have at least one row, got none; check how the table was made.")
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        raise DataError(f"column {column.name!r:.60}, row {row + 1}: an item id is missing; drop the row.")
    ids = id_series(column)
    twice = ids.is_duplicated()
    if twice.any():
        first = ids.filter(twice)[0]
        raise DataError(
            f"every item must have one row, got {first!r:.60} more than once ({int(twice.sum()):,} of "
            f"{len(ids):,} rows repeat an id); keep one row per id."
        )
    return ids


def _describe(
    id_column: str, name_column: str | None, kinds: Mapping[str, str], unused: Mapping[str, str]
) -> DataSource:
    """The columns of each kind, and why the others are not used."""
    columns = {"item_id": id_column} | ({} if name_column is None else {"item_name": name_column})
    for kind in dict.fromkeys(kinds.values()):
        columns[kind] = ", ".join(name for name, found in kinds.items() if found == kind)
    notes = tuple(f"{name!r:.60} is not used: {reason}." for name, reason in unused.items())
    return DataSource("table", columns, tuple(unused), notes)
