"""The contract every model keeps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from scipy.special import expit

from shortlist.core.estimator import Estimator, pack, unpack
from shortlist.core.serialization import Artifact, load_artifact, save_artifact
from shortlist.cutoff.base import Cutoff
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError, ModelFileError, NotFittedError
from shortlist.models.selection import SelectionReport
from shortlist.recommend import explain, recommend, renamed, similar_items
from shortlist.types import Doubles, Floats, Ints, Longs

TEACHING = ("fit", "partial_fit")  # what takes data, as `train` or `more` and `valid`
HISTORY = ("indptr", "item", "baskets", "user_baskets", "time", "weight")


def at_least(least: float, **values: Any) -> None:
    """Refuse, by name, what is no finite number or lies below `least`."""
    for name, value in values.items():
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not least <= value < np.inf:
            raise ConfigError(f"{name} must be a number of at least {least}, got {value!r}.")


def whole(least: int, **values: Any) -> None:
    """Refuse, by name, what is no whole number or lies below `least`."""
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def accept_tables(teach: Callable[..., Any]) -> Callable[..., Any]:
    """`fit` or `partial_fit` that also takes a matrix or a table wherever it takes Interactions."""

    @wraps(teach)
    def door(self: Any, *data: Any, **named: Any) -> Any:
        for name, value in named.items():
            if name in ("train", "more") or (name == "valid" and value is not None):
                named[name] = Interactions.of(value)
        return teach(self, *map(Interactions.of, data), **named)

    return door


@dataclass(kw_only=True, eq=False)
class Recommender(Estimator, ABC):
    """Fit, score, decide, save. Users and items are dense indices; `users_` and `items_` translate."""

    kind: ClassVar[str] = "model"
    classes: ClassVar[dict[str, type["Recommender"]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Recommender.classes[cls.__name__] = cls
        for name in vars(cls).keys() & set(TEACHING):  # one door for all models
            setattr(cls, name, accept_tables(vars(cls)[name]))

    @abstractmethod
    def score(self, users: Ints) -> Floats:
        """(n, n_items) every item's score for dense users."""

    def boundaries(self, users: Ints) -> Floats | None:
        """(n,) t_u, or None for a model that only ranks."""
        return None

    def log_odds_shift(self, users: Ints) -> Floats | None:
        """(n,) what to add to a score to get the log-odds of relevance; None where scores only rank."""
        return None

    def factors(self, users: Ints) -> tuple[Floats, Floats, Floats | None] | None:
        """(score vectors, item vectors, item bias) where the score is an inner product, else None."""
        return None

    def probabilities(self, users: Ints) -> Doubles | None:
        """(n, n_items) the probability that an item is relevant; None where scores only rank."""
        shift = self.log_odds_shift(users)
        if shift is None:
            return None
        return np.asarray(expit(self.score(users).astype(np.float64) + shift[:, None]))

    @property
    def users_(self) -> IdMap:
        """IdMap of the users known."""
        return self.history.users

    @property
    def items_(self) -> IdMap:
        """IdMap of the items known."""
        return self.history.items

    @property
    def history(self) -> Interactions:
        """What the model was fitted on."""
        found: Interactions = self.need("history_")
        return found

    def remember(self, data: Interactions) -> None:
        """Take up what the model stands on; the last act of a fit."""
        self.history_ = data

    @property
    def seen_items(self) -> tuple[Longs, Ints]:
        """(indptr, items): every user's distinct past items, ascending."""
        return self.history.item_sets

    def need(self, name: str) -> Any:
        """A fitted attribute; its absence means that nobody has called `fit`."""
        if name not in vars(self):
            raise NotFittedError(
                f"{type(self).__name__} was used before it was fitted; call fit(train) first."
            )
        return vars(self)[name]

    @staticmethod
    def check_data(data: Interactions) -> None:
        """Refuse what nothing can be learned from."""
        if not data.n_rows:
            raise DataError(
                "there must be at least one interaction to learn from, got none; check the filters."
            )

    # ------------------------------------------------------------------ lists
    def set_cutoff(self, cutoff: Cutoff, chosen: SelectionReport | None = None) -> Self:
        """Take up what ends lists where nobody says otherwise, and why; it is saved with the model."""
        self.need("history_")
        self.cutoff_, self.selection_ = cutoff, chosen
        return self

    def recommend(self, users: Any = None, *, at: Any = None, **wishes: Any) -> RankedLists:
        """Lists for user ids (None: everybody); the wishes are those of `shortlist.recommend.recommend`.

        `at` says when the lists are made, for models that know time; the others give the same at any moment.
        """
        asked = renamed({**wishes, **({} if users is None else {"users": users})})
        return recommend(self, asked.pop("users", None), **asked)

    def explain(self, user_id: Any, **wishes: Any) -> pl.DataFrame:
        """One user's ranked head, how far each item stands from the boundary, and what pulled it there."""
        return explain(self, user_id, **renamed(wishes))

    def similar_items(self, item_id: Any, N: int = 10) -> pl.DataFrame:
        """The N other items most like this one, for factor models: item_id, item_name if any, similarity."""
        return similar_items(self, item_id, N)

    # ------------------------------------------------------------------ saving
    @abstractmethod
    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, notes) that `_unpack` needs beside parameters and history."""

    @abstractmethod
    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        """Take up what `_pack` gave."""

    def _plain_params(self) -> dict[str, Any]:
        """The parameters that JSON can hold; the rest is in `_pack`."""
        return self.get_params()

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file; an older model at `path` is replaced in one step."""
        past = self.history
        arrays, notes = self._pack()
        own = {f"model.{name}": array for name, array in arrays.items()}
        held = {f"history.{n}": value for n in HISTORY if (value := getattr(past, n)) is not None}
        series = {"users": past.users.values, "items": past.items.values}
        if past.item_names is not None:
            series["item_names"] = past.item_names
        if (decider := vars(self).get("cutoff_")) is not None:
            notes = {**notes, "decider": pack(decider, "decider", own, series)}
            notes["chosen"] = None if self.selection_ is None else asdict(self.selection_)
        parts = Artifact(
            kind="model",
            name=type(self).__name__,
            params=self._plain_params(),
            arrays={**own, **held},
            series=series,
            notes={**notes, "data": past.fingerprint, "rows": past.n_rows},
        )
        return save_artifact(path, parts)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read back what `save` wrote; every byte is verified."""
        model = load_model(path)
        if not isinstance(model, cls):
            raise ModelFileError(
                f"{path} holds a {type(model).__name__}, not a {cls.__name__}; load it as what it is."
            )
        return model


def load_model(path: str | Path) -> Recommender:
    """The model saved at `path`; every part is verified, nothing is unpickled."""
    parts = load_artifact(path, "model")
    if parts.name not in Recommender.classes:
        raise ModelFileError(
            f"{path} holds a {parts.name}, which this release does not know; update shortlist."
        )
    try:
        model = Recommender.classes[parts.name](**parts.params)
        history = Interactions(
            users=IdMap(parts.series["users"]),
            items=IdMap(parts.series["items"]),
            item_names=parts.series.get("item_names"),
            **{name: parts.arrays.get(f"history.{name}") for name in HISTORY},  # type: ignore[arg-type]
        )
        model.remember(history)
        own = {n.removeprefix("model."): a for n, a in parts.arrays.items() if n.startswith("model.")}
        model._unpack(own, parts.notes)
        if "decider" in parts.notes:
            told = parts.notes["chosen"]
            decider = unpack(parts.notes["decider"], parts.arrays, parts.series)
            model.set_cutoff(decider, None if told is None else SelectionReport(**told))
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"{path} lacks a part this release needs ({error}); save the model again."
        ) from None
    return model
