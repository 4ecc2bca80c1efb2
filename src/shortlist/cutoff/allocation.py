"""Allocation: which items to show to which users, if their total, the users or the items are limited."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl

from shortlist.core.options import AtLeast, AtMost, Whole, check_value, is_number, take_options
from shortlist.core.ragged import row_lengths
from shortlist.core.tables import html
from shortlist.core.task_options import LARGEST_AMOUNT, AllocationOptions
from shortlist.core.threads import map_slices
from shortlist.cutoff.allocation_solver import (
    BLOCK,
    ROWS,
    AllocationProblem,
    AllocationSolution,
    contact_worth,
    solve,
)
from shortlist.data.columns import find_column, plain_name, to_polars
from shortlist.data.ids import IdMap
from shortlist.data.items import ItemGroups, Items, check_group_limits
from shortlist.data.labeled import user_series
from shortlist.data.lists import REASON_CODE, Codes, RankedLists
from shortlist.errors import ConfigError, DataError, UnknownIdError, warn
from shortlist.kernels.allocation import (
    UNLIMITED,
    CandidateValues,
    UserLimits,
    collect_rows,
    explain_ends,
    sum_positions,
)
from shortlist.kernels.rows import starts
from shortlist.text import short_repr
from shortlist.types import Bools, Doubles, Floats, Longs

PROBABILITY_NAMES = ("probability", "prob", "proba", "p")
LENGTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)  # of the curve
ENDS = (  # in the order of the codes that `explain_ends` writes
    "no_candidates",
    "all_candidates",
    "max_items",
    "value",
    "group_limit",
    "item_limit",
    "below_price",
)
MAX_ITEMS = 10  # of a list, if only the number of contacts is limited
MANY_LISTS = 20  # fewer may add up to 1 by chance


class Prices(NamedTuple):
    """What a little more of each limit would earn.

    Parameters
    ----------
    item
        Value of one more item in the total; 0 if the total does not bind.
    contact
        Value of one more user to contact.
    stock
        item_id, limit, price: value of one more unit of each item of which no unit is left. Highest first.
    """

    item: float
    contact: float
    stock: pl.DataFrame


class UniformLists(NamedTuple):
    """The first candidates of every user, equally many for all.

    Parameters
    ----------
    N
        Items per user. Between two whole numbers, a share of the users gets one more than the others.
    hits, value
        Expected hits and value.
    """

    N: float
    hits: float
    value: float


@dataclass(frozen=True, eq=False, repr=False)
class Allocation:
    """The items that users are shown, what they are expected to earn, and what each limit costs.

    Made by `allocate`.

    Parameters
    ----------
    lists
        The list of every user, possibly empty, with the reason why it ends.
    prices
        What one more item, one more contact and one more unit of an item would earn.
    expected_hits
        Sum of the probabilities of shown items.
    expected_value
        Expected gains less the cost of shown items and contacts.
    bound
        No allocation within the limits has a higher expected value.
    problem
        The candidates and limits that were solved, for `curve`.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"user": [1, 1, 2], "item": ["a", "b", "a"], "probability": [0.5, 0.1, 0.3]})
    >>> sl.allocate(table, budget=2)
    Allocation(2 items for 2 of 2 users, 0.8 expected hits, expected value 0.8, optimal)
    """

    lists: RankedLists
    prices: Prices
    expected_hits: float
    expected_value: float
    bound: float
    problem: AllocationProblem

    @property
    def n_items(self) -> int:
        """Number of shown items."""
        return int(self.lists.items.size)

    @property
    def n_users(self) -> int:
        """Number of users with at least one item."""
        return int((self.lists.lengths > 0).sum())

    @property
    def gap(self) -> float:
        """Largest possible distance from the optimum, relative to the bound."""
        return max(self.bound - self.expected_value, 0.0) / abs(self.bound) if self.bound else 0.0

    @cached_property
    def curve(self) -> pl.DataFrame:
        """Expected hits and value against volume, computed on first use.

        Columns N (items per user), n_items, hits, value, n_users for an allocation of this total within the
        same other limits, and hits_same, value_same for the first N candidates of every user, without any
        limit.
        """
        return measure_volumes(self.problem)

    @cached_property
    def same_for_all(self) -> UniformLists:
        """The same number of items, but equally many for every user, without any other limit."""
        return _interpolate(_sum_lengths(self.problem), self.n_items)

    @cached_property
    def limit_costs(self) -> pl.DataFrame:
        """What each limit costs, computed on first use: the value without it, all others as they are.

        Columns limit, value (without the limit) and cost (what is lost to it).
        """
        return _limit_costs(self.problem, self.expected_value)

    def __repr__(self) -> str:
        gap = "optimal" if self.gap < 1e-9 else f"within {self.gap:.2%} of the optimum"
        return (
            f"Allocation({self.n_items:,} items for {self.n_users:,} of {len(self.lists):,} users, "
            f"{_number(self.expected_hits)} expected hits, expected value "
            f"{_number(self.expected_value)}, {gap})"
        )

    def _repr_html_(self) -> str:
        table = self.lists[:5].to_frame(names=True).filter(pl.col("rank") <= 5)
        return html(table, repr(self), max(self.n_items, len(self.lists)))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@runtime_checkable
class CandidateModel(Protocol):
    """A model that knows the candidates of its users, with calibrated probabilities."""

    @property
    def groups_(self) -> Items | None:
        """The groups of items that it knows."""

    def candidates(self) -> RankedLists:
        """The candidates of all users."""


@take_options(AllocationOptions)
def allocate(candidates: Any, *, options: AllocationOptions) -> Allocation:
    """Choose items for all users at once so that the expected value is highest within the limits.

    The expected value is the sum of probability · gain − cost over shown items, less `contact_cost` for each
    user with at least one item. An item that would lower it is never shown.

    Parameters
    ----------
    candidates
        A fitted model whose cutoff has calibrated probabilities, for all its users; `RankedLists` with such
        probabilities (from `model.candidates` or `Calibration.apply`), or a polars, pandas or Arrow table
        with users, items and probabilities. A row without item is a user without candidates. If equal values
        compete for the last place, the earlier user gets it; the users of a table are in the order of their
        ids.
    contacts
        How many users get at least one item.
    budget
        Total number of shown items.
    max_items
        Length of a list; None: 10 with `contacts` and without a `budget`, else no limit.
    exclude_users
        Ids of users who get nothing and do not count, such as those who opted out, or a table with their ids.
    item_limits
        How many users may be shown an item: a number for every item, a mapping from item id to number, or the
        name of a column of `items`, such as the stock. Items without a limit are not limited.
    max_per_group
        Field of `items` → how many items of one group a list may contain, such as {"category": 2}. Items
        without a value belong to no group.
    gain
        Value of an item that the user interacts with: a number, the name of a column of `items`, such as the
        margin, or a mapping from item id to number.
    cost
        Cost of each shown item.
    contact_cost
        Cost of each user with at least one item.
    items
        `Items` or a table, for names of columns in the other arguments; with a model, by default its groups.

    Returns
    -------
    Allocation
        Lists, prices, expected hits and value, and a bound on the best possible value. Every user of the
        candidates has a list. If gains differ, lists are ordered by expected value.

    Raises
    ------
    ConfigError
        If a limit, gain or cost is invalid, or `items` is missing.
    DataError
        If the candidates have no probabilities, or an item has no gain.
    UnknownIdError
        If a gain or a limit names an item that is not among the candidates' ids.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame(
    ...     {"user": ["ann", "ann", "bob"], "item": ["tea", "milk", "tea"], "probability": [0.5, 0.4, 0.3]}
    ... )
    >>> allocation = sl.allocate(table, budget=2, gain={"tea": 2.0, "milk": 1.0}, cost=0.1)
    >>> allocation.lists["bob"].items, round(allocation.expected_value, 2)
    (['tea'], 1.4)
    >>> round(allocation.prices.item, 2)
    0.3
    """
    max_items, items = options.max_items, options.items
    if options.contacts is not None and options.budget is None and max_items is None:
        max_items = MAX_ITEMS
    if isinstance(candidates, CandidateModel):
        items = candidates.groups_ if items is None else items
        candidates = candidates.candidates()
    lists = leave_out(read_probabilities(candidates), options.exclude_users)
    content, ids, stock = None if items is None else Items.of(items), lists.item_ids, options.item_limits
    problem = AllocationProblem(
        lists=read_values(lists, options.gain, content, options.cost),
        limits=read_limits(max_items, options.max_per_group, ids, items),
        stock=None if stock is None else _read_stock(stock, ids, content),
        budget=UNLIMITED if options.budget is None else options.budget,
        contacts=UNLIMITED if options.contacts is None else options.contacts,
        contact_cost=float(options.contact_cost),
    )
    return _build(lists, problem, solve(problem))


# ---------------------------------------------------------------------- input


def read_probabilities(candidates: Any, item_ids: IdMap | None = None) -> RankedLists:
    """Lists whose probabilities are numbers from 0 to 1; the item ids of a table may be given."""
    lists = candidates if isinstance(candidates, RankedLists) else _lists_of_table(candidates, item_ids)
    if lists.probabilities is None:
        if lists.items.size:
            raise DataError(
                "candidates must have calibrated probabilities, got scores only; use "
                "sl.cutoff.Calibration().fit(lists, truth).apply(lists), or a table with a column "
                "'probability'."
            )
        lists = replace(lists, probabilities=np.empty(0))
    p = lists.probabilities
    assert p is not None
    low, high = (float(p.min()), float(p.max())) if p.size else (0.0, 0.0)
    if not (low >= 0 and high <= 1):
        got = "NaN" if np.isnan(low) else f"{low if low < 0 else high:g}"
        raise DataError(
            f"probabilities must be numbers from 0 to 1, got {got}; calibrate scores first, with "
            "sl.cutoff.Calibration."
        )
    _check_sums(lists)
    return lists


def leave_out(lists: RankedLists, users: Any) -> RankedLists:
    """The lists without these users; a table has a column with their ids."""
    if users is None:
        return lists
    if hasattr(type(users), "columns") or hasattr(type(users), "column_names"):
        users = user_column(to_polars(users))
    ids = user_series(users)
    is_excluded = lists.users.values.cast(pl.String).is_in(ids.cast(pl.String).implode())
    if len(ids) and not is_excluded.any():
        warn(
            f"none of the {len(ids):,} users to exclude has candidates, such as {ids[0]!r:.60}; their ids "
            "must be written like those of the candidates."
        )
    return lists.take(np.flatnonzero(~is_excluded.to_numpy()))


def user_column(frame: pl.DataFrame) -> pl.Series:
    """The ids of users in a table; the only column if there is one."""
    name = frame.columns[0] if frame.width == 1 else find_column("user_id", frame.columns)
    if name is None:
        raise DataError(
            f"users need a column 'user_id', got {', '.join(map(repr, frame.columns[:12]))}; rename one of "
            "them.",
            parameter="exclude_users",
        )
    return frame[name].drop_nulls()


def _check_sums(lists: RankedLists) -> None:
    """Warn of probabilities that add up to 1 for each user, which are not probabilities of a hit."""
    sums = np.bincount(lists.owner, lists.probabilities, len(lists))
    sums = sums[lists.lengths > 1]
    if sums.size >= MANY_LISTS and np.abs(sums - 1).max() < 1e-3:
        warn(
            "the probabilities of every user add up to 1, so they are shares of a list, such as a softmax "
            "gives; allocate compares users and needs the probability of each item, as sl.cutoff.Calibration "
            "gives it."
        )


def _lists_of_table(table: Any, item_ids: IdMap | None) -> RankedLists:
    """A table with users, items and probabilities as lists, by user id; ties by item id.

    The order of its rows changes nothing.
    """
    try:
        frame = to_polars(table)
    except DataError:
        raise DataError(
            "candidates must be RankedLists or a polars, pandas or Arrow table, got a "
            f"{type(table).__name__}; pass one of these."
        ) from None
    frame = frame.rename({probability_column(frame.columns): "probability"})
    has_scores, has_ranks = "score" in frame.columns, "rank" in frame.columns
    if not has_scores and not has_ranks:
        frame = frame.with_columns(score=pl.col("probability"))
    lists = RankedLists.from_frame(frame, item_ids)
    if not lists.users.values.is_sorted():
        lists = lists.take(lists.users.values.arg_sort().to_numpy())
    return lists if has_ranks else _order_ties(lists, lists.scores if has_scores else lists.probabilities)


def probability_column(names: list[str]) -> str:
    """The column of a table with the probabilities."""
    plain = {plain_name(name): name for name in reversed(names)}
    column = next((plain[name] for name in PROBABILITY_NAMES if name in plain), None)
    if column is None:
        raise DataError(
            f"candidates need a column 'probability', got {', '.join(map(repr, names[:12]))}; calibrate "
            "scores first, with sl.cutoff.Calibration."
        )
    return column


def _order_ties(lists: RankedLists, key: Floats | Doubles | None) -> RankedLists:
    """The lists, with candidates of equal keys in the order of their ids."""
    if (
        key is None
        or not (
            (key[1:] == key[:-1]) & (lists.items[1:] < lists.items[:-1]) & (lists.positions[1:] > 0)
        ).any()
    ):
        return lists
    return lists.reorder(np.lexsort((lists.items, -key, lists.owner)))


def _shown_items(lists: RankedLists) -> Bools:
    """(n_items,) whether an item is a candidate of any user."""
    occurs = np.zeros(len(lists.item_ids), np.bool_)
    for start in range(0, lists.items.size, ROWS):
        occurs[lists.items[start : start + ROWS]] = True
    return occurs


def read_values(lists: RankedLists, gain: Any, content: Items | None, cost: float) -> CandidateValues:
    """The candidates with their gains; every candidate needs one, and one must exceed the cost."""
    gains = _parse_gains(gain, lists, content)
    most = float(gains[_shown_items(lists)].max(initial=-np.inf))
    if lists.items.size and most <= cost:
        raise ConfigError(
            f"gain must exceed cost for at least one item, or no list can earn anything, got at most "
            f"{most:g} and {cost:g}; use the same unit for both.",
            parameter="gain",
        )
    return candidate_values(lists, gains, cost)


def candidate_values(lists: RankedLists, gains: Doubles, cost: float) -> CandidateValues:
    """The candidates with the gain (n_items,) of each item."""
    return CandidateValues(
        np.ascontiguousarray(lists.indptr, np.int64),
        np.ascontiguousarray(lists.items, np.int32),
        np.ascontiguousarray(lists.probabilities, np.float64),
        gains,
        float(cost),
    )


def _parse_gains(gain: Any, lists: RankedLists, content: Items | None) -> Doubles:
    """(n_items,) the gain of each item."""
    ids = lists.item_ids
    if is_number(gain):
        check_value(Annotated[float, AtLeast(-LARGEST_AMOUNT), AtMost(LARGEST_AMOUNT)], gain=gain)
    gains = _read_numbers("gain", gain, ids, content)
    missing = np.flatnonzero(np.isnan(gains) & _shown_items(lists))
    if missing.size:
        raise DataError(
            f"every candidate must have a gain, got none for item {ids.values[int(missing[0])]!r:.60} "
            f"({missing.size:,} in all); add it, or leave the item out of the candidates.",
            parameter="gain",
        )
    return np.nan_to_num(gains, nan=0.0)


def _read_stock(limits: Any, ids: IdMap, content: Items | None) -> Longs:
    """(n_items,) the limit of each item, -1 for none."""
    if is_number(limits):
        check_value(Whole, item_limits=limits)
    values = _read_numbers("item_limits", limits, ids, content)
    given = values[~np.isnan(values)]
    wrong = given[(given < 0) | (given != np.floor(given)) | ~np.isfinite(given)]
    if wrong.size:
        raise ConfigError(
            f"item_limits must be whole numbers of at least 0, got {wrong[0]:g}; use 0 to leave an item out.",
            parameter="item_limits",
        )
    return np.where(np.isnan(values), -1, np.minimum(np.nan_to_num(values), UNLIMITED)).astype(np.int64)


def _read_numbers(name: str, given: Any, ids: IdMap, content: Items | None) -> Doubles:
    """(n_items,) one number for all items, a column, or a mapping; NaN for an item without one."""
    if is_number(given):
        return np.full(len(ids), float(given))
    if isinstance(given, str):
        return _column(name, given, ids, content)
    if isinstance(given, Mapping):
        return _from_mapping(name, given, ids)
    raise ConfigError(
        f"{name} must be a number, the name of a column of items, or a mapping from item id to number, "
        f"got {short_repr(given)}; pass one of these.",
        parameter=name,
    )


def _from_mapping(name: str, mapping: Mapping[Any, Any], ids: IdMap) -> Doubles:
    """(n_items,) numbers of a mapping from item id; every id must be one of the items."""
    values = np.full(len(ids), np.nan)
    if not mapping:
        return values
    at = ids.lookup(list(mapping), "item id")
    numbers = list(mapping.values())
    for key, position, number in zip(mapping, at, numbers, strict=True):
        if position < 0:
            raise UnknownIdError(
                f"{name} must name items of the candidates, got {key!r:.60}; leave it out.", parameter=name
            )
        if not is_number(number) or not np.isfinite(number):
            raise ConfigError(
                f"{name} of item {key!r:.60} must be a finite number, got {short_repr(number)}; correct it.",
                parameter=name,
            )
    values[at] = numbers
    return values


def _column(name: str, column: str, ids: IdMap, content: Items | None) -> Doubles:
    """(n_items,) numbers of a column of items, NaN for missing ones."""
    table = _need_items(name, column, content)
    if table.kinds[column] != "numbers":
        raise ConfigError(
            f"{name} must name a column of numbers, got {column!r:.60} with {table.kinds[column]}; name "
            "another one.",
            parameter=name,
        )
    at = table.ids.lookup(ids.values)
    values = table.table[column].fill_null(np.nan).to_numpy()
    return np.where(at >= 0, values[np.maximum(at, 0)], np.nan)


def _need_items(name: str, column: str, content: Items | None) -> Items:
    """The items, if they have this column."""
    if content is None:
        raise ConfigError(f"{name}={column!r:.60} needs the column of items; pass items=.", parameter="items")
    if column not in content.kinds:
        raise ConfigError(
            f"{name} must name a column of items, got {column!r:.60}; columns: "
            f"{', '.join(map(repr, content.kinds)) or 'none'}.",
            parameter=name,
        )
    return content


def read_limits(max_items: int | None, max_per_group: Any, ids: IdMap, items: Any) -> UserLimits:
    """The limits of a list, with the groups of each item."""
    most = UNLIMITED if max_items is None else max_items
    wanted = {} if max_per_group is None else check_group_limits(max_per_group)
    if not wanted:
        return UserLimits(most, np.empty((len(ids), 0), np.int32), np.empty(0, np.int64))
    if items is None:
        raise ConfigError(
            f"max_per_group={next(iter(wanted))!r:.60} needs the column of items; pass items=.",
            parameter="items",
        )
    return ItemGroups.of(items, ids, list(wanted)).limits(wanted)._replace(max_items=most)


# ---------------------------------------------------------------------- result


def _build(lists: RankedLists, problem: AllocationProblem, solution: AllocationSolution) -> Allocation:
    """The allocation of a solution."""
    gains = problem.lists.gains
    by_value = lists.items.size > 0 and bool(np.ptp(gains[_shown_items(lists)]) > 0)
    selected = select_items(lists, problem, solution, by_value=by_value)
    p = selected.probabilities
    assert p is not None
    value = float((p * gains[selected.items] - problem.lists.cost).sum())
    value -= problem.contact_cost * int((selected.lengths > 0).sum())
    return Allocation(
        lists=selected,
        prices=Prices(solution.price, solution.contact_price, _stock_prices(lists, problem, solution)),
        expected_hits=float(p.sum()),
        expected_value=value,
        bound=max(solution.bound, value),
        problem=problem,
    )


def select_items(
    lists: RankedLists, problem: AllocationProblem, solution: AllocationSolution, *, by_value: bool
) -> RankedLists:
    """The shown items of each list: by their value, or in the order of the candidates."""
    sizes, rows = np.empty(problem.n_users, np.int64), np.empty(int(solution.held.sum()), np.int64)
    collect_rows(problem.lists.indptr, solution.offers.indptr, solution.positions, solution.held, sizes, rows)
    shown = np.zeros(lists.items.size, np.bool_)
    shown[rows] = True
    if not by_value:
        rows = np.flatnonzero(shown)
    assert lists.probabilities is not None
    sold = np.bincount(lists.items[rows], minlength=len(lists.item_ids))
    return replace(
        lists,
        indptr=starts(sizes),
        items=lists.items[rows],
        scores=lists.scores[rows],
        probabilities=lists.probabilities[rows],
        reason=_reasons(problem, solution, shown, sizes, sold),
    )


def _stock_prices(
    lists: RankedLists, problem: AllocationProblem, solution: AllocationSolution
) -> pl.DataFrame:
    """One row per item with a positive price."""
    priced = np.flatnonzero(solution.item_prices > 0)
    stock = np.full(len(lists.item_ids), -1, np.int64) if problem.stock is None else problem.stock
    table = pl.DataFrame(
        {
            "item_id": lists.item_ids.to_ids(priced),
            "limit": stock[priced],
            "price": solution.item_prices[priced],
        }
    )
    return table.sort("price", descending=True, maintain_order=True)


def _reasons(
    problem: AllocationProblem, solution: AllocationSolution, shown: Bools, sizes: Longs, sold: Longs
) -> Codes:
    """(n_users,) why each list ends."""
    left = np.full(sold.size, -1, np.int64)
    if problem.stock is not None:
        left = np.where(problem.stock < 0, -1, np.maximum(problem.stock - sold, 0))
    ends = np.empty(problem.n_users, np.uint8)

    def explain(users: slice) -> None:
        explain_ends(problem.lists, problem.limits, shown, left, users.start, ends[users])

    map_slices(explain, problem.n_users, BLOCK)
    reasons = np.array([REASON_CODE[name] for name in ENDS], np.uint8)[ends]
    if problem.has_contacts:
        worth = contact_worth(problem, solution)
        empty = (sizes == 0) & (worth > 0)
        reasons[empty & (worth <= problem.contact_cost)] = REASON_CODE["contact_cost"]
        reasons[empty & (worth > problem.contact_cost)] = REASON_CODE["contact_limit"]
    return reasons


def measure_volumes(problem: AllocationProblem, volumes: Iterable[float] | None = None) -> pl.DataFrame:
    """One row per total, as in `Allocation.curve`; None: the totals of a few lengths."""
    same, rows = _sum_lengths(problem), []
    if volumes is None:
        volumes = [same[n, 0] for n in LENGTHS if n < len(same)]
    for volume in volumes:
        N, hits, value = _interpolate(same, volume)
        measured = _measure(replace(problem, budget=round(volume)))
        rows.append({"N": N, **measured, "hits_same": hits, "value_same": value})
    columns = ("N", "n_items", "hits", "value", "n_users", "hits_same", "value_same")
    whole = ("n_items", "n_users")
    return pl.DataFrame(rows, schema={name: pl.Int64 if name in whole else pl.Float64 for name in columns})


def _sum_lengths(problem: AllocationProblem) -> Doubles:
    """(longest + 1, 3) number, expected hits and value of the first 0, 1, 2 … candidates of all users."""
    longest = int(row_lengths(problem.lists.indptr).max(initial=0))

    def block(users: slice) -> Doubles:
        sums = np.zeros((longest, 3))
        sum_positions(problem.lists, users.start, users.stop, sums)
        return sums

    blocks = map_slices(block, problem.n_users, BLOCK)
    same = np.cumsum(sum(blocks, np.zeros((longest, 3))), axis=0)
    same[:, 2] -= problem.contact_cost * int((row_lengths(problem.lists.indptr) > 0).sum())
    return np.concatenate([np.zeros((1, 3)), same])


def _interpolate(same: Doubles, volume: float) -> UniformLists:
    """Between two lengths, in proportion."""
    lengths = np.arange(len(same), dtype=np.float64)
    return UniformLists(*(float(np.interp(volume, same[:, 0], y)) for y in (lengths, same[:, 1], same[:, 2])))


def _limit_costs(problem: AllocationProblem, value: float) -> pl.DataFrame:
    """Solve without each limit that was given."""
    limits, n_fields = problem.limits, problem.limits.groups.shape[1]
    free = UserLimits(limits.max_items, np.empty((len(limits.groups), 0), np.int32), np.empty(0, np.int64))
    without = {
        "budget": problem.budget < UNLIMITED and replace(problem, budget=UNLIMITED),
        "contacts": problem.contacts < UNLIMITED and replace(problem, contacts=UNLIMITED),
        "max_items": limits.max_items < UNLIMITED
        and replace(problem, limits=limits._replace(max_items=UNLIMITED)),
        "item_limits": problem.stock is not None and replace(problem, stock=None),
        "max_per_group": n_fields > 0 and replace(problem, limits=free),
    }
    values = {name: max(solve(other).value, value) for name, other in without.items() if other}
    columns = {
        "limit": list(values),
        "value": list(values.values()),
        "cost": [other - value for other in values.values()],
    }
    return pl.DataFrame(columns, schema={"limit": pl.String, "value": pl.Float64, "cost": pl.Float64})


def _measure(problem: AllocationProblem) -> dict[str, float]:
    """Number of items and users, expected hits and value of the solution."""
    solution = solve(problem)
    sizes, rows = np.empty(problem.n_users, np.int64), np.empty(int(solution.held.sum()), np.int64)
    collect_rows(problem.lists.indptr, solution.offers.indptr, solution.positions, solution.held, sizes, rows)
    return {
        "n_items": int(rows.size),
        "hits": float(problem.lists.probabilities[rows].sum()),
        "value": solution.value,
        "n_users": int((sizes > 0).sum()),
    }
