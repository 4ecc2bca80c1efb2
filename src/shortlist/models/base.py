"""Recommender, the base class of every model: what a subclass implements, fit, recommend, explain, save."""

import hashlib
import json
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import polars as pl

from shortlist import MODEL_MODULES as MODEL_MODULES
from shortlist.content.features import FeatureSpace, extend_items
from shortlist.core.checks import FILE_ERRORS, check_text, file_error, load_error
from shortlist.core.estimator import Estimator, load_plugins
from shortlist.core.options import Count, Positive, check_value, take_options
from shortlist.core.serialization import Artifact, load_artifact, pack, save_artifact, unpack
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.data.arrow import file_bytes
from shortlist.data.columns import NO_RETURNS, source_from_notes
from shortlist.data.events import Events
from shortlist.data.history import (
    History,
    NewRows,
    restore_interactions,
    store_history,
)
from shortlist.data.ids import UNKNOWN, IdMap
from shortlist.data.interactions import Interactions, keeps_negative
from shortlist.data.items import ItemGroups, Items, group_fields
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError, DataWarning, ModelFileError, NotFittedError, warn
from shortlist.models.search_space import Space
from shortlist.models.selection import SelectionReport
from shortlist.recommend.options import ExplainOptions, FileOptions, RequestOptions
from shortlist.recommend.request import (
    BatchRecommender,
    Contributions,
    RecommendRequest,
    Scores,
    build_request,
    contributions_column,
)
from shortlist.recommend.request import ModelState as ModelState
from shortlist.recommend.retrieval import build_index
from shortlist.text import escape_html as escape
from shortlist.types import Doubles, Floats, Ints, Longs

if TYPE_CHECKING:
    from shortlist.cutoff.allocation import Allocation
    from shortlist.data.arrow import ArrowFunction

DENSE_CELLS = 1 << 24  # scores in memory at once
MAX_BATCH = 8192  # users scored at once
NAMES = "item_name"  # the column of a model that knows items by their names alone

Weighting = Literal["none", "linear", "log", "cap"]


class WeightTransform(NamedTuple):
    """What a row of weight w counts.

    none: 1. linear: w. log: log2(1 + w). cap: w, at most `cap`. A row of weight 1 counts 1 in all of them. A
    row of negative weight -w counts as much as one of weight w, with a minus.
    """

    name: Weighting = "none"
    cap: float = 5.0

    @property
    def is_used(self) -> bool:
        """Whether rows count by their weight."""
        return self.name != "none"

    def values(self, weight: Floats) -> Doubles:
        """(n,) what rows of these weights count.

        Values have the precision of the weights, so that sums in double precision are exact, as long as the
        weights do not differ by more than 2^29. Rows may then be added in any order, or in pieces.
        """
        if self.name == "none":
            return np.ones(weight.size)
        if self.name == "log":
            weight = np.sign(weight) * np.log2(1 + np.abs(weight.astype(np.float64)))
        elif self.name == "cap":
            weight = np.clip(weight, -self.cap, self.cap)
        return weight.astype(np.float32).astype(np.float64)

    def of_rows(self, data: Interactions) -> Doubles | None:
        """(n_rows,) what every row counts; None if all count 1."""
        if not self.is_used or data.weight is None:
            return None
        return self.values(data.weight)

    def check_weights(self, has_weights: bool) -> None:
        """Raise ConfigError if weights are needed and missing."""
        if self.is_used and not has_weights:
            raise ConfigError(
                f"weighting={self.name!r} needs weights, got data without them; name the column with "
                'weight=…, or set weighting="none".'
            )

    def check_data(self, data: Interactions, model: str) -> None:
        """Raise ConfigError if weights are missing; warn if negative ones would count as positive."""
        self.check_weights(data.weight is not None)
        n = 0 if self.is_used or data.weight is None else int((data.weight < 0).sum())
        if n:
            warn(
                f"{n:,} of {data.n_rows:,} rows have a negative weight, such as a return or a dislike, and "
                f"{model} counts them like any other row; drop them, or use a model with weighting='linear', "
                "'log' or 'cap'."
            )


