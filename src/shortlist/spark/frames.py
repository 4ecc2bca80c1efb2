"""Spark DataFrames: columns by their names, rows divided by user."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shortlist.cutoff.allocation import PROBABILITY_NAMES
from shortlist.data.columns import match_columns, plain_name
from shortlist.data.files import is_spark_frame, spark_columns
from shortlist.data.lists import LIST_ALIASES, find_list_column
from shortlist.data.read_options import ColumnNames, without_options
from shortlist.errors import ConfigError, DataError
from shortlist.spark.task import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_frame(df: Any) -> None:
    """Raise ConfigError unless this is a DataFrame of a session in this process."""
    if not is_spark_frame(df):
        raise ConfigError(f"df must be a Spark DataFrame, got a {type(df).__name__}; use spark.read.parquet.")
    if not hasattr(df, "_jdf"):
        raise ConfigError(
            "df must belong to a SparkSession of this process, got one of Spark Connect, which has no "
            "broadcasts; use SparkSession.builder.master(…)."
        )


def list_columns(df: "DataFrame") -> dict[str, str]:
    """Conventional name → column, of users, items and the numbers of lists that are there."""
    columns: dict[str, str] = {}
    for name in ("user_id", "item_id", "rank", "score", "probability", "boundary"):
        if name in LIST_ALIASES:
            column = find_list_column(name, df.columns)
        else:
            names = PROBABILITY_NAMES if name == "probability" else (name,)
            column = next((c for alias in names for c in df.columns if plain_name(c) == alias), None)
        if column is not None and column not in columns.values():
            columns[name] = column
    for name in ("user_id", "item_id"):
        if name not in columns:
            got = ", ".join(map(repr, df.columns[:12]))
            raise DataError(f"{name} must be a column of the DataFrame, got {got}; rename one.")
    return columns


@without_options()
def interaction_columns(df: "DataFrame") -> dict[str, str]:
    """Conventional name → column of interactions."""
    return match_columns(df.columns, ColumnNames(item_name=""))


def sort_by_user(df: "DataFrame", columns: Mapping[str, str]) -> "DataFrame":
    """The named columns; all rows of a user follow each other in one partition, numbered from 1.

    A window needs exactly this, and Spark moves no rows for it if they are divided by user already: in a
    table with buckets, or after a join or an aggregation by user. Rows of equal rank have no order on Spark;
    they are sorted by item.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    order = ["user_id", "item_id"] if "rank" in columns else ["user_id"]
    by_user = Window.partitionBy("user_id").orderBy(*order)
    return spark_columns(df, columns).withColumn(ROW, sf.row_number().over(by_user))


def arrow_schema(df: "DataFrame") -> Any:
    """The Arrow schema of the rows of a DataFrame."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(df.schema)
