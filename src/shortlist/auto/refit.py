"""refit: fit a served model again with later events, and check it against the old one on the latest day."""

from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import numpy as np

from shortlist.auto.fit import fit
from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, InfeasibleError
from shortlist.evaluation.significance import paired_test
from shortlist.models.base import Recommender
from shortlist.models.new_items import ContentRecommender
from shortlist.models.over_time import evaluate_over_time

DAY = 86_400_000_000  # microseconds
LEVEL = 0.05  # the new model is refused if it is worse with this significance


class Refit(NamedTuple):
    """The outcome of a refit; `model` is None if it was refused."""

    model: Recommender | None
    old_f1: float
    new_f1: float
    n_lists: int
    reason: str


def refit(
    old: Recommender, events: Interactions | None, *, progress: Callable[[str], object] | None = None
) -> Refit:
    """Fit a model with the settings of `old` on its history and `events`.

    The latest day is held out first: the old model and a new one that learned from the days before answer
    for it. The new settings are refused if they are significantly worse there. What is returned has learned
    from everything, the latest day included; with a `Guarantee`, from everything but the baskets on which
    its promise was tested anew. It is refused if nothing can be promised any more.
    """
    try:
        return _refit(old, events, progress)
    except InfeasibleError as error:
        return Refit(None, np.nan, np.nan, 0, f"the promise cannot be made again: {error}")


def _refit(old: Recommender, events: Interactions | None, progress: Callable[[str], object] | None) -> Refit:
    """The new model, or why it is refused."""
    data = old.history_ if events is None else old.history_.concat(events)
    if data.time is None:
        return Refit(
            _fit_again(old, data, progress), np.nan, np.nan, 0, "the data has no times to compare on"
        )
    cut = int(data.time.max()) // DAY * DAY
    before, latest = data.where(data.time < cut), data.where(data.time >= cut)
    if not before.n_rows or int(old.history_.time.max() if old.history_.time is not None else 0) >= cut:
        return Refit(_fit_again(old, data, progress), np.nan, np.nan, 0, "no day is new to the old model")
    report = progress or (lambda line: None)
    report("checking on the latest day")
    trial = _fit_again(old, before, progress)
    running = copy(old).observe(before)  # the state is shared, so the copy is cheap
    reports = [evaluate_over_time(model, latest) for model in (running, trial)]
    old_f1, new_f1 = (one.f1 for one in reports)
    test = paired_test(reports[1].values("f1"), reports[0].values("f1"))
    n_lists = reports[0].n_users
    if new_f1 < old_f1 and test.p_bootstrap < LEVEL:
        return Refit(None, old_f1, new_f1, n_lists, "the new model is worse on the latest day")
    report("fitting on everything")
    return Refit(_fit_again(old, data, progress), old_f1, new_f1, n_lists, "the new model is not worse")


def _fit_again(old: Recommender, data: Interactions, progress: Callable[[str], object] | None) -> Recommender:
    """The same model with the same settings on other data; its cutoff is fitted anew."""
    cutoff: Cutoff | None = None if old.cutoff_ is None else old.cutoff_.clone()
    if not data.n_rows:
        raise DataError("a refit needs interactions, got none; check the event store.")
    if isinstance(old, ContentRecommender) and old.content_columns:
        raise ConfigError(
            f"a refit cannot read the content of items again that this {type(old).__name__} was fitted with; "
            "call fit(train, items=items), or partial_fit, which keeps it."
        )
    return fit(data, models=old.clone(), cutoff=cutoff, progress=progress)
