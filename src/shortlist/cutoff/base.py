"""Cutoff: ranked candidates in, list lengths out; the candidates of any ranker, and their labels.

A cutoff sees scores and histories, never a model.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from shortlist.core.checks import check_ids, check_names
from shortlist.core.metrics import ListSums, Metric, Money, prefix_sums
from shortlist.core.params import Estimator, check_whole, is_number, load_plugins, short_repr
from shortlist.core.serialization import load_estimator, save_estimator
from shortlist.data.ids import UNKNOWN, IdMap, id_series
from shortlist.data.interactions import Interactions, warn_if_trained_on, without_negative
from shortlist.data.lists import REASON_CODE, RankedLists, read_candidates, read_outcomes
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.lists import Chunk, Truth, mark_hits
from shortlist.kernels.retrieval import lower_to_running_minimum, rank_rows, top_k
from shortlist.kernels.rows import read_only, starts, sum_rows, take_rows
from shortlist.text import escape_html as escape
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

# RankedLists, a table of user, item and score, a users × items array, a SciPy matrix, or a function from user
# indices to rows of scores
Scores: TypeAlias = Any
Ids: TypeAlias = Interactions | tuple[IdMap | None, IdMap | None] | None
BLOCK = 1024  # users per call of a scoring function


def top_candidates(
    scores: Scores, *, ids: Ids = None, users: Ints | None = None, n_candidates: int = 100
) -> RankedLists:
    """Rank the best candidates of every user.

    Ties go to the smaller item index. Items with score NaN or -inf are not candidates.

    Parameters
    ----------
    scores
        `RankedLists`, a dense array or a SciPy matrix (users × items; stored entries are the candidates), or
        a function that maps an array of user indices to rows of scores, one column per item.
    ids
        Ids of the rows and columns: `Interactions`, or a pair of `IdMap` for users and items. Without it,
        ids are row and column numbers. A function requires it.
    users
        Indices of the users to score with a function; all users by default.
    n_candidates
        Maximum number of candidates per user.

    Returns
    -------
    RankedLists
        One list per user, best candidate first.

    Raises
    ------
    ConfigError
        If `n_candidates` is not a positive integer.
    DataError
        If the scores are none of the accepted kinds or do not match the ids.

    Examples
    --------
    >>> import numpy as np
    >>> lists = sl.cutoff.top_candidates(np.array([[0.1, 0.9, 0.5]]), n_candidates=2)
    >>> lists[0].items
    [1, 2]
    """
    if type(n_candidates) is not int or n_candidates < 1:  # a cutoff has checked its own
        check_whole(1, n_candidates=n_candidates)
    if not (ids is None or isinstance(ids, (Interactions, tuple))):
        raise DataError(
            f"history must be Interactions, got a {type(ids).__name__}; use Interactions.from_frame."
        )
    if is_table(scores):
        scores = read_candidates(scores)
    if isinstance(scores, RankedLists):
        return _from_lists(scores, n_candidates)
    user_ids, item_ids = (ids.users, ids.items) if isinstance(ids, Interactions) else (ids or (None, None))
    if isinstance(scores, type | str):
        raise DataError(
            f"scores must be RankedLists, an array, a SciPy matrix or a function, got {scores!r:.60}; "
            "pass model.recommend(N=100), for example."
        )
    if callable(scores):
        return _from_function(scores, user_ids, item_ids, users, n_candidates)
    if issparse(scores):
        return _from_sparse(csr_array(cast(Any, scores)), user_ids, item_ids, n_candidates)
    return _from_dense(_to_matrix(scores), user_ids, item_ids, n_candidates)


def is_table(scores: Scores) -> bool:
    """Whether the candidates come as a table, a run or a file, with ids of their own."""
    return isinstance(scores, Mapping | Path) or (
        not isinstance(scores, RankedLists)
        and any(hasattr(type(scores), name) for name in ("columns", "column_names", "to_df"))
    )


def _from_lists(lists: RankedLists, n_candidates: int) -> RankedLists:
    """RankedLists sorted by score, without scores of NaN or -inf, at most n_candidates each."""
    valid = lists.scores > -np.inf
    if not valid.all():
        lists = lists.where(valid)
    order = rank_rows(lists.indptr, lists.items, lists.scores)
    if (order[1:] < order[:-1]).any():
        lists = lists.reorder(order)
    return lists.head(n_candidates) if (np.diff(lists.indptr) > n_candidates).any() else lists


def probabilities_of(lists: RankedLists) -> Doubles:
    """(n_candidates,) the probabilities of candidates that a cutoff has ranked."""
    assert lists.probabilities is not None
    return lists.probabilities


def rank_by_probability(lists: RankedLists, n_candidates: int) -> Longs | None:
    """(n_candidates,) the order in which no probability of a list rises; None if none does.

    Candidates after the first `n_candidates` of a list stay behind them, in their order.
    """
    p = lists.probabilities
    if p is None or not ((p[1:] > p[:-1]) & (lists.positions[1:] > 0)).any():
        return None
    is_later, owner = lists.positions >= n_candidates, np.repeat(np.arange(len(lists)), np.diff(lists.indptr))
    return np.lexsort((np.where(is_later, 0.0, -p), is_later, owner))


def _from_dense(
    matrix: Floats, user_ids: IdMap | None, item_ids: IdMap | None, n_candidates: int
) -> RankedLists:
    n_users, n_items = matrix.shape
    indptr = np.arange(n_users + 1, dtype=np.int64) * n_items
    items = np.arange(n_items, dtype=np.int32)
    ranked = top_k(indptr, items, np.ascontiguousarray(matrix).ravel(), min(n_candidates, n_items))
    return _to_lists(ranked, *_check_ids(user_ids, item_ids, n_users, n_items))


def _from_sparse(
    matrix: Any, user_ids: IdMap | None, item_ids: IdMap | None, n_candidates: int
) -> RankedLists:
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    indptr, candidates = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    ranked = top_k(indptr, candidates, np.asarray(matrix.data, np.float32), n_candidates)
    return _to_lists(ranked, *_check_ids(user_ids, item_ids, *matrix.shape))


def _from_function(
    score: Callable[[Ints], Any],
    user_ids: IdMap | None,
    item_ids: IdMap | None,
    users: Ints | None,
    n_candidates: int,
) -> RankedLists:
    """Score in blocks of users, so that memory does not grow with their number."""
    if user_ids is None or item_ids is None:
        raise DataError("a scoring function needs the ids of users and items, got none; pass history=.")
    users = np.arange(len(user_ids), dtype=np.int32) if users is None else users
    blocks = []
    for start in range(0, users.size, BLOCK):
        block = users[start : start + BLOCK]
        rows = _to_matrix(score(block))
        if rows.shape != (block.size, len(item_ids)):
            raise DataError(
                f"a scoring function must return one row per user and one column per item, "
                f"{(block.size, len(item_ids))}, got {rows.shape}; return complete rows."
            )
        blocks.append(_from_dense(rows, None, item_ids, n_candidates))
    lengths = [np.diff(lists.indptr) for lists in blocks]
    return RankedLists(
        users=IdMap(user_ids.to_ids(users)),
        item_ids=item_ids,
        indptr=starts(np.concatenate([*lengths, np.empty(0, np.int64)])),
        items=np.concatenate([*(lists.items for lists in blocks), np.empty(0, np.int32)]),
        scores=np.concatenate([*(lists.scores for lists in blocks), np.empty(0, np.float32)]),
    )


def _to_lists(ranked: tuple[Longs, Ints, Floats], users: IdMap, item_ids: IdMap) -> RankedLists:
    indptr, items, scores = ranked
    return RankedLists(users=users, item_ids=item_ids, indptr=indptr, items=items, scores=scores)


def _to_matrix(scores: Any) -> Floats:
    try:
        matrix = np.asarray(scores, np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"scores must be RankedLists, an array, a SciPy matrix or a function, "
            f"got {type(scores).__name__}; pass model.recommend(N=100), for example."
        ) from None
    if matrix.ndim != 2:
        raise DataError(f"scores must be a users × items matrix, got {matrix.ndim} dimensions; reshape them.")
    return matrix


def _check_ids(
    user_ids: IdMap | None, item_ids: IdMap | None, n_users: int, n_items: int
) -> tuple[IdMap, IdMap]:
    """Ids of rows and columns: the given maps, which must match the shape, or row and column numbers."""
    users = IdMap.of(np.arange(n_users)) if user_ids is None else user_ids
    items = IdMap.of(np.arange(n_items)) if item_ids is None else item_ids
    if (len(users), len(items)) != (n_users, n_items):
        raise DataError(
            f"scores must have one row per user and one column per item of the given ids, "
            f"{(len(users), len(items))}, got {(n_users, n_items)}; pass RankedLists for some users only."
        )
    return users, items


@dataclass(frozen=True, eq=False)
class Labels:
    """Candidates with their outcomes; users without candidates may be labeled too."""

    lists: RankedLists
    relevant: Bools  # (n_candidates,)
    n_relevant: Ints  # (n_lists,) distinct truth items, whether they are candidates or not
    labeled: Bools  # (n_lists,) whether the user has truth rows, or is known to have none

    @cached_property
    def rows(self) -> Bools:
        """(n_candidates,) whether the candidate's user is labeled."""
        return np.repeat(self.labeled, np.diff(self.lists.indptr))

    @property
    def n_outcomes(self) -> int:
        """Number of candidates whose outcome is known."""
        return int(self.rows.sum())

    @cached_property
    def list_number(self) -> Ints:
        """(n_candidates,) number of the list of each candidate."""
        return np.repeat(np.arange(len(self.lists), dtype=np.int32), np.diff(self.lists.indptr))

    @cached_property
    def prefixes(self) -> ListSums:
        """The sums of the list that ends with each candidate."""
        return prefix_sums(self.lists.indptr, self.relevant, self.n_relevant)

    @cached_property
    def n_retrieved(self) -> Ints:
        """(n_lists,) relevant items among the candidates."""
        counts: Ints = sum_rows(self.lists.indptr, self.relevant).astype(np.int32)
        return counts

    @cached_property
    def calibrations(self) -> dict[tuple[str, int], Any]:
        """Calibrations fitted on these labels, by settings and history; several cutoffs may need one."""
        return {}

    def take(self, numbers: Ints) -> "Labels":
        """The labels of these lists."""
        lists = self.lists.take(numbers)
        rows = take_rows(self.lists.indptr, numbers)[1]
        return Labels(lists, self.relevant[rows], self.n_relevant[numbers], self.labeled[numbers])

    def rank(self, probabilities: Doubles) -> "Labels":
        """The labels with these probabilities (n_candidates,), in their order."""
        lists = replace(self.lists, probabilities=probabilities)
        order = rank_by_probability(lists, max(lists.items.size, 1))
        if order is None:
            return replace(self, lists=lists)
        return replace(self, lists=lists.reorder(order), relevant=self.relevant[order])

    def utilities(self, metric: str, money: Money | None = None) -> Doubles:
        """(n_candidates,) metric of the list that ends with this candidate; NaN for unlabeled users."""
        sums = self.prefixes._replace(money=money)
        return np.where(self.rows, Metric.registry[metric].values(sums), np.nan)


