"""What the flag --spark needs: a session, folders of Parquet files, errors in one sentence."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REACH_SECONDS = 10.0  # to connect to the address of a master
MASTER = re.compile(r"local(\[.*\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+")


def open_session(master: str) -> "SparkSession":
    """The running session, or a new one at this address; a wrong address is an error within seconds."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark needs pyspark; run pip install pyspark") from None
    if not MASTER.fullmatch(master):  # before Java is started
        raise ConfigError(
            f"Spark at {master!r:.80} cannot be used: it is no address of a master; use local[2], "
            "spark://host:7077, k8s://… or yarn.",
            parameter="spark",
        )
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
    with explain_spark_errors(f"{folder} must be a folder of Parquet files that Spark can read"):
        return session.read.parquet(_address(folder))


def save_lists(lists: "DataFrame", folder: Path) -> dict[str, Any]:
    """Write lists to a new folder of Parquet files; return how many lists, items and empty lists it holds."""
    from pyspark.sql import functions as sf

    with explain_spark_errors(f"lists cannot be written to {folder}"):
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
def explain_spark_errors(rule: str) -> Iterator[None]:
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
