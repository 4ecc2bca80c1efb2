"""Parameters: the base class of models, cutoffs and calibrations, and checks of values."""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from shortlist.errors import ConfigError, DataWarning, NotFittedError

MAX_WHOLE = 2**31 - 1
MAX_SEED = 2**63 - 1
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
ENTRY_POINTS = "shortlist"  # group in which other packages name their models, cutoffs and metrics


@dataclass(kw_only=True, eq=False)
class Estimator:
    """The dataclass fields are the parameters; attributes that end in `_` hold what `fit` learned.

    Parameters are checked together whenever one of them is set: by the constructor, by `set_params` and by
    assignment. A parameter that is set afterwards makes the object unfitted.
    """

    kind: ClassVar[str] = "estimator"
    registry: ClassVar[dict[str, type["Estimator"]]] = {}  # by name, to restore saved objects

    def __init_subclass__(cls) -> None:
        Estimator.registry[cls.__name__] = cls

    def __post_init__(self) -> None:
        self._check_params()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__dataclass_fields__:
            object.__setattr__(self, name, value)
        elif name in vars(self):
            self._replace_params({name: value})
        else:  # in the constructor, which checks the parameters when all are set
            vars(self)[name] = self._convert_param(name, value)

    def _replace_params(self, changes: dict[str, Any]) -> None:
        """Set parameters if they are valid together with the others; else nothing changes."""
        changes = {name: self._convert_param(name, value) for name, value in changes.items()}
        trial = object.__new__(type(self))
        vars(trial).update(self.get_params() | changes)
        trial._check_params()
        vars(self).update(changes)
        self._forget()

    def _convert_param(self, name: str, value: Any) -> Any:
        """The value in the form in which the parameter is stored."""
        return value

    def _check_params(self) -> None:
        """Raise ConfigError for an invalid parameter or combination of parameters."""

    def _check_fitted(self) -> None:
        """Raise ModelFileError if what was loaded from a file is not what `fit` could have learned."""

    def _forget(self) -> None:
        """Remove what `fit` learned."""
        for name in self.fitted():
            delattr(self, name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep
            Ignored; accepted for compatibility with scikit-learn.
        """
        return {field.name: vars(self)[field.name] for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; the object becomes unfitted.

        The new values are checked together. If one of them is invalid, nothing changes.

        Parameters
        ----------
        **params
            New values by parameter name.
        """
        names = list(self.get_params())
        for name in params.keys() - set(names):
            near = get_close_matches(name, names, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"its parameters are {', '.join(names)}."
            raise ConfigError(f"{type(self).__name__} has no parameter {name!r:.60}; {advice}")
        self._replace_params(params)
        return self

    def clone(self) -> Self:
        """Return an unfitted copy with the same parameters."""
        return type(self)(**self.get_params())

    def fitted(self) -> dict[str, Any]:
        """Return what `fit` learned, by attribute name; empty before `fit`."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def need(self, name: str) -> Any:
        """Return a fitted attribute, or raise NotFittedError.

        Parameters
        ----------
        name
            The name of the attribute.
        """
        if name not in vars(self):
            raise NotFittedError(
                f"{type(self).__name__} was used before it was fitted; call fit(scores, truth) first."
            )
        return vars(self)[name]


@cache
def load_plugins() -> None:
    """Import the models, cutoffs and metrics that other packages name by entry points of `shortlist`."""
    from importlib.metadata import entry_points  # slow to import

    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # of the other package
            warn(f"the entry point {point.name!r} ({point.value}) cannot be imported: {error!r:.200}")


POSITIVE = 1e-9  # the least number that counts as above 0


def check_number(minimum: float, maximum: float = np.inf, /, **values: Any) -> None:
    """Raise ConfigError for a value that is not a finite number from `minimum` to `maximum`."""
    for name, value in values.items():
        if not is_finite(value) or not minimum <= value <= maximum:
            rule = f"of at least {minimum}" if maximum == np.inf else f"between {minimum} and {maximum}"
            if minimum == POSITIVE:
                rule = "above 0" + ("" if maximum == np.inf else f" and at most {maximum}")
            raise ConfigError(f"{name} must be a number {rule}, got {short_repr(value)}.")


def check_whole(minimum: int, maximum: int = MAX_WHOLE, /, **values: Any) -> None:
    """Raise ConfigError for a value that is not a whole number from `minimum` to `maximum`."""
    for name, value in values.items():
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not whole or value < minimum:
            raise ConfigError(
                f"{name} must be a whole number of at least {minimum}, got {short_repr(value)}."
            )
        if value > maximum:
            raise ConfigError(f"{name} must be at most {maximum}, got {short_repr(value)}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise ConfigError unless the value is one of the choices."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(choices)
        raise ConfigError(
            f"{name} must be one of {listed}, got {short_repr(value)}; choose one.", parameter=name
        )


def check_fraction(**values: Any) -> None:
    """Raise ConfigError for a value that is not in (0, 1]."""
    for name, value in values.items():
        check_number(0, **{name: value})
        if not 0 < value <= 1:
            raise ConfigError(f"{name} must be above 0 and at most 1, got {value!r}.")


def check_flag(**values: Any) -> None:
    """Raise ConfigError for a value that is not True or False."""
    for name, value in values.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ConfigError(f"{name} must be True or False, got {short_repr(value)}.")


def is_number(value: Any) -> bool:
    """Whether the value is a number in the range of floats; True and False are none."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 1000
    return isinstance(value, (float, np.integer, np.floating))


def is_finite(value: Any) -> bool:
    """Whether the value is a finite number."""
    return is_number(value) and bool(np.isfinite(value))


def short_repr(value: object) -> str:
    """repr, cut to 60 characters; an integer of thousands of digits has no repr."""
    try:
        text = repr(value)
    except ValueError:
        text = f"{type(value).__name__} with too many digits"
    return text if len(text) <= 60 else f"{text[:59]}…"


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, uniform on a logarithmic scale unless `log=False`.

    Parameters
    ----------
    low, high
        The bounds.
    log
        Whether to sample on a logarithmic scale.
    """

    low: float
    high: float
    log: bool = True

    def at(self, share: float) -> float:
        """Return the number at a share of the way from low to high, with four digits, which are readable."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        number = low + share * (high - low)
        return float(f"{np.exp(number) if self.log else number:.4g}")


Space = Mapping[str, Range | tuple[Any, ...]]  # a tuple lists the values to choose from


def draw(space: Space, seed: int, number: int) -> dict[str, Any]:
    """Draw the parameters of trial `number`, which depend only on the seed and the number."""
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    drawn: dict[str, Any] = {}
    for name, values in space.items():
        share = float(rng.random())
        drawn[name] = values.at(share) if isinstance(values, Range) else values[int(share * len(values))]
    return drawn


def show_options(options: type) -> Callable[[AnyFunction], AnyFunction]:
    """Show the fields of a dataclass as keywords of a function that takes them as `**options`.

    help() and completion read this signature; type checkers read the annotation of `**options`. An unknown
    keyword raises TypeError, as for any other function.
    """
    keywords = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(options)
    ]

    def show(function: AnyFunction) -> AnyFunction:
        *others, _ = (shown := signature(function)).parameters.values()
        first = [each for each in others if each.kind != Parameter.KEYWORD_ONLY]
        last = [each for each in others if each.kind == Parameter.KEYWORD_ONLY]
        allowed = [each.name for each in (*first, *keywords, *last)]

        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            unknown = next((name for name in given if name not in allowed), None)
            if unknown is not None:
                near = get_close_matches(unknown, allowed, n=1)
                hint = f". Did you mean {near[0]!r}?" if near else ""
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {unknown!r:.60}{hint}"
                )
            return function(*args, **given)

        call.__signature__ = shown.replace(parameters=[*first, *keywords, *last])  # type: ignore[attr-defined]
        return cast("AnyFunction", call)

    return show


def warn(message: str) -> None:
    """Issue a DataWarning that points to the first line outside of this library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("shortlist."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)
