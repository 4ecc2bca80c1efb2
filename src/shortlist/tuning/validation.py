"""Hold out, fit, rank, refit: the one implementation behind `sl.fit`, `sl.tune` and the command line."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import best_fixed_n, fixed_n_curve
from shortlist.models.base import MODEL_MODULES, Recommender, find_model_class
from shortlist.models.factorization.training import Progress
from shortlist.split import last_basket
from shortlist.types import Bools

EpochProgress = Callable[[Progress], None]
MIN_RETURNING_SHARE = 0.1  # share of users with two baskets that a hold-out of last baskets needs
HOLD_OUT_ONE_IN = 5  # otherwise one in this many items of each user is held out


class Holdout(NamedTuple):
    """Interactions to fit on, and the later ones to predict."""

    history: Interactions
    truth: Interactions
    description: str


def hold_out(data: Interactions, seed: int = 0) -> Holdout:
    """Hold out each user's last basket where users return, else a random share of each user's items."""
    n_baskets = np.diff(data.user_baskets)
    returning = int((n_baskets > 1).sum())
    if returning >= max(2, MIN_RETURNING_SHARE * int((n_baskets > 0).sum())):
        return last_baskets(data)[0]
    held = _random_items(data, seed)
    history, truth = data.where(~held), data.where(held)
    n = truth.active_users.size
    if n < 2:
        raise DataError(
            f"validation needs at least two users with two items each, got {n}; add more history, or fit "
            "one model without validation."
        )
    return Holdout(
        history, truth, f"one item in {HOLD_OUT_ONE_IN} of {n:,} users, drawn at random (few users return)"
    )


def last_baskets(data: Interactions, n_folds: int = 1) -> list[Holdout]:
    """Hold out each user's last basket; every further fold does the same one basket earlier."""
    folds = []
    for _ in range(n_folds):
        split = last_basket(data)
        n = split.test.active_users.size
        folds.append(Holdout(split.train_valid, split.test, f"the last baskets of {n:,} users"))
        data = split.train_valid
    return folds


def _random_items(data: Interactions, seed: int) -> Bools:
    """(n_rows,) whether the row is held out; all rows of a held-out item are, and each user keeps an item."""
    indptr, items = data.item_sets
    sizes = np.diff(indptr)
    owner = np.repeat(np.arange(data.n_users), sizes)
    order = np.lexsort((np.random.default_rng(seed).random(items.size), owner))
    position = np.empty(items.size, np.int64)  # in the random order of the user's items
    position[order] = np.arange(items.size) - indptr[owner]
    n_held = np.where(sizes > 1, np.maximum(sizes // HOLD_OUT_ONE_IN, 1), 0)
    keys = owner * data.n_items + items
    row = np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)
    held: Bools = (position < n_held[owner])[row]
    return held


def build_model(name: str, params: dict[str, Any]) -> Recommender:
    """Build an unfitted model from its class name and parameters."""
    known = list(MODEL_MODULES)
    if name not in known:
        near = get_close_matches(name, known, 1)
        advice = f"did you mean {near[0]!r}?" if near else "choose one."
        raise ConfigError(f"model must be one of {', '.join(known)}, got {name!r}; {advice}")
    return find_model_class(name)().set_params(**params)


def fit_model(
    model: Recommender,
    data: Interactions,
    *,
    valid: Interactions | None = None,
    progress: EpochProgress | None = None,
) -> Recommender:
    """Fit a clone; unlike `model.fit`, Ctrl-C is raised, so that no half-trained model is used."""
    fresh = model.clone().fit(data, valid=valid, progress=progress)
    if fresh.stopped_ == "interrupted":
        raise KeyboardInterrupt
    return fresh


@dataclass(frozen=True, eq=False)
class Validation:
    """A model fitted on the history of a hold-out, with its candidates for the users in the truth."""

    model: Recommender
    holdout: Holdout
    n_candidates: int
    metric: str = "f1"
    filter_seen: bool | None = None
    n_threads: int = 0

    @cached_property
    def candidates(self) -> RankedLists:
        """The top `n_candidates` candidates at the time of each held-out basket."""
        truth = self.holdout.truth
        return self.model.recommend(
            truth.users.to_ids(truth.active_users),
            N=self.n_candidates,
            filter_seen=self.filter_seen,
            n_threads=self.n_threads,
            at=truth,
        )

    @cached_property
    def curve(self) -> pl.DataFrame:
        """Metrics of every fixed N up to `n_candidates`, averaged over all users in the truth."""
        return fixed_n_curve(self.candidates, self.holdout.truth, range(1, self.n_candidates + 1))

    @property
    def N(self) -> int:  # noqa: N802
        """The fixed N with the highest metric."""
        return best_fixed_n(self.curve, self.metric)

    @property
    def score(self) -> float:
        """The metric at the best fixed N."""
        return float(self.curve[self.metric].max())  # type: ignore[arg-type]

    @property
    def n_epochs(self) -> int | None:
        """The best number of epochs; None for models without epochs."""
        return self.model.n_epochs_

    def fit_cutoff(self, cutoff: Cutoff) -> Cutoff:
        """Fit a clone of the cutoff on the candidates."""
        history, truth, _ = self.holdout
        return cutoff.clone().fit(self.candidates, truth, history=history)

    def refit(self, data: Interactions, *, progress: EpochProgress | None = None) -> Recommender:
        """Fit the model on all of `data`, for the best number of epochs."""
        fresh = self.model.clone()
        if self.n_epochs is not None:
            fresh.set_params(n_epochs=self.n_epochs)
        return fit_model(fresh, data, progress=progress)


def validate(
    model: Recommender,
    holdout: Holdout,
    *,
    n_candidates: int,
    metric: str = "f1",
    filter_seen: bool | None = None,
    n_threads: int = 0,
    early_stopping: bool = True,
    progress: EpochProgress | None = None,
) -> Validation:
    """Fit the model on the history of a hold-out; candidates and scores are computed on first use."""
    history, truth, _ = holdout
    fitted = fit_model(model, history, valid=truth if early_stopping else None, progress=progress)
    return Validation(fitted, holdout, n_candidates, metric, filter_seen, n_threads)
