"""Spark DataFrames: sessions, folders of Parquet files, columns by their names, rows divided by user."""

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist.cutoff.allocation import PROBABILITY_NAMES
from shortlist.data.columns import match_columns, plain_name
from shortlist.data.files import is_spark_frame, spark_columns
from shortlist.data.lists import LIST_ALIASES, find_list_column
from shortlist.data.read_options import ColumnNames, without_options
from shortlist.errors import ConfigError, DataError
from shortlist.spark.task import ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REACH_SECONDS = 10.0  # to connect to the address of a master


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
def history_columns(df: "DataFrame") -> dict[str, str]:
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


def open_session(master: str) -> "SparkSession":
    """The running session, or a new one at this address; a wrong address is an error within seconds."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark needs pyspark; run pip install pyspark") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        if master.startswith("spark://"):  # Spark itself would wait for minutes
            for address in master.removeprefix("spark://").split(","):
                host, _, port = address.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
        builder: Any = SparkSession.builder
        builder = builder.master(master).appName("shortlist").config("spark.ui.showConsoleProgress", "false")
        if master.startswith("local"):
            builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
        session: SparkSession = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")  # errors are raised here
    except Exception as error:  # Java is missing, the address is wrong: classes of py4j and of Spark
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ConfigError(
            f"Spark at {master!r:.80} cannot be used: {reason}; use local[2], or the address of a running "
            "master, and check that Java 17 is installed.",
            parameter="spark",
        ) from None
    return session


def read_folder(session: "SparkSession", folder: Path) -> "DataFrame":
    """The Parquet files of a folder, which may be the address of a store, such as s3a://shop/candidates."""
    with explain_errors(f"{folder} must be a folder of Parquet files that Spark can read"):
        return session.read.parquet(_address(folder))


def save_lists(lists: "DataFrame", folder: Path) -> dict[str, Any]:
    """Write lists to a new folder of Parquet files; return how many lists, items and empty lists it holds."""
    from pyspark.sql import functions as sf

    with explain_errors(f"lists cannot be written to {folder}"):
        lists.write.parquet(_address(folder))
        rows = lists.sparkSession.read.parquet(_address(folder))
        first = rows.groupBy(sf.when(rows["length"] == 0, sf.coalesce("reason", sf.lit("no reason"))))
        counts = first.agg(sf.count_if(rows["rank"] <= 1), sf.count_if(rows["rank"] > 0)).collect()
    empty = {reason: n for reason, n, _ in counts if reason is not None}
    n_lists, n_items = sum(n for _, n, _ in counts), sum(n for *_, n in counts)
    return {"out": str(folder), "lists": n_lists, "items": n_items, "empty_lists": empty}


def _address(folder: Path) -> str:
    """The path, or the address that pathlib took for one: it removes the second slash of s3a://."""
    scheme, _, rest = str(folder).partition(":/")
    return f"{scheme}://{rest}" if rest and scheme.isalnum() and scheme != "file" else str(folder)


@contextmanager
def explain_errors(rule: str) -> Iterator[None]:
    """Raise what a Python worker or Spark reports as one sentence."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        reason = re.search(r"shortlist\.errors\.\w+: (.+)", str(error))
        if reason is not None:
            raise DataError(reason[1]) from None
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise DataError(f"{rule}, got: {lines[0][:300]}; check the path and its files.") from None
