"""Rankings and judgments of other tools: tables, TREC, ranx, LensKit, Elasticsearch and OpenSearch."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from shortlist.data.columns import REQUIRED, find_column, plain_name
from shortlist.data.files import plain_sources, read_interactions
from shortlist.data.interactions import Interactions
from shortlist.data.lists import FORMATS, RankedLists, collect_table, name_columns, read_table
from shortlist.errors import DataError

RUN_COLUMNS = ("user_id", "iteration", "item_id", "rank", "score", "tag")  # of a TREC run
JUDGMENT_COLUMNS = ("user_id", "iteration", "item_id", "relevance")  # of TREC qrels
TREC_FORMATS = (".run", ".trec", ".txt", ".res", ".qrels", ".qrel")
RELEVANCE_NAMES = ("relevance", "relevant", "rel", "label", "judgment", "grade", "isrelevant")
KINDS = (
    "a table with user, item and score or rank, RankedLists, a file (.parquet, .csv, .jsonl, .json or a TREC "
    "run), a run of ranx, or search hits by query"
)


def read_candidates(source: Any, what: str = "candidates") -> RankedLists:
    """Ranked lists from anything that holds a user, an item and a score or a rank; `what`: for messages."""
    if isinstance(source, RankedLists):
        return source
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix in FORMATS or path.is_dir():
            return RankedLists.read(path)
        return RankedLists.from_frame(read_candidate_table(path))
    source = _convert(source)
    if isinstance(source, Mapping):
        return RankedLists.from_frame(_frame_of_run(source))
    try:
        return RankedLists.from_frame(source)
    except DataError as error:
        if "must be a polars, pandas or Arrow table" not in str(error):
            raise
        raise DataError(f"{what} must be {KINDS}, got {type(source).__name__}; convert them.") from None


def read_candidate_table(path: Path) -> pl.DataFrame:
    """The table of a file of candidates."""
    if path.suffix == ".json":
        return _frame_of_run(_read_json(path))
    if path.suffix in TREC_FORMATS:
        return _read_trec(path, RUN_COLUMNS)
    return read_table(path, None)


def read_outcomes(source: Any) -> Interactions:
    """What happened, by user and item; rows with a relevance of 0 or below are left out."""
    return read_judgments(source)[0]


def read_judgments(source: Any) -> tuple[Interactions, Interactions | None]:
    """What happened, and all assessed rows if some of them are not relevant."""
    if isinstance(source, Interactions):
        return source, None
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix in TREC_FORMATS:
            source = _read_trec(path, JUDGMENT_COLUMNS)
        elif path.suffix == ".json":
            source = _read_json(path)
        else:
            table = read_table(path, None) if path.suffix in FORMATS and path.is_file() else None
            if table is None or not _has_relevance(table):
                return read_interactions(source, training=False), None
            source = table
    source = _convert(source)
    if isinstance(source, Mapping):
        rows = _frame_of(source, "relevance").drop_nulls("item_id")
        source = rows.with_columns(pl.col("^relevance$").fill_null(1.0))
    elif not (hasattr(type(source), "columns") or hasattr(type(source), "column_names")):
        return Interactions.of(source), None
    assessed, is_relevant = _mark_relevant(collect_table(source))
    if is_relevant.all():
        return Interactions.of(assessed), None
    return Interactions.of(assessed.filter(is_relevant)), Interactions.of(assessed)


def _convert(source: Any) -> Any:
    """A run of ranx as a dictionary, LensKit's collections of lists as a table, anything else as it is."""
    if type(source).__module__.partition(".")[0] == "ranx" and hasattr(source, "to_dict"):
        return source.to_dict()
    return source.to_df() if hasattr(type(source), "to_df") else source


def _has_relevance(frame: pl.DataFrame) -> bool:
    """Whether a table has the columns of judgments, which the readers of interactions do not know."""
    if any(plain_name(name) in RELEVANCE_NAMES for name in frame.columns):
        return True
    return any(find_column(role, frame.columns) is None for role in REQUIRED)


