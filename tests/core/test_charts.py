"""Charts: well-formed, labeled, and drawn where the numbers say."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from shortlist.core.charts import (
    BOTTOM,
    HEIGHT,
    INSET,
    LEFT,
    RIGHT,
    ROW,
    TOP,
    WIDTH,
    Figure,
    Mark,
    Series,
    Span,
    bar_chart,
    legend,
    length_chart,
    line_chart,
    span_chart,
    ticks_between,
    ticks_to,
)
from shortlist.errors import DataError

SVG = "{http://www.w3.org/2000/svg}"


def points(svg):
    text = ET.fromstring(svg).find("polyline").get("points")
    return [tuple(map(float, pair.split(","))) for pair in text.split()]


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter("text")]


def test_curve_spans_the_plot_area():
    svg = line_chart("F1 & N", "N", "F1", [Series("a", [1, 3], [0.0, 0.5], 0)])
    assert points(svg) == [(LEFT + INSET, HEIGHT - BOTTOM), (WIDTH - RIGHT - INSET, TOP)]
    assert {"F1 & N", "N", "F1", "1", "3", "0", "0.5"} <= set(texts(svg))


def test_even_spacing_ignores_distances():
    svg = line_chart("", "x", "y", [Series("a", [0.01, 1, 100], [1, 1, 1], 0)], even=True)
    across = [x for x, _ in points(svg)]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1])


def test_bars_are_as_high_as_their_values():
    svg = bar_chart("t", "x", "y", ["a", "b"], [5, 10])
    heights = [float(bar.get("height")) for bar in ET.fromstring(svg).iter("rect")]
    assert heights == [pytest.approx((HEIGHT - BOTTOM - TOP) / 2), pytest.approx(HEIGHT - BOTTOM - TOP)]


def test_empty_bars_are_drawn():
    ET.fromstring(bar_chart("t", "x", "y", ["a"], [0]))


def test_legend_escapes_names():
    assert "a &lt; b" in legend([("a < b", 1)])


@pytest.mark.parametrize(
    ("top", "ticks"),
    [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.043, [0, 0.01, 0.02, 0.03, 0.04, 0.05]), (0, 6)],
)
def test_ticks_are_round_and_reach_the_top(top, ticks):
    found = ticks_to(top)
    assert len(found) == ticks if isinstance(ticks, int) else found == pytest.approx(ticks)
    assert found[-1] >= top


def test_labels_of_bars_do_not_overlap():
    weeks = [f"2024-{month:02}-{day:02}" for month in range(1, 7) for day in (1, 8, 15, 22)]
    svg = ET.fromstring(bar_chart("t", "week", "y", weeks, [1] * 24))
    at = [float(text.get("x")) for text in svg.iter() if text.tag.endswith("text") and text.text in weeks]
    assert len(at) >= 3
    assert min(later - before for before, later in pairwise(at)) > 10 * 6  # ten characters


def test_few_points_between_round_numbers_have_round_labels():
    svg = line_chart("t", "x", "y", [Series("a", [0.0523, 0.31, 0.747], [1, 1, 1], 0)])
    assert {"0.2", "0.4", "0.6"} <= set(texts(svg))
    assert "0.0523" not in texts(svg)


def test_ticks_between():
    assert ticks_between(1, 20) == [5, 10, 15, 20]
    assert ticks_between(3, 3) == [3]


def test_marks_and_intervals_are_drawn_at_their_points():
    one = Series("a", [0, 10], [0.0, 1.0], 0, around=[(0.0, 0.5), (0.5, 1.0)])
    svg = line_chart("t", "x", "y", [one], marks=[Mark(10, 1.0, "here & now")])
    ring = ET.fromstring(svg).findall("circle")[-1]
    assert (float(ring.get("cx")), float(ring.get("cy"))) == (WIDTH - RIGHT - INSET, TOP)
    assert "here & now" in texts(svg)
    whiskers = [line for line in ET.fromstring(svg).iter("line") if line.get("class") == "s0"]
    assert [float(line.get("y2")) for line in whiskers] == [(TOP + HEIGHT - BOTTOM) / 2, TOP]


def test_mark_is_drawn_in_the_middle_of_its_bar():
    svg = length_chart("t", [1, 2, 3, 0], 0, mark=(1.0, "N = 1"))
    root = ET.fromstring(svg)
    (line,) = [one for one in root.iter("line") if one.get("class") == "mark"]
    bar = root.findall("rect")[1]
    assert float(line.get("x1")) == pytest.approx(float(bar.get("x")) + float(bar.get("width")) / 2, abs=0.1)
    assert {"0", "1", "2", ">2", "N = 1"} <= set(texts(svg))


def test_spans_are_drawn_around_zero_under_their_group():
    spans = [
        Span("g", "up", 1.0, 0.5, 2.0, 2),
        Span("g", "down", -1.0, -2.0, 0.0, 1),
        Span("h", "<x>", 0, 0, 0, 7),
    ]
    svg = span_chart("t", "difference", spans)
    root = ET.fromstring(svg)
    (zero,) = [float(one.get("x1")) for one in root.iter("line") if one.get("class") == "zero"]
    ranges = [one for one in root.iter("line") if "range" in one.get("class")]
    ends = [(float(one.get("x1")), float(one.get("x2"))) for one in ranges]
    assert ends[0][0] > zero
    assert ends[1][1] == zero
    assert ends[2] == (zero, zero)
    assert [text for text in texts(svg) if text in "gh"] == ["g", "h"]
    assert "<x>" in texts(svg)


def test_span_of_length_zero_is_drawn():
    ET.fromstring(span_chart("t", "x", [Span("g", "none", 0.0, 0.0, 0.0, 7)]))


def figure():
    series = [Series("<fast>", [0, 1], [0, 1], 0), Series("slow", [0, 1], [1, 1], 1)]
    chart = line_chart("a & b", "x", "y", series)
    return Figure("a & b", chart, tuple((one.name, one.style) for one in series))


def test_figure_has_a_legend_below_the_chart():
    root = ET.fromstring(figure()._repr_svg_())
    assert float(root.get("height")) == HEIGHT + 4 + 2 * ROW
    rows = [text.text for group in root.findall(f"{SVG}g") for text in group.iter(f"{SVG}text")]
    assert rows == ["<fast>", "slow"]
    inner = root.find(f"{SVG}svg")
    assert (float(inner.get("width")), float(inner.get("height"))) == (WIDTH, HEIGHT)


def test_style_rules_apply_to_the_figure_only():
    for text in (figure()._repr_html_(), figure()._repr_svg_()):
        style = ET.fromstring(text).find(f"{SVG}style").text
        selectors = re.findall(r"([^{}]+){[^{}]*}", re.sub(r"@media [^{]*", "", style))
        assert len(selectors) > 15
        valid = re.compile(r"[.]shortlist-figure( [.]?[a-z][a-z0-9]*)*")
        assert all(valid.fullmatch(one.strip(" {}\n")) for one in selectors)
        assert ".shortlist-figure .chart .curve { fill: none;" in style


def test_figure_has_its_own_text_color_only_in_a_file():
    assert "prefers-color-scheme" not in figure()._repr_html_()
    assert "prefers-color-scheme" in figure()._repr_svg_()


def test_figure_is_saved_as_svg(tmp_path):
    path = figure().save(tmp_path / "chart.svg")
    assert path.read_text(encoding="utf-8") == figure()._repr_svg_() + "\n"
    with pytest.raises(DataError, match=r"written as \.svg, got 'chart\.png'"):
        figure().save(tmp_path / "chart.png")
