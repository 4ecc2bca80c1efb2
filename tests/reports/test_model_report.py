"""The model report page: its text follows from the lists, and it loads nothing."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.auto.validation import Holdout, Validation
from shortlist.core.metrics import Money
from shortlist.reports.model_report import (
    MAX_ROWS,
    N_EXAMPLES,
    build_model_report,
    items_of,
    render_model_report,
)

SCRIPT = '<script>alert("x")</script>&'
SECTIONS = [
    "How long the lists are",
    "Why not one length for everyone?",
    "9 example users",
    "Accuracy of the probabilities",
    "All cutoffs",
    "The data",
    "Method",
]


class Parser(HTMLParser):
    """Tags, attributes, and texts by tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], {}, []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def report():
    """Personal frequency on the sample, cut by expected F1; the name of the most popular item is a script."""
    data = sl.load_dataset("sample")
    popular = int(np.bincount(data.item).argmax())
    names = [SCRIPT if item == popular else f"thing {item}" for item in range(data.n_items)]
    split = sl.split.last_basket(data.with_item_names(data.items.values, pl.Series(names)))
    holdout = Holdout(split.train, split.valid, "validation baskets")
    validation = Validation(sl.PersonalFrequency(), holdout, n_candidates=100, filter_seen=False).fit()
    fixed = validation.fit_cutoff(sl.cutoff.FixedN())
    expected = validation.fit_cutoff(sl.cutoff.ExpectedF1(coverage=0.6))
    return build_model_report(
        "a <b>store</b>",
        validation.refit(split.train_valid),
        split,
        {"fixed": fixed, "expected <F1>": expected},
        main="expected <F1>",
        N=validation.N,
        filter_seen=False,
    )


@pytest.fixture(scope="module")
def page(report):
    return render_model_report(report)


