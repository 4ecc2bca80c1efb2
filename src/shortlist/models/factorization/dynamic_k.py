"""DynamicK: what the joint models add to their ranker (paper §3.3), and the boundary of their lists."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from shortlist.core.checks import check_array, check_float_value
from shortlist.core.estimator import short_repr
from shortlist.cutoff.basket_size import N_HISTORY_COLUMNS, BasketSize, history_columns
from shortlist.data.grouping import in_last_basket
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.kernels.rng import stream
from shortlist.models.factorization.engine import FactorModel
from shortlist.models.factorization.objective import Objective, positive_rates
from shortlist.models.factorization.schedule import random_bits
from shortlist.models.factorization.state import FactorState
from shortlist.recommend.request import RecommendRequest, Scores
from shortlist.types import Doubles, Ints

BOUNDARIES = ("expected_f1", "learned")
MAX_SIZE_USERS = 500_000  # users from whom the prediction of sizes is learned, about
SIZES = 9  # id of a random stream
SIZE_ARRAYS = {  # arrays of a BasketSize in a file, and their shapes
    "center_": (N_HISTORY_COLUMNS,),
    "scale_": (N_HISTORY_COLUMNS,),
    "beta_": (N_HISTORY_COLUMNS + 1,),
}


@dataclass(kw_only=True, eq=False, repr=False)
class DynamicK(FactorModel):
    """The parameters that joint models add to their ranker: classification examples, personal boundaries."""

    earlier_params: ClassVar[dict[str, Any]] = {"boundary": "learned"}

    alpha: float = 0.5
    t: float = 1.0
    lambda_t: float = 1.0
    negatives: float | str = 10.0
    loss: str = "logistic"
    penalty: str = "l2"
    boundary: str = "expected_f1"

    def objective(self) -> Objective:
        """The joint loss."""
        return Objective(
            alpha=self.alpha,
            t=self.t,
            lambda_t=self.lambda_t,
            negatives=self.negatives,
            loss=self.loss,
            penalty=self.penalty,
            learn_boundary=True,
        )

    @property
    def maximizes_f1(self) -> bool:
        """Whether lists end at the boundary with the highest expected F1, which needs probabilities."""
        objective = self.objective()
        return self.boundary == "expected_f1" and objective.has_boundary and objective.has_log_odds

    def fit_next_size(self, history: Interactions) -> BasketSize | None:
        """Predict the size of each user's last basket from the earlier ones; None without such users."""
        if not self.maximizes_f1:
            return None
        return fit_sizes(*size_examples(history, 0, history.n_users))

    def score(self, request: RecommendRequest[FactorState]) -> Scores:
        """The scores of the ranker; probabilities are those of the next list, whose size is predicted."""
        scores, next_size = super().score(request), request.state.next_size
        if not self.maximizes_f1:
            return scores
        assert scores.log_odds_shift is not None
        own = positive_rates(self.items_per_group(request.history, request.rows))
        if next_size is None:  # the data has no second baskets: the next list is like the history
            return replace(scores, expected_sizes=np.maximum(own, 1), size_dispersion=0.0)
        sizes = 1 + next_size.predict_history(request.history, request.rows)
        return replace(
            scores,
            log_odds_shift=(scores.log_odds_shift + np.log(sizes / own)).astype(np.float32),
            expected_sizes=sizes,
            size_dispersion=float(next_size.dispersion_),
        )

    def _check_params(self) -> None:
        super()._check_params()
        if not any(self.boundary == one for one in BOUNDARIES):
            raise ConfigError(
                f"boundary must be one of {', '.join(BOUNDARIES)}, got {short_repr(self.boundary)}."
            )

    def _to_arrays(self, state: FactorState) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, notes = super()._to_arrays(state)
        if state.next_size is not None:
            arrays |= {f"next_size.{name}": vars(state.next_size)[name] for name in SIZE_ARRAYS}
            notes |= {"next_size_dispersion": state.next_size.dispersion_}
        return arrays, notes

    def _from_arrays(
        self, history: Interactions, arrays: dict[str, Any], notes: dict[str, Any]
    ) -> FactorState:
        own = {name: array for name, array in arrays.items() if name.startswith("next_size.")}
        state = super()._from_arrays(
            history, {name: array for name, array in arrays.items() if name not in own}, notes
        )
        return replace(state, next_size=_load_size(own, notes)) if own else state


def size_examples(history: Interactions, first_user: int, n_users: int) -> tuple[Doubles, Ints]:
    """(columns, counts): what is known of users before their last baskets, and the items of these but one.

    `history` has the rows of users first_user … of all n_users. Of very many users, a part is drawn.
    """
    is_used = np.diff(history.user_baskets) > 1
    if n_users > MAX_SIZE_USERS:
        numbers = np.arange(history.n_users, dtype=np.uint64) + np.uint64(first_user)
        drawn = random_bits(stream(0, SIZES)[0], numbers) >> np.uint64(11)
        is_used &= drawn * 2.0**-53 < MAX_SIZE_USERS / n_users
    users = np.flatnonzero(is_used).astype(np.int32)
    # a list has at least one item: predict the others
    last = np.diff(history.baskets)[history.user_baskets[users + 1] - 1] - 1
    earlier = history.where(~in_last_basket(history))
    return history_columns(earlier, users), last.astype(np.int32)


def fit_sizes(columns: Doubles, counts: Ints) -> BasketSize | None:
    """Learn to predict the size of the next list from `size_examples`; None without examples."""
    return BasketSize().fit_history_columns(columns, counts) if counts.size else None


def _load_size(arrays: dict[str, Any], notes: dict[str, Any]) -> BasketSize:
    size = BasketSize()
    for name, shape in SIZE_ARRAYS.items():
        low = 1e-9 if name == "scale_" else None
        vars(size)[name] = check_array(arrays, f"next_size.{name}", np.float64, shape, low=low)
    size.uses_history_, size.uses_expected_sizes_ = True, False
    size.dispersion_ = check_float_value(notes, "next_size_dispersion", 0, 1e300)
    return size
