"""The report for whoever decides: one HTML file in plain words, with its figures inside."""

from html import escape

from shortlist.core import charts
from shortlist.core.charts import Span, legend
from shortlist.evaluation.report import Report
from shortlist.evaluation.significance import Test
from shortlist.reports.model_figures import reliability_figure, served_figure, spread_figures
from shortlist.reports.model_report import FEW, ModelReport, Slice
from shortlist.reports.model_users import STYLE as USERS_STYLE
from shortlist.reports.model_users import example_users
from shortlist.reports.page import html_table, page

# how a verdict looks: its class in the table, its style in the chart
PARTS = {
    "helps": ("holds", 2),
    "hurts": ("fails", 1),
    "no clear difference": ("", 7),
    "too few users": ("", 7),
}

STYLE = """
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .8rem;
  margin: 1rem 0; }
.card { border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem; break-inside: avoid; }
.card strong { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 0 2rem; }
summary { cursor: pointer; }
.verdict { font-size: 1.1rem; border-left: 4px solid var(--s0); padding: .2rem .8rem; }
.facts th { background: none; text-align: left; font-weight: 600; vertical-align: top; }
.facts td { text-align: left; white-space: normal; max-width: 50rem; }
"""


def html_model_report(brief: ModelReport) -> str:
    """One page that needs nothing else; every name in it came from the data and is escaped."""
    parts = [
        f"<p class='verdict'>{escape(brief.verdict())}</p>",
        _glance(brief),
        "<h2>What was trained</h2>",
        _trained(brief),
        "<h2>How good the lists are</h2>",
        _ways(brief),
        "<h2>Where K helps and where it does not</h2>",
        _slices(brief.slices),
        "<h2>How long the lists are, and how sure</h2>",
        spread_figures(brief),
        "<div class='pair'><section><h2>Serving only the users one is sure about</h2>",
        served_figure(brief),
        "</section><section><h2>Do the probabilities come true?</h2>",
        reliability_figure(brief),
        "</section></div>",
        "<h2>Ten users</h2>",
        example_users(brief),
        "<h2>Words</h2>",
        WORDS,
    ]
    return page(
        f"Lists that know when to stop: {brief.data}", charts.STYLE + STYLE + USERS_STYLE, "".join(parts)
    )


def _glance(brief: ModelReport) -> str:
    ours, fixed = brief.ours, brief.fixed

    def taken(report: Report) -> str:
        return f"{100 * report.hits.sum() / max(report.lengths.sum(), 1):.1f}"

    def found(report: Report) -> str:
        return f"{100 * report.hits.sum() / max(report.sizes.sum(), 1):.1f}"

    cards = [
        ("F1, all users", f"{ours.f1:.4f}", f"{fixed.f1:.4f}"),
        ("users shown something", f"{ours.cover_ratio:.0%}", f"{fixed.cover_ratio:.0%}"),
        ("items shown per user", f"{ours.mean('length'):.1f}", f"{fixed.mean('length'):.1f}"),
        ("of 100 items shown, taken next", taken(ours), taken(fixed)),
        ("of 100 items taken next, shown", found(ours), found(fixed)),
    ]
    return "<div class='cards'>{}</div>".format(
        "".join(
            f"<div class='card'>{name}<strong>{own}</strong>"
            f"<span class='quiet'>{other} with the best fixed N = {brief.N}</span></div>"
            for name, own, other in cards
        )
    )


def _trained(brief: ModelReport) -> str:
    past, tested, model = brief.history, brief.ours.n_users, brief.model
    params = ", ".join(f"{name} {value}" for name, value in model.get_params().items() if value is not None)
    again = (
        "items taken before may be shown again"
        if past.has_repeats
        else "items taken before are not shown again"
    )
    size = brief.truth.n_rows / max(tested, 1)
    rows = [
        (
            "Data",
            f"{brief.data}: {past.n_rows:,} rows of {past.active_users.size:,} users and {past.n_items:,} "
            f"items to learn from; {again}.",
        ),
        (
            "Test",
            f"The last basket of {tested:,} users, {size:.2f} items on average. Nothing was learned "
            "or chosen on it.",
        ),
        ("Ranking", f"{type(model).__name__} ({params})."),
        ("Who ends the lists", brief.decider),
        (
            "Compared with",
            f"The same ranking cut after {brief.N} items for everybody: the fixed length that did best on "
            "validation, the baskets before the test.",
        ),
    ]
    body = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table class='facts'>{body}</table>"


