"""Models that know the content of items: add_items."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from shortlist.content.space import FeatureSpace, extend_items
from shortlist.core.calls import explain_call
from shortlist.data.history import History
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.models.base import Recommender

NAMES = "item_name"  # the column of a model that knows items by their names alone


@dataclass(kw_only=True, eq=False, repr=False)
class ContentRecommender(Recommender):
    """Base class of the models that `fit(train, items=items)` gives the content of items."""

    uses_content: ClassVar[bool] = True

    @property
    def has_content(self) -> bool:
        """Whether the model was fitted with the content of items."""
        return self._space(self._fitted_state()) is not None

    @property
    def content_columns(self) -> tuple[str, ...]:
        """The columns of the items that `fit` got; none if it used the names of the interactions alone."""
        space = self._space(self._fitted_state())
        names = () if space is None else tuple(field.name for field in space.fields)
        return () if names == (NAMES,) else names

    @explain_call
    def add_items(self, items: Items | Any) -> Self:
        """Add items, or new content of known ones, without learning; other threads may request lists.

        Words that no item of `fit` has are ignored.

        Parameters
        ----------
        items
            `Items`, or a table with one row per item and the same columns as in `fit`.

        Returns
        -------
        The model itself.

        Raises
        ------
        DataError
            If an id occurs twice or a column holds another kind of content than in `fit`.
        ConfigError
            If the model was fitted without the content of items.

        Examples
        --------
        >>> import polars as pl
        >>> data = sl.load_dataset("sample")
        >>> table = pl.DataFrame({"item_id": data.items.values, "color": ["red", "blue"] * 30})
        >>> model = sl.ContentProfile().fit(data, items=table)
        >>> model = model.add_items(pl.DataFrame({"item_id": ["new"], "color": ["red"]}))
        >>> "new" in model.items_
        True
        """
        with self._lock:
            state = self._fitted_state()
            space = self._space(state)
            if space is None:
                raise ConfigError(
                    f"add_items needs a model fitted with the content of items, got a {type(self).__name__} "
                    "without it; call fit(train, items=items) first.",
                    parameter="items",
                )
            found = space.read(items)
            self._state = self._with_items(state, found, extend_items(state.history, found))
        return self

    @abstractmethod
    def _space(self, state: Any) -> FeatureSpace | None:
        """The features of the content; None if the model was fitted without items."""

    @abstractmethod
    def _with_items(self, state: Any, items: Items, history: History) -> Any:
        """The state with the content of these items, all of which the history has."""
