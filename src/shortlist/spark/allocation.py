"""Spend a total on Spark: the price of the last item is counted from the bits of all offers, exactly."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.options import explain_keywords, is_number
from shortlist.core.ragged import row_lengths, row_owners
from shortlist.core.task_options import AllocationOptions
from shortlist.cutoff.allocation import (
    candidate_values,
    read_limits,
    read_probabilities,
    read_values,
    select_items,
)
from shortlist.cutoff.allocation_solver import (
    AllocationProblem,
    AllocationSolution,
    build_offers,
    select_by_digits,
)
from shortlist.data.arrow import list_schema
from shortlist.data.files import collect_arrow, spark_columns
from shortlist.data.ids import IdMap, id_series
from shortlist.data.items import Items
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.allocation import DIGITS, UserLimits
from shortlist.spark.frames import arrow_schema, check_frame, list_columns, sort_by_user
from shortlist.spark.task import Task
from shortlist.types import Doubles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class SparkAllocation(NamedTuple):
    """The items that users are shown; made by `allocate`.

    Parameters
    ----------
    lists
        DataFrame with the list of every user, possibly empty, in the columns of `RankedLists.to_frame`.
    price
        Value of one more item in the total; 0 if the total does not bind.
    n_items
        Number of shown items.
    """

    lists: "DataFrame"
    price: float
    n_items: int


@explain_keywords
def allocate(
    df: "DataFrame",
    *,
    budget: int | None = None,
    max_items: int | None = None,
    max_per_group: Mapping[str, int] | None = None,
    gain: float | str | Mapping[Any, float] = 1.0,
    cost: float = 0.0,
    items: Any = None,
) -> SparkAllocation:
    """Choose items for all users at once so that the expected value is highest within a total: exact.

    The lists are those of `sl.allocate` on one machine. The price of the total is found from histograms of
    the partitions. Limits of single items and of contacts need `sl.allocate`.

    Parameters
    ----------
    df
        Spark DataFrame of candidates with user, item and probability. It is read twice, and must hold the
        same rows both times: persist it, or write it to files, if it is expensive to compute.
    budget, max_items, max_per_group, gain, cost, items
        As in `sl.allocate`. `items` and the distinct items of the candidates must fit on the driver.

    Returns
    -------
    SparkAllocation
        The lists as a DataFrame, the price of one more item, and the number of shown items.

    Raises
    ------
    ConfigError
        If pyspark is not installed, or a limit, gain or cost is invalid.
    DataError
        If a column is missing, or an item has no gain.

    Examples
    --------
    >>> # offers = sl.spark.allocate(spark.read.parquet("candidates"), budget=1_000_000)
    >>> # offers.lists.write.parquet("offers")
    """
    check_frame(df)
    columns = list_columns(df)
    if "probability" not in columns:
        raise DataError(
            f"candidates need a column 'probability', got {', '.join(map(repr, df.columns[:12]))}; calibrate "
            "scores first, with sl.cutoff.Calibration."
        )
    AllocationOptions(budget=budget, max_items=max_items, cost=cost)
    plan = _plan(df, columns["item_id"], max_items, max_per_group, gain, cost, items)
    rows = sort_by_user(df, columns)
    n_tasks = 4 * df.sparkSession.sparkContext.defaultParallelism  # Spark merges no small partitions here
    schema = arrow_schema(rows)
    offers = Task.run(plan.offers, rows.coalesce(n_tasks), plan.offer_schema(schema)).persist()
    try:
        price, n_items, limit = _find_price(offers, budget)
    finally:
        offers.unpersist()
    lists = Task.run(partial(plan.lists, limit=limit), rows, plan.list_schema(schema))
    return SparkAllocation(lists, price, n_items)


class Limit(NamedTuple):
    """Which offers are shown: those above a value, and of that value those of the first users."""

    value: float
    user: Any = None  # the last user with offers of this value that are shown; None: none are
    n: int = 0  # how many of them


@dataclass(frozen=True)
class AllocationPlan:
    """What workers need to know: gains, limits and cost."""

    item_ids: IdMap | None  # None: all items have the same gain, and no groups
    gains: Doubles  # (n_items,), or (1,)
    limits: UserLimits
    cost: float

    def _read(self, table: "pa.Table") -> tuple[RankedLists, AllocationProblem, Any, Any]:
        """(candidates, problem, offers, their positions in the lists) of whole users."""
        lists, gains, limits = read_probabilities(pl.DataFrame(table), self.item_ids), self.gains, self.limits
        if self.item_ids is None:
            n_items = len(lists.item_ids)
            gains = np.full(n_items, gains[0])
            limits = limits._replace(groups=np.empty((n_items, 0), np.int32))
        problem = AllocationProblem(lists=candidate_values(lists, gains, self.cost), limits=limits)
        return lists, problem, *build_offers(problem, limits)

    @staticmethod
    def offer_schema(source: "pa.Schema") -> "pa.Schema":
        """The schema of offers."""
        import pyarrow as pa

        return pa.schema({"user_id": source.field("user_id").type, "bits": pa.int64()})

    @staticmethod
    def list_schema(source: "pa.Schema") -> "pa.Schema":
        """The schema of lists."""
        return list_schema(source.field("user_id").type, source.field("item_id").type)

    def offers(self, table: "pa.Table") -> "pa.Table":
        """User and value of each offer, as its bits."""
        lists, _, offers, _ = self._read(table)
        users = lists.users.to_ids(row_owners(offers.indptr))
        frame = pl.DataFrame({"user_id": users, "bits": offers.values.view(np.int64)})
        return frame.to_arrow().cast(self.offer_schema(table.schema))

    def lists(self, table: "pa.Table", limit: Limit) -> "pa.Table":
        """The lists of whole users."""
        lists, problem, offers, positions = self._read(table)
        shown = offers.values > limit.value
        if limit.user is not None:
            users, sizes = lists.users.values, row_lengths(offers.indptr)
            tied = offers.values == limit.value
            shown |= tied & np.repeat((users < limit.user).to_numpy(), sizes)
            last = np.flatnonzero(tied & np.repeat((users == limit.user).to_numpy(), sizes))
            shown[last[: limit.n]] = True
        prices = np.zeros(problem.lists.gains.size)
        solution = AllocationSolution(offers, positions, shown, 0.0, 0.0, limit.value, 0.0, prices)
        chosen = select_items(lists, problem, solution, by_value=bool(np.ptp(self.gains) > 0))
        return chosen.to_frame().to_arrow().cast(self.list_schema(table.schema))


def _plan(
    df: "DataFrame", item: str, max_items: int | None, max_per_group: Any, gain: Any, cost: float, items: Any
) -> AllocationPlan:
    """Gains and limits, checked; the distinct items are collected if these differ by item."""
    differs = not is_number(gain) or bool(max_per_group)
    ids = pl.Series([0])
    if differs:
        table = collect_arrow(spark_columns(df, {"item_id": item}).distinct())
        ids = id_series(pl.Series(table["item_id"]).drop_nulls().sort())
    n = len(ids)
    every = RankedLists(  # all items as the list of one user
        users=IdMap.of([0]),
        item_ids=IdMap(ids),
        indptr=np.array([0, n]),
        items=np.arange(n, dtype=np.int32),
        scores=np.zeros(n, np.float32),
        probabilities=np.zeros(n),
    )
    gains = read_values(every, gain, None if items is None else Items.of(items), cost).gains
    limits = read_limits(max_items, max_per_group, every.item_ids, items)
    if limits.groups.shape[1] > 1:
        raise ConfigError(
            f"max_per_group must have one field on Spark, got {len(max_per_group)}; use sl.allocate on one "
            "machine, or name one field.",
            parameter="max_per_group",
        )
    return AllocationPlan(every.item_ids if differs else None, gains, limits, float(cost))


def _find_price(offers: "DataFrame", budget: int | None) -> tuple[float, int, Limit]:
    """(price of one more item, number of items, which offers are shown).

    Positive numbers have the order of their bits, so Spark counts groups of 16 bits, from the highest.
    """
    from pyspark.sql import functions as sf

    bits = offers["bits"]

    @cache
    def count(prefix: int, shift: int) -> Any:
        rows = offers if shift == 48 else offers.where(sf.shiftright(bits, shift + 16) == prefix)
        digit = sf.shiftright(bits, shift).bitwiseAND(DIGITS - 1)
        table = collect_arrow(rows.groupBy(digit.alias("digit")).count())
        counts = np.zeros(DIGITS, np.int64)
        counts[table["digit"].to_numpy()] = table["count"].to_numpy()
        return counts

    n_offers = int(count(0, 48).sum())
    if budget is None or budget >= n_offers:
        return 0.0, n_offers, Limit(0.0)
    price = select_by_digits(count, budget + 1)[0]
    if budget == 0:
        return price, 0, Limit(float("inf"))
    last, n_above = select_by_digits(count, budget)
    ties = offers.where(bits == int(np.float64(last).view(np.int64))).groupBy("user_id").count()
    return price, budget, Limit(last, *_find_last_user(ties, budget - n_above))


def _find_last_user(ties: "DataFrame", n: int) -> tuple[Any, int]:
    """The user who gets the last of n equal offers, in the order of ids, and how many of them.

    Ranges of users are counted first, then the users of one range.
    """
    from pyspark.sql import functions as sf

    ranges = ties.repartitionByRange("user_id").groupBy(sf.spark_partition_id().alias("range"))
    spans = collect_arrow(ranges.agg(sf.min("user_id").alias("first"), sf.sum("count").alias("n")))
    spans = spans.sort_by("first")
    before = np.cumsum(spans["n"].to_numpy()) - spans["n"].to_numpy()
    at = int(np.searchsorted(before, n)) - 1
    inside = ties.where(ties["user_id"] >= spans["first"][at].as_py())
    if at + 1 < spans.num_rows:
        inside = inside.where(inside["user_id"] < spans["first"][at + 1].as_py())
    rows = collect_arrow(inside).sort_by("user_id")
    through = int(before[at]) + np.cumsum(rows["count"].to_numpy())
    row = int(np.searchsorted(through, n))
    n_of_user = n - int(through[row]) + rows["count"][row].as_py()
    return rows["user_id"][row].as_py(), n_of_user
