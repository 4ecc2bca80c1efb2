"""Matrix factorization: BPRMF, LogMF, CRRMF and DKBPRMF differ only in their objective."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from shortlist.core.options import Count, Fraction, NotNegative, Positive, Probability
from shortlist.models.factorization.model import (
    AUTO,
    SGD_SPACE,
    DynamicK,
    FactorModel,
    LearningRate,
    Negatives,
)
from shortlist.models.factorization.objective import Objective
from shortlist.models.search_space import Range, Space


@dataclass(kw_only=True, eq=False, repr=False)
class BPRMF(FactorModel):
    """Matrix factorization trained with the BPR pairwise ranking loss.

    Scores rank items within one user; they are not comparable between users and are not probabilities.

    Parameters
    ----------
    n_factors
        Length of the user and item vectors.
    n_epochs
        Maximum number of passes over the interactions.
    lr
        Step size of the stochastic gradient descent.
    reg
        L2 penalty on all vectors.
    reg_user
        L2 penalty on users; None: `reg`.
    reg_item
        L2 penalty on the items that users interacted with; None: `reg`.
    reg_negative
        L2 penalty on sampled items; None: `reg`.
    bias
        Whether each item has a bias, which is not penalized.
    negative_draws
        Items sampled per pair; the one that scores highest is used (dynamic negative sampling, Zhang et al.,
        SIGIR 2013). 1 is plain BPR. None: one per 500 items, 1 to 20, because more draws improve the top of
        lists from many items and distort those from few; an update with more draws takes longer. The
        rule was set on Last.fm, CiteULike-t and MovieLens-1M without times.
    init
        Scale of the random initial vectors.
    tol
        Training without validation data ends when the loss changes by less than this share for three epochs.
    patience
        Training with validation data ends after this many epochs without improvement; the best is kept.
    repeat_decay
        How much a past basket counts one basket later; None: no repeat term. "auto": 0.9 if users interact
        with items again, else None. `fit` replaces "auto" by what it chose.
    trend_half_life
        Days after which an interaction counts half in the trend; None: no trend term. "auto": 3 if the data
        has times and users interact with items again, else None.
    seed
        The same seed gives the same model, bit for bit, on any number of threads.
    weighting, weight_cap
        As in `Popularity`: whether rows count by their weight. A pair is visited that often in every epoch,
        rounded at random, at least once; a mean above 4 is scaled down to 4. Rows of negative weight are no
        pairs, so their items may be sampled.

    References
    ----------
    Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009.

    Examples
    --------
    >>> model = sl.BPRMF(n_factors=16, n_epochs=2, seed=7).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=10)
    """

    negative_draws: Count | None = None

    def objective(self) -> Objective:
        """Pairwise ranking only."""
        return Objective()


@dataclass(kw_only=True, eq=False, repr=False)
class LogMF(FactorModel):
    """Matrix factorization trained to classify items with the logistic loss.

    Biases learn first, and vectors follow many epochs later; `patience` does not count epochs before that.
    `lr`, `negatives` and `init`, which decide how many, were set on Last.fm, CiteULike-t and MovieLens-100K
    without times.

    Parameters
    ----------
    c
        Weight of a positive example.
    negatives
        Negative examples per positive one, or "uniform" to sample examples uniformly over all items.
    n_factors, n_epochs, lr, reg, reg_user, reg_item, reg_negative, bias
        As in `BPRMF`.
    negative_draws, init, tol, patience, repeat_decay, trend_half_life, seed, weighting, weight_cap
        As in `BPRMF`.

    References
    ----------
    Johnson, "Logistic Matrix Factorization for Implicit Feedback Data", NIPS workshop 2014.

    Examples
    --------
    >>> model = sl.LogMF(n_epochs=2).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=10)
    """

    search_space: ClassVar[Space] = {**SGD_SPACE, "c": Range(0.5, 8), "negatives": Range(1, 16)}

    lr: LearningRate = 0.2
    init: NotNegative = 0.3
    c: Positive = 1.0
    negatives: Negatives = 10.0

    def objective(self) -> Objective:
        """Classification only."""
        return Objective(alpha=1.0, weight=self.c, negatives=self.negatives)


@dataclass(kw_only=True, eq=False, repr=False)
class CRRMF(FactorModel):
    """Matrix factorization trained by combined ranking and regression: scores regress to 1 and 0.

    Parameters
    ----------
    alpha
        Share of regression steps: 0 is pure ranking, 1 pure regression.
    n_factors, n_epochs, lr, reg, reg_user, reg_item, reg_negative, bias
        As in `BPRMF`.
    negative_draws, init, tol, patience, repeat_decay, trend_half_life, seed, weighting, weight_cap
        As in `BPRMF`.

    References
    ----------
    Sculley, "Combined Regression and Ranking", KDD 2010.

    Examples
    --------
    >>> model = sl.CRRMF(n_epochs=2).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=10)
    """

    search_space: ClassVar[Space] = {**FactorModel.search_space, "alpha": Range(0.1, 0.9, log=False)}

    alpha: Probability = 0.5

    def objective(self) -> Objective:
        """Ranking and squared loss, mixed by sampling."""
        return Objective(alpha=self.alpha, loss="squared")


@dataclass(kw_only=True, eq=False, repr=False)
class DKBPRMF(DynamicK):
    """BPRMF with a personal decision boundary, learned jointly (paper §3.3).

    `fit` trains twice, the second time without each user's last basket (or a fifth of the items, if few users
    have two baskets). What that model says of the held-out items decides in which order items are shown and
    where lists end, so no validation data is needed.

    Parameters
    ----------
    alpha
        Share of classification steps: 0 is the pure ranker, 1 the pure classifier.
    t
        Start of every boundary, and the value it is regularized toward.
    lambda_t
        Penalty on the distance of a boundary from t.
    lambda_t_per
        "user": the penalty counts once per user and epoch, as in the paper's equation 4. "step": it counts in
        every classification step, as in its Algorithm 1; with the paper's 1 there, boundaries of two seeds
        hardly agree.
    negatives
        Negative examples per positive one; more make the boundary stricter. A score above t_u means odds
        above `negatives` times the base rate. "uniform" samples examples uniformly over all items, as in the
        paper. "auto": 100 if users interact with items again, else 10; `fit` replaces it by what it chose.
    loss
        Classification loss, "logistic" or "hinge".
    penalty
        Penalty on boundaries, "l2" or "l1".
    boundary
        "expected_f1": lists end at the highest expected F1 and are ordered by probability, as `ExpectedF1`
        learns them on the inner hold-out. "learned": lists end at t_u and are ordered by score, as in the
        paper; `fit` trains once. It is also used if there is nothing to hold out.
    n_epochs
        Maximum number of passes over the interactions. "auto": 20 if users interact with items again, else
        100.
    repeat_decay, trend_half_life
        As in `BPRMF`, with "auto" as the default.
    n_factors, lr, reg, reg_user, reg_item, reg_negative, bias
        As in `BPRMF`.
    negative_draws, init, tol, patience, seed, weighting, weight_cap
        As in `BPRMF`.

    References
    ----------
    Gao et al., "Dynamic-K Recommendation with Personalized Decision Boundary", CCIR 2017.

    Examples
    --------
    >>> model = sl.DKBPRMF(n_epochs=60).fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(cutoff="boundary", max_items=20)
    """

    n_epochs: Count | Literal["auto"] = AUTO
    repeat_decay: Fraction | Literal["auto"] | None = AUTO
    trend_half_life: Positive | Literal["auto"] | None = AUTO
