"""`shortlist evaluate`: lists from any source against what users did next."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.screen import Json, print_note, show, show_json, show_json_text, show_text
from shortlist.cli.source import BY_NAME, Reading, read_lists, read_source
from shortlist.errors import DataError

Lists = Annotated[
    Path,
    Parameter(
        help="Lists as .parquet, .csv or .jsonl with user_id, item_id, and rank or score, or a folder of "
        "Parquet files."
    ),
]
Truth = Annotated[str, Parameter(help="What users did next: a file, a folder or a database URI.")]
Gain = Annotated[float | None, Parameter(help="What a shown item earns if the user takes it; with --cost.")]
Cost = Annotated[float | None, Parameter(help="What a shown item costs if the user does not take it.")]
Users = Annotated[
    Literal["buyers", "everyone"],
    Parameter(
        help="Who counts. buyers: users in the truth; everyone: also users with a history or a list who took "
        "nothing."
    ),
]


def evaluate_command(
    lists: Lists,
    truth: Truth,
    /,
    *,
    history: str | None = None,
    max_items: int = 20,
    gains: Literal["weight"] | None = None,
    users: Users = "buyers",
    gain: Gain = None,
    cost: Cost = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Evaluate lists from any source against what users did next.

    The metrics are averages over all users in the truth; users without a list
    count as users with an empty list. Flags for columns name those of the truth
    and the history; a file of lists has the columns user_id and item_id.

    For example:
      shortlist evaluate lists.parquet held.parquet
      shortlist evaluate lists.parquet held.parquet --gain 1.5 --cost 0.02
      shortlist evaluate lists.parquet rated.parquet --gains weight
      shortlist evaluate lists/ held.parquet

    Parameters
    ----------
    history
        Interactions before the lists were computed; adds metrics on repeats.
    max_items
        Maximum length of a list, for metrics that need one.
    gains
        weight: also NDCG and recall in which a hit gains its weight in the truth.
    """
    check_order(Path(truth))
    ranked = lists if lists.is_dir() else read_lists(lists)
    actual = read_source(truth, reading, training=False)
    before = None if history is None else read_source(history, reading, training=False)
    report = sl.evaluate(
        ranked,
        actual,
        history=before,
        users="everyone" if users == "everyone" else None,
        max_items=max_items,
        gains=gains,
        gain=gain,
        cost=cost,
    )
    if json:
        return show_json(report.to_dict())
    return show_text(str(report))


def check_order(truth: Path) -> None:
    """Raise DataError if the truth is a file of lists."""
    columns = read_columns(truth)
    if {"rank", "item_id"} <= columns and columns & {"length", "reason", "score"}:
        raise DataError(
            f"the lists come first and the truth second, but {truth} is a file of lists (it has the column "
            "rank); write shortlist evaluate LISTS TRUTH."
        )


def read_columns(path: Path) -> set[str]:
    """The column names of a file; empty if it is not a table that lists are written as."""
    import polars as pl

    from shortlist.data.sources import open_sources

    scans: dict[str, Any] = {"parquet": pl.scan_parquet, "csv": pl.scan_csv, "jsonl": pl.scan_ndjson}
    kind = path.suffix.removeprefix(".")
    if not path.is_file() or kind not in scans:
        return set()
    try:
        return set(scans[kind](open_sources([path], kind)).collect_schema().names())
    except (OSError, DataError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return set()  # the reader explains what is wrong with the file


def compare_command(
    *lists: str,
    truth: str,
    baseline: str | None = None,
    max_items: int = 20,
    users: Users = "buyers",
    gain: Gain = None,
    cost: Cost = None,
    out: Path | None = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Compare several files of lists, with confidence intervals and p-values.

    The metrics are averages over all users; empty lists score 0. Flags for
    columns name those of the truth; a file of lists has the columns user_id and
    item_id.

    For example:
      shortlist recommend shop.shortlist --N 10 --out ten.parquet
      shortlist compare ten.parquet dynamic=lists.parquet --truth held.parquet

    Parameters
    ----------
    lists
        Files of lists, each given as FILE or NAME=FILE.
    truth
        What users did next: a file, a folder or a database URI.
    baseline
        Name of the lists that the others are compared with; default: the first.
    max_items
        Maximum length of a list, for metrics that need one.
    out
        Write the table as .md, .tex, .csv, .json or .txt, instead of printing it.
    """
    files = dict(map(parse_name, lists))
    if len(files) < len(lists) or not files:
        raise DataError(f"lists must have different names, got {list(lists)}; write NAME=FILE for each.")
    actual = read_source(truth, reading, training=False)
    results = {name: read_lists(path) for name, path in files.items()}
    comparison = sl.compare(
        results,
        actual,
        baseline=baseline,
        max_items=max_items,
        users="everyone" if users == "everyone" else None,
        gain=gain,
        cost=cost,
    )
    if out is not None:
        print_note(f"table written to {comparison.write(out)}")
    if json:
        show_json_text(comparison.to_json().rstrip())
    elif out is None:
        show(comparison)


def parse_name(text: str) -> tuple[str, Path]:
    """Split NAME=FILE; without a name, use the stem of the file name."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals else (Path(text).stem, Path(text))
