"""The options of a request, declared once for Python, the command line, HTTP and Spark."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from shortlist.core.options import (
    AtLeast,
    AtMost,
    Count,
    Form,
    Help,
    MaxLength,
    Only,
    Options,
    Rare,
    Whole,
)

if TYPE_CHECKING:
    from shortlist.cutoff.base import Cutoff

    CutoffChoice = Literal["auto", "boundary"] | Cutoff
else:
    CutoffChoice = Any  # checked by `build_request`, because cutoffs load compiled kernels

Fallback = Literal["popular"] | Callable[[Any], Iterable[Any]]
Length = Annotated[int, AtLeast(1)]
MinLength = Annotated[int, AtLeast(0)]
HttpLength = Annotated[int, AtLeast(1), AtMost(1_000)]
HttpId = str | Annotated[int, AtLeast(-(2**63)), AtMost(2**63 - 1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestOptions(Options):
    """The options of a request; `Recommender.recommend` says more about each of them.

    `build_request` checks them against each other and against the model.
    """

    N: Annotated[
        Length | None,
        Help("The same length for all lists."),
        Form(http=HttpLength | None),
    ] = None
    cutoff: Annotated[
        CutoffChoice,
        Help('"auto", "boundary" or a fitted cutoff; over HTTP the name of its file.'),
        Form(
            str | None,
            Annotated[str, MaxLength(200)],
            "Cutoff instead of the saved one: boundary, or a file with a fitted cutoff.",
        ),
    ] = "auto"
    candidates: Annotated[
        Any,
        Help("Recommend only these items.", ["i1", "i10"]),
        Form(Path | None, list[HttpId] | None, "Text file with the ids of the only items to recommend."),
    ] = None
    exclude: Annotated[
        Any,
        Rare("Never recommend these items.", ["i1", "i10"]),
        Form(Path | None, list[HttpId] | None, "Text file with the ids of items not to recommend."),
    ] = None
    history: Annotated[
        Any,
        Help("Histories to use instead of the known ones; nothing is stored.", {"session-1": ["i1", "i10"]}),
        Form(
            Path | None,
            dict[str, list[HttpId]] | None,
            "File with interactions to use instead of the known histories; nothing is stored.",
        ),
    ] = None
    filter_seen: Annotated[
        bool | None,
        Help("Whether to leave out items from the history; default: only if users do not repeat items."),
    ] = None
    min_items: Annotated[
        MinLength,
        Rare("Fill shorter lists with the next candidates."),
        Form(http=Annotated[int, AtLeast(0), AtMost(1_000)]),
    ] = 0
    max_items: Annotated[Length | None, Help("Maximum length of a list."), Form(http=HttpLength | None)] = (
        None
    )
    max_per_group: Annotated[
        Any,  # a mapping from str to int, checked by `build_request`
        Rare("How many items of one group a list may contain, by field.", {"category": 2}),
        Form(
            tuple[str, ...],
            dict[str, Count] | None,
            "Items of one group in a list, as FIELD=NUMBER, such as category=2.",
        ),
    ] = None
    at: Annotated[
        Any,
        Help("Time of the lists, such as 2024-05-01; default: the last event."),
        Form(str | None, Annotated[str, MaxLength(40)] | None),
    ] = None
    fallback: Annotated[
        Fallback | None,
        Help('What to show instead of an empty list, for unknown users too: "popular".'),
        Form(Literal["popular"] | None, Literal["popular"] | None),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class FileOptions(RequestOptions):
    """The options of `recommend_to_file`."""

    progress: Annotated[
        Callable[[int, int], None] | None,
        Help("Called after each batch with the number of lists written and the total."),
        Only(),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplainOptions(RequestOptions):
    """The options of `explain`."""

    n_withheld: Annotated[Whole, Help("How many of the candidates that follow the list to explain.")] = 5
    n_contributions: Annotated[Whole, Help("How many contributions to report per item.")] = 3
