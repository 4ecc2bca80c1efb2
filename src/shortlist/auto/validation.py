"""Hold out, fit, rank, refit: the one implementation behind `sl.fit` and the command line."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import polars as pl

from shortlist.auto.cutoff_choice import SelectionData
from shortlist.core.metrics import Money
from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import Report, best_fixed_n, fixed_n_curve
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import Recommender, find_model_class, model_names
from shortlist.models.strict_time import find_visits, lists_over_time
from shortlist.recommend.options import RequestOptions
from shortlist.split import Split, as_datetime, draw_items, last_basket, users_return
from shortlist.types import Doubles, Ints, Longs

if TYPE_CHECKING:
    from shortlist.models.factorization.training import Progress

EpochProgress = Callable[["Progress"], None]
HOLD_OUT_ONE_IN = (
    5  # where few users return, one in this many items of each user is held out; by time, of all rows
)
VALIDATIONS = ("last_basket", "by_time")
MIN_SAMPLE = 200  # users with truth in a sample
SHOWN = 20  # items per list where models that earn the same are compared by what users take

Validating = Literal["last_basket", "by_time"] | Split


class Holdout(NamedTuple):
    """Interactions to fit on, and the later ones to predict."""

    history: Interactions
    truth: Interactions
    description: str
    later: Interactions | None = None  # under strict time: all events after the history, to be observed
    everyone: Ints | None = None  # users who count, whether they are in the truth or not; None: those in it
    at: int | None = None  # when all lists are made; None: just before each user's held-out basket
    horizon: int | None = None  # microseconds from then on that the truth covers
    is_random: bool = False  # whether the truth is a random share of each user's items

    @property
    def users(self) -> Ints:
        """The users who count."""
        return self.truth.active_users if self.everyone is None else self.everyone

    @property
    def user_ids(self) -> pl.Series | None:
        """Ids of the users who count even without truth; None if those with truth count."""
        return None if self.everyone is None else self.truth.users.to_ids(self.everyone)

    def sample(self, n_rows: int, seed: int) -> "Holdout":
        """The hold-out of users drawn at random, with about so many rows; of all users if it is little more.

        The users of a smaller sample are also in each larger one.
        """
        history = self.history
        if history.n_rows < 2 * n_rows:
            return self
        order = np.random.default_rng([seed, history.n_users]).permutation(history.n_users)
        is_drawn = np.zeros(history.n_users, np.bool_)
        is_drawn[order[: int(np.searchsorted(history.user_counts[order].cumsum(), n_rows))]] = True
        n_counted = int(is_drawn[self.users].sum())
        if np.count_nonzero(is_drawn[self.truth.active_users]) < MIN_SAMPLE:
            return self
        return self._replace(
            history=history.where(is_drawn[history.user]),
            truth=self.truth.where(is_drawn[self.truth.user]),
            description=f"{n_counted:,} of {self.description}",
            later=None if self.later is None else self.later.where(is_drawn[self.later.user]),
            everyone=None if self.everyone is None else self.everyone[is_drawn[self.everyone]],
        )


def hold_out(
    data: Interactions,
    seed: int = 0,
    validation: Validating = "last_basket",
    horizon: int | None = None,
    everyone: bool = False,
) -> Holdout:
    """Hold out what `validation` says, or the last `horizon` microseconds; a split must be one of `data`."""
    if horizon is not None:
        return _hold_out_period(data, horizon, everyone)
    if isinstance(validation, Split):
        return _hold_out_split(data, validation)
    if validation not in VALIDATIONS:
        raise ConfigError(
            f"validation must be one of {', '.join(VALIDATIONS)} or a Split, got {repr(validation)[:80]}; "
            "choose one."
        )
    return hold_out_by_time(data) if validation == "by_time" else _last_or_random(data, seed)


def _last_or_random(data: Interactions, seed: int) -> Holdout:
    """Hold out each user's last basket where users return, else a random share of each user's items."""
    return last_baskets(data)[0] if users_return(data) else hold_out_items(data, seed)


def hold_out_items(data: Interactions, seed: int = 0) -> Holdout:
    """Hold out a random share of each user's items."""
    held = draw_items(data, HOLD_OUT_ONE_IN, seed)
    history, truth = data.where(~held), data.where(held)
    n = truth.active_users.size
    if n < 2:
        raise DataError(
            f"validation needs at least two users with two items each, got {n}; add more history, or fit "
            "one model without validation."
        )
    description = f"one item in {HOLD_OUT_ONE_IN} of {n:,} users, drawn at random (few users return)"
    return Holdout(history, truth, description, is_random=True)


