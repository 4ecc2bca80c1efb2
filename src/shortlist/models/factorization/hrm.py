"""HRM and DKHRM: a user's long-term preferences and the last baskets, pooled into one vector (paper §3.3)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from shortlist.core.checks import file_error
from shortlist.core.options import Count, Fraction, Positive
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.new_users import AVERAGE, MAXIMUM
from shortlist.kernels.sgd import USER_TREND_START, Contexts, Parameters
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import decayed_counts
from shortlist.models.factorization.model import (
    AUTO,
    BoundaryStart,
    DynamicK,
    FactorModel,
    FactorState,
    Negatives,
    Terms,
)
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import (
    NO_SALES,
    GrowingTrend,
    HybridFactors,
    Trend,
    context_vectors,
    repeat_weight,
)
from shortlist.models.search_space import Space
from shortlist.recommend.request import Contributions, RecommendRequest
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

Pooling = Literal["average", "max"]


@dataclass(kw_only=True, eq=False, repr=False)
class HRM(FactorModel):
    """Hierarchical representation model: predict the next basket from the user and the last baskets.

    The score vector pools the user's vector with the item vectors of the last `window` baskets.
    Two optional terms are added to the inner product:

    - with `repeat_decay`, (a_u + b_i) · ln(1 + baskets of the user with item i), each basket counting
      repeat_decay^(baskets since);
    - with `trend_half_life`, (c_u + d_i) · ln(recent interactions with item i / the usual number), over whole
      days before the prediction time.

    The weights a, b, c, d are learned.

    Parameters
    ----------
    pool_items
        How the items of the context are pooled, "average" or "max".
    pool_user
        How the user is pooled with the context, "average" or "max".
    window
        How many baskets back the context reaches.
    repeat_decay
        How much a past basket counts one basket later; None: no repeat term. "auto": 0.9 if users interact
        with items again, else None. `fit` replaces "auto" by what it chose.
    trend_half_life
        Days after which an interaction counts half in the trend; None: no trend term. "auto": 3 if the data
        has times and users interact with items again, else None.
    negatives
        None: pairwise ranking loss. A number: the logistic loss with this many uniformly sampled negative
        examples per positive one, as in the paper on HRM. An epoch has as many examples as there are
        interactions, so that it needs about as many times more epochs.
    n_factors, n_epochs, lr, reg, reg_user, reg_item, reg_negative, bias
        As in `BPRMF`.
    negative_draws, init, tol, patience, seed, weighting, weight_cap
        As in `BPRMF`.

    References
    ----------
    Wang et al., "Learning Hierarchical Representation Model for Next Basket Recommendation", SIGIR 2015.

    Examples
    --------
    >>> model = sl.HRM(n_epochs=2).fit(sl.load_dataset("sample"))
    >>> model.repeat_decay, model.trend_half_life
    (0.9, 3.0)
    """

    search_space: ClassVar[Space] = {
        **FactorModel.search_space,
        "trend_half_life": (None, 1.0, 3.0, 7.0, 30.0),
    }
    timed_params: ClassVar[tuple[str, ...]] = ("trend_half_life",)
    warmup_params: ClassVar[dict[str, Any]] = {"n_epochs": 1, "repeat_decay": 0.9, "trend_half_life": 3.0}

    pool_items: Pooling = "average"
    pool_user: Pooling = "average"
    window: Count = 1
    repeat_decay: Fraction | Literal["auto"] | None = AUTO
    trend_half_life: Positive | Literal["auto"] | None = AUTO
    negatives: Negatives | None = None

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        return None if data.has_baskets else "it needs users with more than one basket"

    def choose_params(self, *, has_times: bool, has_repeats: bool) -> None:
        super().choose_params(has_times=has_times, has_repeats=has_repeats)
        if self.n_epochs == AUTO:  # the terms are learned soon, vectors alone need longer
            self.n_epochs = 20 if has_repeats else 100
        if self.repeat_decay == AUTO:
            self.repeat_decay = 0.9 if has_repeats else None
        if self.trend_half_life == AUTO:
            self.trend_half_life = 3.0 if has_times and has_repeats else None

    @property
    def _repeat_decay(self) -> float | None:
        """The decay, once it is chosen."""
        return None if isinstance(self.repeat_decay, str) else self.repeat_decay

    @property
    def _half_life(self) -> float | None:
        """The half-life, once it is chosen."""
        return None if isinstance(self.trend_half_life, str) else self.trend_half_life

    def objective(self) -> Objective:
        """Pairwise ranking, or classification of interactions and sampled items."""
        return Objective() if self.negatives is None else Objective(alpha=1.0, negatives=self.negatives)

    def terms(self, data: Interactions) -> Terms:
        repeat_start = None if self._repeat_decay is None else repeat_weight(data, self._repeat_decay)
        return Terms(repeat_start, None if self._half_life is None else Trend.of(data, self._half_life))

    def representation(self, train: Interactions, terms: Terms) -> HybridFactors:
        pools, sales = (self.pool_items == "max", self.pool_user == "max"), NO_SALES
        if terms.trend is not None:
            assert train.time is not None
            sales = terms.trend.for_baskets(train.time[train.baskets[:-1]])
        start = terms.repeat_start or 0.0
        return HybridFactors(train, self.window, *pools, self._repeat_decay, start, sales)

    def trend_of(self, history: Interactions) -> GrowingTrend | None:
        if self._half_life is None:
            return None
        return GrowingTrend.grow(Trend.of(history, self._half_life))

    def user_vectors(self, parameters: Parameters, history: Interactions, users: Ints) -> Floats:
        last = history.user_baskets[users + 1]
        begin = history.baskets[np.maximum(last - self.window, history.user_baskets[users])]
        contexts = Contexts(
            users,
            begin,
            history.baskets[last],
            history.item,
            self.pool_items == "max",
            self.pool_user == "max",
            np.float32(0),
            np.float32(0),
        )
        return context_vectors(parameters, contexts)

    def dense_scores(
        self,
        parameters: Parameters,
        history: Interactions,
        trend: GrowingTrend | None,
        users: Ints,
        timestamps: Longs | None = None,
    ) -> Floats:
        scores = super().dense_scores(parameters, history, trend, users, timestamps)
        self._add_repeats(scores, parameters, history, users)
        self._add_trend(scores, parameters, trend, users, timestamps)
        return scores

    def _add_repeats(
        self, scores: Floats, parameters: Parameters, history: Interactions, users: Ints
    ) -> None:
        """Add the repeat term to the scores of each user's own items."""
        if self._repeat_decay is None:
            return
        sets, counts = history.item_sets, decayed_counts(history, self._repeat_decay)
        for row, user in enumerate(users):
            items, count = sets.row(user), counts[sets.indptr[user] : sets.indptr[user + 1]]
            weight = parameters.user_repeat[user] + parameters.item_repeat[items]
            scores[row, items] += weight * np.log1p(count)

    def _add_trend(
        self,
        scores: Floats,
        parameters: Parameters,
        trend: GrowingTrend | None,
        users: Ints,
        timestamps: Longs | None,
    ) -> None:
        """Add the trend term at the prediction times (None: after all events)."""
        if trend is not None:
            times = np.full(users.size, trend.end) if timestamps is None else timestamps
            trend.add_to(scores, parameters.user_trend[users], parameters.item_trend, times)

    def contributions(self, request: RecommendRequest[FactorState], items: Ints) -> Contributions:
        """The inner product, the bias, and the repeat and trend terms of each item."""
        history, users, parameters = request.history, request.rows, self._request_parameters(request)
        vectors = self.user_vectors(parameters, history, users)
        sources = {"user and last baskets": vectors @ parameters.item.T}
        if parameters.bias.size:
            sources["item bias"] = parameters.bias[None, :]
        if self._repeat_decay is not None:
            sources["bought before"] = np.zeros((1, history.n_items), np.float32)
            self._add_repeats(sources["bought before"], parameters, history, users)
        if request.state.trend is not None:
            sources["trend"] = np.zeros((1, history.n_items), np.float32)
            trend, times = request.state.trend, request.timestamps
            self._add_trend(sources["trend"], parameters, trend, users, times)
        amounts = [[(name, float(row[0, item])) for name, row in sources.items()] for item in items]
        return [sorted(named, key=lambda source: -abs(source[1])) for named in amounts]

    def item_offsets(self, state: FactorState) -> Floats:
        bias = super().item_offsets(state)
        trend = state.trend
        if trend is None:
            return bias
        recent: Floats = (USER_TREND_START + state.parameters.item_trend) * trend.trend_scores(
            trend.end // DAY
        )
        return recent + bias if bias.size else recent

    @property
    def terms_on(self) -> tuple[bool, ...]:
        return self._repeat_decay is not None, self._half_life is not None

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> FactorState:
        if self._half_life is not None and history.time is None:
            raise file_error("history.time", "is missing, but the model has a trend term")
        return super()._from_arrays(history, arrays, notes)

    @property
    def pooling(self) -> int:
        return MAXIMUM if self.pool_user == "max" else AVERAGE

    def trained_users(self, history: Interactions) -> Bools:
        return history.basket_counts > 1

    def items_per_group(self, history: Interactions, users: Ints) -> Doubles:
        rows, baskets = history.user_counts[users], history.basket_counts[users]
        return np.asarray(rows / np.maximum(baskets, 1))

    def check_rows(self, has_times: bool, has_trained_users: bool) -> None:
        if self._half_life is not None and not has_times:
            raise ConfigError(
                "trend_half_life needs timestamps, got data without them; add them or set it to None."
            )
        if not has_trained_users:
            raise DataError(
                f"{type(self).__name__} learns from users with two baskets or more, got none; "
                "add timestamps or basket ids, or use BPRMF or DKBPRMF."
            )


@dataclass(kw_only=True, eq=False, repr=False)
class DKHRM(DynamicK, HRM):  # type: ignore[misc]  # its number of negatives is never None
    """HRM with a personal decision boundary, learned jointly (paper §3.3).

    With `alpha=1` it is HRM trained by negative sampling, with a boundary.

    Parameters
    ----------
    alpha, t, lambda_t, negatives, loss, penalty, boundary
        As in `DKBPRMF`.
    pool_items, pool_user, window, repeat_decay, trend_half_life
        As in `HRM`.
    n_epochs
        Maximum number of passes over the interactions. "auto": 20 if users interact with items again, else
        100.
    n_factors, lr, reg, reg_user, reg_item, reg_negative, bias
        As in `BPRMF`.
    negative_draws, init, tol, patience, seed, weighting, weight_cap
        As in `BPRMF`.

    References
    ----------
    Gao et al., "Dynamic-K Recommendation with Personalized Decision Boundary", CCIR 2017.

    Examples
    --------
    >>> model = sl.DKHRM().fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(max_items=20)
    """

    is_tried_by_fit: ClassVar[bool] = True

    n_epochs: Count | Literal["auto"] = AUTO
    t: BoundaryStart = 2.0
