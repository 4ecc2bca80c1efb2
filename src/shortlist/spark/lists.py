"""Lists on Spark: cut candidates, recommend to users, spend a total; DataFrames in and out, through Arrow.

Every user's rows reach one task, in blocks of whole users; `tasks` says what is done with them.
"""

import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import polars as pl

from shortlist.core.options import is_number, show_options
from shortlist.core.serialization import Artifact, save_artifact
from shortlist.cutoff.allocation import PROBABILITY_NAMES, check_limits, read_limits, read_values
from shortlist.cutoff.allocation_solver import select_by_digits
from shortlist.cutoff.base import Cutoff, check_cutoff
from shortlist.data.columns import ColumnNames, match_columns, plain_name
from shortlist.data.files import collect_arrow, is_spark_frame, read_interactions, spark_columns
from shortlist.data.history import store_history
from shortlist.data.ids import IdMap, id_series
from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.data.lists import LIST_ALIASES, RankedLists, find_list_column
from shortlist.errors import ConfigError, DataError
from shortlist.kernels.allocation import DIGITS
from shortlist.models.base import Recommender, load_model
from shortlist.recommend.request import RequestKeywords, RequestOptions
from shortlist.spark.tasks import (
    ROW,
    Task,
    allocate_block,
    cut_block,
    offer_block,
    recommend_block,
    recommend_sessions,
    session_users,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkAllocation", "allocate", "cut", "recommend"]

REACH_SECONDS = 10.0  # to connect to the address of a master
LIST_COLUMNS = ("rank", "score", "probability", "boundary")


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


# ---------------------------------------------------------------------- public functions
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
    _check_frame(df)
    if isinstance(cutoff, str | Path):
        cutoff = Cutoff.load(cutoff)
    check_cutoff(cutoff, "a fitted cutoff or the path of one", "().fit(lists, truth)")
    files = {"cutoff": _file_bytes(cutoff.save)} | _pack_history(history)
    columns = _find_columns(df)
    if "rank" not in columns and "score" not in columns:
        raise DataError(
            f"candidates on Spark must have a score or a rank, because their rows have no order, got "
            f"{', '.join(map(repr, df.columns[:12]))}; add one of them."
        )
    source = _sort_by_user(df, columns)
    schema = _list_schema(source.schema["user_id"].dataType, source.schema["item_id"].dataType)
    return source.mapInArrow(Task.of(cut_block, df.sparkSession, schema, files), schema)


@show_options(RequestOptions)
def recommend(
    df: "DataFrame | None", model: Recommender | str | Path, **options: Unpack[RequestKeywords]
) -> "DataFrame":
    """Recommend a list to each distinct user of a DataFrame.

    Parameters
    ----------
    df
        Spark DataFrame with a column of users; None: all users of the model, or of `history`.
    model
        A fitted model of any class, or the path of a saved one.
    N, cutoff, candidates, exclude, filter_seen, min_items, max_items, max_per_group, at, fallback
        As in `recommend` of a model. `at` is one time for all users. `candidates` and `exclude` are the same
        for all, or a dictionary from user id to item ids.
    history
        As in `recommend` of a model, or a Spark DataFrame of interactions: then the histories stay on Spark,
        and the model may have learned from other users.

    Returns
    -------
    pyspark.sql.DataFrame
        The lists of one machine, in the columns of `RankedLists.to_frame`, in no order. Computed when it is
        used.

    Raises
    ------
    ConfigError
        If pyspark is not installed, an argument is invalid, or nothing decides the length.
    DataError
        If the column of users is missing.

    Examples
    --------
    >>> # users = spark.read.parquet("customers").select("user_id")
    >>> # lists = sl.spark.recommend(users, "shop.shortlist", max_items=20)
    """
    checked = RequestOptions(**options)
    if df is not None:
        _check_frame(df)
    fitted, content = _read_model(model)
    sessions, files = checked.history, {"model": content}
    on_spark = is_spark_frame(sessions)
    given: dict[str, Any] = {name: value for name, value in options.items() if name != "history"}
    if isinstance(checked.cutoff, Cutoff):
        files["cutoff"] = _file_bytes(checked.cutoff.save)
        del given["cutoff"]  # loaded from its file
    if sessions is not None and not on_spark and not isinstance(sessions, Mapping):
        files |= _pack_history(sessions)
        sessions = None
    fitted.plan([] if sessions is None or on_spark else None, replace(checked, history=None))
    item = _id_type(fitted.items_)
    if on_spark:
        _check_frame(sessions)
        columns = _history_columns(sessions)
        source = _sort_by_user(_rows_of_users(sessions, columns["user_id"], df), columns)
        schema = _list_schema(source.schema["user_id"].dataType, item)
        return source.mapInArrow(
            Task.of(recommend_sessions, source.sparkSession, schema, files, given), schema
        )
    if df is None:
        users = fitted.users_ if checked.history is None else session_users(checked.history)
        source = _session().range(len(users)).withColumnRenamed("id", "number")
        schema = _list_schema(_id_type(users), item)
    else:
        source = spark_columns(df, {"user_id": _need_column(df, "user_id")}).distinct()
        schema = _list_schema(source.schema["user_id"].dataType, item)
    task = Task.of(recommend_block, source.sparkSession, schema, files, given | {"history": sessions})
    return source.mapInArrow(replace(task, by_user=False), schema)


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
    _check_frame(df)
    columns = _find_columns(df)
    if "probability" not in columns:
        raise DataError(
            f"candidates need a column 'probability', got {', '.join(map(repr, df.columns[:12]))}; calibrate "
            "scores first, with sl.cutoff.Calibration."
        )
    check_limits(budget, None, max_items, 0.0, cost)
    plan = _plan_allocation(df, columns["item_id"], max_items, max_per_group, gain, cost, items)
    source = _sort_by_user(df, columns)
    user, item = source.schema["user_id"].dataType, source.schema["item_id"].dataType
    task = Task.of(offer_block, df.sparkSession, _schema(user_id=user, bits="long"), {"plan": plan})
    n_tasks = 4 * df.sparkSession.sparkContext.defaultParallelism  # Spark merges no small partitions here
    offers = source.coalesce(n_tasks).mapInArrow(task, task.schema).persist()
    try:
        price, n_items, limit = _find_price(offers, budget)
    finally:
        offers.unpersist()
    schema = _list_schema(user, item)
    task = replace(task, run=allocate_block, schema=schema, options={"limit": limit})
    return SparkAllocation(source.mapInArrow(task, schema), price, n_items)


# ---------------------------------------------------------------------- driver
def _check_frame(df: Any) -> None:
    """Raise ConfigError unless this is a DataFrame of a session in this process."""
    if not is_spark_frame(df):
        raise ConfigError(f"df must be a Spark DataFrame, got a {type(df).__name__}; use spark.read.parquet.")
    if not hasattr(df, "_jdf"):
        raise ConfigError(
            "df must belong to a SparkSession of this process, got one of Spark Connect, which has no "
            "broadcasts; use SparkSession.builder.master(…)."
        )


def check_address(host: str, port: int) -> None:
    """Raise OSError if nothing listens there; Spark would wait for minutes."""
    socket.create_connection((host.strip("[]"), port), REACH_SECONDS).close()


def open_session(master: str) -> "SparkSession":
    """The running session, or a new one at this address; a wrong address is an error within seconds."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark needs pyspark; run pip install pyspark") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        if master.startswith("spark://"):
            for address in master.removeprefix("spark://").split(","):
                host, _, port = address.rpartition(":")
                check_address(host, int(port))
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
    with _explain_errors(f"{folder} must be a folder of Parquet files that Spark can read"):
        return session.read.parquet(_address(folder))


def save_lists(lists: "DataFrame", folder: Path) -> dict[str, Any]:
    """Write lists to a new folder of Parquet files; return how many lists, items and empty lists it holds."""
    from pyspark.sql import functions as sf

    with _explain_errors(f"lists cannot be written to {folder}"):
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
def _explain_errors(rule: str) -> Iterator[None]:
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


def _session() -> "SparkSession":
    """The active session."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("df=None needs an active SparkSession, got none; start one, or pass a DataFrame.")
    return session


def _file_bytes(save: Callable[[Path], Any]) -> bytes:
    """The bytes that a method writes to a file."""
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        path = Path(folder) / "file"
        save(path)
        return path.read_bytes()


def _read_model(model: Any) -> "tuple[Recommender, bytes]":
    """A fitted model and the bytes of its file."""
    if isinstance(model, str | Path):
        return load_model(model), Path(model).read_bytes()
    if not isinstance(model, Recommender):
        raise ConfigError(
            f"model must be a fitted model or the path of one, got a {type(model).__name__}; pass one."
        )
    return model, _file_bytes(model.save)


def _pack_history(history: Any) -> dict[str, bytes]:
    """The file of a history; none without one."""
    if history is None:
        return {}

    data = read_interactions(history) if is_spark_frame(history) else Interactions.of(history)
    rows = store_history(data)
    about = Artifact("history", "Interactions", {}, rows.arrays, rows.series, rows.notes)
    return {"history": _file_bytes(partial(save_artifact, artifact=about))}


def _need_column(df: "DataFrame", role: str) -> str:
    """The name of the column with users or items."""
    name = find_list_column(role, df.columns)
    if name is None:
        raise DataError(
            f"{role} must be a column of the DataFrame, got {', '.join(map(repr, df.columns[:12]))}; "
            "rename one."
        )
    return name


def _find_columns(df: "DataFrame") -> dict[str, str]:
    """Conventional name → column, of users, items and the numbers of candidates that are there."""
    columns = {role: _need_column(df, role) for role in ("user_id", "item_id")}
    for name in LIST_COLUMNS:
        if name in LIST_ALIASES:
            column = find_list_column(name, df.columns)
        else:
            names = PROBABILITY_NAMES if name == "probability" else (name,)
            column = next((c for alias in names for c in df.columns if plain_name(c) == alias), None)
        if column is not None and column not in columns.values():
            columns[name] = column
    return columns


def _history_columns(df: "DataFrame") -> dict[str, str]:
    """Conventional name → column of interactions."""
    return {role: name for role, name in match_columns(df.columns, ColumnNames()).items() if name}


def _rows_of_users(history: "DataFrame", name: str, df: "DataFrame | None") -> "DataFrame":
    """The rows of a history whose user, in this column, is one of a DataFrame."""
    if df is None:
        return history
    users = spark_columns(df, {name: _need_column(df, "user_id")}).distinct()
    return history.join(users, name, "left_semi")


def _sort_by_user(df: "DataFrame", columns: Mapping[str, str]) -> "DataFrame":
    """The named columns; all rows of a user follow each other in one partition, numbered from 1.

    A window needs exactly this, and Spark moves no rows for it if they are divided by user already: in a
    table with buckets, or after a join or an aggregation by user.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    by_user = Window.partitionBy("user_id").orderBy("user_id")
    return spark_columns(df, columns).withColumn(ROW, sf.row_number().over(by_user))


def _id_type(ids: "IdMap") -> str:
    """The name of the Spark type of ids."""
    return "string" if ids.values.dtype == pl.String else "long"


def _schema(**columns: Any) -> Any:
    """A Spark schema; the type of a column is given as such or by its name."""
    from pyspark.sql import types

    names = {
        "int": types.IntegerType(),
        "long": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
    }
    kinds = {name: names[kind] if isinstance(kind, str) else kind for name, kind in columns.items()}
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def _list_schema(user: Any, item: Any) -> Any:
    """The Spark schema of lists whose ids have these types."""
    lists = {"score": "float", "probability": "double", "length": "int", "boundary": "float"}
    return _schema(user_id=user, rank="int", item_id=item, **lists, reason="string")


def _plan_allocation(
    df: "DataFrame", item: str, max_items: int | None, max_per_group: Any, gain: Any, cost: float, items: Any
) -> bytes:
    """Gains and limits, checked, as the bytes of a file; the distinct items are needed if these differ."""
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
    notes = {"cost": float(cost), "max_items": int(limits.max_items), "differs": differs}
    arrays = {"gains": gains, "groups": limits.groups, "group_limits": limits.group_limits}
    about = Artifact("plan", "Allocation", {}, arrays, {"items": ids}, notes)
    return _file_bytes(partial(save_artifact, artifact=about))


def _find_price(offers: "DataFrame", budget: int | None) -> tuple[float, int, dict[str, Any]]:
    """(price of one more item, number of items, limit): the limit says which offers are shown.

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
        return 0.0, n_offers, {"value": 0.0, "user": None, "n": 0}
    price = select_by_digits(count, budget + 1)[0]
    if budget == 0:
        return price, 0, {"value": float("inf"), "user": None, "n": 0}
    last, n_above = select_by_digits(count, budget)
    ties = offers.where(bits == int(np.float64(last).view(np.int64))).groupBy("user_id").count()
    user, n_of_user = _find_last_user(ties, budget - n_above)
    return price, budget, {"value": last, "user": user, "n": n_of_user}


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
