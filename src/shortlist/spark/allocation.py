"""Spend a total on Spark: the offers of all users are put in order, and those before the total are shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.options import explain_keywords
from shortlist.core.ragged import row_lengths, row_owners
from shortlist.core.task_options import AllocationOptions
from shortlist.cutoff.allocation import (
    candidate_values,
    probability_column,
    read_limits,
    read_probabilities,
    read_values,
    select_items,
)
from shortlist.cutoff.allocation_solver import AllocationProblem, AllocationSolution, build_offers
from shortlist.data.arrow import list_schema
from shortlist.data.files import collect_arrow
from shortlist.data.ids import IdMap, id_series
from shortlist.data.items import Items
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.kernels.allocation import UserLimits
from shortlist.spark.lists import check_frame, lists_of_frame
from shortlist.spark.task import apply_by_user
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

    The lists are those of `sl.allocate` on one machine. Limits of single items and of contacts need
    `sl.allocate`.

    Parameters
    ----------
    df
        Spark DataFrame of candidates with user, item and probability. It is read three times, and must hold
        the same rows each time: persist it, or write it to files, if it is expensive to compute.
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
    AllocationOptions(budget=budget, max_items=max_items, cost=cost)
    rows = lists_of_frame(df.withColumnRenamed(probability_column(df.columns), "probability"))
    table = collect_arrow(rows.select("item_id").distinct())
    ids = IdMap(id_series(pl.Series(table["item_id"]).drop_nulls().sort()))
    once = pl.DataFrame({"user_id": 0, "item_id": ids.values, "probability": 0.0})  # all items, for one user
    content = None if items is None else Items.of(items)
    gains = read_values(RankedLists.from_frame(once, ids), gain, content, cost).gains
    limits = read_limits(max_items, max_per_group, ids, items)
    if limits.groups.shape[1] > 1:
        raise ConfigError(
            f"max_per_group must have one field on Spark, got {limits.groups.shape[1]}; use sl.allocate on "
            "one machine, or name one field.",
            parameter="max_per_group",
        )
    function = OfferFunction(ids, gains, limits, float(cost))
    offers = apply_by_user(function, rows).persist()
    try:
        n_offers = offers.count()
        end = None if budget is None or budget >= n_offers else _find_offer(offers, budget)
    finally:
        offers.unpersist()
    lists = apply_by_user(ShownFunction(ids, gains, limits, float(cost), end), rows)
    return SparkAllocation(lists, *((0.0, n_offers) if end is None else (end.value, budget)))


class Offer(NamedTuple):
    """A candidate that may be shown: more valuable ones come before it, of equals those of earlier users."""

    value: float
    user: Any
    number: int  # among the user's offers of this value


@dataclass(frozen=True)
class OfferFunction:
    """The offers of the users of a table: -value as whole numbers in the same order, its bits."""

    item_ids: IdMap
    gains: Doubles  # (n_items,)
    limits: UserLimits
    cost: float

    def read(self, table: "pa.Table") -> tuple[RankedLists, AllocationProblem, Any, Any]:
        """(candidates, problem, offers, their positions in the lists) of whole users."""
        lists = read_probabilities(pl.DataFrame(table), self.item_ids)
        problem = AllocationProblem(lists=candidate_values(lists, self.gains, self.cost), limits=self.limits)
        return lists, problem, *build_offers(problem, self.limits)

    def schema(self, source: "pa.Schema") -> "pa.Schema":
        """Users and the places of their offers."""
        import pyarrow as pa

        return pa.schema({"place": pa.int64(), "user_id": source.field("user_id").type})

    def __call__(self, table: "pa.Table") -> "pa.Table":
        """The offers; positive numbers have the order of their bits."""
        lists, _, offers, _ = self.read(table)
        users = lists.users.to_ids(row_owners(offers.indptr))
        frame = pl.DataFrame({"place": -offers.values.view(np.int64), "user_id": users})
        return frame.to_arrow().cast(self.schema(table.schema))


@dataclass(frozen=True)
class ShownFunction(OfferFunction):
    """The lists of the users of a table: the offers before `end`; None: all."""

    end: Offer | None

    def schema(self, source: "pa.Schema") -> "pa.Schema":
        """The schema of lists."""
        return list_schema(source.field("user_id").type, source.field("item_id").type)

    def __call__(self, table: "pa.Table") -> "pa.Table":
        """The lists."""
        lists, problem, offers, positions = self.read(table)
        shown = np.ones(offers.values.size, np.bool_)
        if self.end is not None:
            value, last, number = self.end
            users, sizes = lists.users.values, row_lengths(offers.indptr)
            is_before, is_last = (np.repeat(each.to_numpy(), sizes) for each in (users < last, users == last))
            tied = offers.values == value
            shown = (offers.values > value) | (tied & is_before)
            shown[np.flatnonzero(tied & is_last)[:number]] = True
        prices = np.zeros(self.gains.size)
        solution = AllocationSolution(offers, positions, shown, 0.0, 0.0, 0.0, 0.0, prices)
        chosen = select_items(lists, problem, solution, by_value=bool(np.ptp(self.gains) > 0))
        return chosen.to_frame().to_arrow().cast(self.schema(table.schema))


def _find_offer(offers: "DataFrame", number: int) -> Offer:
    """The offer with this number, from 0, in the order of places and users.

    Ranges of offers are counted, then one range is collected.
    """
    from pyspark.sql import functions as sf

    key, kind = sf.struct("place", "user_id"), offers.schema["user_id"].dataType
    ranges = offers.repartitionByRange("place", "user_id").groupBy(sf.spark_partition_id())
    spans = pl.DataFrame(collect_arrow(ranges.agg(sf.min(key).alias("first"), sf.count("*").alias("n"))))
    spans = spans.unnest("first").sort("place", "user_id")
    before = spans["n"].cum_sum() - spans["n"]
    at = int(before.search_sorted(number, side="right")) - 1
    starts = [
        sf.struct(sf.lit(place).alias("place"), sf.lit(user).cast(kind).alias("user_id"))
        for place, user in spans[["place", "user_id"]][at : at + 2].rows()
    ]
    inside = offers.where(key >= starts[0])
    inside = inside.where(key < starts[1]) if len(starts) > 1 else inside
    rows, row = pl.DataFrame(collect_arrow(inside)).sort("place", "user_id"), number - int(before[at])
    place, user = rows.row(row)
    n_equal = rows[:row].filter((pl.col("place") == place) & (pl.col("user_id") == user)).height
    return Offer(float(np.int64(-place).view(np.float64)), user, n_equal)
