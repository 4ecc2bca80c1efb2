"""HRM and DKHRM: a user's long-term preferences and the last baskets, pooled into one vector (paper §3.3)."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from shortlist.core.options import Count, Fraction, Positive
from shortlist.data.interactions import Interactions
from shortlist.models.factorization.model import AUTO, BoundaryStart, DynamicK, FactorModel, Negatives
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import HybridFactors
from shortlist.models.search_space import Space

Pooling = Literal["average", "max"]
MANY_ROWS = 50_000  # sl.fit tries DKHRM up to so many: on larger datasets it took long and was never the best


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

    def objective(self) -> Objective:
        """Pairwise ranking, or classification of interactions and sampled items."""
        return Objective() if self.negatives is None else Objective(alpha=1.0, negatives=self.negatives)

    @property
    def representation(self) -> HybridFactors:
        return HybridFactors(self.window, self.pool_items == "max", self.pool_user == "max")


@dataclass(kw_only=True, eq=False, repr=False)
class DKHRM(DynamicK, HRM):  # type: ignore[misc]  # its number of negatives is never None
    """HRM with a personal decision boundary, learned jointly (paper §3.3).

    With `alpha=1` it is HRM trained by negative sampling, with a boundary.

    Parameters
    ----------
    alpha, t, lambda_t, lambda_t_per, negatives, loss, penalty, boundary
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

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        if data.n_rows > MANY_ROWS and find_spec("lightgbm") is not None:
            return f"{data.n_rows:,} rows are more than {MANY_ROWS:,}, where TwoStage predicts more"
        return super().why_unsuitable(data)

    n_epochs: Count | Literal["auto"] = AUTO
    repeat_decay: Fraction | Literal["auto"] | None = AUTO
    trend_half_life: Positive | Literal["auto"] | None = AUTO
    t: BoundaryStart = 2.0
