"""A package of somebody else: one model, one cutoff and one metric, each in one class and nothing more."""

from dataclasses import dataclass

import numpy as np

from shortlist.core.metrics import Metric
from shortlist.cutoff.base import CutLists, Cutoff
from shortlist.data.history import History
from shortlist.models.base import ModelState, Recommender
from shortlist.recommend.request import Scores


@dataclass(kw_only=True, eq=False, repr=False)
class LastBaskets(Recommender):
    """Recommends what the user bought before, the latest first; other items by their popularity."""

    weight: float = 10.0

    is_tried_by_fit = True

    def _learn(self, train, options):
        return ModelState(history=History.of(train))

    def score(self, request):
        history = request.history
        n_items = history.n_items
        scores = np.zeros((len(request), n_items), np.float32)
        scores += np.log1p(request.state.history.totals.item_counts).astype(np.float32)
        owner = np.repeat(np.arange(len(request)), np.diff(history.indptr))
        place = np.arange(owner.size) - history.indptr[owner]
        scores[owner, history.item] += self.weight * (1 + place).astype(np.float32)
        return Scores(values=scores)

    def _to_arrays(self, state):
        return {}, {}

    def _from_arrays(self, history, arrays, notes):
        return ModelState(history=History.of(history))


@dataclass(kw_only=True, eq=False, repr=False)
class HalfOfBest(Cutoff):
    """Shows the candidates that score at least a share of the user's best one."""

    share: float = 0.5
    coverage: float | None = None

    is_base = False
    rule = "The list stops at the first item that scores less than half of the best one."
    flags = ("coverage",)

    def _fit_labels(self, labels, history):
        pass

    def _cut(self, lists, history):
        filled = lists.lengths > 0
        first = np.repeat(lists.scores[lists.indptr[:-1][filled]], lists.lengths[filled])
        passed = np.concatenate([[0], np.cumsum(lists.scores >= self.share * first)])
        return CutLists(np.diff(passed[lists.indptr]).astype(np.int32))


class TwoHits(Metric):
    """Whether a list has at least two hits."""

    name, title = "two_hits", "two hits"
    can_optimize = can_choose_length = True

    @staticmethod
    def values(sums):
        return (sums.hits >= 2).astype(np.float64)
