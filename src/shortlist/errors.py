"""Everything that can go wrong and be told to a person in one sentence.

ShortlistError
├── ConfigError     (ValueError)    a parameter or a combination of parameters makes no sense
├── DataError       (ValueError)    the data cannot be read or cannot be used as asked
├── NotFittedError  (RuntimeError)  a model or a cutoff was used before `fit`
├── TrainingError   (RuntimeError)  learning diverged
├── UnknownIdError  (KeyError)      a user or an item nobody has seen
├── ModelFileError  (ValueError)    a saved model is missing, damaged or of another version
└── InfeasibleError (ValueError)    no decision satisfies the guarantee that was asked for
"""

__all__ = [
    "ConfigError",
    "DataError",
    "InfeasibleError",
    "ModelFileError",
    "NotFittedError",
    "ShortlistError",
    "TrainingError",
    "UnknownIdError",
]


class ShortlistError(Exception):
    """Root of all errors raised on purpose."""

    def __str__(self) -> str:
        return " ".join(str(part) for part in self.args)  # KeyError would show the repr


class ConfigError(ShortlistError, ValueError):
    """A parameter or a combination of parameters makes no sense."""


class DataError(ShortlistError, ValueError):
    """The data cannot be read or cannot be used as asked."""


class NotFittedError(ShortlistError, RuntimeError):
    """A model or a cutoff was used before `fit`."""


class TrainingError(ShortlistError, RuntimeError):
    """Learning diverged; the previous state is untouched."""


class UnknownIdError(ShortlistError, KeyError):
    """A user or an item nobody has seen."""


class ModelFileError(ShortlistError, ValueError):
    """A saved model is missing, damaged or of another version."""


class DataWarning(UserWarning):
    """Some of the data was ignored; the message says which part and why."""


class InfeasibleError(ShortlistError, ValueError):
    """No decision satisfies the guarantee that was asked for."""
