"""FittedModel: what every model implements, and the one frozen state that holds what it knows.

`fit`, `partial_fit`, `fold_in` and `observe` build the next state under a lock and swap it in with a single
assignment; every request reads the state once. Any number of threads may therefore request lists while
another one updates the model.
"""

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from shortlist.core.engine import Engine, ThreadEngine
from shortlist.core.estimator import Estimator
from shortlist.cutoff.base import Cutoff
from shortlist.data.history import History, NewRows
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError, NotFittedError
from shortlist.models.selection import SelectionReport
from shortlist.models.weighting import COUNT_ROWS, WeightTransform
from shortlist.recommend.explain import Contributions
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.text import escape_html as escape
from shortlist.types import Floats, Ints

DENSE_CELLS = 1 << 24  # scores in memory at once
MAX_BATCH = 8192  # users scored at once


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelState:
    """What a fitted model knows; never modified, only replaced."""

    history: History
    cutoff: Cutoff | None = None
    selection: SelectionReport | None = None
    fingerprint: str | None = None  # of what was learned; `observe` and `fold_in` keep it


class FitOptions(NamedTuple):
    """The optional arguments of `fit`."""

    valid: Interactions | None = None
    progress: Callable[[Any], None] | None = None
    checkpoint: Path | None = None
    engine: Engine = ThreadEngine()
    items: Items | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class FittedModel(Estimator, ABC):
    """The contract between a model and the code that fits, queries and saves it."""

    kind: ClassVar[str] = "model"
    uses_new_items: ClassVar[bool] = True  # whether items that `observe` brings can be recommended
    uses_engine: ClassVar[bool] = False  # whether `fit` can run on a cluster
    uses_content: ClassVar[bool] = False  # whether `fit` takes items
    uses_epochs: ClassVar[bool] = False  # whether `fit` can stop early, report progress and keep checkpoints

    def __post_init__(self) -> None:
        self._state: Any | None = None
        self._lock = threading.RLock()
        super().__post_init__()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self).update(values)
        self._lock = threading.RLock()

    # ------------------------------------------------------------------ what a subclass implements
    @abstractmethod
    def _learn(self, train: Interactions, options: FitOptions) -> Any:
        """Learn from scratch."""

    @abstractmethod
    def score(self, request: RecommendRequest[Any]) -> Scores:
        """Score the candidates of a request; every user of the request is known.

        Parameters
        ----------
        request
            A request from `build_request`.
        """

    @abstractmethod
    def _to_arrays(self, state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, notes) that `_from_arrays` needs in addition to the parameters and the history."""

    @abstractmethod
    def _from_arrays(self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]) -> Any:
        """The state that `_to_arrays` described."""

    def _learn_more(self, state: Any, more: Interactions, options: FitOptions, n_epochs: int | None) -> Any:
        """Learn from more data; by default, from scratch on all of it."""
        return self._learn(state.history.merged.concat(more), options)

    def _add_history(self, state: Any, history: Interactions, users: Ints) -> Any:
        """Add to the history of `users` without training; by default, learn from scratch."""
        return self._learn(history, FitOptions())

    def _observe(self, state: Any, history: History, new: NewRows) -> Any:
        """Replace the history by one with new rows, without learning."""
        return replace(state, history=history)

    def contributions(self, request: RecommendRequest[Any], items: Ints) -> Contributions:
        """Return the sources of each item's score and their amounts, largest first.

        Parameters
        ----------
        request
            A request for one user.
        items
            Dense indices of the items to explain.
        """
        return [[] for _ in items]

    @property
    def weight_transform(self) -> WeightTransform:
        """What every row counts; models that cannot use weights count rows."""
        return COUNT_ROWS

    @property
    def has_boundary(self) -> bool:
        """Whether the model learns a personal boundary that can end lists."""
        return False

    @property
    def proposes_candidates(self) -> bool:
        """Whether `score` selects the candidates of a request that gives none."""
        return False

    def batch_size(self, state: Any) -> int:
        """Return how many users to score at once, so that memory stays bounded.

        Parameters
        ----------
        state
            The fitted state.
        """
        n_items: int = state.history.n_items
        return max(1, min(MAX_BATCH, DENSE_CELLS // max(n_items, 1)))

    def _item_vectors(self, state: Any) -> Floats | None:
        """(n_items, n_factors) vectors that `similar_items` compares; None if the model has none."""
        return None

    def _json_params(self) -> dict[str, Any]:
        """The parameters that JSON can hold; `_to_arrays` stores the rest."""
        return self.get_params()

    def _forget(self) -> None:
        self._state = None

    # ------------------------------------------------------------------ fitted attributes
    @property
    def n_epochs_(self) -> int | None:
        """Number of epochs that the kept parameters were trained for; None for a model without epochs."""
        return None

    @property
    def stopped_(self) -> str | None:
        """Why training ended: n_epochs, tol, patience or interrupted; None for a model without epochs."""
        return None

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return self._state is not None

    @property
    def history_(self) -> Interactions:
        """The interactions that the model knows."""
        history: History = self._fitted_state().history
        return history.merged

    @property
    def users_(self) -> IdMap:
        """The ids of the known users."""
        found: IdMap = self._fitted_state().history.users
        return found

    @property
    def items_(self) -> IdMap:
        """The ids of the known items."""
        found: IdMap = self._fitted_state().history.items
        return found

    @property
    def cutoff_(self) -> Cutoff | None:
        """The cutoff that `recommend` uses by default; None if there is none."""
        found: Cutoff | None = self._fitted_state().cutoff
        return found

    @property
    def selection_(self) -> SelectionReport | None:
        """How the model and the cutoff were chosen; None if they were not chosen by `shortlist.fit`."""
        found: SelectionReport | None = self._fitted_state().selection
        return found

    @property
    def fingerprint_(self) -> str | None:
        """Fingerprint of the parameters and of what was learned; None if the scores are a function.

        It is the same after `observe` and `fold_in`, which add histories, and another one after `fit` and
        `partial_fit`. A `Guarantee` belongs to the model with the fingerprint it was tested on.
        """
        found: str | None = self._fitted_state().fingerprint
        return found

    def _with_fingerprint(self, state: Any) -> Any:
        """The state with the fingerprint of what was just learned."""
        try:
            arrays, notes = self._to_arrays(state)
        except ConfigError:  # scores given as a function have no bytes to compare
            return replace(state, fingerprint=None)
        digest = hashlib.blake2b(type(self).__name__.encode(), digest_size=16)
        digest.update(json.dumps([self._json_params(), notes], sort_keys=True, default=str).encode())
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            digest.update(f"{name}{array.dtype}{array.shape}".encode())
            digest.update(array.data)
        return replace(state, fingerprint=digest.hexdigest())

    def __repr__(self) -> str:
        defaults = {field.name: field.default for field in fields(self)}
        changed = {
            name: value
            for name, value in self.get_params().items()
            if value is not defaults[name] and (defaults[name] is None or value != defaults[name])
        }  # a value whose default is None may be an array, which has no single truth value
        params = ", ".join(f"{name}={_short(value)}" for name, value in changed.items())
        return f"{type(self).__name__}({params})"

    def _repr_html_(self) -> str:
        known = repr(self._state.history.merged) if self._state is not None else "not fitted"
        cutoff = f", cutoff {type(self._state.cutoff).__name__}" if self._state and self._state.cutoff else ""
        return f"<b>{escape(repr(self))}</b><br>{escape(known)}{escape(cutoff)}"

    def _fitted_state(self) -> Any:
        """The current state."""
        state = self._state
        if state is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; call fit(train) first.")
        return state


def _short(value: Any) -> str:
    """repr on one line, cut to 40 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}…"
