"""A cutoff as a function of Arrow tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.data.arrow import ArrowFunction
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists, find_list_column
from shortlist.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class CutFunction(ArrowFunction):
    """The lists that `apply` of a cutoff makes from candidates with scores."""

    history: Interactions | None = None

    def _load(self, path: Path) -> Cutoff:
        return Cutoff.load(path)

    def _make_lists(self, frame: pl.DataFrame) -> RankedLists:
        lists: RankedLists = self.loaded.apply(RankedLists.from_frame(frame), history=self.history)
        return lists

    def _item_type(self, schema: "pa.Schema") -> "pa.DataType":
        name = find_list_column("item_id", schema.names)
        if name is None:
            raise DataError(
                f"item_id must be a column of the table, got {', '.join(map(repr, schema.names[:12]))}; "
                "rename one."
            )
        return schema.field(name).type
