"""`shortlist allocate`: items for all users at once, within a total, a stock and other limits."""

from collections.abc import Iterable
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
from shortlist.cli.output import Json, show_json, show_text
from shortlist.core.files import check_writable, write_text
from shortlist.errors import ConfigError
from shortlist.text import printable

if TYPE_CHECKING:
    from shortlist.cutoff.allocation import Allocation
    from shortlist.reports.allocation_page import RealOutcome

ENDINGS = (".parquet", ".csv", ".jsonl")


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
    budget: int | None = None,
    max_users: int | None = None,
    max_items: int | None = None,
    items: Path | None = None,
    gain: str = "1",
    cost: float = 0.0,
    contact_cost: float = 0.0,
    item_limits: str | None = None,
    max_per_group: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)] = (),
    at: str | None = None,
    report: Path | None = None,
    test: str | None = None,
    spark: Spark = None,
    json: Json = False,
) -> None:
    """Spend a number of items where they are expected to earn most.

    Lists are chosen for all users at once: an item is shown to a user if it is
    expected to earn more there than elsewhere. The probabilities are those of
    the model's cutoff.

    For example:
      shortlist allocate shop.shortlist --budget 500 --out offers.parquet
      shortlist allocate shop.shortlist --gain 3 --cost 0.2 --out offers.parquet
      shortlist allocate shop.shortlist --budget 500 --out offers.parquet \\
        --report offers.html --test next_week.parquet
      shortlist allocate candidates/ --budget 500 --out offers/ --spark local[2]

    Parameters
    ----------
    out
        File for the lists: .parquet, .csv or .jsonl; with --spark a folder.
    budget
        Total number of items to show.
    max_users
        Number of users who get at least one item.
    max_items
        Maximum length of a list.
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
        Write a page that compares it with the same number for everyone: .html.
    test
        What users did next: the real hits and value beside the expected ones.
    """
    from shortlist.reports.allocation_page import RealOutcome, render_allocation_report

    if budget is None and max_users is None and item_limits is None and not cost and not contact_cost:
        raise ConfigError(
            "allocate needs something that limits the lists, got nothing; pass --budget, --max_users, "
            "--item_limits, --cost or --contact_cost."
        )
    single = {"max_users": max_users, "contact_cost": contact_cost, "item_limits": item_limits, "at": at}
    check_outputs(out, report, test, spark, single)
    groups = parse_group_limits(max_per_group)
    content = None if items is None else read_content(items, groups)
    limits: dict[str, Any] = {
        "budget": budget,
        "max_items": max_items,
        "max_per_group": groups,
        "gain": parse_value(gain),
        "cost": cost,
        "items": content,
    }
    if spark is not None:
        return allocate_on_spark(model, out, spark, limits, json)
    truth = None if test is None else read_source(test, training=False)
    fitted = sl.load_model(model)
    allocation = fitted.allocate(
        at=at,
        max_users=max_users,
        item_limits=None if item_limits is None else parse_value(item_limits),
        contact_cost=contact_cost,
        **limits,
    )
    real = None if truth is None else RealOutcome.measure(allocation, truth)
    page = None if report is None else render_allocation_report(allocation, model.name, real)
    allocation.lists.write(out)
    if report is not None and page is not None:
        write_text(report, page)
    about = describe_allocation(allocation)
    if real is not None:
        about["real"] = {name: getattr(real, name) for name in ("hits", "hits_same", "value", "value_same")}
    if json:
        return show_json({"out": str(out), **about})
    about["lists"] = len(allocation.lists)
    return show_summary(about, out, compare_totals(allocation, real), report)


def compare_totals(allocation: "Allocation", real: "RealOutcome | None") -> list[str]:
    """Hits and value against the same total for everyone: the real ones if known, then the expected ones."""
    same = allocation.same_for_all
    rows = [("Expected", allocation.expected_hits, same.hits, allocation.expected_value, same.value)]
    if real is not None:
        rows.insert(0, ("Real", real.hits, real.hits_same, real.value, real.value_same))
    return [
        f"{kind}: {hits:,.1f} hits, value {value:,.2f}; {same.N:,.1f} for everyone, the same total: "
        f"{hits_same:,.1f} hits, value {value_same:,.2f}"
        for kind, hits, hits_same, value, value_same in rows
    ]


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


def check_outputs(
    out: Path, report: Path | None, test: str | None, spark: str | None, single: dict[str, Any]
) -> None:
    """Raise an error for files that cannot be written, and for flags that Spark does not take."""
    if spark is not None:
        return check_spark_flags(out, **single, report=report, test=test)
    for flag, path, endings in (("out", out, ENDINGS), ("report", report, (".html",))):
        if path is not None and path.suffix not in endings:
            raise ConfigError(
                f"--{flag} must end in {', '.join(endings)}, got {path.name!r}; change the name."
            )
        check_writable(path)
    return None


def allocate_on_spark(folder: Path, out: Path, master: str, limits: dict[str, Any], json: bool) -> None:
    """Allocate the candidates of a folder, and write the lists to a folder."""
    from shortlist.spark.frames import open_session, read_folder, save_lists

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
        "expected_hits": allocation.expected_hits,
        "expected_value": allocation.expected_value,
        "same_for_all": allocation.same_for_all._asdict(),
        "bound": allocation.bound,
        "gap": allocation.gap,
        "price_of_an_item": allocation.prices.item,
    }
