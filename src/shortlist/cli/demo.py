"""`shortlist demo`: the main job on real data, in a minute."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.lists import as_json, drawn
from shortlist.cli.screen import Json, say, show, show_json, show_table, show_text
from shortlist.cli.training import BOUNDARY, Rehearsal, rehearse, relearned, trial, write_page
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.cutoff import Cutoff
    from shortlist.data.interactions import Interactions
    from shortlist.data.lists import RankedList, RankedLists
    from shortlist.experiment.brief import Brief
    from shortlist.split import Split

N_EPOCHS = 40
MOST = 20  # items on any list
ROWS = 8  # items of a list that are printed
WITHHELD = 3  # and items below its end
SURE = 0.7  # share of users who are shown something by the choosy cutoff
FIXED, EXPECTED, CHOOSY = "best fixed N", "expected F1", "expected F1, choosy"


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
    from shortlist.data.files import refuse_file
    from shortlist.experiment.brief import taken_by

    refuse_file(report)
    name, data = movies_or_groceries()
    split = sl.split.last_basket(data)
    if not json:
        show_text(introduction(name, data, split))
    rehearsal = rehearse(sl.DKHRM(n_epochs=N_EPOCHS, seed=7), split.train_valid, data.returns)
    if rehearsal is None:
        raise DataError("the demo needs users with at least three baskets, got none; try it on other data.")
    model = relearned(rehearsal, split.train_valid)
    fixed = rehearsal.decided(sl.cutoff.FixedN())
    brief = trial(
        name,
        model,
        split,
        ends(rehearsal, fixed),
        main=EXPECTED,
        N=fixed.need("N_"),
        examples=CHOOSY,
        keep_seen=data.returns,
        max_items=MOST,
    )
    write_page(brief, report)
    examples = three_of(brief.lists[BOUNDARY])
    if json:
        return show_json(
            {
                "dataset": name,
                "rows": data.n_rows,
                "users": data.n_users,
                "items": data.n_items,
                "n_epochs": model.n_epochs_,
                "results": brief.comparison.table.to_dicts(),
                "tests": brief.comparison.tests.to_dicts(),
                "examples": [as_json(one, data) for one in examples],
                "report": str(report),
            }
        )
    show_comparison(brief)
    show_text("\nThree users' lists by the learned boundary; ✓ marks what they took next.\n")
    for one in examples:
        ranked = model.recommend([one.user_id], N=len(one) + WITHHELD, filter_seen=not data.returns)
        show(drawn(one, ranked.at(0), data, taken=taken_by(one.user_id, split.test), most=ROWS))
    show_text(f"Read the report, with ten more users: {report}")
    return show_text("Next: shortlist fit --help, which finds the ranker that suits data of your own.")


def movies_or_groceries() -> "tuple[str, Interactions]":
    """MovieLens-100K, or the generated sample and a word about why."""
    try:
        return "MovieLens 100K", sl.load("ml-100k", progress=say)
    except DataError as error:
        say(f"{error} The demo goes on with the built-in sample.")
        return "the generated sample", sl.load("sample")


def introduction(name: str, data: "Interactions", split: "Split") -> str:
    """What was found and how it is cut."""
    tested = split.test.active_users.size
    size = split.test.n_rows / tested
    return (
        f"{name}: {data.n_rows:,} rows, {data.n_users:,} users, {data.n_items:,} items.\n"
        f"To be foreseen: the last basket of {tested:,} users, {size:.2f} items on average."
    )


def ends(rehearsal: Rehearsal, fixed: "Cutoff") -> "dict[str, Cutoff | None]":
    """Four ways to end one ranking, each fitted on validation only."""
    expected = rehearsal.decided(sl.cutoff.ExpectedF1())
    # what was chosen for the one need not be tried again for the other
    chosen = {"calibration": expected.need("calibration_").method_, "size": expected.need("size_")}
    return {
        f"{FIXED} = {fixed.need('N_')}": fixed,
        BOUNDARY: None,
        EXPECTED: expected,
        CHOOSY: rehearsal.decided(sl.cutoff.ExpectedF1(coverage=SURE, **chosen)),
    }


def three_of(lists: "RankedLists") -> "list[RankedList]":
    """A long list, a short one and an empty one, each the first of its kind; fewer where one is missing."""
    import numpy as np

    lengths = lists.lengths
    short = lengths[lengths > 0].min(initial=MOST)
    numbers = [int(np.argmax(lengths == length)) for length in (lengths.max(), short, 0) if length in lengths]
    return [lists.at(number) for number in dict.fromkeys(numbers)]


def show_comparison(brief: "Brief") -> None:
    """The table, and in words what it says of dynamic K."""
    rows = []
    for name, report in brief.reports.items():
        test = brief.comparison.results.get((name, "f1"))
        gain = "" if test is None else f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
        figures = (report.f1, report.mean("f1", "covered"))
        rows.append(
            (
                name,
                *(f"{figure:.4f}" for figure in figures),
                f"{report.mean('length'):.1f}",
                f"{report.cover_ratio:.0%}",
                gain,
            )
        )
    titles = ("who ends the list", "F1", "F1 covered", "length", "covered", "difference in F1, 95%")
    show_table(titles, rows, title="DKHRM's ranking of the test, ended in four ways (F1 over all users)")
    choosy = brief.reports[CHOOSY]
    same = brief.fixed.values("f1")[choosy.covered].mean() if choosy.covered.any() else float("nan")
    served, own = f"{choosy.cover_ratio:.0%}", f"{choosy.mean('f1', 'covered'):.4f}"
    show_text(brief.verdict().replace(": ", ":\n  ", 1))
    show_text(
        f"On the {served} of users the choosy cutoff serves, its F1 is {own}, and the fixed N's {same:.4f}."
    )
