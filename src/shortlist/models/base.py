"""Recommender, the base class of every model: what a subclass implements, fit, recommend, explain, save."""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import blake2b
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_type_hints

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from shortlist import MODEL_MODULES
from shortlist.core.codec import declared_fields, file_error, load_estimator, save_estimator
from shortlist.core.options import Count, Estimator, Positive, check_value, load_plugins, take_options
from shortlist.cutoff.base import Cutoff, require_cutoff
from shortlist.cutoff.boundary import Boundary
from shortlist.data.arrow import ArrowFunction, file_bytes
from shortlist.data.history import Events, History, NewRows, match_events
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.items import ItemGroups, Items, group_fields
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError, NotFittedError, warn
from shortlist.models.search_space import Space
from shortlist.models.selection import SelectionReport
from shortlist.models.weighting import WeightTransform, warn_of_negative
from shortlist.recommend.options import ExplainOptions, FileOptions, RequestOptions
from shortlist.recommend.request import (
    BatchRecommender,
    Contributions,
    RecommendRequest,
    RequestState,
    Scores,
    build_request,
    contributions_column,
)
from shortlist.recommend.retrieval import build_index
from shortlist.text import escape_html as escape
from shortlist.types import Floats, Ints

if TYPE_CHECKING:
    import pyarrow as pa

DENSE_CELLS = 1 << 24  # scores in memory at once
MAX_BATCH = 8192  # users scored at once


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelState(RequestState):
    """What a fitted model knows; never modified, only replaced.

    The state of a model is a subclass whose fields are annotated as `core.codec` says. Files hold all of
    them, except those that are `NotStored`.
    """

    selection: SelectionReport | None = None  # if `shortlist.fit` chose the model

    def _check_loaded(self) -> None:
        """Raise ModelFileError if what was loaded contradicts itself."""


