"""The choice under a guarantee: users on whom it is tested take no part in training and choosing."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shortlist.auto.cutoff_choice import SelectedCutoff
from shortlist.auto.validation import EpochProgress, Holdout, Validation, earlier_fold
from shortlist.cutoff.guarantee import Guarantee
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError
from shortlist.models.base import Recommender
from shortlist.types import Bools, Doubles, Ints, Longs

N_BASKETS = 4  # the latest baskets or periods, on each of which a guarantee is tested
TESTED_SHARE = 0.3  # share of the users with held-out interactions on whom the guarantee is tested
MAX_TESTED_SHARE = 0.6  # the same within one stratum
STRATA = np.array([1, 2, 3, 5, 9])  # shortest history of each stratum, in baskets


class GuaranteeData(NamedTuple):
    """The data without what the guarantee is tested on."""

    selection: Holdout  # for models and settings: users who are not kept back
    tested: Holdout  # training data of the deployed model, and what the kept-back users did next
    earlier: list[Holdout]  # the same one, two and three baskets or periods before, of all users


def keep_back(data: Interactions, holdout: Holdout, seed: int) -> GuaranteeData:
    """Keep back some of the held-out users: no model trains, tunes or stops early on their truth.

    Under strict time, the deployed model learns from the history alone and observes everything later.
    """
    users = holdout.truth.active_users
    kept = draw_like_served(data.basket_counts, holdout.history.basket_counts, users, seed)
    if kept.size < 2 or users.size - kept.size < 2:
        raise DataError(
            f"a guarantee needs at least two users to test it on and two others, got {users.size} users with "
            "held-out interactions; add more data, or pass another cutoff."
        )
    is_kept = np.zeros(data.n_users, np.bool_)
    is_kept[kept] = True
    is_history = in_history(data, holdout.history)
    truth = holdout.truth
    others = truth.where(~is_kept[truth.user])
    training = holdout.history if holdout.later is not None else data.where(is_history | ~is_kept[data.user])
    n_kept, n_others = kept.size, others.active_users.size
    return GuaranteeData(
        Holdout(
            holdout.history,
            others,
            f"{holdout.description}, of which {n_kept:,} are kept back to test the guarantee and "
            f"{n_others:,} select the model",
            holdout.later,
        ),
        Holdout(
            training,
            truth.where(is_kept[truth.user]),
            f"{n_kept:,} users who were kept back",
            holdout.later,
        ),
        earlier_folds(holdout, n_kept),
    )


def draw_like_served(n_baskets: Longs, n_history: Longs, users: Ints, seed: int) -> Ints:
    """Users drawn so that their histories are as long as those of the users who will come back.

    n_baskets: (n_users,) baskets of each user now, which is the history that lists will be made from.
    n_history: (n_users,) baskets of each user's history when tested. `users` can be tested.
    """
    counts = np.bincount(n_baskets[n_baskets > 0])
    at_least = np.cumsum(counts[::-1])[::-1]  # users with at least so many baskets
    later = np.append(at_least[1:], 0)
    returns = counts * later / np.maximum(at_least, 1)  # users times their rate of return
    weights = count_strata(np.arange(1, counts.size), returns[1:])
    limit = TESTED_SHARE * users.size
    drawn = draw_strata(weights, n_history[users], [seed, users.size], limit, largest_share=MAX_TESTED_SHARE)
    return users[drawn]


def _stratum(n_baskets: Longs) -> Longs:
    return np.maximum(np.searchsorted(STRATA, n_baskets, side="right") - 1, 0)


def count_strata(n_baskets: Longs, weights: Doubles | None = None) -> Doubles:
    """(n_strata,) number or total weight of histories with these numbers of baskets."""
    return np.bincount(_stratum(n_baskets), weights, minlength=STRATA.size).astype(np.float64)


def draw_strata(
    weights: Doubles,
    n_baskets: Longs,
    seed: list[int],
    limit: float,
    *,
    largest_share: float = 1.0,
    round_down: bool = False,
) -> Longs:
    """Draw histories so that the strata are as frequent as their `weights`; return positions, ascending.

    weights: (n_strata,). n_baskets: (n,) of the available histories. At most `limit` are drawn, and at most
    `largest_share` of each stratum. Strata without histories are left out.
    """
    strata, available = _stratum(n_baskets), count_strata(n_baskets)
    weights = np.where(available > 0, weights, 0.0)
    if not weights.sum():
        weights = available
    shares = weights / (weights.sum() or 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = np.where(shares > 0, largest_share * available / shares, np.inf)
    sizes = min(limit, float(limits.min())) * shares
    sizes = np.floor(sizes + 1e-9) if round_down else np.minimum(np.round(sizes), available)
    shuffled = np.random.default_rng(seed).permutation(n_baskets.size)
    parts = [shuffled[strata[shuffled] == s][: int(size)] for s, size in enumerate(sizes)]
    return np.sort(np.concatenate(parts))


def in_history(data: Interactions, history: Interactions) -> Bools:
    """(n_rows,) whether a row of the data is in the history, which has the same ids."""
    position = np.arange(data.n_rows) - data.indptr[data.user]
    first: Bools = position < history.user_counts[data.user]
    if np.array_equal(data.item[first], history.item):  # histories are the first rows of their users
        return first
    keys = data.user.astype(np.int64) * data.n_items + data.item
    return np.isin(keys, history.user.astype(np.int64) * history.n_items + history.item)


def earlier_folds(holdout: Holdout, n_tested: int) -> list[Holdout]:
    """The hold-outs one, two and three baskets or periods earlier, as far as there are enough users."""
    folds: list[Holdout] = []
    fold = earlier_fold(holdout)
    while fold is not None and len(folds) < N_BASKETS - 1 and fold.truth.active_users.size >= n_tested / 2:
        folds.append(fold)
        fold = earlier_fold(fold)
    return folds


def deploy(
    best: Validation, kept: GuaranteeData, guarantee: Guarantee, progress: EpochProgress | None
) -> tuple[Recommender, SelectedCutoff]:
    """Train without the tested interactions, test the guarantee, then add them as history only."""
    training, truth, description, later = kept.tested[:4]
    earlier = [(*_tested_lists(best, fold, guarantee), fold.history) for fold in reversed(kept.earlier)]
    model = best.refit(training, progress=progress)
    tested = replace(best, model=model, holdout=kept.tested, given=None)
    candidates = tested.candidates
    model.observe(truth if later is None else later)
    lists = candidates if guarantee.max_empty is None else _lists_of_everyone(tested)
    fitted = guarantee.clone().fit(lists, truth, history=training, earlier=earlier)
    score = tested.evaluate(fitted.apply(candidates, history=training)).mean(best.metric)
    tested_on = f"tested on {description}, whose tested interactions trained no model"
    reason = f"not compared with other cutoffs; {tested_on}"
    name = type(guarantee).__name__
    return model, SelectedCutoff(name, fitted, {name: score}, reason, best.metric)


def _tested_lists(best: Validation, fold: Holdout, guarantee: Guarantee) -> tuple[RankedLists, Interactions]:
    """Candidates of a model that was trained before the fold, and what followed."""
    tested = replace(best, model=best.refit(fold.history), holdout=fold, given=None)
    return tested.candidates if guarantee.max_empty is None else _lists_of_everyone(tested), fold.truth


def _lists_of_everyone(tested: Validation) -> RankedLists:
    """Candidates of all known users: no outcome is needed to see which lists are empty."""
    lists = tested.model.recommend(N=tested.n_candidates, filter_seen=tested.filter_seen)
    return replace(lists, origin=None)
