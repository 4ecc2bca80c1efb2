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
from shortlist.cli.output import Json, print_note, show_json, show_text
from shortlist.core.files import atomic_write, check_writable, write_text
from shortlist.errors import ConfigError
from shortlist.text import printable

if TYPE_CHECKING:
    import polars as pl

    from shortlist.cutoff.allocation import Allocation
    from shortlist.data.items import Items
    from shortlist.data.lists import RankedLists
    from shortlist.reports.allocation_page import RealOutcome

SHEETS = (".xlsx", ".csv")  # for people: no rows of users who get nothing, and ids are texts
ENDINGS = (*SHEETS, ".parquet", ".jsonl")


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
    contacts: int | None = None,
    budget: int | None = None,
    max_items: int | None = None,
    exclude_users: Path | None = None,
    contacts_log: Path | None = None,
    not_contacted_since: str | None = None,
    items: Path | None = None,
    gain: str | None = None,
    cost: float | None = None,
    contact_cost: float = 0.0,
    item_limits: str | None = None,
    max_per_group: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = (),
    at: str | None = None,
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
    contacts
        How many users are written to.
    budget
        Total number of items to show.
    max_items
        Maximum length of a list; default: 10 with --contacts and without --budget.
    exclude_users
        File with the ids of users who get nothing, such as those who opted out.
    contacts_log
        File with users and times of earlier contacts, for --not_contacted_since.
    not_contacted_since
        Minimum pause since the last contact, such as 7d.
    items
        File with one row per item, for columns such as margin and stock.
    gain
        Value of an item that the user takes: a number, or a column of --items.
    cost
        Cost of each shown item.
    contact_cost
        Cost of each user with at least one item.
    item_limits
        How many users may be shown an item: a number, or a column of --items.
    max_per_group
        Items of one group in a list, as COLUMN=NUMBER, such as category=2.
    at
        Time of the lists, such as 2024-05-01; default: the last event.
    report
        Write a page that compares it with the usual ways: .html.
    test
        What users did next: what was measured beside what was expected.
    """
    from shortlist.reports.allocation_page import RealOutcome, allocation_headline, render_allocation_report

    if contacts is None and budget is None and item_limits is None and not cost and not contact_cost:
        raise ConfigError(
            "allocate needs something that limits the lists, got nothing; pass --contacts, --budget, "
            "--item_limits, --cost or --contact_cost."
        )
    if (contacts_log is None) != (not_contacted_since is None):
        raise ConfigError(
            "--contacts_log and --not_contacted_since belong together, got one of them; pass both, such as "
            "--contacts_log sent.csv --not_contacted_since 7d."
        )
    single = {"contacts": contacts, "contact_cost": contact_cost, "item_limits": item_limits, "at": at}
    files = {"exclude_users": exclude_users, "contacts_log": contacts_log, "report": report, "test": test}
    check_outputs(out, report, spark, {**single, **files})
    groups = parse_group_limits(max_per_group)
    content = None if items is None else read_content(items, groups)
    limits: dict[str, Any] = {
        "budget": budget,
        "max_items": max_items,
        "max_per_group": groups,
        "gain": 1.0 if gain is None else parse_value(gain),
        "cost": cost or 0.0,
        "items": content,
    }
    if spark is not None:
        return allocate_on_spark(model, out, spark, limits, json)
    truth = None if test is None else read_source(test, training=False)
    fitted = sl.load_model(model)
    history = fitted.history_
    limits["items"] = fitted.groups_ if content is None else content
    allocation = sl.allocate(
        fitted.candidates(at=at),
        contacts=contacts,
        exclude_users=read_excluded(exclude_users, contacts_log, not_contacted_since, at, history.end_time),
        item_limits=None if item_limits is None else parse_value(item_limits),
        contact_cost=contact_cost,
        **limits,
    )
    real = None if truth is None else RealOutcome.measure(allocation, truth, history)
    page = None if report is None else render_allocation_report(allocation, model.name, real, history)
    write_allocation(allocation.lists, out, content)
    if report is not None and page is not None:
        write_text(report, page)
    about = describe_allocation(allocation)
    about["headline"] = allocation_headline(allocation, real, history)
    about |= compare_strategies(allocation, real, history)
    if json:
        return show_json({"out": str(out), **about})
    lines = [about["headline"], *describe_assumptions(gain, cost)]
    return show_summary(about | {"lists": len(allocation.lists)}, out, lines, report)


def read_excluded(
    users: Path | None, log: Path | None, pause: str | None, at: str | None, end_time: int
) -> "pl.Series | None":
    """Ids of users who get nothing: those of a file, and those whose last contact is too recent."""
    import polars as pl

    from shortlist.cutoff.allocation import user_column
    from shortlist.data.columns import find_column, parse_duration, parse_times
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
        now = end_time if at is None else int(parse_times(pl.Series("at", [at]))[0])
        is_recent = parse_times(frame[name]) > now - parse_duration("not_contacted_since", pause)
        ids = user_column(frame).cast(pl.String).filter(pl.Series(is_recent)).unique(maintain_order=True)
        print_note(
            f"{log}: {len(ids):,} users were contacted within {pause} before the lists, and are left out"
        )
        excluded.append(ids)
    return pl.concat(excluded) if excluded else None


def write_allocation(lists: "RankedLists", out: Path, content: "Items | None") -> None:
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


def describe_assumptions(gain: str | None, cost: float | None) -> list[str]:
    """What was assumed because it was not given."""
    lines = []
    if gain is None:
        lines.append("note: --gain was not given, so every purchase counts 1")
    if cost is None:
        lines.append("note: --cost was not given, so showing an item costs nothing")
    return lines


def compare_strategies(allocation: "Allocation", real: "RealOutcome | None", history: Any) -> dict[str, Any]:
    """Hits and value of the allocation and of the usual ways, expected and measured."""
    from shortlist.reports.allocation_page import list_strategies

    strategies = list_strategies(allocation, history)
    outcomes = {"expected": [strategy.expected(allocation) for strategy in strategies]}
    if real is not None:
        outcomes["measured"] = real.outcomes
    return {
        kind: {
            strategy.name: {"hits": outcome.hits, "value": outcome.value}
            for strategy, outcome in zip(strategies, values, strict=True)
        }
        for kind, values in outcomes.items()
    }


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
    show_text(f"One more item would be expected to earn {about['price_of_an_item']:,.4f}")


def check_outputs(out: Path, report: Path | None, spark: str | None, single: dict[str, Any]) -> None:
    """Raise an error for files that cannot be written, and for flags that Spark does not take."""
    if spark is not None:
        return check_spark_flags(out, **single)
    for flag, path, endings in (("out", out, ENDINGS), ("report", report, (".html",))):
        if path is not None and path.suffix not in endings:
            raise ConfigError(
                f"--{flag} must end in {', '.join(endings)}, got {path.name!r}; change the name."
            )
        check_writable(path)
    return None


def allocate_on_spark(folder: Path, out: Path, master: str, limits: dict[str, Any], json: bool) -> None:
    """Allocate the candidates of a folder, and write the lists to a folder."""
    from shortlist.cli.spark import open_session, read_folder, save_lists

    df = read_folder(open_session(master), folder)
    allocation = sl.spark.allocate(df, **limits)
    about = save_lists(allocation.lists, out)
    about["users"] = about["lists"] - sum(about.pop("empty_lists").values())
    about["price_of_an_item"] = allocation.price
    return show_json(about) if json else show_summary(about, out)


def describe_allocation(allocation: "Allocation") -> dict[str, Any]:
    """The figures of an allocation in plain values."""
    return {
        "items": allocation.n_items,
        "users": allocation.n_users,
        "expected_value": allocation.expected_value,
        "same_for_all": allocation.same_for_all.N,
        "bound": allocation.bound,
        "gap": allocation.gap,
        "price_of_an_item": allocation.prices.item,
    }
