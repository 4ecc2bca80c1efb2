"""`shortlist demo`: the main job on real data, in a minute."""

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.lists import as_json, drawn
from shortlist.cli.screen import Json, say, show, show_json, show_table, show_text
from shortlist.cli.training import BOUNDARY, rehearse, relearned, write_page
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.ranked_lists import RankedList, RankedLists
    from shortlist.reports.model_report import ModelReport
    from shortlist.split import Split

N_EPOCHS = 40
MOST = 20  # items on any list
ROWS = 8  # items of a list that are printed
WITHHELD = 3  # and items below its end
WIDTH = 79  # of a paragraph
FIXED, EXPECTED = "best fixed N", "expected F1"


def demo(
    *,
    report: Annotated[Path, Parameter(help="Where the report is written, one HTML file.")] = Path(
        "shortlist-report.html"
    ),
    json: Json = False,
) -> None:
    """Train on MovieLens, let K decide, compare it fairly with the best fixed N, print three users' lists.

    Where MovieLens cannot be had, the built-in sample takes its place. Everything is chosen on validation.

    For example:
      shortlist demo
    """
    from shortlist.core.files import check_writable
    from shortlist.reports.model_report import build_model_report, items_of

    check_writable(report)
    name, data = movies_or_groceries()
    split = sl.split.last_basket(data)
    if not json:
        show_text(introduction(name, data, split))
    rehearsal = rehearse(sl.DKHRM(n_epochs=N_EPOCHS, seed=7), split.train_valid, data.has_repeats)
    if rehearsal is None:
        raise DataError("the demo needs users with at least three baskets, got none; try it on other data.")
    model = relearned(rehearsal, split.train_valid)
    fixed = rehearsal.set_cutoff(sl.cutoff.FixedN())
    model_report = build_model_report(
        name,
        model,
        split,
        {
            f"{FIXED} = {fixed.need('N_')}": fixed,
            BOUNDARY: "boundary",
            EXPECTED: rehearsal.set_cutoff(sl.cutoff.ExpectedF1()),
        },
        main=EXPECTED,
        N=fixed.need("N_"),
        filter_seen=not data.has_repeats,
        max_items=MOST,
    )
    write_page(model_report, report)
    examples = three_of(model_report.lists[model_report.main])
    if json:
        return show_json(
            {
                "dataset": name,
                "rows": data.n_rows,
                "users": data.n_users,
                "items": data.n_items,
                "n_epochs": model.n_epochs_,
                "results": model_report.comparison.table.to_dicts(),
                "tests": model_report.comparison.tests.to_dicts(),
                "examples": [as_json(one, data) for one in examples],
                "report": str(report),
            }
        )
    show_comparison(model_report)
    show_text("\nThree of these lists: long, middling, short; ✓ marks what was taken next.\n")
    for one in examples:
        ranked, taken = model_report.top_candidates[one.user_id], items_of(one.user_id, split.test)
        show(drawn(one, ranked, data, taken=taken, most=ROWS, withheld=WITHHELD))
    show_text(f"Read the report, with ten more users: {report}")
    return show_text("Next: shortlist fit --help, which finds the ranker that suits data of your own.")


def movies_or_groceries() -> "tuple[str, Interactions]":
    """MovieLens-100K, or the generated sample and a word about why."""
    try:
        return "MovieLens 100K", sl.load_dataset("ml-100k", progress=say)
    except DataError as error:
        say(f"{error} The demo goes on with the built-in sample.")
        return "the generated sample", sl.load_dataset("sample")


def introduction(name: str, data: "Interactions", split: "Split") -> str:
    """What was found and how it is cut."""
    tested = split.test.active_users.size
    size = split.test.n_rows / tested
    return (
        f"{name}: {data.n_rows:,} rows, {data.n_users:,} users, {data.n_items:,} items.\n"
        f"To be foreseen: the last basket of {tested:,} users, {size:.2f} items on average."
    )


def three_of(lists: "RankedLists") -> "list[RankedList]":
    """The longest list, one of median length and the shortest, each the first of its kind; fewer if alike."""
    import numpy as np

    wanted = np.quantile(lists.lengths, (1, 0.5, 0), method="nearest")
    numbers = [int(np.argmax(lists.lengths == length)) for length in wanted]
    return [lists.at(number) for number in dict.fromkeys(numbers)]


def show_comparison(model_report: "ModelReport") -> None:
    """How the lists end, the table, and in words what it says."""
    rows = []
    for name, report in model_report.reports.items():
        test = model_report.comparison.results.get((name, "f1"))
        gain = "" if test is None else f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
        mean, covered = f"{report.mean('length'):.1f}", f"{report.cover_ratio:.0%}"
        rows.append((name, f"{report.f1:.4f}", mean, covered, gain))
    paragraph(f"Ranking: {type(model_report.model).__name__}. Stopping rule: {model_report.stopping_rule}")
    show_text("")
    show_table(
        ("who ends the list", "F1", "length", "covered", "difference in F1, 95%"),
        rows,
        title="F1 over all test users, by what ends the same ranking",
    )
    paragraph(model_report.verdict())
    _, _, selected = model_report.selective_f1(model_report.selected)
    _, _, fixed = model_report.selective_f1(model_report.fixed)
    paragraph(
        f"Skipping the least certain {1 - model_report.coverage:.0%} of users gives F1 {selected:.4f} "
        f"(fixed N: {fixed:.4f}). Use coverage={model_report.coverage} to send these users nothing."
    )


def paragraph(text: str) -> None:
    """A few lines that no terminal breaks."""
    show_text(fill(text, WIDTH))
