"""The metric of a selection on users that took no part in it: halves of the validation users."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.cutoff.base import Cutoff
from shortlist.evaluation import evaluate
from shortlist.tuning.validation import Validation, fit_model
from shortlist.types import Doubles, Longs

MIN_USERS = 4  # two in each half, because choosing a cutoff halves them again


class HalfSelections:
    """The best candidate according to each half of the validation users alone."""

    def __init__(self) -> None:
        self.best: list[tuple[float, Validation] | None] = [None, None]

    def add(self, found: Validation) -> None:
        """Take the candidate for each half where it is better than all before."""
        if found.holdout.truth.active_users.size < MIN_USERS:
            return
        for half, numbers in enumerate(halves(found)):
            score, best = found.restrict(numbers).score, self.best[half]
            if best is None or score > best[0]:
                self.best[half] = score, found


def halves(found: Validation) -> tuple[Longs, Longs]:
    """Positions of the users of each half: every other user."""
    n = found.holdout.truth.active_users.size
    return np.arange(0, n, 2), np.arange(1, n, 2)


def held_out_score(
    selections: HalfSelections, fit_cutoff: Callable[[Validation], tuple[str, Cutoff]]
) -> dict[str, Any] | None:
    """Score what each half selected on the other half; None if there are too few users.

    `fit_cutoff` returns the name of the cutoff selected for a part of the users, and the fitted cutoff.
    """
    values: list[Doubles] = []
    choices = []
    for half, best in enumerate(selections.best):
        if best is None:
            return None
        found = _stop_on_half(best[1], half)
        parts = [found.restrict(numbers) for numbers in halves(found)]
        name, cutoff = fit_cutoff(parts[half])
        other = parts[1 - half]
        lists = cutoff.apply(other.candidates, history=other.holdout.history)
        values.append(evaluate(lists, other.holdout.truth).values(found.metric))
        choices.append(f"{type(found.model).__name__}, {name}")
    scores = np.concatenate(values)
    return {
        "score": float(scores.mean()),
        "standard_error": float(scores.std(ddof=1) / np.sqrt(scores.size)),
        "n_users": int(scores.size),
        "choices": choices,
    }


def _stop_on_half(found: Validation, half: int) -> Validation:
    """The same settings, with the number of epochs chosen on this half alone."""
    if not found.model.uses_epochs:
        return found
    truth = found.restrict(halves(found)[half]).holdout.truth
    fitted = fit_model(
        found.model, found.holdout.history, valid=truth, engine=found.engine, items=found.items
    )
    return replace(found, model=fitted)
