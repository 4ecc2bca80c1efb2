"""`shortlist evaluate`: lists from any source against what users did next."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.arguments import BY_NAME, Reading, Spark, check_no_flags, read_lists, read_source
from shortlist.cli.output import Json, print_note, show, show_json, show_json_text, show_text
from shortlist.errors import ConfigError, DataError


def evaluate_command(
    *lists: Annotated[
        str,
        Parameter(
            help="Files of lists, as FILE or NAME=FILE: .parquet, .csv or .jsonl with user_id, item_id, and "
            "rank or score; or one folder of Parquet files."
        ),
    ],
    truth: str,
    history: str | None = None,
    baseline: str | None = None,
    max_items: int = 20,
    gains: Literal["weight"] | None = None,
    users: Literal["buyers", "everyone"] = "buyers",
    gain: float | None = None,
    cost: float | None = None,
    out: Path | None = None,
    spark: Spark = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Evaluate lists from any source against what users did next.

    Several files are compared, with confidence intervals and p-values. The
    metrics are averages over all users in the truth; users without a list count
    as users with an empty list. Flags for columns name those of the truth and the
    history; a file of lists has the columns user_id and item_id.

    For example:
      shortlist evaluate lists.parquet --truth held.parquet
      shortlist evaluate lists.parquet --truth held.parquet --gain 1.5 --cost 0.02
      shortlist evaluate lists.parquet --truth rated.parquet --gains weight
      shortlist evaluate lists/ --truth held.parquet
      shortlist evaluate lists/ --truth next_week/ --spark local[2]
      shortlist recommend shop.shortlist --N 10 --out ten.parquet
      shortlist evaluate ten.parquet dynamic=lists.parquet --truth held.parquet
      shortlist evaluate ten.parquet lists.parquet --truth held.parquet --out t.tex

    Parameters
    ----------
    truth
        What users did next: a file, a folder or a database URI.
    history
        Interactions before the lists were computed; adds metrics on repeats. For one file of lists.
    baseline
        Name of the lists that the others are compared with; default: the first.
    max_items
        Maximum length of a list, for metrics that need one.
    gains
        weight: also NDCG and recall in which a hit gains its weight in the truth. For one file of lists.
    users
        Who counts. buyers: users in the truth; everyone: also users with a history or a list who took
        nothing.
    gain
        What a shown item earns if the user takes it; with --cost.
    cost
        What a shown item costs if the user does not take it.
    out
        Write the table of the comparison as .md, .tex, .csv, .json or .txt, instead of printing it.
    """
    if spark is not None:
        check_no_flags(history=history, baseline=baseline, gains=gains, out=out)
        money = {"gain": gain, "cost": cost}
        return evaluate_on_spark(lists, truth, spark, users, {"max_items": max_items, **money}, json)
    files = dict(map(parse_name, lists))
    if len(files) < len(lists) or not files:
        raise DataError(f"lists must have different names, got {list(lists)}; write NAME=FILE for each.")
    actual = read_source(truth, reading, training=False)
    counted: Literal["everyone"] | None = "everyone" if users == "everyone" else None
    if len(files) == 1 and baseline is None and out is None:
        (path,) = files.values()
        report = sl.evaluate(
            path if path.is_dir() else read_lists(path),
            actual,
            history=None if history is None else read_source(history, reading, training=False),
            users=counted,
            max_items=max_items,
            gains=gains,
            gain=gain,
            cost=cost,
        )
        return show_json(report.to_dict()) if json else show_text(str(report))
    unused = [f"--{name}" for name, value in (("history", history), ("gains", gains)) if value is not None]
    if unused:
        raise ConfigError(f"{unused[0]} belongs to one file of lists, got a comparison; leave it out.")
    comparison = sl.compare(
        {name: read_lists(path) for name, path in files.items()},
        actual,
        baseline=baseline,
        max_items=max_items,
        users=counted,
        gain=gain,
        cost=cost,
    )
    if out is not None:
        print_note(f"table written to {comparison.write(out)}")
    if json:
        show_json_text(comparison.to_json().rstrip())
    elif out is None:
        show(comparison)
    return None


def evaluate_on_spark(
    lists: tuple[str, ...], truth: str, master: str, users: str, options: dict[str, Any], json: bool
) -> None:
    """Print the mean metrics of one folder of lists."""
    from shortlist.cli.spark import explain_spark_errors, open_session, read_folder

    if len(lists) != 1:
        raise ConfigError(f"--spark evaluates one folder of lists, got {len(lists)}; name one.")
    session = open_session(master)
    shown, actual = read_folder(session, Path(lists[0])), read_folder(session, Path(truth))
    with explain_spark_errors(f"{lists[0]} cannot be evaluated"):
        means = sl.spark.evaluate(shown, actual, users="everyone" if users == "everyone" else None, **options)
    return show_json(means.to_dicts()) if json else show(means)


def parse_name(text: str) -> tuple[str, Path]:
    """Split NAME=FILE; without a name, use the stem of the file name."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():  # such as day=2024-05-01/lists.parquet
        return Path(text).stem, Path(text)
    return name, Path(path)
