"""The report for people: what it says follows from the lists, and nothing in it comes from elsewhere."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cli.training import rehearse, relearned, trial
from shortlist.reports.model_page import html_model_report
from shortlist.reports.model_report import EXAMPLES, FEW, names_of, taken_by
from shortlist.reports.model_users import ROWS

EVIL = '<script>alert("x")</script>&'
SECTIONS = [
    "What was trained",
    "How good the lists are",
    "Where K helps and where it does not",
    "How long the lists are, and how sure",
    "Serving only the users one is sure about",
    "Do the probabilities come true?",
    "Ten users",
    "Words",
]


class Reader(HTMLParser):
    """Tags, attributes, and the text of the headings."""

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
def brief():
    """The sample, counted and cut by expected F1; the favourite item has a name that wants to be a script."""
    data = sl.load_dataset("sample")
    favourite = int(np.bincount(data.item).argmax())
    names = [EVIL if item == favourite else f"thing {item}" for item in range(data.n_items)]
    split = sl.split.last_basket(data.with_item_names(data.items.values, pl.Series(names)))
    rehearsal = rehearse(sl.PersonalFrequency(), split.train_valid, True)
    cuts = sl.cutoff.FixedN(), sl.cutoff.ExpectedF1(coverage=0.6)
    fixed, expected = (rehearsal.set_cutoff(cut) for cut in cuts)
    ends = {"fixed": fixed, "expected <F1>": expected}
    model = relearned(rehearsal, split.train_valid)
    return trial(
        "a <b>shop</b>",
        model,
        split,
        ends,
        main="expected <F1>",
        N=fixed.N_,
        keep_seen=True,
    )


@pytest.fixture(scope="module")
def page(brief):
    return html_model_report(brief)


def test_the_page_has_every_section_and_needs_no_network(page):
    found = Reader(page)
    assert found.texts["h2"] == SECTIONS
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in found.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_names_of_items_data_and_deciders_are_inert(page):
    assert EVIL not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;" in page
    assert "<b>shop" not in page
    assert "<F1>" not in page


def test_ids_that_want_to_be_markup_are_inert(brief):
    users = brief.truth.users
    evil = sl.IdMap.of([f"<i>{value}" for value in users.values])
    renamed = {
        name: replace(one, users=sl.IdMap.of([f"<i>{value}" for value in one.users.values]))
        for name, one in brief.lists.items()
    }
    heads = replace(brief.heads, users=sl.IdMap.of([f"<i>{value}" for value in brief.heads.users.values]))
    other = replace(
        brief,
        lists=renamed,
        heads=heads,
        truth=replace(brief.truth, users=evil),
        history=replace(brief.history, users=evil),
    )
    made = html_model_report(other)
    assert "&lt;i&gt;u" in made
    assert "<i>" not in made


def test_ten_users_stand_between_shown_and_withheld(brief, page):
    lengths = brief.lists[brief.main].lengths[brief.ten]
    assert len(set(brief.ten.tolist())) == EXAMPLES
    assert (np.diff(lengths) >= 0).all()
    assert lengths[0] == 0
    assert lengths[-1] == brief.lists[brief.main].lengths.max()
    assert page.count("class='end'") == EXAMPLES
    assert page.count("even the best list has too low an expected utility") == int((lengths == 0).sum())
    last = page.rpartition("<h4>")[2]
    shown, line, withheld = last.partition("class='end'")
    assert line
    assert f"… and {lengths[-1] - ROWS} more" in shown
    assert withheld.count("class='withheld'") == 3


def test_every_user_is_in_one_slice_of_each_group(brief):
    by_group = {}
    for one in brief.slices:
        by_group[one.group] = by_group.get(one.group, 0) + one.users
        assert (one.test is None) == (one.users < FEW) == (one.verdict == "too few users")
        if one.test is not None:
            assert one.test.difference == pytest.approx(one.ours - one.theirs)
    assert len(by_group) == 4
    assert set(by_group.values()) == {brief.ours.n_users}


def test_the_curve_of_the_served_ends_with_everybody(brief):
    coverage, f1, _ = brief.served(brief.ours)
    assert coverage[-1] == 1
    assert f1[-1] == pytest.approx(brief.ours.f1)
    everybody = replace(brief, coverage=1.0)
    assert everybody.served(everybody.ours)[2] == pytest.approx(brief.ours.f1)


def test_the_verdict_follows_the_interval(brief):
    fixed, ours = brief.lists["fixed"], brief.lists["expected <F1>"]
    none = ours.head(0)
    said = {
        word: replace(brief, lists={"fixed": a, "expected <F1>": b}).verdict()
        for word, (a, b) in {
            "beats": (none, ours),
            "is worse": (ours, none),
            "as good": (fixed, fixed),
        }.items()
    }
    for word, sentence in said.items():
        assert word in sentence


def test_lists_without_probabilities_have_no_reliability(brief):
    bare = {name: replace(one, probabilities=None) for name, one in brief.lists.items()}
    made = html_model_report(replace(brief, lists=bare, heads=replace(brief.heads, probabilities=None)))
    assert "These lists carry no probabilities." in made
    assert Reader(made).texts["h2"] == SECTIONS


def test_nobody_served_is_told_too(brief):
    empty = {name: one.head(0) for name, one in brief.lists.items()}
    made = html_model_report(replace(brief, lists=empty))
    assert "nothing shown" in made
    assert "nan" not in made


def test_strangers_have_ids_for_names(brief):
    name = names_of(brief.history)
    assert name("nowhere") == "nowhere"
    assert taken_by("nobody", brief.truth) == []
