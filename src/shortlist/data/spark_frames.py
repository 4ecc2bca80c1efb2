"""Spark DataFrames: recognized, selected and collected. Imports nothing that computes."""

from collections.abc import Mapping
from typing import Any

from shortlist.errors import DataError


def is_spark_frame(value: Any) -> bool:
    """Whether the value is a Spark DataFrame, without importing pyspark."""
    return type(value).__module__.startswith("pyspark.sql") and hasattr(value, "mapInArrow")


def spark_columns(df: Any, columns: Mapping[str, str]) -> Any:
    """These columns of a Spark DataFrame, named by the keys."""
    quoted = {name: column.replace("`", "``") for name, column in columns.items()}
    return df.select(*(df[f"`{column}`"].alias(name) for name, column in quoted.items()))


def collect_arrow(df: Any, max_rows: int | None = None) -> Any:
    """All rows of a Spark DataFrame as an Arrow table; DataError if there are more than `max_rows`."""
    if max_rows is not None and (n_rows := df.count()) > max_rows:
        raise DataError(
            f"a Spark DataFrame must have at most {max_rows:,} rows to be read into one process, got "
            f"{n_rows:,}; write it to Parquet files and train from these with sl.fit_to_folder on Ray, or "
            "select fewer rows on Spark."
        )
    if hasattr(df, "toArrow"):
        return df.toArrow()
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.Table.from_batches(df._collect_as_arrow(), to_arrow_schema(df.schema))  # Spark 3.5
