"""Tests by betting: evidence against "the mean is not positive" that may be looked at after every value.

A bet of size b multiplies its capital by 1 + b · z. While E[z | past] <= 0 the expected capital does not
grow, so by Ville's inequality it ever reaches 1 / delta with probability at most delta. A new series of bets
starts at each batch t with the share 1 / (t (t + 1)) of the capital, so that a long good period does not
delay the detection of a change. All series with one bet size together need a single number.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from shortlist.types import Doubles

N_BETS = 10
LARGEST_BET = 0.9  # as a share of the bet that could lose everything; each further bet is half as large


def bet_sizes(lowest: float) -> Doubles:
    """(N_BETS,) bet sizes for values that are never below `lowest` < 0."""
    return LARGEST_BET / -lowest * np.exp2(-np.arange(N_BETS, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Evidence:
    """The capital of all bets; never modified, only replaced."""

    log_capital: Doubles  # (n_bets,) of the series that have started
    log_best: Doubles  # (n_bets,) of the best single series
    best_start: tuple[int, ...]  # (n_bets,) batch at which it started
    n_batches: int = 0

    @classmethod
    def start(cls, n_bets: int) -> Self:
        """The evidence before the first batch."""
        none = np.full(n_bets, -np.inf)
        return cls(none, none, (0,) * n_bets)

    def add(self, log_growth: Doubles) -> Self:
        """The evidence after one batch; log_growth: (n_bets,) sum of log(1 + b · z) over its values."""
        t = self.n_batches + 1
        log_share = -np.log(t) - np.log(t + 1)
        restarts = log_share >= self.log_best
        starts = tuple(t if new else old for new, old in zip(restarts, self.best_start, strict=True))
        return replace(
            self,
            log_capital=np.logaddexp(self.log_capital, log_share) + log_growth,
            log_best=np.maximum(self.log_best, log_share) + log_growth,
            best_start=starts,
            n_batches=t,
        )

    @property
    def log_e_value(self) -> float:
        """log of the total capital, of which 1 was there at the start."""
        started = np.logaddexp.reduce(self.log_capital) - np.log(self.log_capital.size)
        return float(np.logaddexp(started, -np.log(self.n_batches + 1)))

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON; None for the logarithm of 0."""
        logs = {"log_capital": self.log_capital, "log_best": self.log_best}
        found: dict[str, Any] = {
            name: [None if value == -np.inf else float(value) for value in values]
            for name, values in logs.items()
        }
        return {**found, "best_start": list(self.best_start), "n_batches": self.n_batches}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        capital, best = (
            np.array([-np.inf if one is None else float(one) for one in values[name]])
            for name in ("log_capital", "log_best")
        )
        return cls(capital, best, tuple(int(one) for one in values["best_start"]), int(values["n_batches"]))


def log_growth(values: Doubles, bets: Doubles) -> Doubles:
    """(n_bets,) sum over the values z of log(1 + b · z)."""
    return np.array([np.log1p(bet * values).sum() for bet in bets])