def label_lists(lists: RankedLists, truth: Interactions, users: Iterable[Any] | None = None) -> Labels:
    """Match users and items by id. `users`: ids of users who count even if they have no truth rows."""
    truth = without_negative(truth)
    indptr, items = truth.item_sets
    pairs = ((truth.users, lists.users, "user id"), (truth.items, lists.item_ids, "item id"))
    for truth_ids, ids, kind in pairs:
        if len(ids):
            truth_ids.check_type(ids.values[0], f"truth: {kind}")
    user, item = truth.users.align(lists.users), truth.items.align(lists.item_ids)
    n_relevant = np.where(user != UNKNOWN, np.diff(indptr)[user] if indptr.size > 1 else 0, 0).astype(
        np.int32
    )
    relevant = np.zeros(lists.items.size, np.bool_)
    chunk = Chunk(read_only(lists.indptr), read_only(lists.items), item, user, np.arange(len(lists)))
    stamp, no_weights = np.full(len(truth.items), -1, np.int32), (np.empty(0, np.float32), np.empty(0))
    mark_hits(chunk, Truth(indptr[:-1], indptr[1:], items, stamp, *no_weights), relevant)
    labeled = n_relevant > 0
    if users is not None:
        numbers = lists.users.lookup(user_series(users))
        if not (numbers != UNKNOWN).any():
            raise DataError("users must name users who have lists, got none; pass the ids used in the lists.")
        labeled[numbers[numbers != UNKNOWN]] = True
    return Labels(lists, relevant, n_relevant, labeled)


