"""SampleGrowth: how good the lists of users outside a sample are, by the size of the sample."""

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from shortlist.auto.validation import Holdout, Validation, fit_model
from shortlist.core.metrics import Metric, Money
from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.models.base import Recommender
from shortlist.recommend.options import RequestOptions
from shortlist.recommend.request import BatchRecommender
from shortlist.split import as_datetime

N_CANDIDATES = 50  # of a model whose lists end at its boundary
SMALLEST = 1000  # users of the smallest sample that is compared
DOUBLINGS = 2  # of the sample that are measured


@dataclass(frozen=True, eq=False)
class OutsideUsers:
    """Users from whom nothing was learned, what they did next, and how their lists are scored."""

    holdout: Holdout
    metric: str = "f1"
    money: Money | None = None
    filter_seen: bool | None = None

    def plan(self, model: Recommender, users: pl.Series, n: int | None = None) -> BatchRecommender[Any]:
        """What recommends to these users from their histories; n: the n best candidates of each."""
        at = self.holdout.truth if self.holdout.at is None else as_datetime(self.holdout.at)
        options = RequestOptions(N=n, history=self.holdout.history, filter_seen=self.filter_seen, at=at)
        return model.plan(users, options)

    def validate(self, model: Recommender, cutoff: Cutoff | None) -> Validation:
        """The candidates of a model without a cutoff for all users; the cutoff says how many."""
        n = N_CANDIDATES if cutoff is None else cutoff.candidates_needed()
        plan = self.plan(model, self.holdout.truth.users.to_ids(self.holdout.users), n)
        holdout = self.holdout._replace(history=plan.request.history)  # with the item counts of the model
        return Validation(
            model, holdout, n, self.metric, self.filter_seen, given=plan.lists(), money=self.money
        )

    def score(self, model: Recommender, cutoff: Cutoff | None) -> float:
        """The score of the lists of every other user; the cutoff is fitted on the rest."""
        validation, numbers = self.validate(model, cutoff), np.arange(self.holdout.users.size)
        fitted = None if cutoff is None else validation.restrict(numbers[::2]).fit_cutoff(cutoff)
        tested = validation.restrict(numbers[1::2])
        served = copy(model).set_cutoff(fitted)
        lists = self.plan(served, tested.candidates.users.values).lists()
        return tested.evaluate(lists).mean(self.metric)


@dataclass(frozen=True, eq=False)
class SampleGrowth:
    """The scores of a model that was fitted on a quarter, half and all of a sample."""

    sizes: list[int]  # users, ascending
    scores: list[float]
    model: Recommender  # of the whole sample, without a cutoff
    unfitted: Cutoff | None
    outside: OutsideUsers

    @classmethod
    def measure(
        cls,
        model: Recommender,
        data: Interactions,
        holdout: Holdout,
        *,
        filter_seen: bool | None = None,
        seed: int = 0,
        items: Items | Any = None,
    ) -> "SampleGrowth":
        """Fit a model with the same parameters on parts of its sample; score all on users outside."""
        chosen, cutoff = model.selection_, model.cutoff_
        assert chosen is not None
        outside = OutsideUsers(holdout, chosen.metric, Money.of(chosen.gain, chosen.cost), filter_seen)
        order = np.random.default_rng(seed).permutation(data.active_users)
        halves = (order.size >> k for k in range(DOUBLINGS, 0, -1))
        sizes = [*(size for size in halves if size >= SMALLEST), order.size]
        content, whole = None if items is None else Items.of(items), copy(model).set_cutoff(None)
        models = [*(_fit_part(model, data, order[:size], content) for size in sizes[:-1]), whole]
        return cls(sizes, [outside.score(each, cutoff) for each in models], whole, cutoff, outside)

    @cached_property
    def cutoff(self) -> Cutoff | None:
        """The cutoff fitted on all users outside the sample."""
        if self.unfitted is None:
            return None
        return self.outside.validate(self.model, self.unfitted).fit_cutoff(self.unfitted)

    @property
    def next_gain(self) -> float:
        """What twice the sample would add: the last gain, lowered as it was from the one before."""
        gains = np.diff(self.scores)
        if not gains.size or gains[-1] <= 0:
            return 0.0
        falls = gains.size > 1 and gains[-1] < gains[-2]
        return float(gains[-1] * (gains[-1] / gains[-2] if falls else 1.0))

    def __str__(self) -> str:
        metric = Metric.registry[self.outside.metric]
        pairs = zip(self.scores, self.sizes, strict=True)
        scores = " → ".join(f"{metric.text(score)} ({size:,})" for score, size in pairs)
        n_users = self.outside.holdout.users.size // 2
        text = f"{metric.title} of {n_users:,} users outside the sample, by its size: {scores}"
        if len(self.scores) < 2 or self.scores[-1] <= 0:
            return text
        return f"{text}; twice as many users would add about {self.next_gain / self.scores[-1]:.1%}"


def _fit_part(model: Recommender, data: Interactions, users: Any, items: Items | None) -> Recommender:
    """A model with the same parameters, fitted on the rows of some users."""
    is_chosen = np.zeros(data.n_users, np.bool_)
    is_chosen[users] = True
    return fit_model(model, data.where(is_chosen[data.user]).compact(), items=items)
