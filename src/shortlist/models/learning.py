"""LearningMethods: fit, partial_fit, fold_in, observe and set_cutoff, the same for every model."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from shortlist.core.calls import explain_call
from shortlist.core.engine import Engine, ThreadEngine, check_engine
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError, DataError, NotFittedError
from shortlist.models.contract import FitOptions
from shortlist.models.observed import match_events, read_events
from shortlist.models.requests import RequestMethods
from shortlist.models.selection import SelectionReport
from shortlist.models.weighting import check_weights


@dataclass(kw_only=True, eq=False, repr=False)
class LearningMethods(RequestMethods):
    """What a model learns becomes its next state, which replaces the old one in a single assignment."""

    @explain_call
    def fit(
        self,
        train: Interactions | Any,
        *,
        valid: Interactions | Any = None,
        progress: Callable[[Any], None] | None = None,
        checkpoint: str | Path | None = None,
        engine: Engine | None = None,
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
        checkpoint
            A file to resume from and to save progress to. A resumed run gives the same model, bit for bit, as
            an uninterrupted one.
        engine
            Where to train: None or `ThreadEngine()` in this process, `RayEngine(…)` on a cluster, with the
            same result. Factor models and TwoStage can train on a cluster.
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
        if checkpoint is not None and not self.uses_epochs:
            raise ConfigError(f"checkpoint needs a model trained in epochs, got {type(self).__name__}.")
        place = check_engine(engine)
        if not self.uses_engine and not isinstance(place, ThreadEngine):
            raise ConfigError(
                f"engine must be None or ThreadEngine() for {type(self).__name__}, got {place!r}; "
                "only factor models and TwoStage train on a cluster.",
                parameter="engine",
            )
        data = self._check_data(train)
        check_weights(data, self.weight_transform, type(self).__name__)
        held_out = None if valid is None else Interactions.of(valid)
        content = self._check_items(items)
        saved = None if checkpoint is None else Path(checkpoint)
        options = FitOptions(held_out, progress, saved, place, content)
        with self._lock:
            self._state = self._with_fingerprint(self._learn(data, options))
        return self

    @explain_call
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
            Passes over the users with new interactions, for models trained in epochs; None: `n_epochs` of the
            model.

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
        check_weights(data, self.weight_transform, type(self).__name__)
        with self._lock:
            state = self._fitted_state()
            options = FitOptions(None, progress, None)
            learned = self._with_fingerprint(self._learn_more(state, data, options, n_epochs))
            self._state = replace(learned, cutoff=state.cutoff, selection=state.selection)
        return self

    @explain_call
    def fold_in(self, histories: Mapping[Any, Iterable[Any]]) -> Self:
        """Add users, or one more basket of known users, without training again.

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
            history = state.history.merged.add_baskets(histories)
            users = history.users.lookup(list(histories))
            self._state = self._keep_cutoff(state, self._add_history(state, history, users))
        return self

    @explain_call
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
        found, transform = read_events(events), self.weight_transform
        with self._lock:
            state = self._fitted_state()
            more = match_events(state.history, found, self.uses_new_items)
            if more.n_rows:
                if not transform.is_used:
                    check_weights(more, transform, type(self).__name__)
                history, new = state.history.append(more)
                changes = new.item.size > 0 or (transform.is_used and new.reweighted.size > 0)
                self._state = (
                    self._observe(state, history, new) if changes else replace(state, history=history)
                )
        return self

    @explain_call
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
        if cutoff is not None and not cutoff.is_ready and not (cutoff.uses_boundaries and self.has_boundary):
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

    @staticmethod
    def _keep_cutoff(old: Any, new: Any) -> Any:
        """The new state with the cutoff, the selection report and the fingerprint of the old one."""
        return replace(new, cutoff=old.cutoff, selection=old.selection, fingerprint=old.fingerprint)

    def _check_items(self, items: Any) -> Items | None:
        """The content of items; ConfigError for a model that cannot use it."""
        if items is not None and not self.uses_content:
            raise ConfigError(
                f"items must be None for {type(self).__name__}, which uses no content of items; use "
                "ContentProfile, or omit items.",
                parameter="items",
            )
        return None if items is None else Items.of(items)

    def _check_data(self, data: Any) -> Interactions:
        """The data as Interactions with at least one row."""
        found = Interactions.of(data)
        if not found.n_rows:
            raise DataError("fit needs at least one interaction, got none; check the filters.")
        return found
