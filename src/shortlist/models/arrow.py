"""A model as a function of Arrow tables."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from shortlist.data.arrow import ArrowFunction
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.models.base import Recommender, load_model
from shortlist.recommend.options import RequestOptions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class RecommendFunction(ArrowFunction):
    """The lists that `recommend` of a model makes from histories."""

    has_text_items: bool = True
    options: RequestOptions = field(default_factory=RequestOptions)

    def _load(self, path: Path) -> Recommender:
        return load_model(path)

    def _make_lists(self, frame: pl.DataFrame) -> RankedLists:
        options = replace(self.options, history=Interactions.of(frame))
        lists: RankedLists = self.loaded.plan(None, options).lists()
        return lists

    def _item_type(self, schema: "pa.Schema") -> "pa.DataType":
        import pyarrow as pa

        return pa.string() if self.has_text_items else pa.int64()
