"""Lists on Spark: cut candidates, recommend to histories, evaluate; DataFrames in and out, through Arrow."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from shortlist.core.metrics import Money
from shortlist.core.options import Count, check_value, explain_keywords, take_options
from shortlist.cutoff.base import Cutoff, require_cutoff
from shortlist.data.columns import REQUIRED, match_columns
from shortlist.data.files import collect_arrow, is_spark_frame, read_interactions, spark_columns
from shortlist.data.interactions import Interactions, without_negative
from shortlist.data.labeled import GroundTruth
from shortlist.data.lists import IDS_ONLY, LIST_ALIASES, NUMBERS, RankedLists, find_list_column
from shortlist.data.read_options import ColumnNames, without_options
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation.evaluate import MetricAccumulator
from shortlist.models.base import Recommender, load_model
from shortlist.recommend.options import RequestOptions
from shortlist.spark.task import apply_by_user

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def check_frame(df: Any) -> None:
    """Raise ConfigError unless this is a DataFrame of a session in this process."""
    if not is_spark_frame(df) or not hasattr(df, "_jdf"):
        raise ConfigError(
            "df must be a DataFrame of a SparkSession in this process, not of Spark Connect, which has no "
            f"broadcasts, got {type(df).__module__}.{type(df).__name__}; use spark.read.parquet."
        )


@without_options()
def read_rows(df: "DataFrame") -> "DataFrame":
    """Interactions, with the names of the readers."""
    check_frame(df)
    return spark_columns(df, match_columns(df.columns, ColumnNames(item_name="")))


@without_options()
def lists_of_frame(df: "DataFrame") -> "DataFrame":
    """Users, items and the numbers of lists that are there, with the names of `RankedLists.to_frame`."""
    check_frame(df)
    columns = {role: find_list_column(role, df.columns) for role in LIST_ALIASES}
    columns |= match_columns(df.columns, IDS_ONLY._replace(**{role: columns[role] for role in REQUIRED}))
    columns |= {name: name for name in NUMBERS if name in df.columns}
    return spark_columns(df, {role: column for role, column in columns.items() if column is not None})


@explain_keywords
def cut(df: "DataFrame", cutoff: "Cutoff | str | Path", *, history: Any = None) -> "DataFrame":
    """Cut every list of candidates at its length.

    Parameters
    ----------
    df
        Spark DataFrame of candidates with user, item and score or rank, named as `sl.cut` accepts them.
    cutoff
        A fitted cutoff, or the path of a saved one.
    history
        Interactions known when the candidates were ranked, if the cutoff needs them: anything that
        `Interactions.of` takes. They must fit in the memory of a worker.

    Returns
    -------
    pyspark.sql.DataFrame
        The lists that `cutoff.apply` makes on one machine, in the columns of `RankedLists.to_frame`. An empty
        list is one row of rank 0 without an item. Rows have no order: sort by user_id and rank. Computed when
        it is used.

    Raises
    ------
    ConfigError
        If pyspark is not installed, or the cutoff is not a cutoff.
    DataError
        If a column is missing. Errors in the data are raised by Spark when the lists are computed.

    Examples
    --------
    >>> # lists = sl.spark.cut(spark.read.parquet("candidates"), "cut.shortlist")
    >>> # lists.write.parquet("lists")
    """
    rows = lists_of_frame(df)
    if isinstance(cutoff, str | Path):
        cutoff = Cutoff.load(cutoff)
    require_cutoff(cutoff, "a fitted cutoff or the path of one", "().fit(lists, truth)")
    if "rank" not in rows.columns and "score" not in rows.columns:
        raise DataError(
            f"candidates on Spark must have a score or a rank, because their rows have no order, got "
            f"{', '.join(map(repr, df.columns[:12]))}; add one of them."
        )
    known = read_interactions(history) if is_spark_frame(history) else history
    return apply_by_user(cutoff.arrow(history=known), rows)


@take_options(RequestOptions)
def recommend(df: "DataFrame", model: Recommender | str | Path, *, options: RequestOptions) -> "DataFrame":
    """Recommend a list to each user of a DataFrame of histories; the model need not know the users.

    Parameters
    ----------
    df
        Spark DataFrame of interactions, named as `read_interactions` accepts them: all rows of the users.
    model
        A fitted model of any class, or the path of a saved one.
    N, cutoff, candidates, exclude, filter_seen, min_items, max_items, max_per_group, at, fallback
        As in `recommend` of a model. `at` is one time for all users. `candidates` and `exclude` are the same
        for all, or a dictionary from user id to item ids.
    history
        Must be None, because `df` has the histories.

    Returns
    -------
    pyspark.sql.DataFrame
        The lists of `model.recommend(history=…)` on one machine, in the columns of `RankedLists.to_frame`, in
        no order. Computed when it is used.

    Raises
    ------
    ConfigError
        If pyspark is not installed, an argument is invalid, or nothing decides the length.
    DataError
        If a column is missing.

    Examples
    --------
    >>> # lists = sl.spark.recommend(spark.read.parquet("orders"), "shop.shortlist", max_items=20)
    """
    rows = read_rows(df)
    if isinstance(model, str | Path):
        model = load_model(model)
    if not isinstance(model, Recommender):
        raise ConfigError(
            f"model must be a fitted model or the path of one, got a {type(model).__name__}; pass one."
        )
    return apply_by_user(model.arrow(**vars(options)), rows)


IS_TRUTH = "shortlist_truth"  # whether a row is one of the truth


@explain_keywords
def evaluate(
    lists: "DataFrame",
    truth: "DataFrame",
    *,
    users: Literal["everyone"] | None = None,
    max_items: int = 20,
    gain: float | None = None,
    cost: float | None = None,
) -> pl.DataFrame:
    """Evaluate lists over every user with truth; a user without a list counts as one with an empty list.

    Parameters
    ----------
    lists
        Spark DataFrame of lists with user, item and rank or score, such as `recommend` returns.
    truth
        Spark DataFrame of what the users interacted with after the lists were made.
    users
        "everyone": also users with a list who interacted with nothing.
    max_items, gain, cost
        As in `sl.evaluate`.

    Returns
    -------
    polars.DataFrame
        The means that `sl.evaluate` computes on one machine: one row per metric, with its `mean`, its
        `standard_error` and the number of `users`.

    Raises
    ------
    DataError
        If a column is missing, or no user has truth.
    ConfigError
        If an argument is invalid.

    Examples
    --------
    >>> # sl.spark.evaluate(spark.read.parquet("lists"), spark.read.parquet("next_week"))
    """
    from pyspark.sql import functions as sf

    check_value(Count, max_items=max_items)
    check_value(Literal["everyone"] | None, users=users)
    actual = read_rows(truth)
    actual = actual.select(*(name for name in ("user_id", "item_id", "weight") if name in actual.columns))
    shown = lists_of_frame(lists).withColumn(IS_TRUTH, sf.lit(False))
    rows = shown.unionByName(actual.withColumn(IS_TRUTH, sf.lit(True)), allowMissingColumns=True)
    function = EvaluateFunction(users == "everyone", max_items, Money.of(gain, cost))
    values = apply_by_user(function, rows)
    totals = collect_arrow(
        values.groupBy("metric").agg(
            sf.avg("amount").alias("mean"),
            (sf.stddev("amount") / sf.sqrt(sf.count("amount"))).alias("standard_error"),
            sf.count("amount").alias("users"),
        )
    )
    if not totals.num_rows:
        raise DataError("truth must hold at least one interaction, got none; check the DataFrame.")
    return pl.DataFrame(totals).sort("metric")


@dataclass(frozen=True)
class EvaluateFunction:
    """The metrics of each user of a table of lists and truth."""

    everyone: bool
    max_items: int
    money: Money | None

    def schema(self, source: "pa.Schema") -> "pa.Schema":
        """One row per user and metric."""
        import pyarrow as pa

        return pa.schema({"metric": pa.string(), "amount": pa.float64()})

    def __call__(self, table: "pa.Table") -> "pa.Table":
        """Evaluate whole users."""
        rows = pl.DataFrame(table)
        lists, truth = rows.filter(~rows[IS_TRUTH]).drop(IS_TRUTH), rows.filter(rows[IS_TRUTH])
        actual = without_negative(Interactions.of(truth.drop(*NUMBERS, IS_TRUTH, strict=False)))
        users = lists["user_id"].unique() if self.everyone else None
        metrics = MetricAccumulator(GroundTruth(actual, users), None, self.max_items)
        lists = lists.filter(pl.col("user_id").is_in(metrics.truth.user_ids.implode()))
        if lists.height:
            metrics.add(RankedLists.from_frame(lists))
        report = replace(metrics.report(), money=self.money)
        values = pl.DataFrame({name: report.values(name) for name in report.metrics})
        frame = values.unpivot(variable_name="metric", value_name="amount")
        return frame.to_arrow().cast(self.schema(table.schema))
