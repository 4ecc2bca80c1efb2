"""Cutoff: ranked candidates in, list lengths out. A cutoff sees scores and histories, never a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.core.codec import DistinctIds, MayBeMissing, is_fitted, load_estimator, save_estimator
from shortlist.core.options import FITTED, Count, Estimator, load_plugins
from shortlist.cutoff.candidates import AnyScores, is_table, label_to_fit, rank_lists, top_candidates
from shortlist.data.arrow import ArrowFunction, file_bytes
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import (
    REASON_CODE,
    Codes,
    RankedLists,
    find_list_column,
    probabilities_of,
    rank_by_probability,
)
from shortlist.data.rankings import read_outcomes
from shortlist.errors import ConfigError, DataError, NotFittedError
from shortlist.kernels.retrieval import lower_to_running_minimum
from shortlist.text import escape_html as escape
from shortlist.types import Doubles, Floats, Ints

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CHARS = 60  # of one parameter in a repr


@dataclass(kw_only=True, eq=False, repr=False)
class SavedEstimator(Estimator):
    """An estimator with a file; its repr shows changed parameters and, in one line, what `fit` learned."""

    def _summary(self) -> str:
        """What `fit` learned, in one line."""
        return ""

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value}" for name, value in self._changed().items())
        learned = self._summary() if self.fitted() else ""
        return f"{type(self).__name__}({params})" + (f" fitted: {learned}" if learned else "")

    def _repr_html_(self) -> str:
        rows = {**self._changed(), "fitted": self._summary() if self.fitted() else "no"}.items()
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>{escape(type(self).__name__)}</caption>{cells}</table>"

    def _changed(self) -> dict[str, str]:
        """Parameters that differ from their default, as short text."""
        texts = {f.name: repr(vars(self)[f.name]) for f in fields(self) if vars(self)[f.name] != f.default}
        return {k: v if len(v) <= MAX_CHARS else f"{v[: MAX_CHARS - 1]}…" for k, v in texts.items()}

    def save(self, path: str | Path) -> Path:
        """Save the object, fitted or not, without pickle.

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
        return save_estimator(path, self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load what `save` wrote; every byte is verified.

        Parameters
        ----------
        path
            A file written by `save`. `Cutoff.load` accepts any cutoff, `FixedN.load` only a `FixedN`.

        Returns
        -------
        Cutoff
            The object with its parameters and fitted attributes.

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
        return load_estimator(path, cls)


class CutLists(NamedTuple):
    """The length of each list, and what the cutoff computed on the way."""

    lengths: Ints  # (n_lists,)
    boundary: Floats | None = None  # (n_lists,)
    unknown: Ints | None = None  # positions of the lists of unknown users
    reason: Codes | None = None  # (n_lists,) why each list ends; None: that of the cutoff


@dataclass(kw_only=True, eq=False, repr=False)
class Cutoff(SavedEstimator, ABC):
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

    n_candidates: Count = 100

    kind: ClassVar[str] = "cutoff"
    is_base: ClassVar[bool] = True  # whether the class itself is only a base of cutoffs; not inherited
    rule: ClassVar[str] = ""  # where a list ends, in one or two sentences for reports
    flags: ClassVar[tuple[str, ...]] = ()  # parameters that are flags of `shortlist fit`
    warmup_params: ClassVar[dict[str, Any]] = {}  # with which `warmup.compile_kernels` fits it
    reason: ClassVar[str] = "threshold"
    empty_reason: ClassVar[str] = "threshold"

    # of scores without ids
    user_ids_: Annotated[pl.Series, DistinctIds(), MayBeMissing()] = FITTED
    item_ids_: Annotated[pl.Series, DistinctIds(), MayBeMissing()] = FITTED

    def fit(
        self,
        scores: AnyScores,
        truth: Interactions | Any,
        *,
        history: Interactions | Any = None,
        users: Iterable[Any] | None = None,
    ) -> Self:
        """Learn from the interactions that followed the scores. A failed fit leaves the cutoff unchanged.

        Parameters
        ----------
        scores
            Candidates of the users: `RankedLists` (for example `model.recommend(N=100)`), a dense array or a
            SciPy matrix (users × items; stored entries are the candidates), or a function that maps an array
            of user indices to rows of scores. Scores without ids use the ids of `history`, else of `truth`.
        truth
            Interactions that happened after the scores were computed: `Interactions`, a table with the
            conventional column names, or judgments as `sl.cut` takes them. Users and items are matched by id.
        history
            Interactions known when the scores were computed. Cutoffs that use probabilities or basket sizes
            learn from it, and then need a history in `lengths` and `apply` too.
        users
            Ids of the users who received a list or were eligible for one. They count even if they interacted
            with nothing. By default only users with rows in `truth` count.

        Returns
        -------
        Cutoff
            The fitted cutoff itself.

        Raises
        ------
        ConfigError
            If a parameter is invalid.
        DataError
            If no user of `truth` has a list, or the scores have the wrong shape.

        Examples
        --------
        >>> import numpy as np
        >>> truth = sl.Interactions.from_tuples([(0, 0), (0, 1), (1, 1)])
        >>> sl.cutoff.FixedN().fit(np.array([[0.9, 0.8], [0.1, 0.7]]), truth).N_
        1
        """
        fresh = self.clone()
        fresh._fit_labels(*fresh._label(scores, truth, history, users))
        return self._take_fitted(fresh)

    def _label(
        self,
        scores: AnyScores,
        truth: Interactions | Any,
        history: Interactions | Any = None,
        users: Iterable[Any] | None = None,
    ) -> tuple[LabeledLists, Interactions | None]:
        """The labeled candidates and the history; the ids of scores without ids are kept."""
        truth, history = read_outcomes(truth), None if history is None else Interactions.of(history)
        labels = label_to_fit(scores, truth, history, self.candidates_needed(), users)
        if not isinstance(scores, RankedLists) and not is_table(scores):
            ids = truth if history is None else history
            self.user_ids_, self.item_ids_ = ids.users.values, ids.items.values
        return labels, history

    def _take_fitted(self, fresh: Self) -> Self:
        """This cutoff with what a copy has learned."""
        self._forget()
        vars(self).update(fresh.fitted())
        return self

    def lengths(self, scores: AnyScores, *, history: Interactions | Any = None) -> Ints:
        """Compute the length of every list that `apply` returns.

        Parameters
        ----------
        scores
            Candidates, in any form that `fit` accepts.
        history
            Interactions of these users so far; required if the cutoff was fitted with a history and uses it.

        Returns
        -------
        numpy.ndarray
            Number of leading candidates to show, one per user, in the order of `apply`.

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
        history = None if history is None else Interactions.of(history)
        return self._show(self._candidates(scores, history), history)[1].lengths

    def apply(self, scores: AnyScores, *, history: Interactions | Any = None) -> RankedLists:
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
            uses them. Lists with probabilities are in their order.

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
        history = None if history is None else Interactions.of(history)
        lists, cut = self._show(self._candidates(scores, history), history)
        reason = self._reasons(lists, cut)
        if cut.boundary is not None:
            lists = replace(lists, boundary=cut.boundary)
        return lists.head(cut.lengths, reason)

    def with_probabilities(self, lists: RankedLists, *, history: Interactions | Any = None) -> RankedLists:
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
            All candidates, the most probable first, with `probabilities`; `lists` unchanged if the cutoff
            uses none. Those after the first `n_candidates` are not more probable than these.

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
        history = None if history is None else Interactions.of(history)
        return self._ranked(rank_lists(lists, max(lists.items.size, 1)), history)

    def arrow(self, *, history: Interactions | Any = None) -> "ArrowFunction":
        """Return `apply` as a function from an Arrow table of candidates to one of lists, for data engines.

        The table must have all candidates of its users. The function can be sent to other processes.

        Parameters
        ----------
        history
            As in `apply`; it is sent along.

        Returns
        -------
        ArrowFunction
            Takes user, item and score or rank, and returns the columns of `RankedLists.to_frame`.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> import polars as pl
        >>> table = pl.DataFrame({"user_id": ["ann", "ann"], "item_id": ["tea", "jam"], "score": [0.9, 0.1]})
        >>> cut = sl.cutoff.Threshold(threshold=0.5).arrow()
        >>> cut(table.to_arrow())["item_id"].to_pylist()
        ['tea']
        """
        if not self.is_ready:
            raise NotFittedError(f"{type(self).__name__} is not fitted yet; call fit(lists, truth) first.")
        return CutFunction(file_bytes(self.save), None if history is None else Interactions.of(history))

    def prepare(self) -> Callable[..., Ints]:
        """Return a function that cuts one list, for a server that has the scores of one user at a time.

        The cutoff must not need a history, nor probabilities that the lists carry.

        Returns
        -------
        callable
            Takes the scores of one list, shape (n,), in any order, and the sizes of its items if the cutoff
            limits their sum. Returns the positions of the items to show, best first. NaN and -inf are never
            shown.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        DataError
            If the cutoff needs a history, or probabilities that the lists carry.

        Examples
        --------
        >>> show = sl.cutoff.Threshold(threshold=0.5).prepare()
        >>> show([0.9, 0.1, 0.6]).tolist()
        [0, 2]
        """
        n = self.candidates_needed()
        first = np.arange(n, dtype=np.int32)
        blank = RankedLists(
            users=IdMap.of([""]),  # no user has this id, so none is taken for one seen in `fit`
            item_ids=IdMap.of(first),
            indptr=np.array([0, n]),
            items=first,
            scores=np.linspace(1, 0, n, dtype=np.float32),
        )

        def show(scores: npt.ArrayLike, sizes: npt.ArrayLike | None = None) -> Ints:
            values, items = np.asarray(scores, np.float32), first
            if values.size > n or not (values[1:] <= values[:-1]).all() or not (values > -np.inf).all():
                order = np.argsort(-values, kind="stable")[:n].astype(np.int32)
                items = order[values[order] > -np.inf]
                values = values[items]
            indptr, items = np.array([0, values.size]), items[: values.size]
            lists = blank.with_columns(indptr=indptr, items=items, scores=values)
            if sizes is not None:
                lists = lists.with_columns(sizes=np.asarray(sizes, np.float64)[items])
            lists, cut = self._show(lists, None)
            return lists.items[: cut.lengths[0]]

        show(blank.scores, np.ones(n))  # refuses what needs more than scores, and compiles
        return show

    @classmethod
    def classes(cls) -> dict[str, type["Cutoff"]]:
        """Return every cutoff class by name, also those of other libraries.

        Returns
        -------
        dict of str to type
            The classes, without those that are only bases of others.

        Examples
        --------
        >>> sl.cutoff.Cutoff.classes()["ExpectedF1"]().size
        'auto'
        """
        load_plugins()
        return {
            name: kind
            for name, kind in Estimator.registry.items()
            if issubclass(kind, Cutoff) and not vars(kind).get("is_base", False)
        }

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
        return is_fitted(self)

    @property
    def uses_probabilities(self) -> bool:
        """Whether the cutoff computes the probabilities of candidates, which the lists then carry."""
        return False

    @property
    def is_calibrated(self) -> bool:
        """Whether these probabilities were fitted to outcomes, not taken from the lists as they are."""
        return self.uses_probabilities

    @property
    def reorders(self) -> bool:
        """Whether these probabilities may have another order than the scores."""
        return False

    def check_source(self, source: str | None) -> None:
        """Raise ConfigError if the cutoff must not be used on the lists of this model.

        Parameters
        ----------
        source
            Fingerprint of the model; None for lists from elsewhere.
        """

    def _candidates(self, scores: AnyScores, history: Interactions | None) -> RankedLists:
        """Rank the candidates; scores without ids use those of the history, else those seen in `fit`."""
        ids: Any = history
        if history is None:
            fitted = (vars(self).get(name) for name in ("user_ids_", "item_ids_"))
            ids = tuple(None if values is None else IdMap(values) for values in fitted)
        return top_candidates(scores, ids=ids, n_candidates=self.candidates_needed())

    def _probabilities(self, lists: RankedLists, history: Interactions | None) -> Doubles | None:
        """(n_candidates,) the probability of each candidate; None if the cutoff uses none."""
        return None

    def _ranked(self, lists: RankedLists, history: Interactions | None) -> RankedLists:
        """The candidates, ordered by score, in the order of the probabilities that the cutoff computes."""
        p = self._probabilities(lists, history)
        if p is None:
            return lists
        lists = lists.with_columns(probabilities=p)
        order = rank_by_probability(lists, self.candidates_needed())
        if order is None:
            return lists
        lists = lists.reorder(order)
        lower_to_running_minimum(lists.indptr, probabilities_of(lists))  # only later candidates may rise
        return lists

    def _show(self, lists: RankedLists, history: Interactions | None) -> tuple[RankedLists, CutLists]:
        """The candidates in the order in which they are shown, and where each list ends."""
        lists = self._ranked(lists, history)
        return lists, self._cut(lists, history)

    def _reasons(self, lists: RankedLists, cut: CutLists) -> Codes:
        """(n_lists,) why each list ends."""
        if cut.reason is not None:
            return cut.reason
        reason = np.full(len(lists), REASON_CODE[self.reason], np.uint8)
        if self.reason != "top_n":  # all others compare with the next candidate, and there is none
            reason[cut.lengths == lists.lengths] = REASON_CODE["all_candidates"]
        reason[cut.lengths == 0] = REASON_CODE[self.empty_reason]
        if cut.unknown is not None:
            reason[cut.unknown] = REASON_CODE["unknown_user"]
        reason[lists.lengths == 0] = REASON_CODE["no_candidates"]
        return reason

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        """Set the fitted attributes from labeled candidates; a cutoff that learns nothing has none."""

    @abstractmethod
    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        """The lengths, between 0 and the number of candidates; the lists carry `_probabilities`."""


def require_cutoff(cutoff: Any, rule: str, call: str = "()") -> None:
    """Raise ConfigError unless this is a cutoff object; the advice names a similar class."""
    if isinstance(cutoff, Cutoff):
        return
    name = cutoff.__name__ if isinstance(cutoff, type) else str(cutoff)[:60]
    classes = {kind.lower(): kind for kind in Cutoff.classes()}
    near = get_close_matches(name.lower().replace("_", "").replace("-", ""), classes, 1)
    got = f"the class {name}" if isinstance(cutoff, type) else f"{cutoff!r:.60}"
    raise ConfigError(
        f"cutoff must be {rule}, got {got}; pass an object, such as "
        f"sl.cutoff.{classes[near[0]] if near else 'ExpectedF1'}{call}.",
        parameter="cutoff",
    )


def fit_cutoffs(
    cutoffs: Iterable[Cutoff],
    lists: RankedLists,
    truth: Interactions,
    history: Interactions | None,
    users: Iterable[Any] | None = None,
) -> list[Cutoff]:
    """Fitted copies, as if each was fitted alone; they share labels and calibrations."""
    labels: dict[int, LabeledLists] = {}  # by number of candidates
    fitted = []
    for cutoff in cutoffs:
        fresh, n = cutoff.clone(), cutoff.candidates_needed()
        if n not in labels:
            labels[n] = label_to_fit(lists, truth, history, n, users)
        fresh._fit_labels(labels[n], history)
        fitted.append(fresh)
    return fitted


def are_calibrated(*cutoffs: Any) -> bool:
    """Whether the probabilities of lists were fitted to what users did; others are only scores.

    They are those of the first of the cutoffs that uses any; names of cutoffs and None use none.
    """
    deciding = (cutoff for cutoff in cutoffs if isinstance(cutoff, Cutoff) and cutoff.uses_probabilities)
    return any(cutoff.is_calibrated for cutoff in islice(deciding, 1))


@dataclass(frozen=True, eq=False)
class CutFunction(ArrowFunction):
    """The lists that `apply` of a cutoff makes from candidates with scores."""

    history: Interactions | None = None

    def _load(self, path: Path) -> Cutoff:
        return Cutoff.load(path)

    def _make_lists(self, frame: pl.DataFrame) -> RankedLists:
        lists: RankedLists = self.loaded.apply(RankedLists.from_frame(frame), history=self.history)
        return lists

    def _item_type(self, schema: "pa.Schema") -> "pa.DataType":
        name = find_list_column("item_id", schema.names)
        if name is None:
            raise DataError(
                f"item_id must be a column of the table, got {', '.join(map(repr, schema.names[:12]))}; "
                "rename one."
            )
        return schema.field(name).type
