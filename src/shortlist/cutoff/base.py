"""Cutoff: ranked candidates in, list lengths out. A cutoff sees scores and histories, never a model."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from shortlist.core.checks import check_ids
from shortlist.core.params import Estimator, check_whole, explain_call, is_number, short_repr
from shortlist.cutoff.candidates import Labels, Scores, label_to_fit, top_candidates
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import REASON_CODE, RankedLists
from shortlist.errors import ConfigError
from shortlist.text import escape_html as escape
from shortlist.types import Doubles, Floats, Ints

MAX_CHARS = 60  # of one parameter in a repr


@dataclass(kw_only=True, eq=False, repr=False)
class Summarized(Estimator):
    """An estimator whose repr shows the parameters that were set and, in one line, what `fit` learned."""

    def _summary(self) -> str:
        """What `fit` learned, in one line; empty before `fit`."""
        return ""

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self._changed().items())
        learned = self._summary()
        return f"{type(self).__name__}({params})" + (f" fitted: {learned}" if learned else "")

    def _repr_html_(self) -> str:
        rows = {**self._changed(), "fitted": self._summary() or "no"}.items()
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>{escape(type(self).__name__)}</caption>{cells}</table>"

    def _changed(self) -> dict[str, str]:
        """Parameters that differ from their default, as short text."""
        params = {one.name: (vars(self)[one.name], one.default) for one in fields(self)}
        texts = {name: repr(value) for name, (value, default) in params.items() if value != default}
        return {
            name: text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
            for name, text in texts.items()
        }


FITTED_IDS = ("user_ids_", "item_ids_")  # of scores without ids


class CutLists(NamedTuple):
    """The length of each list, and what the cutoff computed on the way."""

    lengths: Ints  # (n_lists,)
    probabilities: Doubles | None = None  # (n_candidates,)
    boundary: Floats | None = None  # (n_lists,)
    unknown: Ints | None = None  # positions of the lists of unknown users


@dataclass(kw_only=True, eq=False, repr=False)
class Cutoff(Summarized):
    """Base class of all cutoffs: decides how many candidates each user is shown, possibly none.

    Fit a cutoff on candidates that were ranked before the interactions in `truth` happened. Then apply it
    to the candidates of any user.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user. No list is longer.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Threshold().fit(candidates, split.valid)
    >>> lists = cut.apply(candidates)
    >>> bool((lists.lengths <= candidates.lengths).all())
    True
    """

    n_candidates: int = 100

    kind: ClassVar[str] = "cutoff"
    uses_boundaries: ClassVar[bool] = False  # whether it can use the boundaries that lists carry
    reason: ClassVar[str] = "threshold"
    empty_reason: ClassVar[str] = "threshold"

    @explain_call
    def fit(
        self,
        scores: Scores,
        truth: Interactions | Any,
        *,
        history: Interactions | Any = None,
        users: Iterable[Any] | None = None,
        shown: RankedLists | None = None,
    ) -> Self:
        """Learn from the interactions that followed the scores. A failed fit leaves the cutoff unchanged.

        Parameters
        ----------
        scores
            Candidates of the users: `RankedLists` (for example `model.recommend(N=100)`), a dense array or a
            SciPy matrix (users × items; stored entries are the candidates), or a function that maps an array
            of user indices to rows of scores. Scores without ids use the ids of `history`, else of `truth`.
        truth
            Interactions that happened after the scores were computed: `Interactions` or a table with the
            conventional column names. Users and items are matched by id.
        history
            Interactions known when the scores were computed. Cutoffs that use probabilities or basket sizes
            learn from it, and then need a history in `lengths` and `apply` too.
        users
            Ids of the users who received a list or were eligible for one. They count even if they interacted
            with nothing. By default only users with rows in `truth` count.
        shown
            The lists that users saw, if `truth` is only known for shown items. All their users count. Items
            that were shown with a propensity below 1 (`recommend(explore=…)`) get a larger weight. A cutoff
            that needs outcomes of other items is refused.

        Returns
        -------
        Cutoff
            The fitted cutoff itself.

        Raises
        ------
        ConfigError
            If a parameter is invalid, or the cutoff cannot learn from shown items.
        DataError
            If no user of `truth` has a list, or the scores have the wrong shape.

        Examples
        --------
        >>> import numpy as np
        >>> truth = sl.Interactions.from_tuples([(0, 0), (0, 1), (1, 1)])
        >>> sl.cutoff.FixedN().fit(np.array([[0.9, 0.8], [0.1, 0.7]]), truth).N_
        1
        """
        truth, history = Interactions.of(truth), None if history is None else Interactions.of(history)
        if shown is not None:
            self._check_learns_from_shown()
            users = shown.users.values if users is None else users
        labels = label_to_fit(scores, truth, history, self.candidates_needed(), users, shown)
        fresh = self.clone()
        fresh._fit_labels(labels, history)
        if not isinstance(scores, RankedLists):
            known = truth if history is None else history
            fresh.user_ids_, fresh.item_ids_ = known.users.values, known.items.values
        self._forget()
        vars(self).update(fresh.fitted())
        return self

    @explain_call
    def lengths(self, scores: Scores, *, history: Interactions | None = None) -> Ints:
        """Compute the length of every list.

        Parameters
        ----------
        scores
            Candidates, in any form that `fit` accepts.
        history
            Interactions of these users so far; required if the cutoff was fitted with a history and uses it.

        Returns
        -------
        numpy.ndarray
            Number of leading candidates to show, one per user.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        DataError
            If the history, or the probabilities of the lists, are needed and missing.

        Examples
        --------
        >>> import numpy as np
        >>> sl.cutoff.Threshold(threshold=0.5).lengths(np.array([[0.9, 0.6, 0.1], [0.2, 0.3, 0.4]])).tolist()
        [2, 0]
        """
        return self._cut(self._candidates(scores, history), history).lengths

    @explain_call
    def apply(self, scores: Scores, *, history: Interactions | None = None) -> RankedLists:
        """Cut every list at its length.

        Parameters
        ----------
        scores
            Candidates, in any form that `fit` accepts.
        history
            Interactions of these users so far; required if the cutoff was fitted with a history and uses it.

        Returns
        -------
        RankedLists
            The lists with the reason why each one ends, and with probabilities and boundaries if the cutoff
            uses them.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        DataError
            If the history, or the probabilities of the lists, are needed and missing.

        Examples
        --------
        >>> import numpy as np
        >>> lists = sl.cutoff.FixedN(N=2).apply(np.array([[0.9, 0.6, 0.1]]))
        >>> lists[0].items, lists[0].reason
        ([0, 1], 'top_n')
        """
        lists = self._candidates(scores, history)
        cut = self._cut(lists, history)
        reason = np.full(len(lists), REASON_CODE[self.reason], np.uint8)
        if self.reason != "top_n":  # all others compare with the next candidate, and there is none
            reason[cut.lengths == np.diff(lists.indptr)] = REASON_CODE["all_candidates"]
        reason[cut.lengths == 0] = REASON_CODE[self.empty_reason]
        if cut.unknown is not None:
            reason[cut.unknown] = REASON_CODE["unknown_user"]
        reason[np.diff(lists.indptr) == 0] = REASON_CODE["no_candidates"]
        if cut.probabilities is not None:
            lists = replace(lists, probabilities=cut.probabilities)
        if cut.boundary is not None:
            lists = replace(lists, boundary=cut.boundary)
        return lists.head(cut.lengths, reason)

    def save(self, path: str | Path) -> Path:
        """Save the cutoff, fitted or not, without pickle.

        Parameters
        ----------
        path
            The file to write.

        Returns
        -------
        pathlib.Path
            The path written.

        Examples
        --------
        >>> import tempfile
        >>> path = sl.cutoff.FixedN(N=3).save(tempfile.mkdtemp() + "/cutoff")
        >>> sl.cutoff.Cutoff.load(path)
        FixedN(N=3)
        """
        return super().save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a cutoff written by `save`.

        Parameters
        ----------
        path
            A file written by `save`. `Cutoff.load` accepts any cutoff, `FixedN.load` only a `FixedN`.

        Returns
        -------
        Cutoff
            The cutoff with its parameters and fitted attributes.

        Raises
        ------
        ModelFileError
            If the file is missing, damaged, of another version, or holds something else.

        Examples
        --------
        >>> import tempfile
        >>> path = sl.cutoff.Threshold(threshold=0.5).save(tempfile.mkdtemp() + "/cutoff")
        >>> sl.cutoff.Threshold.load(path).threshold
        0.5
        """
        return super().load(path)

    def with_probabilities(self, lists: RankedLists, *, history: Interactions | None = None) -> RankedLists:
        """Return the candidates with the probabilities that this cutoff uses.

        Parameters
        ----------
        lists
            Candidates.
        history
            Interactions of these users so far; required if the cutoff was fitted with a history and uses it.

        Returns
        -------
        RankedLists
            The top candidates, not cut, with `probabilities`; `lists` unchanged if the cutoff uses none.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> import numpy as np
        >>> lists = sl.cutoff.top_candidates(np.array([[0.9, 0.6, 0.1]]))
        >>> sl.cutoff.FixedN(N=2).with_probabilities(lists).probabilities is None
        True
        """
        candidates = self._candidates(lists, history)
        found = self._cut(candidates, history).probabilities
        return lists if found is None else replace(candidates, probabilities=found)

    def candidates_needed(self) -> int:
        """Return the number of candidates per user that the cutoff considers.

        Returns
        -------
        int
            How many candidates to retrieve before the cutoff is applied.

        Examples
        --------
        >>> sl.cutoff.FixedN(N=150).candidates_needed()
        150
        """
        return self.n_candidates

    @property
    def is_ready(self) -> bool:
        """Whether the cutoff can be applied: it is fitted, or its parameters make `fit` unnecessary."""
        return True

    def check_source(self, source: str | None) -> None:
        """Raise ConfigError if the cutoff must not be used on the lists of this model.

        Parameters
        ----------
        source
            Fingerprint of the model; None for lists from elsewhere.
        """

    def _candidates(self, scores: Scores, history: Interactions | None) -> RankedLists:
        """Rank the candidates; scores without ids use those of the history, else those seen in `fit`."""
        fitted = (vars(self).get(name) for name in FITTED_IDS)
        user_ids, item_ids = (None if found is None else IdMap(found) for found in fitted)
        ids = (user_ids, item_ids) if history is None else history
        return top_candidates(scores, ids=ids, n_candidates=self.candidates_needed())

    def _check_params(self) -> None:
        """Raise ConfigError for invalid parameters."""
        check_whole(1, n_candidates=self.n_candidates)

    def _check_fitted(self) -> None:
        """Check the ids that `fit` stores for scores without ids; subclasses check the rest."""
        for name in FITTED_IDS:
            if name in vars(self):
                check_ids(vars(self), name)

    def _check_learns_from_shown(self) -> None:
        """Raise ConfigError if outcomes of shown items are not enough to fit the cutoff."""

    @abstractmethod
    def _fit_labels(self, labels: Labels, history: Interactions | None) -> None:
        """Set the fitted attributes from labeled candidates."""

    @abstractmethod
    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        """The lengths, between 0 and the number of candidates."""


