"""`shortlist demo`: the main job on real data, in a minute."""

from typing import TYPE_CHECKING, Any

import shortlist as sl
from shortlist.cli.lists import as_json, drawn
from shortlist.cli.screen import Json, say, show, show_json, show_table, show_text
from shortlist.cli.training import Rehearsal, rehearse, relearned
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.lists import RankedList, RankedLists
    from shortlist.evaluate import Comparison
    from shortlist.split import Split

N_EPOCHS = 40
MOST = 20  # items on any list
ROWS = 8  # items of a list that are printed
WITHHELD = 3  # and items below its end
SURE = 0.7  # share of users who are shown something by the choosy cutoff
FIXED, BOUNDARY, EXPECTED, CHOOSY = "best fixed N", "learned boundary", "expected F1", "expected F1, choosy"


def demo(*, json: Json = False) -> None:
    """Train on MovieLens, let K decide, compare it fairly with the best fixed N, print three users' lists.

    Where MovieLens cannot be had, the built-in sample takes its place. Everything is chosen on validation.

    For example:
      shortlist demo
    """
    from shortlist.evaluate import compare

    name, data = movies_or_groceries()
    split = sl.split.last_basket(data)
    if not json:
        show_text(introduction(name, data, split))
    rehearsal = rehearse(sl.DKHRM(n_epochs=N_EPOCHS, seed=7), split.train_valid, data.returns)
    if rehearsal is None:
        raise DataError("the demo needs users with at least three baskets, got none; try it on other data.")
    model = relearned(rehearsal, split.train_valid)
    lists = decided(rehearsal, model, split)
    comparison = compare(lists, split.test, max_items=MOST)
    examples = three_of(lists[BOUNDARY])
    if json:
        return show_json(
            {
                "dataset": name,
                "rows": data.n_rows,
                "users": data.n_users,
                "items": data.n_items,
                "n_epochs": model.n_epochs_,
                "results": comparison.table.to_dicts(),
                "tests": comparison.tests.to_dicts(),
                "examples": [as_json(one) for one in examples],
            }
        )
    show_comparison(comparison)
    show_text("\nThree users' lists by the learned boundary; ✓ marks what they took next.\n")
    for one in examples:
        ranked = model.recommend([one.user_id], N=len(one) + WITHHELD, filter_seen=not data.returns)
        show(drawn(one, ranked.at(0), data, taken=taken_by(one.user_id, split.test), most=ROWS))
    return show_text("Next, with data of your own: shortlist fit --help")


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


def decided(rehearsal: Rehearsal, model: Any, split: "Split") -> "dict[str, RankedLists]":
    """One ranking, four ways to end it, each fitted on validation only."""
    fixed = rehearsal.decided(sl.cutoff.FixedN())
    ends = {
        f"{FIXED} = {fixed.need('N_')}": fixed,
        BOUNDARY: None,
        EXPECTED: rehearsal.decided(sl.cutoff.ExpectedF1()),
        CHOOSY: rehearsal.decided(sl.cutoff.ExpectedF1(coverage=SURE)),
    }
    users = split.test.users.outside(split.test.active_users)
    return {
        name: model.recommend(users, cutoff=cutoff, max_items=MOST, filter_seen=not split.data.returns)
        for name, cutoff in ends.items()
    }


def three_of(lists: "RankedLists") -> "list[RankedList]":
    """A long list, a short one and an empty one, each the first of its kind; fewer where one is missing."""
    import numpy as np

    lengths = lists.lengths
    short = lengths[lengths > 0].min(initial=MOST)
    numbers = [int(np.argmax(lengths == length)) for length in (lengths.max(), short, 0) if length in lengths]
    return [lists.at(number) for number in dict.fromkeys(numbers)]


def taken_by(user_id: Any, truth: "Interactions") -> set[Any]:
    """Ids of the items in a user's rows."""
    user = truth.users.index(user_id)
    return set(truth.items.outside(truth.item[truth.indptr[user] : truth.indptr[user + 1]]).to_list())


def show_comparison(comparison: "Comparison") -> None:
    """The table, and in words what it says of dynamic K."""
    tests = {row["model"]: row for row in comparison.tests.to_dicts() if row["metric"] == "f1"}
    rows = []
    for row in comparison.table.to_dicts():
        test = tests.get(row["model"])
        gain = "" if test is None else f"{test['difference']:+.4f} [{test['low']:+.4f}, {test['high']:+.4f}]"
        figures = (row["F1"], row["F1 covered"], row["NDCG"], row["length"])
        rows.append(
            (
                row["model"],
                *(f"{f:.4f}" for f in figures[:3]),
                f"{figures[3]:.1f}",
                f"{row['Cover-Ratio']:.0%}",
                gain,
            )
        )
    titles = ("who ends the list", "F1", "F1 covered", "NDCG", "length", "covered", "difference in F1, 95%")
    show_table(
        titles, rows, title="DKHRM's ranking of the test, ended in four ways (F1 and NDCG over all users)"
    )
    show_text(verdict(comparison))


def verdict(comparison: "Comparison") -> str:
    """Whether K won, in a sentence, and what the choosy cutoff is worth on the users it serves."""
    tests = {row["model"]: row for row in comparison.tests.to_dicts() if row["metric"] == "f1"}
    row = tests[EXPECTED]
    if row["p_bootstrap_holm"] > 1 - comparison.level:
        said = "is as good as the best fixed N: the difference is within chance"
    else:
        said = "beats the best fixed N" if row["difference"] > 0 else "is worse than the best fixed N"
    choosy, fixed = comparison.reports[CHOOSY][0], comparison.reports[comparison.baseline][0]
    same = fixed.values("f1")[choosy.covered].mean() if choosy.covered.any() else float("nan")
    served, own = f"{choosy.cover_ratio:.0%}", f"{choosy.mean('f1', 'covered'):.4f}"
    return (
        f"Over all users, K by expected F1 {said}.\n"
        f"On the {served} of users the choosy cutoff serves, its F1 is {own}, and the fixed N's {same:.4f}."
    )