def label_candidates(
    scores: Scores,
    truth: Interactions,
    history: Interactions | None,
    users: Iterable[Any] | None,
    n_candidates: int,
) -> Labels:
    """Candidates and labels of all users with truth rows, and of `users`."""
    origin = scores.origin if isinstance(scores, RankedLists) else None
    warn_if_trained_on((origin, history), truth, "the cutoff expects too much of every list")
    ids = truth if history is None else history
    numbers = ids.users.align(truth.users)[truth.active_users]
    if users is not None:
        users = user_series(users)
        numbers = np.union1d(numbers, ids.users.lookup(users)).astype(np.int32)
    numbers = numbers[numbers != UNKNOWN]
    lists = top_candidates(scores, ids=ids, users=numbers, n_candidates=n_candidates)
    return label_lists(lists, truth, users)


def user_series(users: Iterable[Any]) -> Any:
    """User ids as a series; a single string is not a collection of ids."""
    if isinstance(users, str | bytes):
        raise DataError(f"users must be a collection of ids, got the text {users!r:.60}; pass a list.")
    return id_series(users)


def label_to_fit(
    scores: Scores,
    truth: Interactions,
    history: Interactions | None,
    n_candidates: int,
    users: Iterable[Any] | None = None,
) -> Labels:
    """The candidates with their outcomes, by user id; DataError if nothing can be learned from them."""
    labels = label_candidates(scores, truth, history, users, n_candidates)
    ids = labels.lists.users.values
    if not ids.is_sorted():  # so that the order of users does not change the result, even in the last bit
        labels = labels.take(ids.arg_sort().to_numpy())
    if not labels.n_relevant.any():
        raise DataError(
            "truth must have rows of at least one user who has a list, got none; "
            "pass the interactions that followed the scores, with the same user ids."
        )
    return labels


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


