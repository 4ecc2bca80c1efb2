"""Ids in requests and in the event store: texts, converted to the type that the model uses."""

from collections.abc import Iterable
from typing import Any

import polars as pl

from shortlist.data.id_map import IdMap
from shortlist.errors import DataError

MAX_ID = 256  # characters


def check_id(value: Any, ids: IdMap, name: str) -> Any:
    """The id in the type of the model.

    A model with integer ids also accepts an integer that is written as a text, because it can mean only one
    id. A model with text ids accepts no integer, because 7 may mean "7" or "007".
    """
    kind = type(value)
    if ids.kind == "integer":
        if kind is str and len(value) <= 20 and _is_plain_integer(value):
            value = int(value)
        if type(value) is int and -(2**63) <= value < 2**63:
            return value
        raise DataError(f"{name} must be an integer, as in the model, got {_shown(value)}; check the id.")
    if kind is str and 0 < len(value) <= MAX_ID and value.isprintable():
        return value
    raise DataError(
        f"{name} must be a text of 1 to {MAX_ID} printable characters, as in the model, got {_shown(value)}; "
        "check the id."
    )


def check_ids(values: Iterable[Any], ids: IdMap, name: str) -> list[Any]:
    """Several ids in the type of the model."""
    return [check_id(value, ids, name) for value in values]


def id_column(texts: Iterable[str], ids: IdMap) -> pl.Series:
    """Ids from the event store, in the type of the model; nulls where they cannot be converted."""
    return pl.Series(list(texts), dtype=pl.String).cast(ids.values.dtype, strict=False)


def _is_plain_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0") and text != "-0"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "…"
