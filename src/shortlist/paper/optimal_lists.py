"""Lists that maximize an expected metric, by the model's own probabilities or by calibrated ones."""

from dataclasses import dataclass

import numpy as np

from shortlist.core.metrics import ideal_dcg
from shortlist.cutoff import ExpectedF1, ExpectedNDCG
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.kernels.expected import compute_independent_utilities
from shortlist.paper.readings import MAX_LENGTH, Outcomes
from shortlist.types import Doubles, Ints, Longs

CUTOFFS = {"f1": ExpectedF1, "ndcg": ExpectedNDCG}


@dataclass(frozen=True, eq=False)
class OwnLists:
    """Candidates of a model with `boundary="expected_f1"`, and what happened to them."""

    lists: RankedLists  # with probabilities, boundaries and predicted sizes
    outcomes: Outcomes

    @classmethod
    def of(cls, lists: RankedLists, truth: Interactions, users: Ints) -> "OwnLists":
        """The lists of these users, out of those of a superset."""
        return cls(take_users(lists, truth, users), Outcomes.of(lists, truth, users))

    def lengths(self, metric: str, cover_ratio: float) -> Longs:
        """(n,) lengths with the highest expected metric, for the users who can expect most of it."""
        return self.f1_lengths(cover_ratio) if metric == "f1" else self.ndcg_lengths(cover_ratio)

    def f1_lengths(self, cover_ratio: float) -> Longs:
        """(n,) candidates above the F1-optimal boundary, for the users with the highest expected F1."""
        lists, lengths = self.lists, self.outcomes.above()
        assert lists.probabilities is not None
        assert lists.expected_sizes is not None
        total = np.concatenate([[0.0], np.cumsum(lists.probabilities)])
        first = lists.indptr[:-1]
        expected = 2 * (total[first + lengths] - total[first]) / (lengths + lists.expected_sizes)
        return cover_best(lengths, expected, cover_ratio)

    def ndcg_lengths(self, cover_ratio: float) -> Longs:
        """(n,) lengths with the highest expected NDCG; the size of the next basket is Poisson distributed.

        The ideal list is as long as the shown one, as in the paper's NDCG.
        """
        lists = self.lists
        assert lists.probabilities is not None
        assert lists.expected_sizes is not None
        more = np.maximum(lists.expected_sizes - 1, 0.0)  # a basket has at least one item
        curve, lengths = np.empty(lists.items.size), np.zeros(len(lists), np.int32)
        ideal = ideal_dcg(MAX_LENGTH)
        compute_independent_utilities(
            lists.indptr, np.asarray(lists.probabilities, np.float64), more, 0.0, True, ideal, curve, lengths
        )
        best = np.zeros(len(lists))
        best[lengths > 0] = curve[(lists.indptr[:-1] + lengths - 1)[lengths > 0]]
        return cover_best(lengths.astype(np.int64), best, cover_ratio)


def cover_best(lengths: Longs, expected: Doubles, cover_ratio: float) -> Longs:
    """(n,) these lengths for the share of users with the highest expected metric, 0 for the others."""
    expected = np.where(lengths > 0, expected, -np.inf)
    kept = np.argsort(-expected, kind="stable")[: round(cover_ratio * lengths.size)]
    found = np.zeros_like(lengths)
    found[kept] = lengths[kept]
    return found


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What cutoffs with calibrated probabilities learn from: the candidates of validation users."""

    candidates: RankedLists
    truth: Interactions
    history: Interactions
    users: Ints

    def cut(self, metric: str, cover_ratio: float, lists: RankedLists, history: Interactions) -> RankedLists:
        """Lists with the highest expected metric; the threshold has this Cover-Ratio on validation users."""
        kept = np.zeros(self.truth.n_users, np.bool_)
        kept[self.users] = True
        fitted = CUTOFFS[metric](calibration="features", n_candidates=MAX_LENGTH).fit(
            take_users(self.candidates, self.truth, self.users),
            self.truth.where(kept[self.truth.user]),
            history=self.history,
        )
        found: RankedLists = fitted.with_coverage(cover_ratio).apply(lists, history=history)
        return found


def take_users(lists: RankedLists, truth: Interactions, users: Ints) -> RankedLists:
    """The lists of these users; `lists` has one list for each user of a superset, ascending."""
    return lists.take(np.searchsorted(truth.users.lookup(lists.users.values), users))
