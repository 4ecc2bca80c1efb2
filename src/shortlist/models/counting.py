"""Popularity and PersonalFrequency: baselines that count interactions."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np

from shortlist.core.codec import Shape, Within, file_error
from shortlist.core.options import AtLeast, AtMost, Fraction, NotNegative, Positive
from shortlist.data.history import MAX_TIME, History, NewRows
from shortlist.data.interactions import NO_TIME, Interactions
from shortlist.errors import ConfigError
from shortlist.kernels.rows import add_decayed
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import FitOptions, ModelState, Recommender, WeightParams
from shortlist.models.search_space import Range, Space
from shortlist.models.weighting import WeightTransform, decayed_counts
from shortlist.recommend.request import Contributions, RecommendRequest, Scores, largest_first
from shortlist.types import Doubles, Floats, Ints, Longs

MAX_COUNT = 3e38  # what single precision can hold


class DecayedCounts(NamedTuple):
    """Interactions per item; with a half-life in days, older ones count less."""

    # decayed up to the item's last interaction
    counts: Annotated[Doubles, Shape("history.n_items"), Within(MAX_COUNT)]
    last: Annotated[Longs, Shape("n_last"), AtLeast(-MAX_TIME), AtMost(MAX_TIME)]  # its time
    half_life: Positive | None  # without it, `last` is empty
    transform: WeightTransform | None

    @classmethod
    def of(
        cls, data: Interactions, half_life: float | None, transform: WeightTransform | None
    ) -> "DecayedCounts":
        """Count all rows."""
        if half_life is not None and data.time is None:
            raise ConfigError("half_life needs timestamps, got data without them; set half_life=None.")
        last = NO_TIME if half_life is None else np.zeros(data.n_items, np.int64)
        return cls(np.zeros(data.n_items), last, half_life, transform).add(data, slice(None))

    def observe(self, history: History, new: NewRows | None) -> "DecayedCounts":
        """Count new rows too; all rows again if one is older than the last of its item, or has changed."""
        transform = None if new is None or not new.weight.size else self.transform
        if new is not None and not (transform is not None and new.reweighted.size):
            room = 0, history.n_items - self.counts.size
            last = self.last if self.half_life is None else np.pad(self.last, room)
            longer = self._replace(counts=np.pad(self.counts, room), last=last)
            amount = None if transform is None else transform.values(new.weight)
            added = longer._add(new.item, new.time, amount)
            if added is not None:
                return added
        return DecayedCounts.of(history.merged, self.half_life, self.transform)

    def add(self, data: Interactions, numbers: Longs | slice) -> "DecayedCounts":
        """Count these rows too, none of which is older than those counted before."""
        amount = None if self.transform is None else self.transform.of_rows(data)
        time = NO_TIME if data.time is None else data.time[numbers]
        counted = None if amount is None else amount[numbers]
        return cast(DecayedCounts, self._add(data.item[numbers], time, counted))

    def _add(self, item: Ints, time: Longs, amount: Doubles | None) -> "DecayedCounts | None":
        """Count more rows; None if one of them is too old to be added."""
        if self.half_life is None:
            added_counts = np.bincount(item, weights=amount, minlength=self.counts.size)
            return self._replace(counts=self.counts + added_counts)
        order, added = (
            np.argsort(time, kind="stable"),
            self._replace(counts=self.counts.copy(), last=self.last.copy()),
        )
        ordered = np.empty(0) if amount is None else amount[order]
        half_life = float(self.half_life) * DAY
        in_order = add_decayed(item[order], time[order], ordered, half_life, added.counts, added.last)
        return added if in_order else None

    def _check_loaded(self) -> None:
        """Raise ModelFileError unless items have a last interaction if their counts decay."""
        if self.last.size != (0 if self.half_life is None else self.counts.size):
            raise file_error("counts.last", "must have a time for each item, or none without a half-life")

    def values(self) -> Doubles:
        """(n_items,) the counts just after the last interaction of all."""
        if self.half_life is None:
            return self.counts
        age = (self.last.max() - self.last) / DAY
        return np.asarray(self.counts * 0.5 ** (age / self.half_life))


@dataclass(frozen=True, eq=False, kw_only=True)
class CountingState(ModelState):
    """Interactions per item."""

    counts: DecayedCounts
    share_weight: (
        NotNegative | None
    )  # of the items' shares of all interactions; None: counts instead of shares

    @cached_property
    def popularity(self) -> Floats:
        """(n_items,) interactions per item, or their weighted share."""
        return self._scale(self.counts.values())

    def _scale(self, counts: Doubles) -> Floats:
        if self.share_weight is None:
            return counts.astype(np.float32)
        return np.asarray(self.share_weight * counts / (np.abs(counts).sum() or 1.0), np.float32)

    @cached_property
    def _by_time(self) -> tuple[Interactions, Longs]:
        """All rows, and their order by time."""
        rows = self.history.merged
        assert rows.time is not None
        return rows, np.argsort(rows.time, kind="stable")

    def popularity_for(self, request: RecommendRequest["CountingState"]) -> Floats:
        """(n, n_items) the popularity for each user, from events before the user's time if `at` is a time."""
        scores = np.tile(self.popularity, (len(request), 1))
        times = request.timestamps
        if times is None or isinstance(request.options.at, Interactions):
            return scores
        past = np.flatnonzero(times < self.history.end_time)
        if not past.size:
            return scores
        rows, order = self._by_time
        assert rows.time is not None
        distinct, place = np.unique(times[past], return_inverse=True)
        ends = np.searchsorted(rows.time[order], distinct)
        counts, start = self.counts._replace(counts=np.zeros(rows.n_items), last=0 * self.counts.last), 0
        for number, end in enumerate(ends):
            counts, start = counts.add(rows, order[start:end]), int(end)
            scores[past[place == number]] = self._scale(counts.values())
        return scores


