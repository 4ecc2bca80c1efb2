"""Drift: how much the score of a simple ranker changes from one hold-out to the next."""

from dataclasses import replace

import numpy as np

from shortlist.auto.validation import Holdout, Validation, earlier_fold, hold_out_items
from shortlist.errors import DataError
from shortlist.models.base import Recommender
from shortlist.models.counting import PersonalFrequency, Popularity
from shortlist.types import Doubles

EARLIER_FOLDS = 3  # changes between consecutive ones, and to the validation, are the drift
MIN_COMMON = 20  # users in two folds, to measure a change


def measure_changes(winner: Validation) -> list[float]:
    """Relative changes of a simple ranker's score from one fold to the next, the latest first.

    The folds are the hold-out and the same one, two and three baskets or periods earlier; a random hold-out
    is repeated on its history, which is a fifth shorter each time. The ranker counts: it is the better one of
    `PersonalFrequency` and `Popularity`, and its lists have the best N of the latest fold. Its score changes
    because the data changes; the chosen model would take too long to be fitted again.
    """
    filter_seen = winner.filter_seen
    if filter_seen is None:
        filter_seen = not winner.holdout.history.has_repeats  # as in the latest fold, also where none is left

    simple = replace(winner, items=None, filter_seen=filter_seen)

    def rank(model: Recommender, fold: Holdout) -> Validation:
        return replace(simple, model=model, holdout=fold).fit()

    latest = max(
        (rank(kind(), winner.holdout) for kind in (PersonalFrequency, Popularity)),
        key=lambda ranked: ranked.score,
    )
    by_basket = winner.holdout.later is None and winner.holdout.horizon is None
    changes: list[float] = []
    fold, later = winner.holdout, _values_by_user(latest, latest.N)
    while len(changes) < EARLIER_FOLDS:
        try:
            before = hold_out_items(fold.history) if fold.is_random else earlier_fold(fold)
            if before is None:
                break
            values = _values_by_user(rank(latest.model, before), latest.N)
        except DataError:
            break
        pair = [later, values]
        if by_basket:  # an earlier basket of fewer users: compare them with themselves
            both = ~np.isnan(later) & ~np.isnan(values)
            pair = [later[both], values[both]]
        if min((~np.isnan(each)).sum() for each in pair) < MIN_COMMON or not np.nanmean(pair[1]) > 0:
            break
        changes.append(float(np.nanmean(pair[0]) / np.nanmean(pair[1]) - 1))
        fold, later = before, values
    return changes


def _values_by_user(validation: Validation, N: int) -> Doubles:
    """(n_users,) the metric of lists of N items; NaN for users who were not held out."""
    report = validation.evaluate(validation.candidates.head(N))
    truth = validation.holdout.truth
    values = np.full(truth.n_users, np.nan)
    values[truth.users.lookup(report.user_ids)] = report.values(validation.metric)
    return values
