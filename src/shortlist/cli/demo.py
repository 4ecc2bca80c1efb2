"""`shortlist demo`: the whole workflow on real data, in about a minute."""

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.display import list_as_json, list_table, rows_of
from shortlist.cli.screen import Json, print_note, progress_lines, show, show_json, show_table, show_text
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.ranked_list import RankedList
    from shortlist.data.ranked_lists import RankedLists
    from shortlist.reports.model_report import ModelReport
    from shortlist.split import Split

N_EPOCHS = 40
N_CANDIDATES = 100
MAX_ITEMS = 20
ROWS = 8  # printed items of a list
WITHHELD = 3  # printed candidates below the end of a list
WIDTH = 79  # characters per line of a paragraph
FIXED, BOUNDARY, EXPECTED = "best fixed N", "learned boundary", "expected F1"


def demo(
    *,
    report: Annotated[Path, Parameter(help="HTML file for the report.")] = Path("shortlist-report.html"),
    json: Json = False,
) -> None:
    """Train on MovieLens and compare dynamic list lengths with the best fixed N.

    The demo prints three lists and writes a report. All choices are made on validation
    data. Without a network, the built-in sample is used.

    For example:
      shortlist demo
    """
    from shortlist.core.files import check_writable
    from shortlist.reports.model_page import write_model_report
    from shortlist.reports.model_report import items_of

    check_writable(report)
    name, data = load_data()
    split = sl.split.last_basket(data)
    if not json:
        show_text(introduction(name, data, split))
    result, n_epochs = train_and_compare(name, split, filter_seen=not data.has_repeats)
    write_model_report(result, report)
    examples = choose_examples(result.lists[result.main])
    if json:
        return show_json(
            {
                "dataset": name,
                "rows": data.n_rows,
                "users": data.n_users,
                "items": data.n_items,
                "n_epochs": n_epochs,
                "results": result.comparison.table.to_dicts(),
                "tests": result.comparison.tests.to_dicts(),
                "examples": [list_as_json(one, data) for one in examples],
                "report": str(report),
            }
        )
    show_comparison(result)
    show_text("\nThree of these lists: the longest, one of median length, the shortest.")
    show_text("✓ marks items in the user's next basket.\n")
    for one in examples:
        candidates, relevant = rows_of(result.top_candidates[one.user_id]), items_of(one.user_id, split.test)
        show(list_table(one, candidates, data, relevant=relevant, max_rows=ROWS, max_withheld=WITHHELD))
    show_text(f"Report with ten more users: {report}")
    return show_text("Next: shortlist fit --help shows how to find a model for your own data.")


def train_and_compare(name: str, split: "Split", *, filter_seen: bool) -> "tuple[ModelReport, int | None]":
    """Train DKHRM and compare its stopping rules on the test set; also return the number of epochs."""
    from shortlist.reports.model_report import build_model_report
    from shortlist.tuning.progress import show_progress
    from shortlist.tuning.validation import hold_out, validate

    with show_progress(progress_lines()) as display:
        validation = validate(
            sl.DKHRM(n_epochs=N_EPOCHS, seed=7, boundary="learned"),
            hold_out(split.train_valid),
            n_candidates=N_CANDIDATES,
            filter_seen=filter_seen,
            progress=display.epochs("validating DKHRM"),
        )
        display.line(f"DKHRM: {validation.n_epochs} epochs are best on validation data")
        model = validation.refit(split.train_valid, progress=display.epochs("training DKHRM"))
    fixed = sl.cutoff.FixedN(N=validation.N)
    report = build_model_report(
        name,
        model,
        split,
        {
            f"{FIXED} = {fixed.N}": fixed,
            BOUNDARY: "boundary",
            EXPECTED: validation.fit_cutoff(sl.cutoff.ExpectedF1()),
        },
        main=EXPECTED,
        N=validation.N,
        filter_seen=filter_seen,
        max_items=MAX_ITEMS,
    )
    return report, validation.n_epochs


def load_data() -> "tuple[str, Interactions]":
    """MovieLens-100K, or the generated sample if it cannot be downloaded."""
    try:
        return "MovieLens 100K", sl.load_dataset("ml-100k", progress=print_note)
    except DataError as error:
        print_note(f"{error} The demo continues with the built-in sample.")
        return "the generated sample", sl.load_dataset("sample")


def introduction(name: str, data: "Interactions", split: "Split") -> str:
    """Describe the size of the data and of the test set."""
    n_users = split.test.active_users.size
    size = split.test.n_rows / n_users
    return (
        f"{name}: {data.n_rows:,} rows, {data.n_users:,} users, {data.n_items:,} items.\n"
        f"Test set: the last basket of {n_users:,} users, {size:.2f} items on average."
    )


def choose_examples(lists: "RankedLists") -> "list[RankedList]":
    """The longest list, one of median length and the shortest; fewer if they are the same."""
    import numpy as np

    wanted = np.quantile(lists.lengths, (1, 0.5, 0), method="nearest")
    numbers = [int(np.argmax(lists.lengths == length)) for length in wanted]
    return [lists.at(number) for number in dict.fromkeys(numbers)]


def show_comparison(result: "ModelReport") -> None:
    """Print the stopping rule, the table, and what it means."""
    rows = []
    for name, report in result.reports.items():
        test = result.comparison.results.get((name, "f1"))
        gain = "" if test is None else f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
        length, coverage = f"{report.mean('length'):.1f}", f"{report.cover_ratio:.0%}"
        rows.append((name, f"{report.f1:.4f}", length, coverage, gain))
    show_paragraph(f"Ranking: {type(result.model).__name__}. Stopping rule: {result.stopping_rule}")
    show_text("")
    show_table(
        ("stopping rule", "F1", "length", "coverage", "difference in F1, 95%"),
        rows,
        title="F1 over all test users, by stopping rule of the same ranking",
    )
    show_paragraph(result.verdict())
    _, _, selected = result.selective_f1(result.selected)
    _, _, fixed = result.selective_f1(result.fixed)
    show_paragraph(
        f"Skipping the least certain {1 - result.coverage:.0%} of users gives F1 {selected:.4f} (fixed N: "
        f"{fixed:.4f}). A cutoff with coverage={result.coverage} sends nothing to these users."
    )


def show_paragraph(text: str) -> None:
    """Print text in lines that fit every terminal."""
    show_text(fill(text, WIDTH))
