"""Errors for wrong keywords and for methods called on a class; warnings that point to the caller."""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from shortlist.core.estimator import Estimator
from shortlist.core.keywords import check_keywords
from shortlist.errors import ConfigError, DataWarning

P = ParamSpec("P")
R = TypeVar("R")


def explain_call(function: Callable[P, R]) -> Callable[P, R]:
    """Raise ConfigError for an unknown keyword, or for a method that is called on its class."""
    names = tuple(signature(function).parameters)
    is_method = names[0] == "self"

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_keywords(f"{function.__name__}()", kwargs, names)
        if is_method and not (args and isinstance(args[0], Estimator)):
            got: Any = f"a {type(args[0]).__name__}" if args else "nothing"
            raise ConfigError(
                f"{function.__name__} must be called on an object, got the class and {got}; add parentheses "
                f"after the name of the class, as in sl.BPRMF().fit(train)."
            )
        return function(*args, **kwargs)

    return call


def warn(message: str) -> None:
    """Issue a DataWarning that points to the first line outside of this library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("shortlist."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)
