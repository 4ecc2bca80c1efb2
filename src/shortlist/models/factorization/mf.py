"""Matrix factorisation: BPRMF, LogMF, CRRMF and DK-BPRMF differ only in their objective."""

from dataclasses import dataclass

from shortlist.data.interactions import Interactions
from shortlist.kernels.mf import Parameters
from shortlist.models.factorization.engine import DynamicK, JointModel
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import Plain, Representation
from shortlist.types import Floats, Ints


@dataclass(kw_only=True, eq=False)
class _Factorisation(JointModel):
    def representation(self, train: Interactions, history: Interactions) -> Representation:
        return Plain()

    def vectors_of(self, theta: Parameters, history: Interactions, users: Ints) -> Floats:
        return theta.user[users]


@dataclass(kw_only=True, eq=False)
class BPRMF(_Factorisation):
    """Rank liked items above unseen ones (Rendle et al., 2009); the order means something, not the scale."""

    def objective(self) -> Objective:
        return Objective()


@dataclass(kw_only=True, eq=False)
class LogMF(_Factorisation):
    """Tell liked from unseen items by logistic loss (Johnson, 2014); `c` weighs the liked ones."""

    c: float = 1.0
    negatives: float | str = 1.0

    def objective(self) -> Objective:
        return Objective(alpha=1.0, weight=self.c, negatives=self.negatives)


@dataclass(kw_only=True, eq=False)
class CRRMF(_Factorisation):
    """Rank, and regress scores to 1 and 0 (Sculley, 2010); `alpha` is the share of regression steps."""

    alpha: float = 0.5

    def objective(self) -> Objective:
        return Objective(alpha=self.alpha, loss="squared")


@dataclass(kw_only=True, eq=False)
class DKBPRMF(DynamicK, _Factorisation):
    """BPRMF with a personal decision boundary, learned jointly (paper §3.3)."""
