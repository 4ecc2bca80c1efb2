"""The options of `sl.cut` and `sl.allocate`, and those that leave lists empty, declared once.

The functions take them as keywords, the commands as flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from shortlist.core.options import (
    Above,
    AtLeast,
    AtMost,
    Confidence,
    Count,
    Form,
    Help,
    Only,
    Options,
    Positive,
    Probability,
    Rare,
    Whole,
)

LARGEST_AMOUNT = 1e15  # sums of many values must stay exact enough
Amount = Annotated[float, AtLeast(0), AtMost(LARGEST_AMOUNT)]
WhoCounts = Literal["everyone"] | None

# ---------------------------------------------------------------------- parameters of cutoffs with a flag
Coverage = Annotated[Probability | None, Help("Share of the users who get a list; the least certain do not.")]
Floor = Annotated[float | None, Rare("Lists with a lower expected F1 (or NDCG) stay empty.")]
ItemsPerList = Annotated[
    float, Above(0), AtMost(1e9), Rare("Items per list on average, empty lists included.")
]
MinPrecision = Annotated[
    Confidence | None, Help("Guarantee at least this mean precision and show as much as possible.")
]
SomeConfidence = Annotated[Confidence, Rare("Probability that the guarantee holds.")]


@dataclass(frozen=True, kw_only=True)
class EmptyListOptions:
    """Which users get an empty list; each option is a parameter of some cutoffs, and unset by default."""

    coverage: Coverage = None
    floor: Floor = None
    gain: Annotated[float | None, Help("What a shown item earns if the user takes it.")] = None
    cost: Annotated[float | None, Help("What a shown item costs if the user does not take it.")] = None
    items_per_list: ItemsPerList = 1.0
    min_precision: MinPrecision = None
    confidence: SomeConfidence = 0.95


# ---------------------------------------------------------------------- tasks
@dataclass(frozen=True, kw_only=True, eq=False)
class CutOptions(Options):
    """The options of `sl.cut`, which says more about each of them."""

    metric: Annotated[
        str | None, Help("Metric to maximize: f1, ndcg or value; default: value with gain and cost, else f1.")
    ] = None
    gain: Annotated[float | None, Help("What a shown item earns if the user takes it.")] = None
    cost: Annotated[float | None, Help("What a shown item costs if the user does not take it.")] = None
    users: Annotated[WhoCounts, Help("Who counts, also without a relevant item: everyone.")] = None
    keep_order: Annotated[bool, Rare("Leave the order of the ranker.")] = False
    sizes: Annotated[
        Any,
        Rare("Size of each item, such as its tokens."),
        Form(str | None, help="Column of the candidates with the size of each item, such as its tokens."),
    ] = None
    max_size: Annotated[Positive | None, Rare("Limit of the sizes of the items of a list.")] = None
    min_relevant: Annotated[
        Probability, Rare("Lists in which any candidate is relevant with a lower probability stay empty.")
    ] = 0.0
    n_candidates: Annotated[
        Count | None, Rare("Candidates considered per user; default: the longest list, at most 300.")
    ] = None
    cutoffs: Annotated[Mapping[str, Any] | None, Help("Unfitted cutoffs by name."), Only()] = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AllocationOptions(Options):
    """The options of `sl.allocate`, which says more about each of them."""

    contacts: Annotated[Whole | None, Help("How many users are written to.")] = None
    budget: Annotated[Whole | None, Help("Total number of items to show.")] = None
    max_items: Annotated[
        Count | None,
        Help("Maximum length of a list; default: 10 with contacts and without a budget."),
    ] = None
    exclude_users: Annotated[
        Any,
        Help("Users who get nothing, such as those who opted out."),
        Form(Path | None, help="File with the ids of users who get nothing, such as those who opted out."),
    ] = None
    item_limits: Annotated[
        Any,
        Rare("How many users may be shown an item: a number, or a column of the items."),
        Form(str | None),
    ] = None
    max_per_group: Annotated[
        Any,
        Rare("Items of one group in a list, by field.", {"category": 2}),
        Form(tuple[str, ...], help="Items of one group in a list, as COLUMN=NUMBER, such as category=2."),
    ] = None
    gain: Annotated[
        Any,
        Help("Value of an item that the user takes: a number, or a column of the items; default: 1."),
        Form(str | None),
    ] = 1.0
    cost: Annotated[Amount, Help("Cost of each shown item.")] = 0.0
    contact_cost: Annotated[Amount, Rare("Cost of each user with at least one item.")] = 0.0
    items: Annotated[
        Any,
        Help("One row per item, for columns such as margin and stock."),
        Form(Path | None, help="File with one row per item, for columns such as margin and stock."),
    ] = None
