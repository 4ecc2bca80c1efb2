"""Fit with a Guarantee: keep users back, train without what they are tested on, deploy the tested model."""

from typing import NamedTuple

import numpy as np

from shortlist.auto.cutoff_choice import CutoffChoice
from shortlist.cutoff.guarantee import Guarantee
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.evaluation import evaluate
from shortlist.models.base import Recommender
from shortlist.tuning.validation import EpochProgress, Holdout, Validation, fit_model
from shortlist.types import Bools, Doubles, Ints, Longs

KEPT_BACK = 0.3  # share of the users with held-out interactions on whom the promise is tested
MAX_KEPT_BACK = 0.6  # the same within one stratum
STRATA = np.array([1, 2, 3, 5, 9])  # shortest history of each stratum, in baskets


class KeptBack(NamedTuple):
    """The data without what the promise is tested on."""

    selection: Holdout  # for models and settings: users who are not kept back
    tested: Holdout  # training data of the deployed model, and what the kept-back users did next


def keep_back(data: Interactions, holdout: Holdout, seed: int) -> KeptBack:
    """Keep back some of the held-out users: no model trains, tunes or stops early on their truth.

    Under strict time, the deployed model learns from the history alone and observes everything later.
    """
    users = holdout.truth.active_users
    kept = draw_like_served(np.diff(data.user_baskets), np.diff(holdout.history.user_baskets), users, seed)
    if kept.size < 2 or users.size - kept.size < 2:
        raise DataError(
            f"a guarantee needs at least two users to test it on and two others, got {users.size} users with "
            "held-out interactions; add more data, or pass another cutoff."
        )
    is_kept = np.zeros(data.n_users, np.bool_)
    is_kept[kept] = True
    known = in_history(data, holdout.history)
    truth = holdout.truth
    others = truth.where(~is_kept[truth.user])
    training = holdout.history if holdout.later is not None else data.where(known | ~is_kept[data.user])
    n_kept, n_others = kept.size, others.active_users.size
    return KeptBack(
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
    )


def draw_like_served(n_baskets: Longs, n_history: Longs, users: Ints, seed: int) -> Ints:
    """Users drawn so that their histories are as long as those of the users who will come back.

    n_baskets: (n_users,) baskets of each user now, which is the history that lists will be made from.
    n_history: (n_users,) baskets of each user's history when tested. `users` can be tested.
    """
    weights = _weight_of_strata(n_baskets)
    stratum = _stratum(n_history[users])
    available = np.bincount(stratum, minlength=STRATA.size)
    weights = np.where(available > 0, weights, 0.0)
    if not weights.sum():
        weights = available.astype(np.float64)
    shares = weights / weights.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = np.where(shares > 0, MAX_KEPT_BACK * available / shares, np.inf)
    n = min(KEPT_BACK * users.size, float(limits.min()))
    wanted = np.minimum(np.round(n * shares).astype(np.int64), available)
    shuffled = np.random.default_rng([seed, users.size]).permutation(users.size)
    parts = [shuffled[stratum[shuffled] == s][: wanted[s]] for s in range(STRATA.size)]
    return np.sort(users[np.concatenate(parts)])


def _weight_of_strata(n_baskets: Longs) -> Doubles:
    """(n_strata,) expected number of users per stratum who come back: users times their rate of return."""
    counts = np.bincount(n_baskets[n_baskets > 0])
    at_least = np.cumsum(counts[::-1])[::-1]  # users with at least so many baskets
    later = np.append(at_least[1:], 0)
    returns = counts * later / np.maximum(at_least, 1)
    weights = np.zeros(STRATA.size)
    np.add.at(weights, _stratum(np.arange(1, counts.size)), returns[1:])
    return weights


def _stratum(n_baskets: Longs) -> Longs:
    return np.maximum(np.searchsorted(STRATA, n_baskets, side="right") - 1, 0)


def in_history(data: Interactions, history: Interactions) -> Bools:
    """(n_rows,) whether a row of the data is in the history, which has the same ids."""
    position = np.arange(data.n_rows) - data.indptr[data.user]
    first: Bools = position < np.diff(history.indptr)[data.user]
    if np.array_equal(data.item[first], history.item):  # histories are the first rows of their users
        return first
    keys = data.user.astype(np.int64) * data.n_items + data.item
    return np.isin(keys, history.user.astype(np.int64) * history.n_items + history.item)


def deploy(
    best: Validation, kept: KeptBack, guarantee: Guarantee, progress: EpochProgress | None
) -> tuple[Recommender, CutoffChoice]:
    """Train without the tested interactions, test the promise, and add those interactions as history only."""
    training, truth, description, later = kept.tested
    fresh = best.model.clone()
    if best.n_epochs is not None:
        fresh.set_params(n_epochs=best.n_epochs)
    model = fit_model(fresh, training, progress=progress, engine=best.engine, items=best.items)
    tested = Validation(model, kept.tested, best.n_candidates, best.metric, best.filter_seen, best.n_threads)
    fitted = tested.fit_cutoff(guarantee)
    lists = fitted.apply(tested.candidates, history=training)
    score = evaluate(lists, truth).mean(best.metric)
    tested_on = f"tested on {description}, whose tested interactions trained no model"
    reason = f"not compared with other cutoffs; {tested_on}"
    name = type(guarantee).__name__
    model.observe(truth if later is None else later)
    return model, CutoffChoice(name, fitted, {name: score}, reason, best.metric)