@dataclass(kw_only=True, eq=False, repr=False)
class CountingModel(WeightParams, Recommender):
    """Base class of the models that count interactions per item."""

    timed_params: ClassVar[tuple[str, ...]] = ("half_life",)
    is_tried_by_fit: ClassVar[bool] = True

    half_life: Positive | None = None

    @property
    def _share_weight(self) -> float | None:
        return None

    def _learn(self, train: Interactions, options: FitOptions) -> CountingState:
        counts = DecayedCounts.of(train, self.half_life, self.weight_transform)
        return CountingState(history=History.of(train), counts=counts, share_weight=self._share_weight)

    def _observe(self, state: CountingState, history: History, new: NewRows | None) -> CountingState:
        return replace(state, history=history, counts=state.counts.observe(history, new))


@dataclass(kw_only=True, eq=False, repr=False)
class Popularity(CountingModel):
    """Recommend the items with the most interactions, the same to every user.

    Parameters
    ----------
    half_life
        Days after which an interaction counts half; None: all interactions count the same.
    weighting
        What a row counts, by its weight w: a quantity, a rating, a number of plays or the like. "none": 1.
        "linear": w. "log": log2(1 + w). "cap": w, at most `weight_cap`. Rows of negative weight (returns,
        dislikes) count negatively, except with "none".
    weight_cap
        The most that a row can count, for `weighting="cap"`.

    Examples
    --------
    >>> model = sl.Popularity(half_life=7).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    search_space: ClassVar[Space] = {"half_life": (None, 3.0, 7.0, 14.0, 30.0, 90.0)}
    warmup_params: ClassVar[dict[str, Any]] = {"half_life": 3.0}

    def score(self, request: RecommendRequest[CountingState]) -> Scores:
        """Interactions per item."""
        return Scores(values=request.state.popularity_for(request))

    def contributions(self, request: RecommendRequest[CountingState], items: Ints) -> Contributions:
        """The popularity of each item."""
        return [[("popularity", float(value))] for value in request.state.popularity_for(request)[0, items]]


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalFrequency(CountingModel):
    """Recommend what the user interacted with before, recent baskets first, then popular items.

    The score of an item is the sum of decay^(baskets since) over the user's baskets with the item, plus
    `popularity` times the item's share of all interactions.

    Parameters
    ----------
    half_life
        Days after which an interaction counts half in the popularity; None: all count the same.
    decay
        How much a basket counts one basket later.
    popularity
        Weight of the popularity.
    weighting, weight_cap
        As in `Popularity`.

    Examples
    --------
    >>> model = sl.PersonalFrequency(decay=0.8).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=5)
    """

    search_space: ClassVar[Space] = {
        "decay": Range(0.7, 1.0, log=False),
        "popularity": Range(1, 100),
        "half_life": (None, 7.0, 30.0, 90.0),
    }

    decay: Fraction = 0.9
    popularity: NotNegative = 10.0

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        return None if data.has_repeats else "no user interacts with an item twice"

    @property
    def _share_weight(self) -> float:
        return self.popularity

    def score(self, request: RecommendRequest[CountingState]) -> Scores:
        """Decayed personal counts plus popularity."""
        scores = request.state.popularity_for(request)
        sets = request.history.item_sets
        scores[request.rows[sets.owner], sets.items] += decayed_counts(
            request.history, self.decay, self.weight_transform
        )
        return Scores(values=scores)

    def contributions(self, request: RecommendRequest[CountingState], items: Ints) -> Contributions:
        """The user's own count and the popularity of each item."""
        popularity = request.state.popularity_for(request)[0]
        personal = self.score(request).values[0] - popularity  # type: ignore[index]
        both = np.stack([personal[items], popularity[items]], axis=1).astype(np.float64)
        return [largest_first(["own baskets", "popularity"], row) for row in both]


MOST_OFTEN = "what each user took most often, latest first"  # a strong baseline where users buy again


def most_often() -> PersonalFrequency:
    """The ranker of that baseline: counts, of equals the latest, then nearly nothing but popular items."""
    return PersonalFrequency(decay=0.999, popularity=0.001)