def test_page_has_all_sections_and_loads_nothing(page):
    parser = Parser(page)
    assert parser.texts["h2"] == SECTIONS
    assert not {"script", "link", "img", "iframe"} & set(parser.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in parser.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_page_explains_the_test_set_and_the_stopping_rule(report, page):
    text = " ".join(page.split())
    assert f"The last basket of {report.selected.n_users} users" in text
    assert "<th>Cutoff</th><td>ExpectedF1. " in text


def test_item_names_data_names_and_rule_names_are_escaped(page):
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&amp;" in page
    assert "<b>store" not in page
    assert "&lt;b&gt;store" in page
    assert "<F1>" not in page


def test_user_ids_are_escaped(report):
    def tag(ids):
        return sl.IdMap.of([f"<i>{value}" for value in ids.values])

    tagged = replace(
        report,
        lists={name: replace(one, users=tag(one.users)) for name, one in report.lists.items()},
        top_candidates=replace(report.top_candidates, users=tag(report.top_candidates.users)),
        truth=replace(report.truth, users=tag(report.truth.users)),
        history=replace(report.history, users=tag(report.history.users)),
    )
    page = render_model_report(tagged)
    assert "&lt;i&gt;u" in page
    assert "<i>" not in page


def test_example_users_range_from_the_shortest_to_the_longest_list(report, page):
    lengths = report.lists[report.main].lengths[report.example_rows]
    assert len(set(report.example_rows.tolist())) == N_EXAMPLES
    assert (np.diff(lengths) >= 0).all()
    assert lengths[0] == 0
    assert lengths[-1] == report.lists[report.main].lengths.max()
    assert page.count('class="end"') == N_EXAMPLES
    last = page.rpartition("<h3>User ")[2]
    shown, line, withheld = last.partition('class="end"')
    assert line
    assert f"… and {lengths[-1] - MAX_ROWS} more" in shown
    assert withheld.count('class="withheld"') == 3


def test_the_line_at_the_end_of_a_list_is_short(page):
    lines = [part.partition("<")[0] for part in page.split('<tr class="end"><td colspan="3">')[1:]]
    assert "Stops here: one more item would probably hurt more than help" in lines
    assert max(map(len, lines)) <= 70


def test_curve_and_cap_follow_the_candidates_of_the_cutoff():
    """A cutoff that looks at 20 candidates gives no list of 100 items."""
    split = sl.split.last_basket(sl.load_dataset("sample"))
    cutoffs = {"fixed": sl.cutoff.FixedN(N=5), "expected": sl.cutoff.ExpectedF1(n_candidates=20)}
    model = sl.PersonalFrequency().fit(split.train)
    cutoffs["expected"].fit(model.recommend(N=30, filter_seen=False), split.valid)
    found = build_model_report("sample", model, split, cutoffs, main="expected", N=5, filter_seen=False)
    assert (found.max_items, found.hits_curve.size) == (20, 20)
    page = " ".join(render_model_report(found).split())
    assert "No list of this report is longer than 20 items." in page


@pytest.mark.parametrize(
    ("fixed", "main", "phrase"),
    [
        ("empty", "selected", "These lists earn more than"),
        ("selected", "empty", "These lists earn less than"),
        ("fixed", "fixed", "These lists earn about as much as"),
    ],
)
def test_headline_is_about_money_if_it_is_known(report, fixed, main, phrase):
    selected = report.lists[report.main]
    lists = {"fixed": report.lists["fixed"], "selected": selected, "empty": selected.head(0)}
    money = Money(gain=1.0, cost=0.01)
    other = replace(report, lists={"fixed": lists[fixed], report.main: lists[main]}, money=money)
    assert other.headline().startswith(phrase)
    assert "F1" not in other.headline()
    assert other.verdict()[0].startswith("For 1,000 users, these lists earn ")


def test_money_that_f1_does_not_know(report):
    """A long list has a low F1 and earns more where items are cheap; the page must say so."""
    short, long = report.top_candidates.head(6), report.top_candidates.head(90)
    found = replace(
        report, lists={"fixed": short, report.main: long}, fixed_lengths=(6,), money=Money(1.5, 0.02)
    )
    assert found.selected.f1 < found.fixed.f1
    assert found.selected.mean("value") > found.fixed.mean("value")
    earned = [f"{1000 * one.mean('value'):,.1f}" for one in (found.selected, found.fixed)]
    assert found.headline() == (
        f"These lists earn more than 6 items for everyone: {earned[0]} and {earned[1]} per 1,000 users, in "
        "the unit of gain and cost."
    )
    page = " ".join(render_model_report(found).split())
    assert "earned per 1,000 users" in page
    assert "1.5 for an item that is taken, -0.02 for any other shown item" in page
    assert f"<td>{earned[0]}</td>" in page
    assert f"<td>{earned[1]}</td>" in page


def test_the_first_screen_needs_no_terms(report, page):
    first = page.partition("<body>")[2].partition("example users</h2>")[0]
    first = re.sub(r"<svg.*?</svg>", "", first, flags=re.DOTALL)
    for term in (r"\bK\b", r"\bN\b", "F1", "NDCG", "utility"):
        assert not re.search(term, first), term
    assert "of 100 items shown, in the next basket" in first
    curve = report.hits_curve
    assert curve.size == report.top_candidates.lengths.max()
    for N in (1, 7):
        assert curve[N - 1] == pytest.approx(report.evaluate(report.top_candidates.head(N)).hits_per_100)


def test_lists_are_compared_at_the_same_volume(report):
    volume = report.same_volume
    assert volume.lengths.sum() == report.selected.lengths.sum()
    assert np.ptp(volume.lengths) <= 1
    best = replace(
        report, lists=report.lists | {report.main: report.top_candidates.head(report.oracle.lengths)}
    )
    change = best.selected.hits.sum() / best.same_volume.hits.sum() - 1
    assert change > 0
    assert f"contain {change:.0%} more items that users choose next" in best.headline()
    assert f"{report.selected.hits_per_100:.1f}" in render_model_report(report)
    same = replace(report, lists={"fixed": report.lists["fixed"], report.main: report.lists["fixed"]})
    assert "about as well as one length for everyone" in same.headline()


def test_empty_lists_are_explained(report):
    share = 1 - report.selected.cover_ratio
    assert share > 0
    n_empty, n_users = int((report.selected.lengths == 0).sum()), report.selected.n_users
    assert report.describe_empty().startswith(f"{n_empty} of {n_users} users ({share:.1%}) get an empty list")
    full = replace(report, lists=report.lists | {report.main: report.lists["fixed"]})
    assert full.describe_empty() == "Every user gets a list."


def test_everyone_within_a_horizon():
    """Users without anything in the period count, cost money, and are counted on the page."""
    split = sl.split.last_period(sl.load_dataset("sample"), "7d")
    model = sl.PersonalFrequency().fit(split.train_valid)
    cutoffs = {"fixed": sl.cutoff.FixedN(N=3), "long": sl.cutoff.FixedN(N=5)}
    money = Money(gain=1.0, cost=0.3)
    found = build_model_report(
        "sample", model, split, cutoffs, main="long", N=3, filter_seen=False, money=money, everyone=True
    )
    assert found.selected.n_users == split.train_valid.active_users.size > split.test.active_users.size
    hits, shown = int(found.selected.hits.sum()), 5 * found.selected.n_users
    assert found.selected.values("value").sum() == pytest.approx(hits - 0.3 * (shown - hits))
    often = "what each user took most often, latest first (3 for everyone)"
    assert set(found.reports) == {"fixed", "long", "10 for everyone", often}
    counts = (
        split.train_valid.to_frame().group_by("user_id", "item_id").agg(pl.len(), pl.col("timestamp").max())
    )
    ranked = counts.sort("len", "timestamp", descending=True)
    user = found.lists[often].users.values[0]
    best = ranked.filter(pl.col("user_id") == user)["len"].head(3).to_list()
    shown = found.lists[often][user].items
    table = dict(ranked.filter(pl.col("user_id") == user).select("item_id", "len").iter_rows())
    assert [table[item] for item in shown] == best
    page = " ".join(render_model_report(found).split())
    assert (
        f"what {found.selected.n_users} users did in the next 7 days, users who did nothing included" in page
    )
    assert f"{split.test.active_users.size} of them interacted with something" in page
    assert "next basket" not in page


def test_percentages_are_shown_only_if_they_were_calibrated(report):
    def probabilities(cutoff):
        page = render_model_report(replace(report, cutoff=cutoff))
        return re.findall(r"<td>[\d.]+%</td></tr>", page.partition("example users")[2].partition("<h2>")[0])

    assert len(probabilities(report.cutoff)) > N_EXAMPLES
    assert probabilities("boundary") == [], "a model's own probabilities were not fitted to outcomes"


def test_the_simple_rule_stands_beside_the_same_number_for_everyone(report):
    page = Parser(render_model_report(report))
    titles = page.texts["th"]
    simple = f"what each user took most often, latest first ({report.N} for everyone)"
    assert titles.index("individual length") < titles.index(report.same) < titles.index(simple)
    assert f"{report.evaluate(report.lists[simple]).hits_per_100:.1f}" in page.texts["td"]


def test_lists_without_probabilities_have_no_calibration_figure(report):
    bare = {name: replace(one, probabilities=None) for name, one in report.lists.items()}
    candidates = replace(report.top_candidates, probabilities=None)
    page = render_model_report(replace(report, lists=bare, top_candidates=candidates))
    assert "These lists have no probabilities." in page
    assert Parser(page).texts["h2"] == SECTIONS


def test_empty_lists_are_reported(report):
    page = render_model_report(
        replace(report, lists={name: one.head(0) for name, one in report.lists.items()})
    )
    assert "No user gets an item." in page
    assert "nan" not in page


def test_unknown_ids_have_no_name_and_no_items(report):
    assert report.history.item_label("unknown") == "unknown"
    assert items_of("unknown", report.truth) == []
