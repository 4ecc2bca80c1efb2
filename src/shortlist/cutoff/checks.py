"""Checks of the parameters of cutoffs, and the error of those that need all outcomes."""

from shortlist.core.estimator import is_number, short_repr
from shortlist.errors import ConfigError


def needs_all_outcomes(what: str, advice: str) -> ConfigError:
    """The error of a cutoff that cannot learn from shown items."""
    return ConfigError(
        f"{what} needs the relevant items that were not shown, and truth about shown items does not contain "
        f"them; {advice}."
    )


def check_interval(
    name: str, value: object, *, low: float, high: float, advice: str, ends: bool = True
) -> None:
    """Raise ConfigError unless the value is a number in [low, high], or in (low, high) without `ends`."""
    if not is_number(value) or not (low <= value <= high if ends else low < value < high):  # type: ignore[operator]
        left, right = ("[", "]") if ends else ("(", ")")
        raise ConfigError(
            f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {short_repr(value)}; {advice}"
        )
