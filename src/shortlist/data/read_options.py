"""The options of what reads interactions, and how messages advise them."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from shortlist.core.options import Help, Only, Options, Rare
from shortlist.errors import ShortlistError

NegativeWeights = Literal["subtract", "drop", "keep"]
Missing = Literal["error", "drop"]
Future = Literal["error", "drop", "keep"]
Format = Literal["csv", "tsv", "inter", "parquet", "jsonl"]
ALL_ROWS = "true"  # the condition that every row fulfills


class ColumnNames(NamedTuple):
    """The name of each column in a table; None finds it by its conventional name or an alias, "" omits it."""

    user_id: str | None = None
    item_id: str | None = None
    timestamp: str | None = None
    weight: str | None = None
    basket_id: str | None = None
    item_name: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOptions(Options):
    """How to read a table of interactions."""

    user_id: Annotated[str | None, Help("Column with the user.")] = None
    item_id: Annotated[str | None, Help("Column with the item.")] = None
    timestamp: Annotated[str | None, Help("Column with the time.")] = None
    weight: Annotated[str | None, Rare("Column with a weight, for models with a weighting.")] = None
    basket_id: Annotated[str | None, Rare("Column with the basket; default: equal times.")] = None
    item_name: Annotated[str | None, Rare("Column with the name of the item.")] = None
    time_format: Annotated[str | None, Rare("Format of the times, such as %d.%m.%Y.")] = None
    negative_weights: Annotated[
        NegativeWeights,
        Rare("Negative quantities: subtract returns from purchases, drop or keep the rows."),
    ] = "subtract"
    min_rating: Annotated[
        float | None, Rare("Lowest weight that counts as liked; lower ones are negative.")
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadOptions(TableOptions):
    """How to read files and databases of interactions; `read_interactions` says more about each option."""

    training: Annotated[bool, Help("Reject data with fewer than two users or items."), Only()] = True
    where: Annotated[
        str | tuple[str, ...] | None,
        Help(
            "Condition in SQL for the rows to read, such as \"event = 'purchase'\"; several must all be true."
        ),
    ] = None
    missing: Annotated[Missing, Rare("Rows without a user or an item, such as guests' orders.")] = "error"
    future: Annotated[Future | None, Rare("Rows with a time after tomorrow.")] = "error"  # None: any time
    format: Annotated[Format | None, Rare("Format of the file, if its name does not show it.")] = None
    separator: Annotated[str | None, Rare("Separator of the fields in a text file.")] = None
    header: Annotated[
        str | None, Rare("Columns of a text file without a header line, as user_id,item_id.")
    ] = None
    encoding: Annotated[str | None, Rare("Encoding of a text file, such as cp1252.")] = None
    query: Annotated[str | None, Rare("SQL query, if the source is a database.")] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemOptions(Options):
    """The columns of a table of items."""

    item_id: Annotated[str | None, Help("Column with the item.")] = None
    item_name: Annotated[str | None, Help("Column with the name of the item.")] = None
    categories: Annotated[Any, Help("Columns with one category per item.")] = None
    tags: Annotated[Any, Help("Columns with a list of tags per item.")] = None
    text: Annotated[Any, Help("Columns of free text.")] = None
    numbers: Annotated[Any, Help("Columns of numbers.")] = None
    dates: Annotated[Any, Help("Columns of dates.")] = None
    vector: Annotated[Any, Help("Column of vectors of one length.")] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemFileOptions(ItemOptions):
    """How to read files of items."""

    format: Annotated[Format | None, Help("Format of the file, if its name does not show it.")] = None


# ---------------------------------------------------------------------- advice
VALUE = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
CALL = re.compile(rf"read_interactions\(…, ((?:\w+={VALUE}(?:, )?)+)\)")
ARGUMENT = re.compile(rf"(\w+)=({VALUE})")
WITHOUT_OPTION = {  # what to do with a file if the caller cannot set the option
    "encoding": "save the file as UTF-8",
    "header": "write the names of the columns into the first line",
    "query": "export the rows to a file",
    "separator": "save the file with commas",
    "time_format": "write times as 2024-05-01 13:45",
} | dict.fromkeys(ColumnNames._fields, "rename the column")


def advise_reading(**options: str) -> str:
    """A call that reads with these options, as messages show it; the command line shows its flags instead."""
    return f"read_interactions(…, {', '.join(f'{name}={value!r}' for name, value in options.items())})"


def name_flags(message: str, flags: Collection[str]) -> str:
    """The message with flags instead of calls; sentences that need a flag that is missing are left out."""
    calls = [ARGUMENT.findall(call) for call in CALL.findall(message)]
    if not calls:
        return message
    clauses = re.split(r"(?<=[;.?]) ", CALL.sub("\0", message))
    kept = []
    for clause in clauses:
        named, calls = calls[: clause.count("\0")], calls[clause.count("\0") :]
        if all(name in flags for call in named for name, _ in call):
            for call in named:
                clause = clause.replace(
                    "\0", " ".join(f"--{name} {_plain(value)}" for name, value in call), 1
                )
            kept.append(clause)
    text = " ".join(kept)
    return text if len(kept) == len(clauses) else text.rstrip(" ;.") + "."


def _plain(value: str) -> str:
    """A quoted value as it is written in a shell."""
    return value[1:-1] if re.fullmatch(r"[\w.-]+", value[1:-1]) else value


def _names_in(text: str) -> list[str]:
    """The options of the calls in a text."""
    return [name for call in CALL.findall(text) for name, _ in ARGUMENT.findall(call)]


@contextmanager
def without_options() -> Iterator[None]:
    """Let errors advise no options of `read_interactions`, for callers that do not have them."""
    try:
        yield
    except ShortlistError as error:
        names = _names_in(str(error))
        if not names:
            raise
        advice = [WITHOUT_OPTION[name] for name in names if name in WITHOUT_OPTION][:1]
        raise type(error)("; ".join([name_flags(str(error), ()).rstrip(".?"), *advice]) + ".") from None
