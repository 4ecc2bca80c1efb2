"""Errors that shortlist raises for invalid input; each message says what is wrong and what to do.

ShortlistError
├── ConfigError     (ValueError)    invalid parameter or combination of parameters
├── DataError       (ValueError)    invalid or unreadable data, or a file that cannot be written
├── NotFittedError  (RuntimeError)  a model or cutoff is used before `fit`
├── TrainingError   (RuntimeError)  training diverged
├── UnknownIdError  (KeyError)      unknown user or item
├── ModelFileError  (ValueError)    a saved model is missing, damaged or has another format version
└── InfeasibleError (ValueError)    no cutoff satisfies the requested guarantee

`DataWarning` is a warning: part of the data was ignored. Any other exception is an internal error of
shortlist. A message never contains the password of a database or a control character, and has at most 500
characters.
"""

import sys
import warnings

from shortlist.text import clean_message

__all__ = [
    "ConfigError",
    "DataError",
    "DataWarning",
    "InfeasibleError",
    "ModelFileError",
    "NotFittedError",
    "ShortlistError",
    "TrainingError",
    "UnknownIdError",
]


class ShortlistError(Exception):
    """Base class of all errors that shortlist raises for invalid input.

    Parameters
    ----------
    *args
        The message.
    parameter
        Name of the argument that caused the error, if there is one; the command line shows its flag.

    Examples
    --------
    >>> try:
    ...     sl.load_dataset("no such data")
    ... except sl.errors.ShortlistError as error:
    ...     print(type(error).__name__)
    DataError
    """

    def __init__(self, *args: object, parameter: str | None = None) -> None:
        super().__init__(*([clean_message(" ".join(map(str, args)))] if args else []))
        self.parameter = parameter

    def __str__(self) -> str:
        return " ".join(self.args)  # KeyError would show the repr


class ConfigError(ShortlistError, ValueError):
    """Invalid parameter or combination of parameters."""


class DataError(ShortlistError, ValueError):
    """Invalid or unreadable data, or a file that cannot be written."""


class NotFittedError(ShortlistError, RuntimeError):
    """A model or cutoff is used before `fit`."""


class TrainingError(ShortlistError, RuntimeError):
    """Training diverged; the previous state of the model is unchanged."""


class UnknownIdError(ShortlistError, KeyError):
    """Unknown user or item."""


class ModelFileError(ShortlistError, ValueError):
    """A saved model is missing, damaged or has another format version."""


class InfeasibleError(ShortlistError, ValueError):
    """No cutoff satisfies the requested guarantee."""


class DataWarning(UserWarning):
    """Some of the data was ignored; the message says which part and why."""

    def __init__(self, *args: object) -> None:
        super().__init__(*([clean_message(" ".join(map(str, args)))] if args else []))


def warn(message: str) -> None:
    """Issue a DataWarning that points to the first line outside of this library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("shortlist."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataWarning, stacklevel=level)
