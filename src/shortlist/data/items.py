"""Items: what is known about them, and their groups, of which a list may contain a limited number."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import polars as pl

from shortlist.core.codec import DistinctIds, Shape, file_error
from shortlist.core.options import Count, check_value, take_options
from shortlist.core.tables import html
from shortlist.data.columns import DataSource, check_distinct, find_column, to_polars
from shortlist.data.files import explain_errors, find_sources, read_plain_table
from shortlist.data.ids import IdMap, id_series
from shortlist.data.read_options import Format, ItemFileOptions, ItemOptions, without_options
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.allocation import UNLIMITED, UserLimits, limit_lists
from shortlist.kernels.rows import read_only
from shortlist.text import short_repr
from shortlist.types import Bools, Ints, Longs

KINDS = ("categories", "tags", "text", "numbers", "dates", "vector")  # the keywords of Items.from_frame
MIN_WORDS = 2.0  # mean words per row from which a column of strings is text
MAX_DISTINCT = 0.5  # distinct values per row up to which other strings are categories

NamedColumns = Mapping[str, Sequence[str] | str | None]


def assign_kinds(
    frame: pl.DataFrame, named: NamedColumns, item_id: str
) -> tuple[dict[str, str], dict[str, str]]:
    """(column → kind, unused column → reason); columns that the caller names are never recognized by type."""
    kinds: dict[str, str] = {}
    for kind, columns in named.items():
        for name in _named(kind, columns):
            if name not in frame.columns or name == item_id:
                listed = ", ".join(map(repr, frame.columns[:12]))
                raise DataError(
                    f"{kind} must name columns other than the id, got {name!r:.60}; columns: {listed}."
                )
            if name in kinds:
                raise DataError(
                    f"column {name!r:.60} must have one kind, got {kinds[name]} and {kind}; name it once."
                )
            kinds[name] = kind
    unused: dict[str, str] = {}
    for name in frame.columns:
        if name == item_id or name in kinds:
            continue
        kind_of_column, reason = recognize_kind(frame[name])
        if kind_of_column is None:
            unused[name] = reason
        elif named.get(kind_of_column) is not None:
            unused[name] = f"other columns were named as {kind_of_column}"
        else:
            kinds[name] = kind_of_column
    order = {name: at for at, name in enumerate(frame.columns)}
    return dict(sorted(kinds.items(), key=lambda pair: order[pair[0]])), unused


def _named(kind: str, columns: Sequence[str] | str | None) -> list[str]:
    """The columns that the caller named for a kind."""
    if columns is None:
        return []
    names = [columns] if isinstance(columns, str) else list(columns)
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"{kind} must be names of columns, got {columns!r:.60}; pass a list of strings.")
    return names


def recognize_kind(column: pl.Series) -> tuple[str | None, str]:
    """(kind, "") by the type of a column; (None, reason) if no kind fits."""
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        return _recognize_list(kind.inner)
    if kind.is_temporal() and kind != pl.Duration and kind != pl.Time:
        return "dates", ""
    if kind.is_numeric():
        return "numbers", ""
    if isinstance(kind, pl.Boolean | pl.Categorical | pl.Enum):
        return "categories", ""
    return _recognize_strings(column) if kind == pl.String else (None, f"type {kind}")


def _recognize_list(inner: Any) -> tuple[str | None, str]:
    """The kind of a column of lists."""
    if isinstance(inner, pl.String | pl.Categorical | pl.Enum):
        return "tags", ""
    return ("vector", "") if inner.is_float() else (None, f"a list of {inner}; name it as tags or vector")


def _recognize_strings(column: pl.Series) -> tuple[str | None, str]:
    """The kind of a column of strings."""
    filled = column.drop_nulls()
    if not len(filled):
        return None, "no values"
    words = filled.head(10_000).str.count_matches(r"\w+").mean()
    if isinstance(words, float) and words >= MIN_WORDS:
        return "text", ""
    if filled.n_unique() <= max(MAX_DISTINCT * len(filled), 1):
        return "categories", ""
    return None, "nearly every item has a value of its own; name it as text or categories"


def convert_column(column: pl.Series, kind: str) -> pl.Series:
    """The column in the one form of its kind: strings, lists of strings, doubles, microseconds or vectors."""
    try:
        if kind in ("text", "categories"):
            return column.cast(pl.String)
        if kind == "tags":
            return column.cast(pl.List(pl.String))
        if kind == "numbers":
            numbers = column.cast(pl.Float64)
            return numbers.set(~numbers.is_finite().fill_null(True), None)
        if kind == "dates":
            return column.cast(pl.Datetime("us"))
        return _convert_vectors(column)
    except pl.exceptions.PolarsError:
        raise DataError(
            f"column {column.name!r:.60} must hold {kind}, got {column.dtype}; convert it, or "
            "name another kind."
        ) from None


def _convert_vectors(column: pl.Series) -> pl.Series:
    """Vectors of one length and finite numbers, or null."""
    vectors = column.cast(pl.List(pl.Float32))
    lengths = vectors.list.len().drop_nulls().unique()
    if len(lengths) > 1:
        raise DataError(
            f"column {column.name!r:.60}: vectors must have one length, got {lengths.sort()[:3].to_list()}; "
            "leave items without a vector null."
        )
    flat = vectors.drop_nulls().explode()
    if flat.null_count() or not flat.is_finite().all():
        raise DataError(
            f"column {column.name!r:.60}: vectors must hold finite numbers, got others; make such rows null."
        )
    return vectors


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
    @take_options(ItemOptions)
    def from_frame(cls, frame: Any, *, options: ItemOptions) -> Self:
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
        table = to_polars(frame, "items")
        check_distinct(table.columns)
        id_column = _id_column(table, options.item_id)
        name_column = _name_column(table, options.item_name)
        named = {kind: getattr(options, kind) for kind in KINDS}
        kinds, unused = assign_kinds(table, named, id_column)
        if list(kinds.values()).count("vector") > 1:
            several = [name for name, kind in kinds.items() if kind == "vector"]
            raise DataError(
                f"items must have one vector column, got {several!r:.80}; pass vector={several[0]!r}."
            )
        unused.pop(name_column or "", None)
        return cls(
            IdMap(_check_item_ids(table[id_column])),
            pl.DataFrame([convert_column(table[name], kind) for name, kind in kinds.items()]),
            kinds,
            None if name_column is None else table[name_column].cast(pl.String),
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
        return html(head, repr(self), len(self))

    def columns_of(self, kind: str) -> list[str]:
        """Return the columns of one kind, in the order of the table.

        Parameters
        ----------
        kind
            categories, tags, text, numbers, dates or vector.
        """
        return [name for name, kind_of_column in self.kinds.items() if kind_of_column == kind]

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
        rows = pl.Series(range(len(self)), dtype=pl.Int64)
        rows = rows.filter(~rows.is_in(pl.Series(at[at >= 0], dtype=pl.Int64).to_list()))
        columns = [  # those that the other table lacks are null
            more.table[name] if name in more.kinds else pl.Series(name, [None] * len(more), dtype)
            for name, dtype in self.table.schema.items()
        ]
        table = pl.concat([self.table[rows], pl.DataFrame(columns)])
        ids = pl.concat([self.ids.values.gather(rows), more.ids.values.cast(self.ids.values.dtype)])
        names = None
        if self.names is not None:
            fresh = more.ids.values.cast(pl.String) if more.names is None else more.names
            names = pl.concat([self.names.gather(rows), fresh.rename(self.names.name)])
        return replace(self, ids=IdMap(ids), table=table, names=names)


@take_options(ItemFileOptions)
def read_items(source: str | Path | Sequence[str | Path], *, options: ItemFileOptions) -> Items:
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
    frame, label = read_item_table(source, item_id=options.item_id, format=options.format)
    columns = {option.name: getattr(options, option.name) for option in fields(ItemOptions)}
    try:
        items = Items.from_frame(frame, **columns)
    except DataError as error:
        raise DataError(f"{label}: {error}", parameter=error.parameter) from None
    return replace(items, source=replace(items.source, label=label))


@without_options()
def read_item_table(
    source: str | Path | Sequence[str | Path],
    *,
    item_id: str | None = None,
    format: Format | None = None,  # noqa: A002  as in read_items
) -> tuple[pl.DataFrame, str]:
    """(table, label) of files, for readers that know the kinds of the columns."""
    paths, kind, label = find_sources(source, format)

    def find_ids(names: list[str]) -> list[str]:
        name = find_column("item_id", names) if item_id is None else item_id
        return [name] if name in names else []

    with explain_errors(paths, kind):
        return read_plain_table(paths, kind, find_ids), label


def _id_column(frame: pl.DataFrame, item_id: str | None) -> str:
    """The column of the ids."""
    column = find_column("item_id", frame.columns) if item_id is None else item_id
    if column is None or column not in frame.columns:
        listed = ", ".join(map(repr, frame.columns[:12]))
        got = "none" if item_id is None else repr(item_id)
        raise DataError(
            f"items need a column of ids, got {got:.60}; pass item_id= with one of {listed or 'no columns'}."
        )
    return column


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
        columns[kind] = ", ".join(name for name, kind_of_column in kinds.items() if kind_of_column == kind)
    notes = tuple(f"{name!r:.60} is not used: {reason}." for name, reason in unused.items())
    return DataSource("table", columns, tuple(unused), notes)


def check_group_limits(max_per_group: Any) -> dict[str, int]:
    """Field → how many items of one group a list may contain; ConfigError for anything else."""
    if not isinstance(max_per_group, Mapping):
        raise ConfigError(
            f"max_per_group must be a mapping from a field of items to a number, got "
            f"{short_repr(max_per_group)}; pass for example {{'category': 2}}.",
            parameter="max_per_group",
        )
    for name, limit in max_per_group.items():
        check_value(Count, **{f"max_per_group of {short_repr(name)}": limit})
    return {str(name): int(limit) for name, limit in max_per_group.items()}


def group_fields(items: Items) -> list[str]:
    """The columns that group items: categories, and texts of which most occur more than once."""

    def repeats(name: str) -> bool:
        values = items.table[name].drop_nulls()
        return values.n_unique() <= MAX_DISTINCT * len(values)

    return [
        name
        for name, kind in items.kinds.items()
        if kind == "categories" or (kind == "text" and repeats(name))
    ]


class StoredGroups(NamedTuple):
    """The groups of items in a file."""

    ids: Annotated[pl.Series, DistinctIds(), Shape("n_items")]
    fields: tuple[str, ...]
    columns: tuple[Annotated[pl.Series, Shape("n_items")], ...]  # of texts

    def _check_loaded(self) -> None:
        """Raise ModelFileError unless there is a column of texts for each field."""
        if len(self.columns) != len(set(self.fields)) or len(self.columns) != len(self.fields):
            raise file_error("groups.fields", "must name each column once")
        if any(column.dtype != pl.String for column in self.columns):
            raise file_error("groups.columns", "must hold texts")


@dataclass(frozen=True, eq=False)
class ItemGroups:
    """The groups of items by field; an item without a value belongs to no group."""

    stored_as: ClassVar[type] = StoredGroups

    ids: IdMap
    table: pl.DataFrame  # (n, n_fields) one column per field
    aligned: IdMap  # the items that `codes` are about

    @classmethod
    def of(cls, items: Any, aligned: IdMap, group_columns: Sequence[str] | None = None) -> Self:
        """The named columns of items with one value per item; without names, those of `group_fields`."""
        if not isinstance(items, Items):
            frame = to_polars(items, "items")
            categories = [name for name in group_columns or () if name in frame.columns]
            items = Items.from_frame(frame, categories=categories or None)
        names = group_fields(items) if group_columns is None else list(group_columns)
        for name in names:
            kind = items.kinds.get(name)
            if kind is None or kind in ("tags", "vector"):
                raise ConfigError(
                    f"max_per_group must name a column of items with one group per item, got "
                    f"{short_repr(name)}{f' with {kind}' if kind else ''}; columns: "
                    f"{', '.join(map(repr, items.kinds)) or 'none'}.",
                    parameter="max_per_group",
                )
        table = items.table.select(pl.col(names).cast(pl.String))
        return cls(items.ids, table, aligned)

    def align(self, items: IdMap) -> Self:
        """The same groups for the items of a model that may have grown."""
        is_same = items is self.aligned or items == self.aligned
        return self if is_same else replace(self, aligned=items)

    def update(self, items: Any, aligned: IdMap) -> Self:
        """With the groups of more items, as Items or a table; a row replaces the row of the same id."""
        columns = items.kinds if isinstance(items, Items) else to_polars(items, "items").columns
        names = [name for name in self.table.columns if name in columns]
        merged = self.items.merge(ItemGroups.of(items, aligned, names).items)
        return replace(self, ids=merged.ids, table=merged.table, aligned=aligned)

    @property
    def items(self) -> Items:
        """The groups as items with categories."""
        return Items(self.ids, self.table, dict.fromkeys(self.table.columns, "categories"))

    def to_stored(self) -> StoredGroups:
        """The groups, as a file holds them."""
        return StoredGroups(self.ids.values, tuple(self.table.columns), tuple(self.table))

    @classmethod
    def from_stored(cls, stored: StoredGroups) -> Self:
        """The groups in a file, still aligned with their own ids."""
        ids = IdMap(stored.ids)
        return cls(ids, pl.DataFrame(dict(zip(stored.fields, stored.columns, strict=True))), ids)

    @property
    def fingerprint(self) -> str:
        """A digest of the groups of all items."""
        return hashlib.sha256(json.dumps(self.table.columns).encode() + self.codes.tobytes()).hexdigest()

    @cached_property
    def codes(self) -> Ints:
        """(n_items, n_fields) group of each item, numbered over all fields; -1: no group."""
        at = self.ids.lookup(self.aligned.values)
        codes, first = np.empty((at.size, self.table.width), np.int32), 0
        for number, (column, size) in enumerate(zip(self.table, self.sizes, strict=True)):
            ranks = column.rank("dense").cast(pl.Int64).fill_null(0).to_numpy() - 1
            group = np.where(at >= 0, ranks[np.maximum(at, 0)], -1) if ranks.size else np.full(at.size, -1)
            codes[:, number] = np.where(group >= 0, group + first, -1)
            first += size
        return codes

    @cached_property
    def sizes(self) -> list[int]:
        """Number of groups of each field."""
        return [column.drop_nulls().n_unique() for column in self.table]

    def limits(self, max_per_group: Mapping[str, int], max_items: int = UNLIMITED) -> UserLimits:
        """What each list may contain."""
        for name in max_per_group:
            if name not in self.table.columns:
                raise ConfigError(
                    f"max_per_group must name a field that groups items, got {short_repr(name)}; fields: "
                    f"{', '.join(map(repr, self.table.columns)) or 'none'}.",
                    parameter="max_per_group",
                )
        most = [max_per_group.get(name, UNLIMITED) for name in self.table.columns]
        group_limits: Longs = np.repeat(np.array(most, np.int64), self.sizes)
        return UserLimits(max_items, self.codes, group_limits)


def skip_items(indptr: Longs, items: Ints, limits: UserLimits) -> tuple[Bools, Longs]:
    """(rows to keep, lengths) of lists without the items beyond the limits; a skipped item takes no place."""
    keep, sizes = np.empty(items.size, np.bool_), np.empty(indptr.size - 1, np.int64)
    groups, most = read_only(limits.groups), read_only(limits.group_limits)
    limit_lists(read_only(indptr), read_only(items), UserLimits(limits.max_items, groups, most), keep, sizes)
    return keep, sizes
