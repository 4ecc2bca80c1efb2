"""FactorState: what a fitted factor model knows."""

from dataclasses import dataclass, field
from typing import Any

from shortlist.cutoff.basket_size import BasketSize
from shortlist.kernels.mf import Parameters
from shortlist.models.contract import ModelState
from shortlist.models.factorization.item_features import ItemFeatures
from shortlist.models.factorization.objective import Objective
from shortlist.recommend.index import ItemIndexCache
from shortlist.types import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorState(ModelState):
    """The learned parameters, and how training went."""

    parameters: Parameters
    objective: Objective  # that the parameters were trained for
    start_weights: tuple[float | None, ...]  # of new users, for each of TERMS; None where a term is off
    mean_user: Floats  # (n_factors,) of users without training pairs, and where fold-in starts
    mean_boundary: float  # likewise
    side: Any = None  # what `side_data` derived from the history
    index: ItemIndexCache = field(default_factory=ItemIndexCache)
    n_epochs: int = 0
    losses: tuple[float, ...] = ()
    valid_scores: tuple[float, ...] = ()
    stopped: str = "n_epochs"
    lr: float = 0.0  # the step size at the end of training
    next_size: BasketSize | None = None  # predicts the size of the next list
    features: ItemFeatures | None = None  # the content of items, if `fit` got it

    @property
    def n_learned(self) -> int:
        """Number of users with parameters; users that `observe` added follow them."""
        return int(self.parameters.user.shape[0])

    @property
    def n_trained_items(self) -> int:
        """Number of items that training saw; items that were added later follow them."""
        return self.history.n_items if self.features is None else self.features.n_trained