def _ways(brief: ModelReport) -> str:
    rows = [
        [_named(name, brief), *_figures(report, brief), f"{report.mean('length'):.1f}"]
        for name, report in (*brief.reports.items(), ("the best length in hindsight", brief.ceiling))
    ]
    heads = [
        "who ends the list",
        "F1, all users",
        "difference from the fixed N [95%]",
        "NDCG, all users",
        "users covered",
        "F1, covered users",
        "fixed N on the same users",
        "items shown",
    ]
    note = (
        "All users: an empty list counts 0. Covered users: only those who were shown something; compare that "
        "column with the one beside it, which is the fixed N on those very users. Intervals: paired "
        "bootstrap over users. In hindsight: what nobody can know, the ceiling of every stopping rule on "
        "this ranking."
    )
    return html_table(heads, rows) + f"<p class='quiet'>{note}</p>"


def _named(name: str, brief: ModelReport) -> str:
    return f"<strong>{escape(name)}</strong>" if name == brief.main else escape(name)


def _figures(report: Report, brief: ModelReport) -> list[str]:
    """F1, its difference from the fixed N, NDCG, coverage, and F1 where something is shown, of both."""
    name = next((name for name, one in brief.reports.items() if one is report), "")
    test = brief.comparison.results.get((name, "f1"))
    same = brief.fixed.values("f1")[report.covered]
    return [
        f"{report.f1:.4f}",
        _change(test),
        f"{report.ndcg:.4f}",
        f"{report.cover_ratio:.0%}",
        f"{report.mean('f1', 'covered'):.4f}" if same.size else "–",
        f"{same.mean():.4f}" if same.size else "–",
    ]


def _change(test: Test | None) -> str:
    return "" if test is None else f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"


def _slices(slices: list[Slice]) -> str:
    spans = [
        Span(one.group, f"{one.label}  ({one.users:,} users)", test.difference, test.low, test.high, style)
        for one in slices
        for test, style in [(one.test, PARTS[one.verdict][1])]
        if test is not None
    ]
    rows = [
        [
            escape(one.group),
            escape(one.label),
            f"{one.users:,}",
            f"{one.ours:.4f}",
            f"{one.theirs:.4f}",
            _change(one.test),
            f"<span class='{PARTS[one.verdict][0]}'>{one.verdict}</span>",
        ]
        for one in slices
    ]
    chart = charts.span_chart("F1 of K minus F1 of the fixed N", "difference in F1, 95% interval", spans)
    key = legend([("K helps", 2), ("K hurts", 1), ("no clear difference", 7)])
    heads = ["by", "slice", "users", "F1 of K", "F1 of the fixed N", "difference [95%]", "K"]
    note = (
        f"K helps or hurts where p ≤ 0.05 after Holm's correction over all slices; slices of fewer than "
        f"{FEW} users are not tested. What a user took next is known only afterwards: that slice explains, "
        "it cannot be acted on."
    )
    return (
        f"{_told(slices)}<figure style='max-width:52rem'>{chart if spans else ''}{key}</figure>"
        f"<details><summary>The numbers</summary>{html_table(heads, rows, text=(1, 6))}</details>"
        f"<p class='quiet'>{note}</p>"
    )


def _told(slices: list[Slice]) -> str:
    """The verdicts in a sentence or two."""
    said = []
    for verdict, word in (("helps", "helps"), ("hurts", "costs quality")):
        some = [f"{one.label} {one.group}" for one in slices if one.verdict == verdict]
        if some:
            said.append(f"K {word} with {'; '.join(some)}.")
    return f"<p>{escape(' '.join(said) or 'In no slice is the difference more than chance.')}</p>"


WORDS = (
    "<p><strong>K</strong> is the length of a list where it is decided for every user; "
    "<strong>fixed N</strong> is one length for all. <strong>F1</strong> is 1 if a list shows exactly what "
    "the user takes next and 0 if it shows none of it; showing too much and showing too little both cost. "
    "<strong>NDCG</strong> also rewards hits near the top. <strong>Covered</strong> users are those who were "
    "shown anything. <strong>Validation</strong> is the basket before the test: everything that had to be "
    "chosen was chosen there.</p>"
)
