"""Refit: fit a model again on newer data, and refuse it unless users enough show that it is not worse."""

import math
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from shortlist.auto.fit import fit, keep_groups
from shortlist.cutoff.base import Cutoff
from shortlist.data.history import Events
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError, DataError, InfeasibleError
from shortlist.evaluation.report import TimedReport
from shortlist.evaluation.significance import paired_test
from shortlist.kernels.snapshot_features import DAY
from shortlist.models.base import Recommender
from shortlist.models.content import ContentRecommender
from shortlist.models.strict_time import evaluate_over_time

LEVEL = 0.05  # the new model is refused if it is worse with this significance
COMPARED_LISTS = 500  # earlier days are held out too, until there are so many lists
COMPARED_DAYS = 7  # at most
LARGEST_LOSS = 1 / 3  # of the F1: there are enough users if they would probably show it
NOTICED = (1.96 + 0.84) ** 2  # a loss is found at the level of 5% with a probability of 80%


class Refit(NamedTuple):
    """The outcome of a refit; `model` is None if it was refused."""

    model: Recommender | None
    reason: str
    old_f1: float = np.nan
    new_f1: float = np.nan
    n_lists: int = 0
    n_users: int = 0  # who were compared
    users_needed: int | None = None  # None: it cannot be said, because the model in service had no success
    smallest_loss: float = np.nan  # share of the F1 whose loss these users would probably show


def refit(
    old: Recommender,
    events: Interactions | Events | None,
    *,
    items: Items | None = None,
    progress: Callable[[str], object] | None = None,
) -> Refit:
    """Fit a model with the settings of `old` on its history and `events`, from which returns are subtracted.

    The latest days are held out first: the old model and a new one that learned from the days before answer
    for them. The new settings are refused if they are significantly worse there, or if the users are too few
    to show it. What is returned has learned from everything, the latest days included; with a `Guarantee`,
    from everything but the baskets on which its guarantee was tested anew. It is refused if nothing can be
    guaranteed any more. A model file does not contain the content of items, so a model that uses it needs
    all `items`, new ones included.
    """
    try:
        return _refit(old, None if events is None else Events.of(events), items, progress)
    except InfeasibleError as error:
        return Refit(None, f"the guarantee cannot be given again: {error}")


def _refit(
    old: Recommender,
    events: Events | None,
    items: Items | None,
    progress: Callable[[str], object] | None,
) -> Refit:
    """The new model, or why it is refused."""

    def fit_again(data: Interactions) -> Recommender:
        return _fit_again(old, data, items, progress)

    history = old.history_
    data = history if events is None else events.add_to(history)
    if data.time is None or not data.n_rows:
        return Refit(fit_again(data), "the data has no times to compare on")
    if events is None:
        return Refit(fit_again(data), "there are no events that are new to the old model")
    latest = _latest_days(data, history.end_time)
    if not latest.n_rows:
        return Refit(None, "too few users to compare: no event is later than those of the old model")
    report = progress or (lambda line: None)
    report("checking on the latest days")
    earlier = events.before(int(latest.time.min())) if latest.time is not None else events
    trial = fit_again(earlier.add_to(history))
    running = copy(old).observe(earlier)  # the state is shared, so the copy is cheap
    reports = [evaluate_over_time(model, latest) for model in (running, trial)]
    outcome = _compare_refit(*reports)
    if outcome.reason:
        return outcome
    report("fitting on everything")
    loss = f"a loss of {outcome.smallest_loss:.0%} of the F1 would probably have shown"
    reason = f"the new model is not worse for {outcome.n_users:,} users, with whom {loss}"
    return outcome._replace(model=fit_again(data), reason=reason)


def _latest_days(data: Interactions, end: int) -> Interactions:
    """The latest day after a time, or the latest ones until there are enough lists, up to half of them."""
    new = data.where(data.time > end if data.time is not None else np.zeros(data.n_rows, np.bool_))
    if new.time is None or not new.n_rows:
        return new
    baskets = np.unique(np.column_stack([new.time, new.user]), axis=0)[:, 0] // DAY
    days, n_lists = np.unique(baskets, return_counts=True)
    n_days = 1 + int(np.searchsorted(n_lists[::-1].cumsum(), COMPARED_LISTS))
    n_days = min(n_days, COMPARED_DAYS, max(days.size // 2, 1))
    return new.where(new.time >= days[-n_days] * DAY)


def _compare_refit(old: TimedReport, new: TimedReport) -> Refit:
    """What the latest days say; the reason is empty unless the new model is refused."""
    f1 = [report.values("f1") for report in (old, new)]
    user = old.user_ids.rank("dense").to_numpy().astype(np.int32) - 1
    test = paired_test(f1[1], f1[0], groups=user)
    of_user = np.bincount(user, f1[0]) / np.bincount(user)
    n, mean, square = of_user.size, float(of_user.mean()), float((of_user**2).mean())
    outcome = Refit(None, "", old.f1, new.f1, old.n_users, n)
    if mean == 0:
        reason = f"too few users to compare: no list of {n:,} users had a success of the model in service"
        return outcome._replace(reason=reason)
    # each user's F1 is lost with probability L: n L² m² >= NOTICED (L E[F1²] - L² m²) with m = E[F1]
    ratio = NOTICED * square / mean**2
    needed, loss = math.ceil(ratio / LARGEST_LOSS - NOTICED), min(ratio / (n + NOTICED), 1.0)
    outcome = outcome._replace(users_needed=needed, smallest_loss=loss)
    if new.f1 < old.f1 and test.p_bootstrap < LEVEL:
        return outcome._replace(reason="the new model is worse on the latest days")
    if n < needed:
        rule = f"about {needed:,} are needed to show a loss of a third of the F1"
        return outcome._replace(reason=f"too few users to compare: {n:,}, and {rule}")
    return outcome


def _fit_again(
    old: Recommender, data: Interactions, items: Items | None, progress: Callable[[str], object] | None
) -> Recommender:
    """The same model with the same settings on other data; its cutoff is fitted anew."""
    cutoff: Cutoff | None = None if old.cutoff_ is None else old.cutoff_.clone()
    if not data.n_rows:
        raise DataError("a refit needs interactions, got none; check the event store.")
    if items is None and isinstance(old, ContentRecommender) and old.content_columns:
        raise ConfigError(
            f"this {type(old).__name__} was fitted with the content of items, which a refit needs again, got "
            "none; pass the table of all items.",
            parameter="items",
        )
    chosen = old.selection_
    wanted: dict[str, Any] = {"users": "buyers"}
    if chosen is not None:
        names = ("metric", "gain", "cost", "users", "horizon")
        wanted = {name: getattr(chosen, name) for name in names}
    fitted = fit(data, models=old.clone(), cutoff=cutoff, items=items, progress=progress, **wanted)
    return keep_groups(fitted, old.groups_) if fitted.groups_ is None else fitted
