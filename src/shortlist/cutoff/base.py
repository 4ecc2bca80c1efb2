"""Cutoff: ranked candidates in, list lengths out. It sees scores and histories, never a model.

heads(scores) → the top M candidates of every user → `fit` on what happened next (truth) → `lengths`, `apply`.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from shortlist.core.estimator import Estimator
from shortlist.cutoff.labels import Labels, labelled_heads
from shortlist.cutoff.top_candidates import Scores, heads
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import REASON_CODE, RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.types import Doubles, Floats, Ints


class Decision(NamedTuple):
    """How long each list is, and what else the cutoff knows about it."""

    lengths: Ints  # (n_lists,)
    probabilities: Doubles | None = None  # (n_candidates,)
    boundary: Floats | None = None  # (n_lists,)
    unknown: Ints | None = None  # numbers of the lists whose user the cutoff can say nothing about


@dataclass(kw_only=True, eq=False)
class Cutoff(Estimator):
    """Decides where each ranked list ends; a list may be empty.

    `scores`: RankedLists (re-ranked where it is not best-first), a dense array or a SciPy matrix
    (users × items, stored entries are the candidates), or a callable from dense user indices to dense rows.
    `truth`: what happened next. `history`: what was known when the scores were made. Users and items are
    matched by outside id; users without truth rows teach nothing unless `asked` names them; a user with truth
    and no candidate counts.
    """

    n_candidates: int = 100  # candidates looked at per user

    kind: ClassVar[str] = "cutoff"
    reason: ClassVar[str] = "threshold"
    empty_reason: ClassVar[str] = "threshold"

    def fit(
        self,
        scores: Scores,
        truth: Interactions | Any,
        *,
        history: Interactions | Any = None,
        asked: Iterable[Any] | None = None,
    ) -> Self:
        """Learn from what users took after the scores were made; a failed fit changes nothing.

        `truth` and `history` may also be tables with the usual column names. `asked`: ids of users who were
        asked and teach also if they took nothing, as to `evaluate`.
        """
        self._check()
        truth, history = Interactions.of(truth), None if history is None else Interactions.of(history)
        known = labelled_heads(scores, truth, history, asked, self.candidates_needed())
        users = known.lists.users.values
        if not users.is_sorted():  # so that the order of users does not matter to the last bit
            known = known.take(users.arg_sort().to_numpy())
        if not known.n_relevant.any():
            raise DataError(
                "truth must hold rows of at least one user who has a list, got none; "
                "pass the part that follows the scores, with the same user ids."
            )
        fresh = self.clone()
        fresh._learn(known.lists, known, history)
        if not isinstance(scores, RankedLists):
            tables = history or truth
            fresh.user_ids_, fresh.item_ids_ = tables.users.values, tables.items.values  # type: ignore[attr-defined]
        for name in self.fitted():
            delattr(self, name)
        vars(self).update(fresh.fitted())
        return self

    def lengths(self, scores: Scores, *, history: Interactions | None = None) -> Ints:
        """(n_lists,) K for every user."""
        return self._decide(self._heads(scores, history), history).lengths

    def apply(self, scores: Scores, *, history: Interactions | None = None) -> RankedLists:
        """The lists, cut; each says why it ends, with probabilities and a boundary where there are any."""
        lists = self._heads(scores, history)
        made = self._decide(lists, history)
        full = np.diff(lists.indptr)
        words = np.full(len(lists), REASON_CODE[self.reason], np.uint8)
        words[made.lengths == 0] = REASON_CODE[self.empty_reason]
        if made.unknown is not None:
            words[made.unknown] = REASON_CODE["unknown_user"]
        words[full == 0] = REASON_CODE["no_candidates"]
        if made.probabilities is not None:
            lists = replace(lists, probabilities=made.probabilities)
        if made.boundary is not None:
            lists = replace(lists, boundary=made.boundary)
        return lists.head(made.lengths, words)

    def with_probabilities(self, lists: RankedLists, *, history: Interactions | None = None) -> RankedLists:
        """The candidates with the probabilities that this cutoff uses; unchanged if it uses none."""
        candidates = self._heads(lists, history)
        found = self._decide(candidates, history).probabilities
        return lists if found is None else replace(candidates, probabilities=found)

    def _heads(self, scores: Scores, history: Interactions | None) -> RankedLists:
        """The candidates; bare scores take their ids from history, else from what `fit` saw."""
        users, items = (vars(self).get(name) for name in ("user_ids_", "item_ids_"))
        ids = history or (None if users is None else IdMap(users), None if items is None else IdMap(items))
        return heads(scores, ids=ids, n_candidates=self.candidates_needed())

    def candidates_needed(self) -> int:
        """How many candidates to look at."""
        return self.n_candidates

    def _check(self) -> None:
        """Raise ConfigError where parameters make no sense."""
        if self.n_candidates < 1:
            raise ConfigError(f"n_candidates must be at least 1, got {self.n_candidates}; 100 is plenty.")

    @abstractmethod
    def _learn(self, lists: RankedLists, known: Labels, history: Interactions | None) -> None:
        """Set the fitted attributes from labelled heads."""

    @abstractmethod
    def _decide(self, lists: RankedLists, history: Interactions | None) -> Decision:
        """The lengths, between 0 and the number of candidates."""
