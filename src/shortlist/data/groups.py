"""Groups of items, such as categories or product families, and how many of a group a list may contain."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl

from shortlist.core.checks import check_ids, file_error
from shortlist.core.params import check_whole, short_repr
from shortlist.data.ids import IdMap
from shortlist.data.items import MAX_DISTINCT, Items, to_frame
from shortlist.errors import ConfigError
from shortlist.kernels.allocation import UNLIMITED, UserLimits, limit_lists
from shortlist.kernels.rows import read_only
from shortlist.types import Bools, Ints, Longs


def check_group_limits(max_per_group: Any) -> dict[str, int]:
    """Field → how many items of one group a list may contain; ConfigError for anything else."""
    if not isinstance(max_per_group, Mapping):
        raise ConfigError(
            f"max_per_group must be a mapping from a field of items to a number, got "
            f"{short_repr(max_per_group)}; pass for example {{'category': 2}}.",
            parameter="max_per_group",
        )
    for name, limit in max_per_group.items():
        check_whole(1, **{f"max_per_group of {short_repr(name)}": limit})
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


@dataclass(frozen=True, eq=False)
class ItemGroups:
    """The groups of items by field; an item without a value belongs to no group."""

    ids: IdMap
    table: pl.DataFrame  # (n, n_fields) one column per field
    aligned: IdMap  # the items that `codes` are about

    @classmethod
    def of(cls, items: Any, aligned: IdMap, fields: Sequence[str] | None = None) -> Self:
        """The named columns of items with one value per item; without names, those of `group_fields`."""
        if not isinstance(items, Items):
            frame = to_frame(items)
            given = [name for name in fields or () if name in frame.columns]
            items = Items.from_frame(frame, categories=given or None)
        names = group_fields(items) if fields is None else list(fields)
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
        given = items.kinds if isinstance(items, Items) else to_frame(items).columns
        names = [name for name in self.table.columns if name in given]
        merged = self.items.merge(ItemGroups.of(items, aligned, names).items)
        return replace(self, ids=merged.ids, table=merged.table, aligned=aligned)

    @property
    def items(self) -> Items:
        """The groups as items with categories."""
        return Items(self.ids, self.table, dict.fromkeys(self.table.columns, "categories"))

    def store(self, series: dict[str, pl.Series]) -> list[str]:
        """Add the groups to the series of a file; return the fields."""
        series["groups.ids"] = self.ids.values
        for number, column in enumerate(self.table):
            series[f"groups.{number}"] = column
        return self.table.columns

    @classmethod
    def restore(cls, fields: Any, series: Mapping[str, pl.Series], aligned: IdMap) -> Self:
        """The groups in the series of a file."""
        ids = check_ids(series, "groups.ids")
        if not isinstance(fields, list) or len(set(map(str, fields))) != len(fields):
            raise file_error("groups", "must be a list of fields")
        table = {str(name): series.get(f"groups.{number}") for number, name in enumerate(fields)}
        for name, column in table.items():
            if column is None or column.dtype != pl.String or len(column) != len(ids):
                raise file_error(name, f"must be {len(ids)} texts")
        return cls(IdMap(ids), pl.DataFrame(table), aligned)

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
    kept, sizes = np.empty(items.size, np.bool_), np.empty(indptr.size - 1, np.int64)
    groups, most = read_only(limits.groups), read_only(limits.group_limits)
    limit_lists(read_only(indptr), read_only(items), UserLimits(limits.max_items, groups, most), kept, sizes)
    return kept, sizes
