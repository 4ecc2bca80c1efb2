"""Functions of scipy.special: importing it takes a tenth of a second, which `--help` need not wait for."""

from typing import Any


def expit(log_odds: Any) -> Any:
    """The probability of log-odds."""
    from scipy import special

    return special.expit(log_odds)


def binomial_tail(successes: float, trials: int, rate: float) -> float:
    """The probability of at most so many successes."""
    from scipy import special

    return float(special.bdtr(successes, trials, rate))