class FitOptions(NamedTuple):
    """The optional arguments of `fit`."""

    valid: Interactions | None = None
    progress: Callable[[Any], None] | None = None
    items: Items | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(Estimator, ABC):
    """Base class of all models: fit, recommend, explain, save.

    A subclass implements `_learn`, whose return annotation names the class of the state, and `score`, and
    declares below what the command line, `shortlist.fit` and `shortlist.warmup` have to know about it. It can
    be named and loaded as soon as its module is imported. A package makes its models known without an import
    by an entry point of the group `shortlist`, whose name is that of the class.
    """

    kind: ClassVar[str] = "model"
    classes: ClassVar[dict[str, type["Recommender"]]] = {}  # classes that are already imported, by name
    uses_new_items: ClassVar[bool] = True  # whether items that `observe` brings can be recommended
    answers_past: ClassVar[bool] = (
        True  # whether lists for a time before the last event ignore what came later
    )
    uses_content: ClassVar[bool] = False  # whether `fit` takes items
    uses_epochs: ClassVar[bool] = False  # whether `fit` can stop early and report progress
    has_flags: ClassVar[bool] = True  # whether the command line offers the model and its parameters
    search_space: ClassVar[Space] = {}  # the parameters that are tuned, and their values
    not_searched: ClassVar[tuple[str, ...]] = ()  # parameters of the spaces that stay at their defaults
    timed_params: ClassVar[tuple[str, ...]] = ()  # parameters that have no effect without timestamps
    is_tried_by_fit: ClassVar[bool] = False  # whether `shortlist.fit` tries the model if none is named
    trial_cost: ClassVar[int] = 1  # how many times as long as most models a trial takes
    warmup_params: ClassVar[dict[str, Any]] = {}  # parameters of a small model that uses all kernels

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Recommender.classes[cls.__name__] = cls

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

    def _observe(self, state: Any, history: History, new: NewRows | None) -> Any:
        """Replace the history by one with new rows (None: rows were also removed), without learning."""
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

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        """Why `shortlist.fit` does not try the model on this data; None if it does.

        Parameters
        ----------
        data
            The interactions to fit on.
        """
        return None

    @property
    def weight_transform(self) -> WeightTransform | None:
        """What a row counts by its weight; None: every row counts 1."""
        return None

    @property
    def has_boundary(self) -> bool:
        """Whether the model learns a personal boundary that can end lists."""
        return False

    def boundary_cutoff(self, state: Any) -> Cutoff | None:
        """Return the cutoff that `fit` learned with the model; None: lists end at learned boundaries, if any.

        Parameters
        ----------
        state
            The fitted state.
        """
        return None

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

    def _state_fields(self, state: Any) -> dict[str, Any]:
        """What a file holds of the state."""
        return {name: getattr(state, name) for name in self._declared()}

    def _build_state(self, learned: dict[str, Any]) -> Any:
        """The state with what a file holds; fields that are `NotStored` have a default or are added here."""
        return self._state_class()(**learned)

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
        value: Interactions = self._fitted_state().history.merged
        return value

    @property
    def event_history(self) -> History:
        """The interactions and returns that the model knows, as `observe` adds to them."""
        value: History = self._fitted_state().history
        return value

    def with_event_history(self, history: History) -> Self:
        """Return a copy that knows other rows of the same users and items; what was learned is shared.

        Parameters
        ----------
        history
            Interactions and returns.
        """
        changed = copy(self)
        changed._state = replace(self._fitted_state(), history=history)
        return changed

    @property
    def users_(self) -> IdMap:
        """The ids of the known users."""
        value: IdMap = self._fitted_state().history.users
        return value

    @property
    def items_(self) -> IdMap:
        """The ids of the known items."""
        value: IdMap = self._fitted_state().history.items
        return value

    @property
    def cutoff_(self) -> Cutoff | None:
        """The cutoff that `recommend` uses by default; None if there is none."""
        value: Cutoff | None = self._fitted_state().cutoff
        return value

    @property
    def groups_(self) -> Items | None:
        """The groups of items that `max_per_group` may name; None if the model knows none."""
        groups: ItemGroups | None = self._fitted_state().groups
        return None if groups is None else groups.items

    @property
    def boundary_(self) -> Cutoff | None:
        """The cutoff at the model's boundary: what `fit` learned, or `Boundary`; None without a boundary."""
        if not self.has_boundary:
            return None
        return self.boundary_cutoff(self._fitted_state()) or Boundary()

    @property
    def has_stopping_rule(self) -> bool:
        """Whether `recommend` needs no N: the model has a cutoff or a boundary."""
        return self.cutoff_ is not None or self.has_boundary

    @property
    def selection_(self) -> SelectionReport | None:
        """How the model and the cutoff were chosen; None if they were not chosen by `shortlist.fit`."""
        value: SelectionReport | None = self._fitted_state().selection
        return value

    @property
    def fingerprint_(self) -> str | None:
        """Fingerprint of the parameters and of what was learned; None if the scores are a function.

        `observe` keeps it, `fit` changes it. A `Guarantee` belongs to the model with the fingerprint it was
        tested on.
        """
        value: str | None = self._fitted_state().fingerprint
        return value

    def _fitted_state(self) -> Any:
        """The current state."""
        state = self._state
        if state is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; call fit(train) first.")
        return state

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
        data = repr(self._state.history.merged) if self._state is not None else "not fitted"
        cutoff = f", cutoff {type(self._state.cutoff).__name__}" if self._state and self._state.cutoff else ""
        return f"<b>{escape(repr(self))}</b><br>{escape(data)}{escape(cutoff)}"

    # ------------------------------------------------------------------ learning
    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; a fitted model becomes unfitted.

        The new values are checked together; if one is invalid, nothing changes. Assignment
        (`model.n_factors = 32`) does the same for one parameter.

        Parameters
        ----------
        **params
            New values by parameter name.

        Returns
        -------
        The model itself.

        Raises
        ------
        ConfigError
            If there is no such parameter, or a value is invalid.

        Examples
        --------
        >>> sl.BPRMF().set_params(n_factors=32).n_factors
        32
        """
        return super().set_params(**params)

    def fit(
        self,
        train: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        progress: Callable[[Any], None] | None = None,
        items: Items | Any = None,
    ) -> Self:
        """Learn from interactions.

        A fit that fails leaves an earlier one untouched.

        Parameters
        ----------
        train
            Interactions, a polars, pandas or Arrow table with the usual column names, or a SciPy matrix
            users × items.
        valid
            Held-out interactions over the same ids. Models trained in epochs stop when F1 on them no longer
            improves; other models ignore them.
        progress
            Called after every epoch with an object that holds `epoch`, `n_epochs`, `loss`, `score` (F1 on
            `valid`) and `updates_per_second`. Ignored by models without epochs.
        items
            Content of items: `Items` or a table with one row per item, for models that use it. Items
            without interactions can then be recommended.

        Returns
        -------
        The model itself.

        Raises
        ------
        DataError
            If there is nothing to learn from.
        ConfigError
            If a parameter is invalid.

        Examples
        --------
        >>> model = sl.BPRMF(n_epochs=2).fit(sl.load_dataset("sample"))
        """
        data = self._check_data(train)
        held_out = None if valid is None else Interactions.of(valid)
        if items is not None and not self.uses_content:
            raise ConfigError(
                f"items must be None for {type(self).__name__}, which uses no content of items; use "
                "ContentProfile, or omit items.",
                parameter="items",
            )
        content = None if items is None else Items.of(items)
        options = FitOptions(held_out, progress, content)
        with self._lock:
            learned = self._learn(data, options)
            if not isinstance(learned, ModelState):
                raise TypeError(
                    f"{type(self).__name__}._learn must return a ModelState, got {type(learned).__name__}; "
                    "return what was learned, with history=History.of(train)."
                )
            state = self._with_fingerprint(learned)
            if content is not None and group_fields(content):
                state = replace(state, groups=ItemGroups.of(content, state.history.items))
            self._state = state
        return self

    def observe(self, events: Interactions | Any) -> Self:
        """Add events to what the model knows, without learning.

        Histories, counts, trends and co-occurrences advance; factors, weights and trees stay. The lists are
        those of a model with the same learned parameters and the joined history.

        Parameters
        ----------
        events
            Interactions to add, in any form that `fit` accepts, or a list of tuples. Users may be new.

        Returns
        -------
        The model itself.

        Raises
        ------
        DataError
            If the events have times and the history has none, or the reverse.

        Warns
        -----
        DataWarning
            If the model cannot score new items; their events are skipped.

        Examples
        --------
        >>> model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
        >>> model = model.observe([("u1", "i10", "2030-01-01"), ("new user", "i1", "2030-01-01")])
        >>> "new user" in model.users_
        True
        """
        added, transform = Events.of(events), self.weight_transform
        with self._lock:
            state = self._fitted_state()
            more = match_events(state.history, added, self.uses_new_items)
            if more.purchases.n_rows or more.returns.height:
                if transform is None and more.purchases.weight is not None:
                    warn_of_negative(more.purchases.weight, type(self).__name__)
                history, new = state.history.append(more)
                changes = (
                    new is None or new.item.size > 0 or (transform is not None and new.reweighted.size > 0)
                )
                grown = self._observe(state, history, new) if changes else replace(state, history=history)
                if grown.groups is not None:
                    grown = replace(grown, groups=grown.groups.align(grown.history.items))
                self._state = grown
        return self

    def set_cutoff(self, cutoff: Cutoff | None, selection: SelectionReport | None = None) -> Self:
        """Set the cutoff that `recommend` uses by default; it is saved with the model.

        Parameters
        ----------
        cutoff
            A fitted cutoff, or None to remove it.
        selection
            How the model and the cutoff were chosen.

        Returns
        -------
        The model itself.

        Raises
        ------
        ConfigError
            If it is not a cutoff, or a `Guarantee` that was tested on another model.
        NotFittedError
            If the cutoff needs `fit` first.

        Examples
        --------
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> model = model.set_cutoff(sl.cutoff.FixedN(N=5))
        >>> len(model.recommend("u1")["u1"])
        5
        """
        if cutoff is not None:
            require_cutoff(cutoff, "None or a fitted cutoff", "().fit(lists, truth)")
        if cutoff is not None and not cutoff.is_ready:
            raise NotFittedError(
                f"set_cutoff needs a fitted cutoff, got {type(cutoff).__name__} before fit; "
                "call cutoff.fit(lists, truth) first."
            )
        with self._lock:
            state = self._fitted_state()
            if cutoff is not None:
                cutoff.check_source(state.fingerprint)
            self._state = replace(state, cutoff=cutoff, selection=selection)
        return self

    def set_groups(self, items: Items | Any, fields: Sequence[str] | None = None) -> Self:
        """Set the groups of items that `recommend(max_per_group=…)` limits; they are saved with the model.

        A model that was fitted with `items` already knows their categories.

        Parameters
        ----------
        items
            `Items`, or a table with one row per item.
        fields
            The columns that group items, with one value per item; None: categories, and texts of which most
            occur more than once.

        Returns
        -------
        The model itself.

        Raises
        ------
        ConfigError
            If a column does not exist or has several values per item, or there is none.

        Examples
        --------
        >>> import polars as pl
        >>> data = sl.load_dataset("sample")
        >>> table = pl.DataFrame({"item_id": data.items.values, "color": ["red", "blue"] * 70})
        >>> model = sl.Popularity().fit(data).set_groups(table)
        >>> len(model.recommend("u1", N=10, max_per_group={"color": 2})["u1"])
        4
        """
        with self._lock:
            state = self._fitted_state()
            groups = ItemGroups.of(items, state.history.items, fields)
            if not groups.table.width:
                raise ConfigError(
                    "items must have a column whose values repeat, got none; name the columns with fields=.",
                    parameter="items",
                )
            self._state = replace(state, groups=groups)
        return self

    def _check_data(self, data: Any) -> Interactions:
        """The data as Interactions with at least one row, and with weights if they are used."""
        interactions = Interactions.of(data)
        if not interactions.n_rows:
            raise DataError("fit needs at least one interaction, got none; check the filters.")
        if self.weight_transform is not None:
            self.weight_transform.check_data(interactions)
        elif interactions.weight is not None:
            warn_of_negative(interactions.weight, type(self).__name__)
        return interactions

    def _with_fingerprint(self, state: Any) -> Any:
        """The state with the fingerprint of the parameters and of what was just learned."""
        try:
            learned = self._state_fields(state)
        except ConfigError:  # scores given as a function have no bytes to compare
            return replace(state, fingerprint=None)
        digest = blake2b(type(self).__name__.encode(), digest_size=16)
        digest.update(json.dumps(self.get_params(), sort_keys=True, default=_name_type).encode())
        for name in sorted(learned.keys() - declared_fields(ModelState).keys()):
            add_to_digest(digest, learned[name])
        return replace(state, fingerprint=digest.hexdigest())

    # ------------------------------------------------------------------ requests
    @take_options(RequestOptions)
    def recommend(self, users: Any = None, *, options: RequestOptions) -> RankedLists:
        """Recommend a list to each user, best item first; equal scores are ordered by item.

        Without `N`, the length of each list is decided by the cutoff and may be 0. Every list carries the
        reason why it ends.

        Parameters
        ----------
        users
            One user id or several; None: all known users (with `history`: all its users). Unknown users get
            an empty list.
        N
            The same length for all users, instead of a cutoff.
        cutoff
            "auto": the cutoff saved with the model, else the model's boundary. "boundary": the model's
            boundary. Or a fitted cutoff.
        candidates
            The item ids that may be recommended: one collection for all users, a dictionary from user id to
            item ids, or one list per user. None: all items. Unknown ids are ignored with a warning.
        exclude
            Item ids that must not be recommended, in the same forms. Unknown ids are ignored with a warning.
        history
            Sessions: histories to use instead of the known ones, as a dictionary from user id to item ids, or
            as Interactions or a table with times. Nothing is stored. Unknown items are skipped with a
            warning.
        filter_seen
            Whether to leave out items that the user interacted with before; None: only if users do not repeat
            items in the data.
        min_items
            Extend shorter lists to this length with the next best candidates.
        max_items
            The maximum length of a list.
        max_per_group
            How many items of one group a list may contain, by field, such as {"category": 2}. Further items
            of a full group are skipped in order of the scores, before the cutoff decides the length. The
            model must know the groups: see `set_groups`.
        at
            The prediction time. Later rows of the user are left out of the history: of seen items, counts and
            baskets. A date, an ISO 8601 string or an epoch number, one or one per user: later events of
            others are not used either, except for what `fit` learned from them; models that cannot leave
            them out raise an error. Or Interactions, such as a test set, whose first row of each user gives
            the time: popularity and neighbors then come from all known events, as the last-basket protocol
            allows. None: just after the last known event.
        fallback
            What to show instead of an empty list: "popular", or a function from user id to item ids.

        Returns
        -------
        One list per user, in the order of `users`.

        Raises
        ------
        ConfigError
            If an argument is invalid, or nothing decides the length.
        UnknownIdError
            If ids are integers and those of the data are strings, or the reverse; if no candidate is known.

        Examples
        --------
        >>> model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
        >>> lists = model.recommend(["u1", "u2"], N=3)
        >>> lists.lengths.tolist()
        [3, 3]
        >>> model.recommend(history={"session": ["i1", "i10"]}, N=2).lengths.tolist()
        [2]
        """
        return self.plan(users, options).lists()

    @take_options(FileOptions)
    def recommend_to_file(self, path: str | Path, users: Any = None, *, options: FileOptions) -> Path:
        """Write the lists that `recommend` returns to a Parquet file, batch by batch.

        Memory does not grow with the number of users. The file appears at its path only when it is complete.

        Parameters
        ----------
        path
            A file name that ends in .parquet.
        users, N, cutoff, candidates, exclude, history, filter_seen, min_items, max_items
            As in `recommend`.
        max_per_group, at, fallback
            As in `recommend`.
        progress
            Called after each batch with the number of lists written and the total.

        Returns
        -------
        The path of the file.

        Examples
        --------
        >>> import tempfile
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = model.recommend_to_file(folder + "/lists.parquet", N=5)
        ...     lists = sl.RankedLists.read(path)
        """
        return self.plan(users, options).write(path, options.progress)

    @take_options(RequestOptions)
    def arrow(self, *, options: RequestOptions) -> ArrowFunction:
        """Return `recommend` as a function from Arrow tables of histories to lists, for data engines.

        The lists are those of `recommend(history=table)`. The table must have all rows of its users, whom the
        model need not know. The function can be sent to other processes.

        Parameters
        ----------
        N, cutoff, candidates, exclude, filter_seen, min_items, max_items, max_per_group, at, fallback
            As in `recommend`. `candidates` and `exclude` are the same for all, or a dictionary from user id
            to item ids; `at` is one time.
        history
            Must be None, because the table has the histories.

        Returns
        -------
        ArrowFunction
            Takes a table of interactions, and returns the columns of `RankedLists.to_frame`.

        Raises
        ------
        ConfigError
            If an argument is invalid, or nothing decides the length.

        Examples
        --------
        >>> import polars as pl
        >>> make_lists = sl.EASE().fit(sl.load_dataset("sample")).arrow(N=2)
        >>> table = pl.DataFrame({"user_id": ["ann", "ann"], "item_id": ["i1", "i10"]})
        >>> make_lists(table.to_arrow())["rank"].to_pylist()
        [1, 2]
        """
        if options.history is not None:
            raise ConfigError("history must be None for arrow, whose table has the histories; leave it out.")
        self.plan([], options)  # refuses what no user could get
        is_text = self.items_.values.dtype == pl.String
        return RecommendFunction(file_bytes(self.save), is_text, options)

    @take_options(RequestOptions)
    def candidates(self, users: Any = None, *, options: RequestOptions) -> RankedLists:
        """Return the best items of each user with the calibrated probabilities of the model's cutoff.

        `shortlist.allocate` chooses among them.

        Parameters
        ----------
        users
            As in `recommend`.
        N
            Number of candidates per user; by default, as many as the cutoff considers.
        cutoff, candidates, exclude, history, filter_seen, min_items, max_items
            As in `recommend`.
        max_per_group, at, fallback
            As in `recommend`.

        Returns
        -------
        Lists with probabilities, which are not cut.

        Raises
        ------
        ConfigError
            If the model has no cutoff with probabilities.

        Warns
        -----
        DataWarning
            If the probabilities are not calibrated.

        Examples
        --------
        >>> cutoff = sl.cutoff.ExpectedValue(gain=1.0, cost=0.1)
        >>> model = sl.fit(
        ...     sl.load_dataset("sample"), models="PersonalFrequency", cutoff=cutoff, users="buyers"
        ... )
        >>> sl.allocate(model.candidates(["u1", "u2"]), budget=5).n_items
        5
        """
        cutoff, lists = self.cutoff_, None
        if cutoff is not None:
            n = cutoff.candidates_needed() if options.N is None else options.N
            lists = self.plan(users, replace(options, N=n)).lists()
            history = self.history_ if options.history is None else options.history
            lists = cutoff.with_probabilities(lists, history=history)
        if cutoff is None or lists is None or lists.probabilities is None:
            raise ConfigError(
                f"candidates need calibrated probabilities, got {type(self).__name__} without a cutoff that "
                "has them; fit the model with sl.fit(data, cutoff=sl.cutoff.ExpectedValue()) or, on the "
                "command line, shortlist fit --cutoff ExpectedValue."
            )
        if not cutoff.is_calibrated:
            warn(
                f"the probabilities are those of {type(self).__name__} as they are, not calibrated on "
                "validation data, so expected hits and value may be wrong; fit the model with "
                "sl.fit(data, cutoff=sl.cutoff.ExpectedValue()), on the command line shortlist "
                "fit --cutoff ExpectedValue."
            )
        return lists

    @take_options(ExplainOptions)
    def explain(self, user_id: Any, *, options: ExplainOptions) -> pl.DataFrame:
        """Explain one user's list and the next candidates: scores, probabilities, and what contributed.

        Parameters
        ----------
        user_id
            A known user, or a user of `history`.
        N, cutoff, candidates, exclude, history, filter_seen, min_items, max_items
            As in `recommend`, whose list is explained. A model without cutoff and boundary shows ten items.
        max_per_group, at, fallback
            As in `recommend`.
        n_withheld
            How many of the candidates that follow the list to explain.
        n_contributions
            How many contributions to report per item.

        Returns
        -------
        A table with rank, item_id, item_name (if known), score, boundary, margin (score − boundary),
        probability, shown, and contributions: the largest sources of the score and their amounts.

        Raises
        ------
        UnknownIdError
            If the user is unknown.

        Examples
        --------
        >>> model = sl.EASE().fit(sl.load_dataset("sample"))
        >>> table = model.explain("u1", N=3, n_withheld=1)
        >>> table["shown"].to_list()
        [True, True, True, False]
        """
        if options.N is None and options.cutoff == "auto" and not self.has_stopping_rule:
            options = replace(options, N=10)
        plan = self.plan([user_id], options)
        frame, items = plan.explain(options.n_withheld)
        contributions = self.contributions(plan.request, items)
        return frame.with_columns(contributions_column(contributions, options.n_contributions))

    def similar_items(self, item_id: Any, N: int = 10) -> pl.DataFrame:
        """The items with the most similar vectors, for factor models.

        Parameters
        ----------
        item_id
            A known item.
        N
            How many items to return.

        Returns
        -------
        A table with item_id, item_name (if known) and similarity, the cosine of the vectors.

        Raises
        ------
        ConfigError
            If the model has no item vectors.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.BPRMF(n_epochs=2).fit(data)
        >>> model.similar_items(data.items.values[0], N=3).height
        3
        """
        check_value(Count, N=N)
        state = self._fitted_state()
        item = state.history.items.index(item_id, "item id")
        vectors = self._item_vectors(state)
        if vectors is None:
            raise ConfigError(
                f"similar_items compares item vectors, but {type(self).__name__} has none; "
                "use a factor model such as BPRMF."
            )
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vectors[item])
        cosine = np.divide(vectors @ vectors[item], norms, where=norms > 0, out=np.zeros_like(norms))
        nearest = np.argsort(-cosine, kind="stable").astype(np.int32)
        nearest = nearest[nearest != item][:N]
        frame = pl.DataFrame({"item_id": state.history.items.to_ids(nearest), "similarity": cosine[nearest]})
        names = state.history.item_names
        return frame if names is None else frame.insert_column(1, names.gather(nearest).alias("item_name"))

    def boundaries(self, users: Any = None) -> Floats | None:
        """The personal boundaries t_u that the model learned.

        Lists end at them if the model has `boundary="learned"`.

        Parameters
        ----------
        users
            One known user id or several; None: all known users.

        Returns
        -------
        One boundary per user, or None if the model learns none.

        Examples
        --------
        >>> model = sl.DKBPRMF(n_epochs=2).fit(sl.load_dataset("sample"))
        >>> model.boundaries(["u1", "u2"]).shape
        (2,)
        """
        request = self.build_request(users)
        if not self.has_boundary:
            return None
        if (request.users == UNKNOWN).any():
            unknown = request.user_ids.gather(np.flatnonzero(request.users == UNKNOWN))[0]
            self.users_.index(unknown, "user id")  # raises and names similar ids
        return self.score(request).boundaries

    def prepare(self) -> Self:
        """Build the item index of a factor model now, so that the first request does not wait for it.

        Parameters
        ----------

        Returns
        -------
        The model itself.

        Examples
        --------
        >>> model = sl.BPRMF(n_epochs=2).fit(sl.load_dataset("sample")).prepare()
        """
        for n_users in (1, 1024):  # the index depends on the norms of many vectors
            factors = self.score(self.build_request(self.users_.values.head(n_users))).factors
            if factors is None or factors.index_cache is None or factors.index_cache.index is not None:
                return self
        assert factors is not None
        assert factors.index_cache is not None
        factors.index_cache.index = build_index(factors, None)
        return self

    def build_request(
        self, users: Any = None, *, history: Any = None, candidates: Any = None, at: Any = None
    ) -> RecommendRequest[Any]:
        """A request for `score`, with the arguments of `recommend`.

        Parameters
        ----------
        users, history, candidates, at
            As in `recommend`.

        Returns
        -------
        The request.

        Examples
        --------
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> model.score(model.build_request("u1")).values.shape[0]
        1
        """
        return self._checked_request(
            users, RequestOptions(N=1, history=history, candidates=candidates, at=at)
        )

    def plan(self, users: Any, options: RequestOptions) -> BatchRecommender[Any]:
        """Check a request without computing its lists: the one path from arguments to lists.

        Parameters
        ----------
        users
            As in `recommend`.
        options
            The other arguments of `recommend`.

        Returns
        -------
        What computes the lists, writes or explains them, and finds the candidates that follow them.

        Examples
        --------
        >>> from shortlist.recommend.options import RequestOptions
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> model.plan(["u1"], RequestOptions(N=3)).lists().lengths.tolist()
        [3]
        """
        return BatchRecommender(self, self._checked_request(users, options))

    def _checked_request(self, users: Any, options: RequestOptions) -> RecommendRequest[Any]:
        """The request; ConfigError if it asks for a past that the model cannot answer for."""
        request = build_request(self._fitted_state(), users, options)
        times, end = request.timestamps, request.state.history.end_time
        if self.answers_past or times is None or isinstance(options.at, Interactions) or not times.size:
            return request
        if (first := int(times.min())) < end:
            early, last = (str(np.datetime64(time, "us")) for time in (first, end - 1))
            raise ConfigError(
                f"at must be after the last event that {type(self).__name__} knows ({last}), because "
                f"its lists would use later events of other users, got {early}; fit the model on earlier "
                "events, or use evaluate_over_time."
            )
        return request

    # ------------------------------------------------------------------ files
    def save(self, path: str | Path) -> Path:
        """Save the model, its cutoff and its history to one file; nothing in it is pickled.

        Parameters
        ----------
        path
            The file to write, for example `shop.shortlist`. An older model there is replaced in one step.

        Returns
        -------
        The path of the file.

        Examples
        --------
        >>> import tempfile
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = model.save(folder + "/shop.shortlist")
        ...     same = sl.load_model(path)
        """
        self._fitted_state()
        return save_estimator(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a model of this class.

        Parameters
        ----------
        path
            A file written by `save`.

        Returns
        -------
        The model.

        Raises
        ------
        ModelFileError
            If the file is missing, damaged, or holds another class.

        Examples
        --------
        >>> import tempfile
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     same = sl.Popularity.load(model.save(folder + "/shop.shortlist"))
        """
        return load_estimator(path, cls)

    @classmethod
    def find_class(cls, name: str) -> "type[Recommender] | None":
        """Return the class of a model by name: a built-in one, one that is imported, or an entry point.

        Parameters
        ----------
        name
            The name of a class.
        """
        if name in MODEL_MODULES:
            import_module(MODEL_MODULES[name])
        elif name not in Recommender.classes:
            load_plugins()
        kind = Recommender.classes.get(name)
        return None if kind is None or isabstract(kind) else kind

    @classmethod
    def _state_class(cls) -> type[Any]:
        """The class of the state, which is what `_learn` is annotated to return."""
        kind = get_type_hints(cls._learn).get("return")
        return kind if isinstance(kind, type) and issubclass(kind, ModelState) else ModelState

    def _declared(self) -> dict[str, Any]:
        kind: Any = self._state_class()
        return declared_fields(kind)

    def _learned(self) -> dict[str, Any]:
        return {} if self._state is None else self._state_fields(self._state)

    def _restore(self, learned: dict[str, Any]) -> None:
        if "history" not in learned:
            raise file_error("history", "is missing")
        common = {name: learned[name] for name in declared_fields(ModelState)}
        state = replace(self._build_state(learned), **common)
        if state.groups is not None:
            state = replace(state, groups=state.groups.align(state.history.items))
        state._check_loaded()
        self._state = state


