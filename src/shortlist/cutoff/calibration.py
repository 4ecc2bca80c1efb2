"""Calibration: scores → the probability that the user takes the item next.

Methods: `platt` (a line through the log-odds; with `shrink`, each user's own height, drawn to 0), `isotonic`
(any rising steps), `features` (bent lines over score, rank, gap and history), `trees` (LightGBM over the
same), `none` (the lists carry probabilities already), `auto` (the smallest log loss on users not fitted on).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from shortlist.core.estimator import Estimator
from shortlist.core.glm import Logistic, log_loss, sigmoid
from shortlist.core.trees import Growth, Trees, trees_grow
from shortlist.cutoff.features import bounded, candidate_features, score_range
from shortlist.cutoff.isotonic import isotonic_fit, isotonic_predict
from shortlist.cutoff.labels import Labels, labelled_heads
from shortlist.cutoff.top_candidates import Scores, heads
from shortlist.data.id_map import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.boundary import boundaries_solve
from shortlist.types import Doubles

BENDS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.995)  # the best candidates are few and decide most
BLOCK = 1 << 20  # candidates described at a time
METHODS = ("platt", "isotonic", "features", "trees", "none", "auto")


@dataclass(kw_only=True, eq=False)
class Calibration(Estimator):
    """Fitted on labelled candidates: about what a ranker puts forward, not about all items."""

    method: str = "auto"
    shrink: float | None = (
        None  # platt only: pull of a user's own height towards everybody's; None: one height
    )
    n_candidates: int = 100
    seed: int = 0

    kind: ClassVar[str] = "calibration"

    def fit(
        self,
        scores: Scores,
        truth: Interactions,
        *,
        history: Interactions | None = None,
        asked: Iterable[Any] | None = None,
    ) -> Self:
        """Learn from what users took after the scores were made; those `asked` also if they took nothing."""
        return self.learn(labelled_heads(scores, truth, history, asked, self.n_candidates), history)

    def learn(self, known: Labels, history: Interactions | None) -> Self:
        """`fit` for candidates that are labelled already."""
        self._check()
        if self.method != "none" and not known.rows.any():
            raise DataError(
                "calibration needs at least one candidate of a user with truth rows, got none; "
                "pass the part that follows the scores, with the same user ids."
            )
        chosen = self._choose(known, history) if self.method == "auto" else self.method
        part = known.take(np.flatnonzero(known.labelled).astype(np.int32))
        self.low_, self.high_ = score_range(part.lists)
        self.past_ = history is not None
        y = part.relevant.astype(np.float64)
        if chosen == "platt":
            self._learn_platt(part, y)
        elif chosen == "isotonic":
            self.steps_, self.heights_ = isotonic_fit(bounded(part.lists, self.low_, self.high_), y)
        elif chosen in ("features", "trees"):
            columns = candidate_features(part.lists, bounded(part.lists, self.low_, self.high_), history)
            if chosen == "trees":
                growth = Growth(n_leaves=15, l2=1.0, seed=self.seed)
                self.text_ = trees_grow(columns.astype(np.float32), y, None, growth)
            else:
                self.line_ = Logistic(quantiles=BENDS, ridge=10.0, seed=self.seed).learn(columns, y)
        self.method_ = chosen
        return self

    def probabilities(self, scores: Scores, *, history: Interactions | None = None) -> Doubles:
        """(n_candidates,) in the order of `heads(scores)`."""
        lists = heads(scores, ids=history, n_candidates=self.n_candidates)
        method = self.need("method_") if self.method != "none" else "none"
        if method == "none":
            if lists.probabilities is None:
                raise DataError(
                    "method 'none' needs lists with probabilities, got lists without; fit another method."
                )
            return np.clip(np.nan_to_num(lists.probabilities, nan=0.0), 0.0, 1.0)
        values = bounded(lists, self.low_, self.high_)
        if method == "isotonic":
            return isotonic_predict(self.steps_, self.heights_, values)
        if method == "platt":
            return sigmoid(self._platt(lists, values))
        if self.past_ and history is None:
            raise DataError(
                f"calibration {method!r} was fitted with a history and needs one again; pass history=."
            )
        return self._described(lists, values, history if self.past_ else None)

    def _described(self, lists: RankedLists, values: Doubles, history: Interactions | None) -> Doubles:
        """Probabilities from features, in blocks of lists so that the columns stay small."""
        step = max(1, BLOCK // self.n_candidates)
        found = np.empty(values.size)
        trees = Trees(self.text_) if self.method_ == "trees" else None
        for start in range(0, len(lists), step):
            part = lists.take(np.arange(start, min(start + step, len(lists))))
            rows = slice(int(lists.indptr[start]), int(lists.indptr[start]) + part.items.size)
            columns = candidate_features(part, values[rows], history)
            if trees is not None:
                found[rows] = trees.predict(columns.astype(np.float32))
            else:
                found[rows] = sigmoid(self.line_.log_odds(columns))
        return found

    def apply(self, scores: Scores, *, history: Interactions | None = None) -> RankedLists:
        """The candidates with their probabilities."""
        lists = heads(scores, ids=history, n_candidates=self.n_candidates)
        return replace(lists, probabilities=self.probabilities(lists, history=history))

    def _check(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}; choose one.")
        if self.shrink is not None and (self.method != "platt" or not self.shrink > 0):
            raise ConfigError(
                f"shrink is positive and goes with platt, got {self.shrink} with {self.method!r}; drop it."
            )

    def _choose(self, known: Labels, history: Interactions | None) -> str:
        """Each method fitted on every other user and judged on the rest, both ways."""
        numbers = np.flatnonzero(known.labelled).astype(np.int32)
        halves = [known.take(numbers[::2]), known.take(numbers[1::2])]
        if not all(half.rows.any() for half in halves):
            return "platt"
        methods = ("platt", "isotonic", "features")
        losses = []
        for method in methods:
            loss = 0.0
            for learn, judge in (halves, halves[::-1]):
                p = self.clone().set_params(method=method).learn(learn, history)
                q = np.clip(p.probabilities(judge.lists, history=history), 1e-6, 1 - 1e-6)
                loss += float(log_loss(np.log(q / (1 - q)), judge.relevant.astype(np.float64)).sum())
            losses.append(loss)
        return methods[int(np.argmin(losses))]

    def _learn_platt(self, part: Labels, y: Doubles) -> None:
        values = bounded(part.lists, self.low_, self.high_)[:, None]
        line = Logistic().learn(values, y)
        if line.slopes_[0] < 0:  # a ranker's scores never speak against an item
            line.learn(np.zeros_like(values), y)
        self.line_ = line
        if self.shrink is not None:
            heights, slopes = np.empty(len(part.lists)), np.empty(len(part.lists))
            odds = line.log_odds(values)
            boundaries_solve(
                part.lists.indptr, odds, part.relevant, 1.0, 0.0, self.shrink, False, False, heights, slopes
            )
            self.known_, self.height_ = part.lists.users, np.negative(heights)

    def _platt(self, lists: RankedLists, values: Doubles) -> Doubles:
        line = self.line_.log_odds(values[:, None])
        if self.shrink is None:
            return line
        user = self.known_.lookup(lists.users.values)
        own: Doubles = np.where(user == UNKNOWN, 0.0, self.height_[user])
        return np.add(line, np.repeat(own, np.diff(lists.indptr)))


def prior_corrected(probabilities: Doubles, *, negatives: float, base_rate: float) -> Doubles:
    """What was learned from `negatives` unseen items per seen one, for a world where `base_rate` are seen.

    For a joint model the input is sigmoid(s − t_u): training showed it odds of 1 : negatives.
    """
    if not negatives > 0 or not 0 < base_rate < 1:
        raise ConfigError(
            f"negatives must be positive, base_rate in (0, 1), got {negatives} and {base_rate}; correct them."
        )
    factor = negatives * base_rate / (1 - base_rate)
    return probabilities * factor / (1 - probabilities + probabilities * factor)
