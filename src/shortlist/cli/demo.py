"""`shortlist demo`: the whole workflow on real data, in less than a minute, or a service to look at."""

from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.output import (
    Json,
    list_as_json,
    list_table,
    print_note,
    progress_lines,
    rows_of,
    show,
    show_json,
    show_table,
    show_text,
)
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.lists import RankedList
    from shortlist.models.base import Recommender
    from shortlist.reports.model_report import ModelReport
    from shortlist.split import Split

TITLES = {"online-retail": "Online Retail", "ml-100k": "MovieLens 100K", "sample": "the generated sample"}
N_SNAPSHOTS = 4_000  # baskets to learn from: enough for a demo
N_CANDIDATES = 100
COVERAGE = 0.9  # share of users with a list in the example of an empty list
LONG, SHORT = 0.95, 0.05  # quantiles of length of the printed lists
ROWS = 6  # printed items of a list
WITHHELD = 3  # printed candidates below the end of a list
WIDTH = 79  # characters per line of a paragraph
FIXED, EXPECTED = "best fixed N", "expected F1"
NEXT = """\
What to do next:
  your own data     shortlist fit events.csv --out shop.shortlist
  your own ranker   shortlist cut scores.csv --truth next.csv
  a live service    shortlist demo --serve"""


def demo_command(
    *,
    dataset: Literal["online-retail", "ml-100k", "sample"] = "online-retail",
    report: Path = Path("shortlist-report.html"),
    serve: Annotated[bool, Parameter(show_default=False)] = False,
    json: Json = False,
) -> None:
    """Train on a shop's purchases and compare dynamic list lengths with the best fixed N.

    The demo prints three lists and writes a report. All choices are made on
    validation data. Without a network, the built-in sample is used.

    For example:
      shortlist demo
      shortlist demo --dataset ml-100k --report films.html
      shortlist demo --serve

    Parameters
    ----------
    dataset
        Purchases of a shop, ratings of films, or generated purchases.
    report
        HTML file for the report.
    serve
        Instead of the comparison, serve a model at http://127.0.0.1:8000/, until Ctrl-C.
    """
    from shortlist.cli.serve import serve_command
    from shortlist.core.files import check_writable
    from shortlist.reports.model_report import items_of, write_model_report

    name, data = load_data(dataset)
    if serve:
        return serve_command(str(find_ready_model(data)))
    check_writable(report)
    split = sl.split.last_basket(data)
    if not json:
        show_text(introduction(name, data, split))
    result = train_and_compare(name, split, filter_seen=not data.has_repeats)
    write_model_report(result, report)
    examples = choose_examples(result)
    if json:
        return show_json(
            {
                "dataset": name,
                "rows": data.n_rows,
                "users": data.n_users,
                "items": data.n_items,
                "model": type(result.model).__name__,
                "lift": result.lift,
                "fixed_n_f1": [
                    result.evaluate(result.top_candidates.head(N)).f1 for N in range(1, N_CANDIDATES + 1)
                ],
                "lengths": result.selected.lengths.tolist(),
                "results": result.comparison.table.to_dicts(),
                "tests": result.comparison.tests.to_dicts(),
                "examples": [list_as_json(shown, data) for shown in examples],
                "report": str(report),
            }
        )
    show_comparison(result)
    show_text("")
    show_paragraph(
        "Three lists: a long one, a short one, and an empty one. By default all of these users get a "
        f"list; with shortlist fit --coverage {COVERAGE:g} the least certain ones get none. ✓ marks items of "
        "the next basket."
    )
    show_text("")
    for shown in examples:
        candidates, relevant = (
            rows_of(result.top_candidates[shown.user_id]),
            items_of(shown.user_id, split.test),
        )
        show(list_table(shown, candidates, data, relevant=relevant, max_rows=ROWS, max_withheld=WITHHELD))
    show_text(f"Report with all figures and more users: {report}\n")
    return show_text(NEXT)


def load_data(dataset: str) -> "tuple[str, Interactions]":
    """The dataset and its title, or the generated sample if it cannot be downloaded."""
    try:
        return TITLES[dataset], sl.load_dataset(dataset, progress=print_note)
    except DataError as error:
        print_note(f"{error} The demo continues with the built-in sample.")
        return TITLES["sample"], sl.load_dataset("sample")