def add_to_digest(digest: Any, value: Any) -> None:
    """Add a value of a state: its arrays, series and numbers, and those of its fields."""
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif isinstance(value, csr_array):
        add_to_digest(digest, (value.indptr, value.indices, value.data))
    elif isinstance(value, Estimator):
        add_to_digest(digest, tuple(value.fitted().values()))
    elif is_dataclass(value) or hasattr(value, "_fields"):
        kind: Any = type(value)
        add_to_digest(digest, tuple(getattr(value, name) for name in declared_fields(kind)))
    elif isinstance(value, tuple):
        for entry in value:
            add_to_digest(digest, entry)
    else:
        digest.update(repr(value.to_list() if isinstance(value, pl.Series) else value).encode())


def _name_type(value: Any) -> str:
    """A parameter that JSON cannot hold, by its type."""
    return type(value).__name__


def _short(value: Any) -> str:
    """repr on one line, cut to 40 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}…"


@dataclass(kw_only=True, eq=False, repr=False)
class WeightParams:
    """The parameters of models that can use weights; to be inherited before `Recommender`."""

    weighting: Literal["none", "linear", "log", "cap"] = "none"
    weight_cap: Positive = 5.0

    @property
    def weight_transform(self) -> WeightTransform | None:
        """What a row counts by its weight; None: every row counts 1."""
        return None if self.weighting == "none" else WeightTransform(self.weighting, self.weight_cap)


# ---------------------------------------------------------------------- models by name
def model_names() -> list[str]:
    """The names of all models: the built-in ones, then those of other packages."""
    load_plugins()
    foreign = [kind for kind in Recommender.classes.values() if not kind.__module__.startswith("shortlist.")]
    return [*MODEL_MODULES, *(kind.__name__ for kind in foreign if not isabstract(kind))]


def find_model_class(name: str) -> type[Recommender]:
    """The class of a model by name: a built-in one, one that is already imported, or an entry point.

    Raises
    ------
    ConfigError
        If there is no such model.
    """
    kind = Recommender.find_class(name)
    if kind is None:
        raise ConfigError(f"model must be the name of a model, got {name!r:.60}; import its module first.")
    return kind


def is_tried(name: str) -> bool:
    """Whether `shortlist.fit` tries the model if none is named; subclasses declare it anew."""
    return bool(vars(find_model_class(name)).get("is_tried_by_fit"))


def load_model(path: str | Path) -> Recommender:
    """Load a saved model of any class.

    Parameters
    ----------
    path
        A file written by `model.save` or `shortlist fit`.

    Returns
    -------
    The model, with its cutoff and history. Every byte is verified and nothing is unpickled.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged or was written by another version.

    Examples
    --------
    >>> import tempfile
    >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     same = sl.load_model(model.save(folder + "/shop.shortlist"))
    """
    return load_estimator(path, Recommender)  # type: ignore[type-abstract]


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