def _mark_relevant(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Conventional names of the ids, and whether the relevance of each row is above 0."""
    frame = name_columns(frame, REQUIRED)
    name = next((column for column in frame.columns if plain_name(column) in RELEVANCE_NAMES), None)
    if name is None:
        return frame, pl.Series([True]).new_from_index(0, frame.height)
    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise DataError(
            f"{name} must be a number or true and false in the truth, got {column.dtype}; cast it."
        )
    return frame.drop(name), (column.cast(pl.Float64) > 0).fill_null(False)


def _read_json(path: Path) -> Any:
    """The content of a JSON file: a run or judgments of ranx, or the answer of a search engine."""
    if not path.is_file():
        raise DataError(f"no file at {path}; check the path.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not readable JSON ({str(error)[:100]}); write it again.") from None
    if not isinstance(content, dict):
        raise DataError(
            f"{path} must hold an object with one entry per query, got a {type(content).__name__}; change it."
        )
    return content


def _hits(answer: Any) -> list[tuple[Any, float | None]] | None:
    """(id, score) of each hit in an answer of Elasticsearch or OpenSearch; None for anything else."""
    if isinstance(answer, Mapping) and isinstance(answer.get("hits"), Mapping):
        answer = answer["hits"].get("hits")
    if not isinstance(answer, list) or not all(isinstance(hit, Mapping) and "_id" in hit for hit in answer):
        return None
    if any(hit.get("_score") is None for hit in answer):
        raise DataError("every hit must have a _score, got null; search without sort, or with track_scores.")
    return [(hit["_id"], float(hit["_score"])) for hit in answer]


def _frame_of(source: Mapping[Any, Any], number: str) -> pl.DataFrame:
    """A table of {query: {item: number}}, {query: [item, …]} or {query: answer with hits}.

    A query without items has one row without an item.
    """
    users, items, values = list[Any](), list[Any](), list[float | None]()
    for user, entry in source.items():
        pairs = _hits(entry)
        if pairs is None and isinstance(entry, Mapping):
            pairs = list(entry.items())
            unclear = next((item for item, value in pairs if value is None), None)
            if number == "relevance" and unclear is not None:
                raise DataError(
                    f"relevance must be a number, got None for {unclear!r:.60} of {user!r:.60}; pass 0 or 1, "
                    "or leave the item out."
                )
        if pairs is None and isinstance(entry, Iterable) and not isinstance(entry, str | bytes):
            pairs = [(item, None) for item in entry]
        if pairs is None:
            raise DataError(
                f"every query must have items, got {entry!r:.60} for {user!r:.60}; pass {{query: {{item: "
                f"{number}}}}} or {{query: [item]}}."
            )
        for item, value in pairs or [(None, None)]:
            users.append(user)
            items.append(item)
            values.append(value)
    try:
        table = pl.DataFrame(
            {"user_id": users, "item_id": items, number: pl.Series(values, dtype=pl.Float64)}
        )
    except TypeError as error:
        reason = str(error).splitlines()[0][:100]
        raise DataError(
            f"ids must be all strings or all integers, got a mixture ({reason}); cast them."
        ) from None
    return table.drop(number) if table[number].null_count() == table.height else table


def _frame_of_run(run: Mapping[Any, Any]) -> pl.DataFrame:
    """A table of the items of each query, also of one or several answers of a search engine."""
    if isinstance(run.get("responses"), list):
        run = dict(enumerate(run["responses"]))
    elif isinstance(run.get("hits"), Mapping):
        run = {0: run}
    return _frame_of(run, "score")


def _read_trec(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    """A TREC run or qrels: fields separated by spaces or tabs, one row per line, without a header."""
    if not path.is_file():
        raise DataError(f"no file at {path}; check the path.")
    (opened,) = plain_sources([path])
    text = opened if isinstance(opened, bytes) else opened.read_bytes()
    try:
        lines = pl.Series("line", text.decode("utf-8-sig").splitlines(), pl.String)
    except UnicodeDecodeError:
        raise DataError(f"{path} must be written in UTF-8; convert it.") from None
    lines = lines.str.strip_chars()
    lines = lines.filter(lines != "")
    fields = lines.str.extract_all(r"\S+")
    wrong = (fields.list.len() != len(columns)).arg_true()
    if len(wrong) or not len(lines):
        got = f"{lines[int(wrong[0])]!r:.60}" if len(wrong) else "no line"
        raise DataError(
            f"{path}: every line must have the fields {' '.join(columns)}, got {got}; correct it."
        )
    frame = pl.DataFrame({name: fields.list.get(at) for at, name in enumerate(columns)})
    number = columns[-1] if columns[-1] == "relevance" else "score"
    values = frame[number].cast(pl.Float64, strict=False)
    if values.null_count():
        got = frame[number].filter(values.is_null())[0]
        raise DataError(f"{path}: {number} must be a number, got {got!r:.60}; correct it.")
    return frame.select(*REQUIRED, values)
