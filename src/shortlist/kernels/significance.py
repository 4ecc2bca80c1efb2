"""What tests are computed from: means of bootstrap samples, and bets."""

import math

from shortlist.kernels.jit import kernel
from shortlist.kernels.rng import next_below
from shortlist.types import Doubles, State

LARGEST_BET = 0.75  # as a share of the bet that could lose everything


@kernel
def resample_means(values: Doubles, state: State, means: Doubles) -> None:
    """means (n_resamples,): the mean of each bootstrap sample of the values."""
    for r in range(means.size):
        total = 0.0
        for _ in range(values.size):
            total += values[next_below(state, values.size)]
        means[r] = total / values.size


@kernel
def bet_on_losses(losses: Doubles, limit: float, alpha: float) -> float:
    """log of the largest capital while betting that the mean loss is below the limit.

    losses: (n_lists,) from 0 to 1, in random order; NaN for a list that does not count. Waudby-Smith and
    Ramdas (2024), section 3: each bet depends on the variance of the losses before it. The first variance is
    the largest one whose mean is the limit.
    """
    n = 0
    for loss in losses:
        n += loss == loss
    scale = -2 * math.log(alpha) / max(n, 1)
    log_capital, highest = 0.0, 0.0
    total, squares, seen = limit, limit * (1 - limit), 1
    for loss in losses:
        if loss != loss:
            continue
        bet = min(math.sqrt(scale * seen / squares), LARGEST_BET / (1 - limit))
        log_capital += math.log1p(bet * (limit - loss))
        highest = max(highest, log_capital)
        total += loss
        seen += 1
        squares += (loss - total / seen) ** 2
    return highest