FITTED_IDS = ("user_ids_", "item_ids_")  # of scores without ids


class CutLists(NamedTuple):
    """The length of each list, and what the cutoff computed on the way."""

    lengths: Ints  # (n_lists,)
    boundary: Floats | None = None  # (n_lists,)
    unknown: Ints | None = None  # positions of the lists of unknown users


@dataclass(kw_only=True, eq=False, repr=False)
class Cutoff(SavedEstimator):
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
    is_base: ClassVar[bool] = True  # whether the class itself is only a base of cutoffs; not inherited
    rule: ClassVar[str] = ""  # where a list ends, in one or two sentences for reports
    flags: ClassVar[tuple[str, ...]] = ()  # parameters that are flags of `shortlist fit`
    over_http: ClassVar[bool] = True  # whether `/v1/cut/fit` offers it, with all its parameters
    warmup_params: ClassVar[dict[str, Any]] = {}  # with which `warmup.compile_kernels` fits it
    learned: ClassVar[tuple[str, ...]] = ()  # attributes that `fit` sets, and a file must have
    updated: ClassVar[tuple[str, ...]] = ()  # attributes that other methods set
    reason: ClassVar[str] = "threshold"
    empty_reason: ClassVar[str] = "threshold"

    def fit(
        self,
        scores: Scores,
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
        truth, history = read_outcomes(truth), None if history is None else Interactions.of(history)
        labels = label_to_fit(scores, truth, history, self.candidates_needed(), users)
        fresh = self.clone()
        fresh._fit_labels(labels, history)
        if not isinstance(scores, RankedLists) and not is_table(scores):
            ids = truth if history is None else history
            fresh.user_ids_, fresh.item_ids_ = ids.users.values, ids.items.values
        self._forget()
        vars(self).update(fresh.fitted())
        return self

    def lengths(self, scores: Scores, *, history: Interactions | Any = None) -> Ints:
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
        return self._cut(self._ranked(self._candidates(scores, history), history), history).lengths

    def apply(self, scores: Scores, *, history: Interactions | Any = None) -> RankedLists:
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
        lists = self._ranked(self._candidates(scores, history), history)
        cut = self._cut(lists, history)
        reason = np.full(len(lists), REASON_CODE[self.reason], np.uint8)
        if self.reason != "top_n":  # all others compare with the next candidate, and there is none
            reason[cut.lengths == np.diff(lists.indptr)] = REASON_CODE["all_candidates"]
        reason[cut.lengths == 0] = REASON_CODE[self.empty_reason]
        if cut.unknown is not None:
            reason[cut.unknown] = REASON_CODE["unknown_user"]
        reason[np.diff(lists.indptr) == 0] = REASON_CODE["no_candidates"]
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
        return self._ranked(_from_lists(lists, max(lists.items.size, 1)), history)

    def prepare(self) -> Callable[[npt.ArrayLike], Ints]:
        """Return a function that cuts one list, for a server that has the scores of one user at a time.

        The cutoff must not need a history, nor probabilities that the lists carry.

        Returns
        -------
        callable
            Takes the scores of one list, shape (n,), in any order, and returns the positions of the items to
            show, best first. NaN and -inf are never shown.

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

        def show(scores: npt.ArrayLike) -> Ints:
            values, items = np.asarray(scores, np.float32), first
            if values.size > n or not (values[1:] <= values[:-1]).all() or not (values > -np.inf).all():
                order = np.argsort(-values, kind="stable")[:n].astype(np.int32)
                items = order[values[order] > -np.inf]
                values = values[items]
            lists = copy(blank)
            vars(lists).update(indptr=np.array([0, values.size]), items=items[: values.size], scores=values)
            lists = self._ranked(lists, None)
            return lists.items[: self._cut(lists, None).lengths[0]]

        show(blank.scores)  # refuses what needs more than scores, and compiles
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
        return all(name in vars(self) for name in self._learned())

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

    def _candidates(self, scores: Scores, history: Interactions | None) -> RankedLists:
        """Rank the candidates; scores without ids use those of the history, else those seen in `fit`."""
        ids: Any = history
        if history is None:
            fitted = (vars(self).get(name) for name in FITTED_IDS)
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
        lists = replace(lists, probabilities=p)
        order = rank_by_probability(lists, self.candidates_needed())
        if order is None:
            return lists
        p = p[order]
        lower_to_running_minimum(lists.indptr, p)  # only candidates after the first `n_candidates` may rise
        return replace(lists.reorder(order), probabilities=p)

    def _check_params(self) -> None:
        """Raise ConfigError for invalid parameters."""
        check_whole(1, n_candidates=self.n_candidates)

    def _learned(self) -> tuple[str, ...]:
        """The attributes that `fit` sets with these parameters."""
        return self.learned

    def _check_fitted(self) -> None:
        """Check the names, and the ids of scores without ids; subclasses check the rest."""
        if self.learned:
            check_names(self.fitted(), self._learned(), (*FITTED_IDS, *self.updated))
        for name in FITTED_IDS:
            if name in vars(self):
                check_ids(vars(self), name)

    @abstractmethod
    def _fit_labels(self, labels: Labels, history: Interactions | None) -> None:
        """Set the fitted attributes from labeled candidates."""

    @abstractmethod
    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        """The lengths, between 0 and the number of candidates; the lists carry `_probabilities`."""


def check_cutoff(cutoff: Any, rule: str, call: str = "()") -> None:
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
    labels: dict[int, Labels] = {}  # by number of candidates
    fitted = []
    for cutoff in cutoffs:
        fresh, n = cutoff.clone(), cutoff.candidates_needed()
        if n not in labels:
            labels[n] = label_to_fit(lists, truth, history, n, users)
        fresh._fit_labels(labels[n], history)
        fitted.append(fresh)
    return fitted


def check_interval(
    name: str, value: object, *, low: float, high: float, advice: str, ends: bool = True
) -> None:
    """Raise ConfigError unless the value is a number in [low, high], or in (low, high) without `ends`."""
    if not is_number(value) or not (low <= value <= high if ends else low < value < high):  # type: ignore[operator]
        left, right = ("[", "]") if ends else ("(", ")")
        raise ConfigError(
            f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {short_repr(value)}; {advice}"
        )
