"""LensKit: a ranker that ends lists, in place of `TopNRanker`."""

from typing import Any

from lenskit.data import ItemList
from lenskit.pipeline import Component
from pydantic import BaseModel

from shortlist.adapters import prepare_cutoff


class CutConfig(BaseModel):
    """The file of the cutoff."""

    cutoff: str


class CutRanker(Component[ItemList]):
    """Rank the scored items that a cutoff shows."""

    config: CutConfig

    def __init__(self, config: CutConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.show = prepare_cutoff(self.config.cutoff)

    def __call__(self, items: ItemList) -> ItemList:
        """Return the items to show, best first."""
        return ItemList(items[self.show(items.scores())], ordered=True)