COUNT_ROWS: WeightTransform = WeightTransform()


def baskets_since(data: Interactions) -> Longs:
    """(n_rows,) number of the user's baskets after that of each row."""
    return np.asarray(data.user_baskets[data.user + 1] - 1 - data.basket)


def set_places(data: Interactions) -> Longs:
    """(n_rows,) the entry of data.item_sets with the user and the item of each row."""
    keys = data.item_sets.owner * data.n_items + data.item_sets.items  # ascending, as the sets are
    return np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)


def decayed_counts(data: Interactions, decay: float, transform: WeightTransform = COUNT_ROWS) -> Floats:
    """For every entry of data.item_sets, the user's baskets with the item, decayed by baskets since then."""
    amount, factor = transform.of_rows(data), decay ** baskets_since(data)
    counts, n_entries = factor if amount is None else amount * factor, data.item_sets.items.size
    return np.bincount(set_places(data), weights=counts, minlength=n_entries).astype(np.float32)


class FitOptions(NamedTuple):
    """The optional arguments of `fit`."""

    valid: Interactions | None = None
    progress: Callable[[Any], None] | None = None
    items: Items | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Recommender(Estimator, ABC):
    """Base class of all models: fit, recommend, explain, save.

    A subclass implements `_learn`, `score`, `_to_arrays` and `_from_arrays`, and declares below what the
    command line, `shortlist.fit` and `shortlist.warmup` have to know about it. It can be
    named and loaded as soon as its module is imported. A package makes its models known without an import by
    an entry point of the group `shortlist`, whose name is that of the class.
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

    @abstractmethod
    def _to_arrays(self, state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, notes) that `_from_arrays` needs in addition to the parameters and the history."""

    @abstractmethod
    def _from_arrays(self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]) -> Any:
        """The state that `_to_arrays` described."""

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
        value: Interactions = self._fitted_state().history.merged
        return value

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
            state = self._with_fingerprint(self._learn(data, options))
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
        given, transform = Events.of(events), self.weight_transform
        with self._lock:
            state = self._fitted_state()
            more = match_events(state.history, given, self.uses_new_items)
            if more.purchases.n_rows or more.returns.height:
                if not transform.is_used:
                    transform.check_data(more.purchases, type(self).__name__)
                history, new = state.history.append(more)
                changes = new is None or new.item.size > 0 or (transform.is_used and new.reweighted.size > 0)
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
            check_cutoff(cutoff, "None or a fitted cutoff", "().fit(lists, truth)")
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
        self.weight_transform.check_data(interactions, type(self).__name__)
        return interactions

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
    def arrow(self, *, options: RequestOptions) -> "ArrowFunction":
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
        from shortlist.models.arrow import RecommendFunction

        if options.history is not None:
            raise ConfigError("history must be None for arrow, whose table has the histories; leave it out.")
        self.plan([], options)  # refuses what no user could get
        is_text = self.items_.values.dtype == pl.String
        return RecommendFunction(file_bytes(self.save), is_text, options)

    def allocate(
        self,
        users: Any = None,
        *,
        contacts: int | None = None,
        budget: int | None = None,
        max_items: int | None = None,
        exclude_users: Any = None,
        item_limits: Any = None,
        max_per_group: Mapping[str, int] | None = None,
        gain: float | str | Mapping[Any, float] = 1.0,
        cost: float = 0.0,
        contact_cost: float = 0.0,
        items: Items | Any = None,
        n_candidates: int | None = None,
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        at: Any = None,
    ) -> "Allocation":
        """Choose items for all users at once so that the expected value is highest; see `allocate`.

        The candidates are the best items of each user, with the calibrated probabilities of the model's
        cutoff.

        Parameters
        ----------
        users
            As in `recommend`.
        contacts, budget, max_items, exclude_users, item_limits, gain, cost, contact_cost, items
            As in `shortlist.allocate`.
        max_per_group
            As in `shortlist.allocate`; without `items`, the fields are those of `set_groups`.
        n_candidates
            Number of candidates per user; None: as many as the cutoff considers.
        candidates, exclude, history, filter_seen, at
            As in `recommend`.

        Returns
        -------
        Allocation
            Lists, prices, expected hits and value, and a bound on the best possible value.

        Raises
        ------
        ConfigError
            If the model has no cutoff with calibrated probabilities, or a limit, gain or cost is invalid.

        Examples
        --------
        >>> cutoff = sl.cutoff.ExpectedValue(gain=1.0, cost=0.1)
        >>> model = sl.fit(
        ...     sl.load_dataset("sample"), models="PersonalFrequency", cutoff=cutoff, users="buyers"
        ... )
        >>> model.allocate(budget=500).n_items
        500
        """
        from shortlist.cutoff.allocation import allocate  # with kernels that lists do not need

        cutoff = self.cutoff_
        if n_candidates is not None:
            check_value(Count, n_candidates=n_candidates)
        n = n_candidates or (100 if cutoff is None else cutoff.candidates_needed())
        lists = self.recommend(
            users,
            N=n,
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
        )
        if cutoff is not None:
            lists = cutoff.with_probabilities(lists, history=self.history_ if history is None else history)
        if cutoff is None or lists.probabilities is None:
            raise ConfigError(
                f"allocate needs calibrated probabilities, got {type(self).__name__} without a cutoff that "
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
        return allocate(
            lists,
            contacts=contacts,
            budget=budget,
            max_items=max_items,
            exclude_users=exclude_users,
            item_limits=item_limits,
            max_per_group=max_per_group,
            gain=gain,
            cost=cost,
            contact_cost=contact_cost,
            items=self.groups_ if items is None else items,
        )

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

        Lists end at them if the model has `boundary="learned"`. The boundary of a list is `lists.boundary`.

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
            given, last = (str(np.datetime64(time, "us")) for time in (first, end - 1))
            raise ConfigError(
                f"at must be after the last event that {type(self).__name__} knows ({last}), because "
                f"its lists would use later events of other users, got {given}; fit the model on earlier "
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
        state = self._fitted_state()
        rows, (arrays, notes) = store_history(state.history.merged), self._to_arrays(state)
        arrays = {f"model.{name}": array for name, array in arrays.items()} | rows.arrays
        series, notes = dict(rows.series), {**notes, **rows.notes, "fingerprint": state.fingerprint}
        if state.cutoff is not None:
            notes["cutoff"] = pack(state.cutoff, "cutoff", arrays, series)
        if state.groups is not None:
            notes["groups"] = state.groups.store(series)
        if state.selection is not None:
            notes["selection"] = asdict(state.selection)
        params = self._json_params()
        return save_artifact(path, Artifact("model", type(self).__name__, params, arrays, series, notes))

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
        model = load_model(path)
        if not isinstance(model, cls):
            raise ModelFileError(
                f"{path} holds a {type(model).__name__}, not a {cls.__name__}; use load_model."
            )
        return model


def _short(value: Any) -> str:
    """repr on one line, cut to 40 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:37]}…"


def match_events(history: History, events: Events, uses_new_items: bool) -> Events:
    """The events in the form of the history: with times if it has them, without items it cannot use."""
    purchases, returns = events
    for n_rows, has_times in (
        (purchases.n_rows, purchases.time is not None),
        (returns.height, not returns["time"].null_count()),
    ):
        if n_rows and history.has_times != has_times:
            needed, got = ("times", "no times") if history.has_times else ("no times", "times")
            raise DataError(
                f"events must have {needed} like the data that the model was fitted on, got {got}; "
                "pass the same columns."
            )
    purchases, returns = _match_returns(history, purchases, returns)
    if history.base.weight is None:
        purchases = replace(purchases, weight=None)
    elif purchases.weight is None:
        purchases = replace(purchases, weight=np.ones(purchases.n_rows, np.float32))
    if uses_new_items or not purchases.n_rows:
        return Events(purchases, returns)
    history.items.check_type(purchases.items.values[0], "item id")
    is_known = history.items.align(purchases.items)[purchases.item] != UNKNOWN
    if not is_known.all():
        n_new = np.unique(purchases.item[~is_known]).size
        warnings.warn(
            f"{int((~is_known).sum())} of {is_known.size} events are skipped: the model cannot recommend "
            f"their {n_new} new items before it learns them; fit it again.",
            DataWarning,
            stacklevel=3,
        )
        purchases = purchases.where(is_known)
    return Events(purchases.compact(), returns)


def _match_returns(
    history: History, purchases: Interactions, returns: pl.DataFrame
) -> tuple[Interactions, pl.DataFrame]:
    """Returns as the history treats them: subtracted, kept as rows of negative weight, or dislikes."""
    if not returns.height:
        return purchases, returns
    history.users.check_new(returns["user_id"])
    history.items.check_new(returns["item_id"])
    base = history.base
    if base.source is not None and base.source.has_ratings and not keeps_negative(base):
        warn(
            f"{returns.height} events are skipped: their weight is negative, and the weights of the model's "
            "data are ratings; send what users like."
        )
        return purchases, NO_RETURNS
    if not keeps_negative(base):
        return purchases, returns
    rows = returns.with_columns(timestamp=pl.col("time").cast(pl.Datetime("us"))).drop("time")
    frames = [purchases.to_frame(), rows.select(purchases.to_frame().columns)] if purchases.n_rows else [rows]
    return Interactions.from_frame(pl.concat(frames), negative_weights="keep"), NO_RETURNS


@dataclass(kw_only=True, eq=False, repr=False)
class WeightParams:
    """The parameters of models that can use weights; to be inherited before `Recommender`."""

    weighting: Weighting = "none"
    weight_cap: Positive = 5.0

    @property
    def weight_transform(self) -> WeightTransform:
        """What every row counts."""
        return WeightTransform(self.weighting, self.weight_cap)


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
            content = space.read(items)
            grown = self._with_items(state, content, extend_items(state.history, content))
            if grown.groups is not None:
                grown = replace(grown, groups=grown.groups.update(items, grown.history.items))
            self._state = grown
        return self

    @abstractmethod
    def _space(self, state: Any) -> FeatureSpace | None:
        """The features of the content; None if the model was fitted without items."""

    @abstractmethod
    def _with_items(self, state: Any, items: Items, history: History) -> Any:
        """The state with the content of these items, all of which the history has."""


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
    if name in MODEL_MODULES:
        import_module(MODEL_MODULES[name])
    elif name not in Recommender.classes:
        load_plugins()
    kind = Recommender.classes.get(name)
    if kind is None or isabstract(kind):
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
    artifact = load_artifact(path, "model")
    try:
        kind = find_model_class(artifact.name)
    except ConfigError:
        raise ModelFileError(
            f"{path} holds a {artifact.name}, unknown to this version; update shortlist."
        ) from None
    try:
        return _restore(kind, artifact)
    except FILE_ERRORS as error:
        raise load_error(path, error) from None


def _restore(kind: type[Recommender], artifact: Artifact) -> Recommender:
    """The model that an artifact describes."""
    model = kind(**artifact.params)
    arrays, series, notes = artifact.arrays, artifact.series, artifact.notes
    history = replace(
        restore_interactions(arrays, series),
        source=source_from_notes(notes),
        has_basket_order=notes.get("has_basket_order") is not False,
    )
    learned = {n.removeprefix("model."): a for n, a in arrays.items() if n.startswith("model.")}
    fingerprint = None if notes.get("fingerprint") is None else check_text(notes, "fingerprint")
    state = replace(model._from_arrays(history, learned, notes), fingerprint=fingerprint)
    if "cutoff" in notes:
        cutoff = unpack(notes["cutoff"], arrays, series)
        if not isinstance(cutoff, Cutoff):
            raise file_error("cutoff", "must be a cutoff")
        state = replace(state, cutoff=cutoff)
    if "groups" in notes:
        state = replace(state, groups=ItemGroups.restore(notes["groups"], series, state.history.items))
    if "selection" in notes:
        state = replace(state, selection=SelectionReport.from_notes(notes["selection"]))
    model._state = state
    return model
