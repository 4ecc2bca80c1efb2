"""`shortlist allocate`: items for all users at once, within contacts, a total, a stock and other limits."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.arguments import (
    Spark,
    check_spark_flags,
    parse_group_limits,
    parse_value,
    read_content,
    read_source,
)
from shortlist.cli.flags import flags_of
from shortlist.cli.output import Json, print_note, show_json, show_text
from shortlist.core.files import atomic_write, check_writable, write_text
from shortlist.core.task_options import AllocationOptions
from shortlist.errors import ConfigError
from shortlist.text import printable

if TYPE_CHECKING:
    import polars as pl

    from shortlist.cutoff.allocation import Allocation
    from shortlist.data.interactions import Interactions
    from shortlist.data.items import Items
    from shortlist.data.lists import RankedLists

SHEETS = (".xlsx", ".csv")  # for people: no rows of users who get nothing, and ids are texts
ENDINGS = (*SHEETS, ".parquet", ".jsonl")


if TYPE_CHECKING:
    Limits = AllocationOptions
else:
    Limits = flags_of(AllocationOptions)
NO_LIMITS = Limits()
GIVEN_ON_SPARK = ("budget", "max_items", "max_per_group", "gain", "cost", "items")


def allocate_command(
    model: Annotated[
        Path,
        Parameter(
            help="File of a model; with --spark a folder of Parquet files with user, item and probability."
        ),
    ],
    /,
    *,
    out: Path,
    limits: Limits = NO_LIMITS,
    contacts_log: Path | None = None,
    not_contacted_since: str | None = None,
    report: Path | None = None,
    test: str | None = None,
    spark: Spark = None,
    json: Json = False,
) -> None:
    """Write to whom it pays, and show what they are most likely to take.

    Lists are chosen for all users at once: an item is shown to a user if it is
    expected to earn more there than elsewhere. The probabilities are those of
    the model's cutoff.

    For example:
      shortlist allocate shop.shortlist --contacts 20000 --max_items 3 \\
        --out friday.xlsx
      shortlist allocate shop.shortlist --contacts 20000 --out friday.xlsx \\
        --exclude_users optout.csv --contacts_log sent.csv --not_contacted_since 7d
      shortlist allocate shop.shortlist --budget 500 --out offers.csv \\
        --report offers.html --test next_week.parquet
      shortlist allocate candidates/ --budget 500 --out offers/ --spark local[2]

    Parameters
    ----------
    out
        File for the lists: .xlsx, .csv, .parquet or .jsonl; with --spark a folder.
    contacts_log
        File with users and times of earlier contacts, for --not_contacted_since.
    not_contacted_since
        Minimum pause since the last contact, such as 7d.
    report
        Write a page that compares it with the usual ways: .html.
    test
        What users did next: what was measured beside what was expected.
    """
    given = {name: value for name, value in vars(limits).items() if value not in (None, 0, ())}
    if not given.keys() & {"contacts", "budget", "item_limits", "cost", "contact_cost"}:
        raise ConfigError(
            "allocate needs something that limits the lists, got nothing; pass --contacts, --budget, "
            "--item_limits, --cost or --contact_cost."
        )
    if (contacts_log is None) != (not_contacted_since is None):
        raise ConfigError(
            "--contacts_log and --not_contacted_since belong together, got one of them; pass both, such as "
            "--contacts_log sent.csv --not_contacted_since 7d."
        )
    options = read_options(given)
    if spark is not None:
        others = {name: value for name, value in given.items() if name not in GIVEN_ON_SPARK}
        check_spark_flags(out, contacts_log=contacts_log, report=report, test=test, **others)
        return allocate_on_spark(model, out, spark, options, json)
    check_outputs(out, report)
    truth = None if test is None else read_source(test, training=False)
    fitted = sl.load_model(model)
    history = fitted.history_
    options["exclude_users"] = read_excluded(
        limits.exclude_users, contacts_log, not_contacted_since, history.end_time
    )
    allocation = sl.allocate(fitted, **options)
    about = write_allocation(allocation, out, options.get("items"), report, model.name, truth, history)
    if json:
        return show_json({"out": str(out), **about})
    lines = [about["headline"]]
    if limits.gain is None:
        lines.append("note: --gain was not given, so every purchase counts 1")
    if not limits.cost:
        lines.append("note: --cost was not given, so showing an item costs nothing")
    return show_summary(about | {"lists": len(allocation.lists)}, out, lines, report)


def read_options(flags: dict[str, Any]) -> dict[str, Any]:
    """The options of `sl.allocate` that were set by flags, with the items they name."""
    options = dict(flags)
    for name in ("gain", "item_limits"):
        if name in flags:
            options[name] = parse_value(flags[name])
    if "max_per_group" in flags:
        options["max_per_group"] = parse_group_limits(flags["max_per_group"])
    if "items" in flags:
        options["items"] = read_content(flags["items"], options.get("max_per_group"))
    return options


def write_allocation(
    allocation: "Allocation",
    out: Path,
    content: "Items | None",
    report: Path | None,
    name: str,
    truth: "Interactions | None",
    history: "Interactions",
) -> dict[str, Any]:
    """Write the lists and the page; return the figures in plain values."""
    from shortlist.reports.allocation_page import (
        RealOutcome,
        allocation_headline,
        list_strategies,
        render_allocation_report,
    )

    strategies = list_strategies(allocation, history)
    real = None if truth is None else RealOutcome.measure(allocation, truth, strategies)
    page = None if report is None else render_allocation_report(allocation, name, strategies, real)
    write_sheet(allocation.lists, out, content)
    if report is not None and page is not None:
        write_text(report, page)
    outcomes = {"expected": [strategy.expected(allocation) for strategy in strategies]}
    if real is not None:
        outcomes["measured"] = real.outcomes
    compared = {
        kind: {
            strategy.name: {"hits": outcome.hits, "value": outcome.value}
            for strategy, outcome in zip(strategies, values, strict=True)
        }
        for kind, values in outcomes.items()
    }
    return {
        "items": allocation.n_items,
        "users": allocation.n_users,
        "expected_value": allocation.expected_value,
        "same_for_all": allocation.same_for_all.N,
        "bound": allocation.bound,
        "gap": allocation.gap,
        "price_of_an_item": allocation.prices.item,
        "headline": allocation_headline(allocation, strategies, real),
        **compared,
    }


def read_excluded(
    users: Path | None, log: Path | None, pause: str | None, end_time: int
) -> "pl.Series | None":
    """Ids of users who get nothing: those of a file, and those whose last contact is too recent."""
    import polars as pl

    from shortlist.cutoff.allocation import user_column
    from shortlist.data.columns import find_column, guess_time_format, parse_duration, parse_times
    from shortlist.data.lists import read_table

    excluded = []
    if users is not None:
        ids = user_column(read_table(users, None)).cast(pl.String).unique(maintain_order=True)
        print_note(f"{users}: {len(ids):,} users are left out")
        excluded.append(ids)
    if log is not None and pause is not None:
        frame = read_table(log, None)
        name = find_column("timestamp", frame.columns)
        if name is None:
            raise ConfigError(
                f"{log} needs a column 'timestamp', got {', '.join(frame.columns[:12])}; rename one of them.",
                parameter="contacts_log",
            )
        times = frame[name]
        time_format = guess_time_format(times) if times.dtype == pl.String else None
        is_recent = parse_times(times, time_format) > end_time - parse_duration("not_contacted_since", pause)
        ids = user_column(frame).cast(pl.String).filter(pl.Series(is_recent)).unique(maintain_order=True)
        print_note(
            f"{log}: {len(ids):,} users were contacted within {pause} before the last event, and are left out"
        )
        excluded.append(ids)
    return pl.concat(excluded) if excluded else None


def write_sheet(lists: "RankedLists", out: Path, content: "Items | None") -> None:
    """Write the lists; in a table for people with names, without empty rows, and with ids as texts."""
    import polars as pl

    if out.suffix not in SHEETS:
        lists.write(out)
        return
    frame = lists.to_frame(names=True).filter(pl.col("rank") > 0)
    if "item_name" not in frame.columns and content is not None and "item_name" in content.table.columns:
        names = pl.DataFrame({"item_id": content.ids.values, "item_name": content.table["item_name"]})
        frame = frame.join(names, "item_id", how="left", maintain_order="left")
    columns = ["user_id", "rank", "item_id", "item_name", "probability"]
    ids = pl.col("user_id", "item_id").cast(pl.String)
    frame = frame.select(name for name in columns if name in frame.columns).with_columns(ids)
    with atomic_write(out) as temporary:
        if out.suffix == ".csv":
            frame.write_csv(temporary, quote_style="non_numeric")
            return
        sheet = BytesIO()
        try:
            frame.write_excel(sheet, "lists")
        except ImportError:
            raise ConfigError(
                ".xlsx needs the package xlsxwriter, which is not installed; pip install "
                "xlsxwriter, or write .csv."
            ) from None
        temporary.write_bytes(sheet.getvalue())


def show_summary(
    about: dict[str, Any], out: Path, lines: Iterable[str] = (), report: Path | None = None
) -> None:
    """Print how many items were written, these lines, and what one more item would earn."""
    show_text(
        f"{about['items']:,} items for {about['users']:,} of {about['lists']:,} users written to "
        f"{printable(out)}"
    )
    for line in lines:
        show_text(line)
    if report is not None:
        show_text(f"Report written to {printable(report)}")
    if about["price_of_an_item"]:
        show_text(f"One more item would be expected to earn {about['price_of_an_item']:,.4f}")


def check_outputs(out: Path, report: Path | None) -> None:
    """Raise an error for files that cannot be written."""
    for flag, path, endings in (("out", out, ENDINGS), ("report", report, (".html",))):
        if path is not None and path.suffix not in endings:
            raise ConfigError(
                f"--{flag} must end in {', '.join(endings)}, got {path.name!r}; change the name."
            )
        check_writable(path)


def allocate_on_spark(folder: Path, out: Path, master: str, options: dict[str, Any], json: bool) -> None:
    """Allocate the candidates of a folder, and write the lists to a folder."""
    from shortlist.cli.spark import open_session, read_folder, save_lists

    df = read_folder(open_session(master), folder)
    allocation = sl.spark.allocate(df, **options)
    about = save_lists(allocation.lists, out)
    about["users"] = about["lists"] - sum(about.pop("empty_lists").values())
    about["price_of_an_item"] = allocation.price
    return show_json(about) if json else show_summary(about, out)
