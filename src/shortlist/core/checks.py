"""Checks of what a file holds: the first broken rule becomes a ModelFileError that names the entry.

Kernels trust their arguments. Whatever is loaded passes these checks before it can reach one.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.errors import ModelFileError
from shortlist.text import bounded

Array = npt.NDArray[Any]
# what a file whose values have the wrong type or size can raise
FILE_ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


def check_array(
    arrays: Mapping[str, Any],
    name: str,
    dtype: npt.DTypeLike | None,  # None: any
    shape: tuple[int | None, ...],  # None: any length
    *,
    low: float | None = None,
    high: float | None = None,
    ascending: bool = False,
    strict: bool = False,  # ascending without equal neighbors
    finite: bool = True,
    limit: float | None = None,  # of the absolute value of floats
) -> Any:
    """The array of this name, if it has this type and shape and every element keeps the rules.

    Floats must be finite, except with `finite=False` or if any type is allowed.
    """
    array = arrays.get(name)
    if not isinstance(array, np.ndarray):
        raise file_error(name, "is missing")
    if dtype is not None and array.dtype != np.dtype(dtype):
        raise file_error(name, f"must have type {np.dtype(dtype)}, got {array.dtype}")
    if len(array.shape) != len(shape) or any(
        n not in (None, m) for n, m in zip(shape, array.shape, strict=True)
    ):
        wanted = " × ".join("any" if n is None else str(n) for n in shape)
        raise file_error(name, f"must have shape {wanted}, got {' × '.join(map(str, array.shape))}")
    if finite and dtype is not None and array.dtype.kind == "f":
        _check_size(name, array, np.inf if limit is None else limit)
    if array.size and low is not None and array.min() < low:
        raise file_error(name, f"must be at least {low}, got {array.min()}")
    if array.size and high is not None and array.max() > high:
        raise file_error(name, f"must be at most {high}, got {array.max()}")
    if (ascending or strict) and not _is_ascending(array, strict):
        raise file_error(name, "must ascend")
    return array


def _check_size(name: str, array: Array, limit: float) -> None:
    """If the sum of squares is small, every element is; it needs one fast pass and no memory."""
    values = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.dot(values, values))
    if total < np.inf and total <= limit**2:
        return
    if not np.isfinite(values).all():
        raise file_error(name, "must be finite, got NaN or infinity")
    if np.abs(values).max() > limit:
        raise file_error(name, f"must be at most {limit:g} in size, got {np.abs(values).max():g}")


def _is_ascending(array: Array, strict: bool) -> bool:
    before, after = array[:-1], array[1:]
    return bool((before < after).all() if strict else (before <= after).all())


def check_starts(
    arrays: Mapping[str, Any], name: str, n: int, end: int, dtype: npt.DTypeLike = np.int64
) -> Any:
    """Where n consecutive ranges start and the last one ends: 0 … end, ascending."""
    array = check_array(arrays, name, dtype, (n + 1,), ascending=True)
    if array[0] != 0 or array[-1] != end:
        raise file_error(name, f"must lead from 0 to {end}, got {array[0]} to {array[-1]}")
    return array


def check_whole_value(values: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """The whole number of this name, between low and high."""
    value = values.get(name)
    if type(value) is not int or not low <= value <= high:
        raise file_error(name, f"must be a whole number from {low} to {high}")
    return value


def check_float_value(
    values: Mapping[str, Any], name: str, low: float = -math.inf, high: float = math.inf
) -> float:
    """The number of this name, between low and high; infinite only if they are."""
    value = values.get(name)
    is_whole = type(value) is int and abs(value) < 2**63
    if not (is_whole or isinstance(value, float)):
        raise file_error(name, "must be a number")
    number = float(value)  # type: ignore[arg-type]
    if not low <= number <= high:
        raise file_error(name, f"must be a number from {low} to {high}")
    return number


def check_floats(values: Mapping[str, Any], name: str, *, optional: bool = False) -> tuple[Any, ...]:
    """The list of finite numbers of this name; with `optional`, entries may be None."""
    numbers = values.get(name)
    if not isinstance(numbers, (list, tuple)):
        raise file_error(name, "must be a list of numbers")
    for value in numbers:
        if value is None and optional:
            continue
        check_float_value({name: value}, name, -1e300, 1e300)
    return tuple(numbers)


def check_text(values: Mapping[str, Any], name: str, choices: Collection[str] | None = None) -> str:
    """The text of this name, if it is one of the choices."""
    value = values.get(name)
    if not isinstance(value, str) or (choices is not None and value not in choices):
        raise file_error(
            name, f"must be one of {bounded(', '.join(choices), 200)}" if choices else "must be text"
        )
    return value


def check_bool(values: Mapping[str, Any], name: str) -> bool:
    """The value True or False of this name."""
    value = values.get(name)
    if not isinstance(value, bool):
        raise file_error(name, "must be true or false")
    return value


def check_names(values: Collection[str], required: Collection[str], optional: Collection[str] = ()) -> None:
    """Raise ModelFileError unless all required names are there, and no others than the optional ones."""
    for name in required:
        if name not in values:
            raise file_error(name, "is missing")
    for name in values:
        if name not in required and name not in optional:
            raise file_error(name, "is unknown")


def check_ids(series: Mapping[str, Any], name: str) -> pl.Series:
    """The ids of this name: strings or integers, distinct, none missing."""
    ids = series.get(name)
    if not isinstance(ids, pl.Series):
        raise file_error(name, "is missing")
    if ids.null_count() or ids.n_unique() != len(ids):
        raise file_error(name, "must hold distinct ids, none missing")
    return ids


def file_error(name: str, rule: str) -> ModelFileError:
    """The error that an entry of a file breaks a rule."""
    return ModelFileError(f"{name[:80]!a} {rule}; save the model again.")


def load_error(path: str | Path, error: BaseException) -> ModelFileError:
    """One sentence that names the file, for an error in its content."""
    if isinstance(error, ModelFileError):
        return ModelFileError(f"cannot load {path}: {error}")
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]!s}"
    return ModelFileError(f"cannot load {path}: its content is invalid ({reason}); save the model again.")
