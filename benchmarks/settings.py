"""A random search of one model's settings on the hold-out of `sl.fit`."""

from typing import Any

import shortlist as sl
from shortlist.auto.choice import default_space
from shortlist.auto.validation import Validation, build_model, hold_out
from shortlist.errors import TrainingError
from shortlist.models.search_space import Space, draw

N_CANDIDATES = 20  # per user; also the largest fixed N


def search_settings(
    name: str,
    data: sl.Interactions,
    n_trials: int,
    fixed: dict[str, Any] | None = None,
    space: Space | None = None,
) -> tuple[dict[str, Any], float]:
    """The settings with the highest validation F1 at the best fixed N, and that F1; of equals, the first."""
    holdout, best = hold_out(data), (dict[str, Any](), -1.0)
    space = space or default_space(name, timed=data.time is not None)
    for number in range(n_trials):
        params = {**(fixed or {}), **draw(space, 0, number)}
        try:
            trial = Validation(build_model(name, params), holdout, n_candidates=N_CANDIDATES).fit()
        except TrainingError:
            continue
        if trial.score > best[1]:
            epochs = {} if trial.n_epochs is None else {"n_epochs": trial.n_epochs}
            best = params | epochs, trial.score
    return best