def last_baskets(data: Interactions, n_folds: int = 1) -> list[Holdout]:
    """Hold out each user's last basket; every further fold does the same one basket earlier."""
    folds = []
    for _ in range(n_folds):
        split = last_basket(data)
        n = split.test.active_users.size
        folds.append(Holdout(split.train_valid, split.test, f"the last baskets of {n:,} users"))
        data = split.train_valid
    return folds


def hold_out_by_time(data: Interactions, cut: int | None = None) -> Holdout:
    """Hold out each user's first basket at or after a cut, by default at the last fifth of the rows.

    Only users with events before the cut are held out. All parts share the ids of `data`.
    """
    if data.time is None or not data.n_rows:
        raise DataError(
            "validation by time needs timestamps, got none; pass the timestamp column when reading, or "
            "validation='last_basket'."
        )
    if cut is None:
        cut = int(np.sort(data.time)[data.n_rows - -(-data.n_rows // HOLD_OUT_ONE_IN)])
    before = data.time < cut
    history, later = data.where(before), data.where(~before)
    assert later.time is not None
    has_history = history.user_counts > 0
    first = later.time == later.time[np.minimum(later.indptr[:-1], later.n_rows - 1)][later.user]
    truth = later.where(first & has_history[later.user])
    n = truth.active_users.size
    day = str(np.datetime64(cut, "us").astype("datetime64[s]"))
    if n < 2:
        raise DataError(
            f"validation by time needs at least two users with events before and after {day}, got {n}; "
            "add more history, or pass validation='last_basket'."
        )
    return Holdout(history, truth, f"the first baskets of {n:,} users from {day} on, strict time", later)


def _hold_out_period(data: Interactions, horizon: int, everyone: bool, end: int | None = None) -> Holdout:
    """Hold out what users with earlier events did within the last period; lists are made at its start."""
    if data.time is None or not data.n_rows:
        raise DataError(
            "horizon needs timestamps, got none; pass the timestamp column when reading, or leave it out.",
            parameter="horizon",
        )
    cut = (data.end_time if end is None else end) - horizon
    before = data.time < cut
    history = data.where(before)
    truth = data.where(~before & (history.user_counts > 0)[data.user])
    n, days = truth.active_users.size, horizon / DAY
    if n < 2:
        raise DataError(
            f"horizon must leave at least two users with events before and within the last {days:g} days, "
            f"got {n}; pass another horizon or more data.",
            parameter="horizon",
        )
    description = f"what {n:,} users did within the last {days:g} days"
    if not everyone:
        return Holdout(history, truth, description, at=cut, horizon=horizon)
    users = _buyers_first(truth, history)
    description = f"the last {days:g} days of {users.size:,} users, of whom {n:,} interacted with something"
    return Holdout(history, truth, description, everyone=users, at=cut, horizon=horizon)


def _buyers_first(truth: Interactions, history: Interactions) -> Ints:
    """The users with a history, those with truth first, so that every other user is a fair half."""
    users = history.active_users
    return users[np.argsort(truth.user_counts[users] == 0, kind="stable")]


def _hold_out_split(data: Interactions, split: Split) -> Holdout:
    """The validation part of a split of `data`, under strict time if all of it is later than the training."""
    if data.fingerprint != split.train_valid.fingerprint:
        raise ConfigError(
            "validation must be a split whose train_valid is the data, got another one; call "
            "sl.fit(split.train_valid, validation=split)."
        )
    train, valid = split.train, split.valid
    n = valid.active_users.size
    if n < 2 or not train.n_rows:
        raise DataError(
            f"validation needs at least two users in the split's valid part, got {n}; cut earlier."
        )
    if split.cuts is not None:
        horizon, users = split.cuts[1] - split.cuts[0], _buyers_first(valid, train)
        description = (
            f"{horizon / DAY:g} days of {users.size:,} users, of whom {n:,} interacted with something"
        )
        return Holdout(train, valid, description, everyone=users, at=split.cuts[0], horizon=horizon)
    if train.time is not None and valid.time is not None and train.time.max() < valid.time.min():
        return hold_out_by_time(data, int(train.time.max()) + 1)
    return Holdout(train, valid, f"the validation part of the split, {n:,} users")


def earlier_fold(holdout: Holdout) -> Holdout | None:
    """The same hold-out one basket or period earlier, within its history; None if the data is too small."""
    history = holdout.history
    try:
        if holdout.at is not None and holdout.horizon is not None:
            everyone = holdout.everyone is not None
            return _hold_out_period(history, holdout.horizon, everyone, end=holdout.at)
        if holdout.later is not None:
            return hold_out_by_time(history)
    except DataError:
        return None
    return last_baskets(history)[0] if users_return(history) else None


def build_model(name: str, params: dict[str, Any]) -> Recommender:
    """Build an unfitted model from its class name and parameters."""
    names = model_names()
    if name not in names:
        near = get_close_matches(name, names, 1)
        advice = f"did you mean {near[0]!r}?" if near else "choose one."
        raise ConfigError(f"model must be one of {', '.join(names)}, got {name!r}; {advice}")
    return find_model_class(name)().set_params(**params)


def fit_model(
    model: Recommender,
    data: Interactions,
    *,
    valid: Interactions | None = None,
    progress: EpochProgress | None = None,
    items: Items | None = None,
) -> Recommender:
    """Fit a clone; unlike `model.fit`, Ctrl-C is raised, so that no half-trained model is used.

    A model that cannot use items gets none.
    """
    content = items if model.uses_content else None
    fresh = model.clone().fit(data, valid=valid, progress=progress, items=content)
    if fresh.stopped_ == "interrupted":
        raise KeyboardInterrupt
    return fresh


@dataclass(frozen=True, eq=False)
class Validation:
    """A model, fitted by `fit` on the history of a hold-out, and its candidates for the held-out users."""

    model: Recommender
    holdout: Holdout
    n_candidates: int
    metric: str = "f1"
    filter_seen: bool | None = None
    given: RankedLists | None = None  # the candidates, if they are known
    items: Items | None = None
    money: Money | None = None
    volume: float | None = None  # items per list of a budget, at which models are compared
    boundary: Cutoff | None = None  # of the model, where `fit` learned one

    def fit(self, *, progress: EpochProgress | None = None) -> "Validation":
        """Fit a clone of the model on the history; candidates and scores are computed on first use."""
        history, valid = self.holdout.history, self.holdout.truth
        fitted = fit_model(self.model, history, valid=valid, progress=progress, items=self.items)
        return replace(self, model=fitted, boundary=fitted.boundary_, given=None)

    @cached_property
    def candidates(self) -> RankedLists:
        """The top `n_candidates` candidates at the time of each held-out basket."""
        truth = self.holdout.truth
        if self.given is not None:
            return self.given
        if self.holdout.later is not None:
            return self._candidates_over_time(self.holdout.later)
        return self.model.recommend(
            truth.users.to_ids(self.holdout.users),
            N=self.n_candidates,
            filter_seen=self.filter_seen,
            at=truth if self.holdout.at is None else as_datetime(self.holdout.at),
        )

    @property
    def selection_data(self) -> SelectionData:
        """What cutoffs are compared on."""
        truth, history, users = self.holdout.truth, self.holdout.history, self.holdout.user_ids
        return SelectionData(self.candidates, truth, history, self.metric, self.money, users)

    def evaluate(self, lists: RankedLists) -> Report:
        """Evaluate lists of the held-out users."""
        return self.selection_data.evaluate(lists)

    def values_at(self, N: int) -> Doubles:
        """(n_users,) the metric if all lists have N items, or as many on average as the volume allows."""
        longer = self.evaluate(self.candidates.head(N)).values(self.metric)
        if self.volume is None or self.volume >= N:
            return longer
        shorter = self.evaluate(self.candidates.head(max(N - 1, 0))).values(self.metric)
        return longer + (N - self.volume) * (shorter - longer)

    def values_of_best(self) -> Doubles:
        """(n_users,) the metric if the volume goes to the highest scores of all lists."""
        assert self.volume is not None
        n, scores = round(self.volume * len(self.candidates)), self.candidates.scores
        best = np.zeros(scores.size, np.bool_)
        best[np.argsort(-scores, kind="stable")[:n]] = True
        lengths = np.bincount(self.candidates.owner, best, len(self.candidates)).astype(np.int32)
        return self.evaluate(self.candidates.head(lengths)).values(self.metric)

    def _candidates_over_time(self, later: Interactions) -> RankedLists:
        """The candidates of a model that has observed, once a day, what happened before."""
        visits = find_visits(self.holdout.truth, "first")
        options = RequestOptions(N=self.n_candidates, filter_seen=self.filter_seen)
        parts = list(lists_over_time(self.model, later, visits, DAY, options))
        numbers = np.concatenate([numbers for numbers, _ in parts])
        items = parts[-1][1].item_ids  # known ids keep their index, new ones follow
        lists = RankedLists.concat([replace(each, item_ids=items, item_names=None) for _, each in parts])
        return lists.take(np.argsort(visits.users[numbers]))

    @cached_property
    def curve(self) -> pl.DataFrame:
        """Metrics of every fixed N up to `n_candidates`, averaged over all users in the truth."""
        gain, cost = (None, None) if self.money is None else (self.money.gain, self.money.cost)
        lengths, users = range(1, self.n_candidates + 1), self.holdout.user_ids
        return fixed_n_curve(self.candidates, self.holdout.truth, lengths, users=users, gain=gain, cost=cost)

    @property
    def N(self) -> int:  # noqa: N802
        """The best fixed N for the metric, 0 if every N loses money; with a volume, the N that spends it."""
        if self.volume is not None:
            return min(math.ceil(self.volume), self.n_candidates)
        return best_fixed_n(self.curve, self.metric)

    @property
    def score(self) -> float:
        """The metric at the best fixed N, or at the volume."""
        values = self.curve[self.metric]
        if self.volume is not None:
            return max(float(np.interp(self.volume, range(len(values) + 1), [0.0, *values])), 0.0)
        return max(float(values.max()), 0.0)  # type: ignore[arg-type]

    @property
    def rank(self) -> tuple[float, float]:
        """The score; of equals, such as where every length loses money, the one with the higher recall."""
        return self.score, float(self.curve["recall"][min(SHOWN, self.n_candidates) - 1])

    @property
    def n_epochs(self) -> int | None:
        """The best number of epochs; None for models without epochs, and if it is one of the settings."""
        return self.model.n_epochs_ if self.model.is_fitted else None

    def restrict(self, numbers: Longs) -> "Validation":
        """The same model and candidates for some of the held-out users, given by their position."""
        holdout, kept = self.holdout, np.zeros(self.holdout.truth.n_users, np.bool_)
        kept[holdout.users[numbers]] = True
        restricted = holdout._replace(
            truth=holdout.truth.where(kept[holdout.truth.user]),
            description=f"{numbers.size:,} of {holdout.description}",
            everyone=None if holdout.everyone is None else holdout.everyone[numbers],
        )
        return replace(self, holdout=restricted, given=self.candidates.take(numbers))

    def fit_cutoff(self, cutoff: Cutoff) -> Cutoff:
        """Fit a clone of the cutoff on the candidates."""
        return self.selection_data.fit(cutoff)

    def refit(self, data: Interactions, *, progress: EpochProgress | None = None) -> Recommender:
        """Fit the model on all of `data`, for the best number of epochs."""
        fresh = self.model.clone()
        if self.n_epochs is not None:
            fresh.set_params(n_epochs=self.n_epochs)
        return fit_model(fresh, data, progress=progress, items=self.items)