def _is_own(cls: type) -> bool:
    """Whether the class belongs to this library, not to its users."""
    return cls.__module__.startswith("shortlist.")


def check_cutoff(cutoff: Any, rule: str, call: str = "()") -> None:
    """Raise ConfigError unless this is a cutoff object; the advice names a similar class."""
    if isinstance(cutoff, Cutoff):
        return
    name = cutoff.__name__ if isinstance(cutoff, type) else str(cutoff)[:60]
    own = [cls for cls in Cutoff.registry.values() if issubclass(cls, Cutoff) and _is_own(cls)]
    classes = [cls.__name__ for cls in own if not any(map(_is_own, cls.__subclasses__()))]
    known = {one.lower(): one for one in classes}
    near = get_close_matches(name.lower().replace("_", "").replace("-", ""), known, 1)
    got = f"the class {name}" if isinstance(cutoff, type) else f"{cutoff!r:.60}"
    raise ConfigError(
        f"cutoff must be {rule}, got {got}; pass an object, such as "
        f"sl.cutoff.{known[near[0]] if near else 'ExpectedF1'}{call}.",
        parameter="cutoff",
    )


def fit_cutoffs(
    cutoffs: Iterable[Cutoff], lists: RankedLists, truth: Interactions, history: Interactions | None
) -> list[Cutoff]:
    """Fitted copies, as if each was fitted alone; they share labels and calibrations."""
    labels: dict[int, Labels] = {}  # by number of candidates
    fitted = []
    for cutoff in cutoffs:
        fresh, n = cutoff.clone(), cutoff.candidates_needed()
        if n not in labels:
            labels[n] = label_to_fit(lists, truth, history, n)
        fresh._fit_labels(labels[n], history)
        fitted.append(fresh)
    return fitted


def needs_all_outcomes(what: str, advice: str) -> ConfigError:
    """The error of a cutoff that cannot learn from shown items."""
    return ConfigError(
        f"{what} needs the relevant items that were not shown, and truth about shown items does not contain "
        f"them; {advice}."
    )


def check_interval(
    name: str, value: object, *, low: float, high: float, advice: str, ends: bool = True
) -> None:
    """Raise ConfigError unless the value is a number in [low, high], or in (low, high) without `ends`."""
    if not is_number(value) or not (low <= value <= high if ends else low < value < high):  # type: ignore[operator]
        left, right = ("[", "]") if ends else ("(", ")")
        raise ConfigError(
            f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {short_repr(value)}; {advice}"
        )
