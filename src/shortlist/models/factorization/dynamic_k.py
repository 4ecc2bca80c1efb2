"""DynamicK: what the joint models add to their ranker (paper §3.3)."""

from dataclasses import dataclass

from shortlist.models.factorization.engine import FactorModel
from shortlist.models.factorization.objective import Objective


@dataclass(kw_only=True, eq=False, repr=False)
class DynamicK(FactorModel):
    """The parameters that joint models add to their ranker: classification examples, personal boundaries."""

    alpha: float = 0.5
    t: float = 1.0
    lambda_t: float = 1.0
    negatives: float | str = 10.0
    loss: str = "logistic"
    penalty: str = "l2"

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