def find_ready_model(data: "Interactions") -> Path:
    """The file of a model in the user's cache, which is trained once for each version of the package."""
    from shortlist.data.datasets import cache_home

    assert data.source is not None
    path = cache_home() / "demo" / f"{data.source.label}-{sl.__version__}.shortlist"
    if not path.exists():
        cutoff = sl.cutoff.ExpectedF1(coverage=COVERAGE)
        model = sl.fit(data, models=demo_model(data), cutoff=cutoff, progress=progress_lines())
        model.save(path)
    return path


def train_and_compare(name: str, split: "Split", *, filter_seen: bool) -> "ModelReport":
    """Train a model and its cutoff on all but the last baskets, and compare cutoffs on those."""
    from shortlist.auto.progress import show_progress
    from shortlist.auto.validation import Holdout, Validation
    from shortlist.reports.model_report import build_model_report

    model = demo_model(split.train)
    with show_progress(progress_lines()) as display:
        display.line(f"training {type(model).__name__} on all but the last two baskets of each user")
        holdout = Holdout(split.train, split.valid, "the last basket but one of each user")
        validation = Validation(model, holdout, N_CANDIDATES, filter_seen=filter_seen).fit()
        display.line("choosing the list lengths on the last basket but one")
        fixed = sl.cutoff.FixedN(N=validation.N)
        expected = validation.fit_cutoff(sl.cutoff.ExpectedF1())
        validation.model.observe(split.valid)  # known before the test baskets; nothing is learned from it
        display.line("recommending for the last basket of each user")
        cutoffs = {f"{FIXED} = {fixed.N}": fixed, EXPECTED: expected}
        return build_model_report(
            name, validation.model, split, cutoffs, main=EXPECTED, N=validation.N, filter_seen=filter_seen
        )


def demo_model(data: "Interactions") -> "Recommender":
    """TwoStage, which `sl.fit` would choose on these data, or a model that needs no LightGBM."""
    if find_spec("lightgbm") is not None:
        return sl.TwoStage(n_snapshots=N_SNAPSHOTS, n_bags=1)
    print_note("LightGBM is not installed, so a simpler model is used; pip install lightgbm.")
    return sl.TIFUKNN() if data.has_repeats else sl.EASE()


def introduction(name: str, data: "Interactions", split: "Split") -> str:
    """Describe the size of the data and of the test set."""
    n_users = split.test.active_users.size
    size = split.test.n_rows / n_users
    return (
        f"{name}: {data.n_rows:,} rows, {data.n_users:,} users, {data.n_items:,} items.\n"
        f"Test set: the last basket of {n_users:,} users, {size:.1f} items on average."
    )


def choose_examples(result: "ModelReport") -> "list[RankedList]":
    """A long list, a short one, and the first that is empty if not all users are to get a list."""
    import numpy as np

    from shortlist.cutoff.expected import ExpectedUtility

    assert isinstance(result.cutoff, ExpectedUtility)
    assert result.model is not None
    lists = result.lists[result.main]
    lengths = np.quantile(lists.lengths[lists.lengths > 0], (LONG, SHORT), method="nearest").tolist()
    chosen = [lists.at(int(np.argmax(lists.lengths == length))) for length in dict.fromkeys(lengths)]
    fewer = result.cutoff.with_coverage(COVERAGE).apply(result.top_candidates, history=result.model.history_)
    empty = np.flatnonzero(fewer.lengths == 0)[:1]
    return [*chosen, *(fewer.at(int(row)) for row in empty)]


def show_comparison(result: "ModelReport") -> None:
    """Print what the comparison means, and its table."""
    from shortlist.models.counting import MOST_OFTEN

    rows = []
    for name, report in result.reports.items():
        test = result.comparison.results.get((name, "f1"))
        gain = "" if test is None else f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
        length = f"{report.mean('length'):.1f}"
        share = f"{report.hits.sum() / max(report.lengths.sum(), 1):.1%}"
        label = "taken most often" if name.startswith(MOST_OFTEN) else name
        rows.append((label, f"{report.f1:.4f}", gain, length, share))
    show_text("")
    show_paragraph(result.headline())
    show_text("")
    show_table(
        ("cutoff", "F1", "difference, 95%", "length", "precision"),
        rows,
        title=f"F1 over all test users; the first two end the ranking of {type(result.model).__name__}",
    )
    show_paragraph(f"Cutoff: {result.stopping_rule}")


def show_paragraph(text: str) -> None:
    """Print text in lines that fit every terminal."""
    show_text(fill(text, WIDTH))
