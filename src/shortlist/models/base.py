"""Recommender: the contract of every model.

What a fitted model knows is one frozen state. `fit`, `partial_fit` and `fold_in` build the next state under a
lock and swap it in with a single assignment; every request reads the state once. So any number of threads may
ask for lists while another thread updates the model.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import polars as pl

from shortlist.core.estimator import Estimator, pack, unpack
from shortlist.core.serialization import Artifact, load_artifact, save_artifact
from shortlist.cutoff.base import Cutoff
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError, ModelFileError, NotFittedError
from shortlist.models.selection import SelectionReport
from shortlist.recommend.batch import BatchRecommender, write_lists
from shortlist.recommend.explain import (
    Contributions,
    contributions_column,
    explain_list,
    similar_items,
)
from shortlist.recommend.request import (
    CutoffChoice,
    Fallback,
    ListOptions,
    RecommendRequest,
    Scores,
    build_request,
)
from shortlist.recommend.retriever import build_index
from shortlist.types import Floats, Ints

HISTORY_ARRAYS = ("indptr", "item", "baskets", "user_baskets", "time", "weight")
DENSE_CELLS = 1 << 24  # scores in memory at once
MAX_BATCH = 8192  # users scored at once


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelState:
    """What a fitted model knows; never modified, only replaced."""

    history: Interactions
    cutoff: Cutoff | None = None
    selection: SelectionReport | None = None


class FitOptions(NamedTuple):
    """The optional arguments of `fit`."""

    valid: Interactions | None = None
    progress: Callable[[Any], None] | None = None
    checkpoint: Path | None = None


@dataclass(kw_only=True, eq=False)
class Recommender(Estimator, ABC):
    """Base class of all models: fit, recommend, explain, save.

    A subclass implements `_learn`, `score`, `_to_arrays` and `_from_arrays`.
    """

    kind: ClassVar[str] = "model"
    classes: ClassVar[dict[str, type["Recommender"]]] = {}
    uses_epochs: ClassVar[bool] = False  # whether `fit` can stop early, report progress and keep checkpoints

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Recommender.classes[cls.__name__] = cls

    def __post_init__(self) -> None:
        self._state: Any | None = None
        self._lock = threading.RLock()

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
        """Score the candidates of a request; every user of the request is known."""

    @abstractmethod
    def _to_arrays(self, state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arrays, notes) that `_from_arrays` needs beside the parameters and the history."""

    @abstractmethod
    def _from_arrays(self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]) -> Any:
        """The state that `_to_arrays` described."""

    def _learn_more(self, state: Any, more: Interactions, options: FitOptions, n_epochs: int | None) -> Any:
        """Learn from more data; by default, from scratch on all of it."""
        return self._learn(state.history.concat(more), options)

    def _add_history(self, state: Any, history: Interactions, users: Ints) -> Any:
        """Know more history of `users` without learning; by default, learn from scratch."""
        return self._learn(history, FitOptions())

    def contributions(self, request: RecommendRequest[Any], items: Ints) -> Contributions:
        """For each item, the sources of its score and their amounts, largest first; for the only user."""
        return [[] for _ in items]

    @property
    def has_boundary(self) -> bool:
        """Whether the model learns a personal boundary that can end lists."""
        return False

    def batch_size(self, state: Any) -> int:
        """How many users to score at once, so that memory stays bounded."""
        return max(1, min(MAX_BATCH, DENSE_CELLS // max(state.history.n_items, 1)))

    # ------------------------------------------------------------------ learning
    def fit(
        self,
        train: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        progress: Callable[[Any], None] | None = None,
        checkpoint: str | Path | None = None,
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
            Called after every epoch with the epoch, the loss and the validation score. Ignored by models
            without epochs.
        checkpoint
            A file to continue from and to save progress to. An interrupted run that is continued ends in the
            same bits.

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
        if checkpoint is not None and not self.uses_epochs:
            raise ConfigError(f"checkpoint needs a model trained in epochs, got {type(self).__name__}.")
        data = self._check_data(train)
        held_out = None if valid is None else Interactions.of(valid)
        options = FitOptions(held_out, progress, None if checkpoint is None else Path(checkpoint))
        with self._lock:
            self._state = self._learn(data, options)
        return self

    def partial_fit(
        self,
        more: Interactions | Any,
        *,
        progress: Callable[[Any], None] | None = None,
        n_epochs: int | None = None,
    ) -> Self:
        """Learn from additional interactions; new users and items are appended.

        Parameters
        ----------
        more
            Interactions to add, in any form that `fit` accepts.
        progress
            As in `fit`.
        n_epochs
            Passes over the users with new interactions, for models trained in epochs; None: the model's own.

        Returns
        -------
        The model itself.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.Popularity().fit(data)
        >>> more = sl.Interactions.from_frame(data.to_frame().head(10))
        >>> model = model.partial_fit(more)
        """
        data = self._check_data(more)
        with self._lock:
            state = self._fitted_state()
            options = FitOptions(None, progress, None)
            self._state = self._keep(state, self._learn_more(state, data, options, n_epochs))
        return self

    def fold_in(self, histories: Mapping[Any, Iterable[Any]]) -> Self:
        """Add users, or one more basket of known users, without learning the items anew.

        For lists that should not change the model, pass `history=` to `recommend` instead.

        Parameters
        ----------
        histories
            A dictionary from user id to the ids of known items.

        Returns
        -------
        The model itself.

        Raises
        ------
        UnknownIdError
            If an item is unknown.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.PersonalFrequency().fit(data)
        >>> model = model.fold_in({"new user": data.items.values[:3].to_list()})
        >>> "new user" in model.users_
        True
        """
        with self._lock:
            state = self._fitted_state()
            history = state.history.add_baskets(histories)
            users = history.users.lookup(list(histories))
            self._state = self._keep(state, self._add_history(state, history, users))
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

        Examples
        --------
        >>> model = sl.Popularity().fit(sl.load_dataset("sample"))
        >>> model = model.set_cutoff(sl.cutoff.FixedN(N=5))
        >>> len(model.recommend("u1")["u1"])
        5
        """
        with self._lock:
            self._state = replace(self._fitted_state(), cutoff=cutoff, selection=selection)
        return self

    @staticmethod
    def _keep(old: Any, new: Any) -> Any:
        """The new state with the cutoff and the selection report of the old one."""
        return replace(new, cutoff=old.cutoff, selection=old.selection)

    def _fitted_state(self) -> Any:
        """The current state."""
        state = self._state
        if state is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; call fit(train) first.")
        return state

    def _check_data(self, data: Any) -> Interactions:
        """Interactions with at least one row, and parameters that make sense."""
        self._check_params()
        found = Interactions.of(data)
        if not found.n_rows:
            raise DataError("fit needs at least one interaction, got none; check the filters.")
        return found

    def _check_params(self) -> None:
        """Raise ConfigError for an invalid parameter."""

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; a fitted model becomes unfitted.

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
            If there is no such parameter.

        Examples
        --------
        >>> sl.BPRMF().set_params(n_factors=32).n_factors
        32
        """
        super().set_params(**params)
        self._state = None
        return self

    # ------------------------------------------------------------------ what is known
    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return self._state is not None

    @property
    def history_(self) -> Interactions:
        """The interactions that the model knows."""
        return self._fitted_state().history

    @property
    def users_(self) -> IdMap:
        """The ids of the known users."""
        return self.history_.users

    @property
    def items_(self) -> IdMap:
        """The ids of the known items."""
        return self.history_.items

    @property
    def cutoff_(self) -> Cutoff | None:
        """The cutoff that `recommend` uses by default; None if there is none."""
        return self._fitted_state().cutoff

    @property
    def selection_(self) -> SelectionReport | None:
        """How the model and the cutoff were chosen; None if they were not chosen by `shortlist.fit`."""
        return self._fitted_state().selection

    def __repr__(self) -> str:
        changed = {k: v for k, v in self.get_params().items() if v != getattr(type(self), k, None)}
        params = ", ".join(f"{name}={_short(value)}" for name, value in changed.items())
        return f"{type(self).__name__}({params})"

    def _repr_html_(self) -> str:
        from html import escape

        known = repr(self._state.history) if self._state is not None else "not fitted"
        cutoff = f", cutoff {type(self._state.cutoff).__name__}" if self._state and self._state.cutoff else ""
        return f"<b>{escape(repr(self))}</b><br>{escape(known)}{escape(cutoff)}"

    # ------------------------------------------------------------------ lists
    def recommend(
        self,
        users: Any = None,
        *,
        N: int | None = None,
        cutoff: CutoffChoice = "auto",
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        min_items: int = 0,
        max_items: int | None = None,
        at: Any = None,
        fallback: Fallback | None = None,
        n_threads: int = 0,
    ) -> RankedLists:
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
            "auto": the cutoff saved with the model, else the boundary that the model learned. "boundary": the
            learned boundary. Or a fitted cutoff.
        candidates
            The item ids that may be recommended: one collection for all users, a dictionary from user id to
            item ids, or one list per user. None: all items. Unknown ids are ignored.
        exclude
            Item ids that must not be recommended, in the same forms.
        history
            Sessions: histories to use instead of the known ones, as a dictionary from user id to item ids, or
            as Interactions or a table with times. Nothing is stored. Unknown items are skipped with a warning.
        filter_seen
            Whether to leave out items that the user interacted with before; None: only if users do not repeat
            items in the data.
        min_items
            Extend shorter lists to this length with the next best candidates.
        max_items
            The maximum length of a list.
        at
            The prediction time, for models that use time: a date, an ISO 8601 string or an epoch number, one
            or one per user; or Interactions, whose first row of each user gives the time. None: just after
            the last known event.
        fallback
            What to show instead of an empty list: "popular", or a function from user id to item ids.
        n_threads
            Number of threads; 0 uses every core. The lists do not depend on it.

        Returns
        -------
        One list per user, in the order of `users`.

        Raises
        ------
        ConfigError
            If an argument is invalid, or nothing decides the length.

        Examples
        --------
        >>> model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
        >>> lists = model.recommend(["u1", "u2"], N=3)
        >>> lists.lengths.tolist()
        [3, 3]
        >>> model.recommend(history={"session": ["apples"]}, N=2).lengths.tolist()  # doctest: +SKIP
        [2]
        """
        return self._recommender(
            users,
            ListOptions(N=N, cutoff=cutoff, min_items=min_items, max_items=max_items, fallback=fallback),
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
            n_threads=n_threads,
        ).lists()

    def recommend_to_file(
        self,
        path: str | Path,
        users: Any = None,
        *,
        N: int | None = None,
        cutoff: CutoffChoice = "auto",
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        min_items: int = 0,
        max_items: int | None = None,
        at: Any = None,
        fallback: Fallback | None = None,
        n_threads: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Write the lists that `recommend` returns to a Parquet file, batch by batch.

        Memory does not grow with the number of users. The file appears at its path only when it is complete.

        Parameters
        ----------
        path
            A file name that ends in .parquet.
        users, N, cutoff, candidates, exclude, history, filter_seen, min_items, max_items, at, fallback, n_threads
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
        recommender = self._recommender(
            users,
            ListOptions(N=N, cutoff=cutoff, min_items=min_items, max_items=max_items, fallback=fallback),
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
            n_threads=n_threads,
        )
        return write_lists(path, recommender, progress)

    def explain(
        self,
        user_id: Any,
        *,
        N: int | None = None,
        n_contributions: int = 3,
        cutoff: CutoffChoice = "auto",
        candidates: Any = None,
        exclude: Any = None,
        history: Any = None,
        filter_seen: bool | None = None,
        at: Any = None,
    ) -> pl.DataFrame:
        """Explain one user's list: scores, probabilities, the cut, and what contributed to each score.

        Parameters
        ----------
        user_id
            A known user, or a user of `history`.
        N
            How many candidates to explain; None: the whole list and the next five candidates.
        n_contributions
            How many contributions to report per item.
        cutoff, candidates, exclude, history, filter_seen, at
            As in `recommend`. A model without cutoff and boundary shows the first ten items.

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
        >>> table = model.explain("u1", N=3)
        >>> table["rank"].to_list()
        [1, 2, 3]
        """
        if n_contributions < 0:
            raise ConfigError(f"n_contributions must be at least 0, got {n_contributions}.")
        ends = isinstance(cutoff, Cutoff) or self.cutoff_ is not None or self.has_boundary
        options = ListOptions(cutoff=cutoff) if ends or cutoff == "boundary" else ListOptions(N=N or 10)
        recommender = self._recommender(
            [user_id],
            options,
            candidates=candidates,
            exclude=exclude,
            history=history,
            filter_seen=filter_seen,
            at=at,
            n_threads=1,
        )
        frame, items = explain_list(recommender, N)
        found = self.contributions(recommender.request, items)
        return frame.with_columns(contributions_column(found, n_contributions))

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
        state = self._fitted_state()
        item = state.history.items.index(item_id)
        vectors = self._item_vectors(state)
        if vectors is None:
            raise ConfigError(
                f"similar_items compares item vectors, but {type(self).__name__} has none; "
                "use a factor model such as BPRMF."
            )
        nearest, cosine = similar_items(vectors, item, N)
        frame = pl.DataFrame({"item_id": state.history.items.to_ids(nearest), "similarity": cosine})
        names = state.history.item_names
        return frame if names is None else frame.insert_column(1, names.gather(nearest).alias("item_name"))

    def prepare(self, *, n_threads: int = 0) -> Self:
        """Build the item index of a factor model now, so that the first request does not wait for it.

        Parameters
        ----------
        n_threads
            Number of threads; 0 uses every core.

        Returns
        -------
        The model itself.

        Examples
        --------
        >>> model = sl.BPRMF(n_epochs=2).fit(sl.load_dataset("sample")).prepare()
        """
        users = self.users_.values.head(1024)
        factors = self.score(self.build_request(users)).factors
        if factors is not None and factors.index is not None and factors.index.index is None:
            factors.index.index = build_index(factors, None, n_threads)
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
        return build_request(
            self._fitted_state(),
            users,
            options=ListOptions(N=1),
            history=history,
            candidates=candidates,
            at=at,
        )

    def _recommender(self, users: Any, options: ListOptions, **request: Any) -> BatchRecommender[Any]:
        """The one path from arguments to lists."""
        return BatchRecommender(self, build_request(self._fitted_state(), users, options=options, **request))

    def _item_vectors(self, state: Any) -> Floats | None:
        """(n_items, n_factors) vectors that `similar_items` compares; None if the model has none."""
        return None

    # ------------------------------------------------------------------ saving
    def _json_params(self) -> dict[str, Any]:
        """The parameters that JSON can hold; `_to_arrays` stores the rest."""
        return self.get_params()

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
        history = state.history
        own, notes = self._to_arrays(state)
        arrays = {f"model.{name}": array for name, array in own.items()}
        arrays |= {
            f"history.{n}": value for n in HISTORY_ARRAYS if (value := getattr(history, n)) is not None
        }
        series = {"users": history.users.values, "items": history.items.values}
        if history.item_names is not None:
            series["item_names"] = history.item_names
        notes = {**notes, "data": history.fingerprint, "rows": history.n_rows}
        if state.cutoff is not None:
            notes["cutoff"] = pack(state.cutoff, "cutoff", arrays, series)
        if state.selection is not None:
            notes["selection"] = asdict(state.selection)
        name, params = type(self).__name__, self._json_params()
        return save_artifact(path, Artifact("model", name, params, arrays, series, notes))

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
                f"{path} holds a {type(model).__name__}, not a {cls.__name__}; load it with shortlist.load_model."
            )
        return model


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
    if artifact.name not in Recommender.classes:
        raise ModelFileError(
            f"{path} holds a {artifact.name}, which this version does not know; update shortlist."
        )
    try:
        return _restore(artifact)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"{path} cannot be used by this version ({type(error).__name__}: {error}); save the model again."
        ) from None


def _restore(artifact: Artifact) -> Recommender:
    """The model that an artifact describes."""
    model = Recommender.classes[artifact.name](**artifact.params)
    arrays, series, notes = artifact.arrays, artifact.series, artifact.notes
    history = Interactions(
        users=IdMap(series["users"]),
        items=IdMap(series["items"]),
        item_names=series.get("item_names"),
        **{name: arrays.get(f"history.{name}") for name in HISTORY_ARRAYS},  # type: ignore[arg-type]
    )
    own = {n.removeprefix("model."): a for n, a in arrays.items() if n.startswith("model.")}
    state = model._from_arrays(history, own, notes)
    if "cutoff" in notes:
        state = replace(state, cutoff=unpack(notes["cutoff"], arrays, series))
    if "selection" in notes:
        state = replace(state, selection=SelectionReport(**notes["selection"]))
    model._state = state
    return model


# ---------------------------------------------------------------------- parameter checks
def check_number(least: float, **values: Any) -> None:
    """Raise ConfigError for a value that is not a finite number of at least `least`."""
    for name, value in values.items():
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not least <= value < np.inf:
            raise ConfigError(f"{name} must be a number of at least {least}, got {value!r}.")


def check_whole(least: int, **values: Any) -> None:
    """Raise ConfigError for a value that is not a whole number of at least `least`."""
    for name, value in values.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def check_fraction(**values: Any) -> None:
    """Raise ConfigError for a value that does not lie above 0 and at most at 1."""
    for name, value in values.items():
        check_number(0, **{name: value})
        if not 0 < value <= 1:
            raise ConfigError(f"{name} must be above 0 and at most 1, got {value!r}.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
