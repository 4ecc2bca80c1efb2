"""Charts: well-formed, labelled, and drawn where the numbers say."""

import xml.etree.ElementTree as ET

import pytest

from shortlist.experiment.charts import (
    BOTTOM,
    HEIGHT,
    INSET,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Series,
    bar_chart,
    legend,
    line_chart,
    ticks_between,
    ticks_to,
)


def points(svg):
    text = ET.fromstring(svg).find("polyline").get("points")
    return [tuple(map(float, pair.split(","))) for pair in text.split()]


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter("text")]


def test_corners_of_the_plane():
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


def test_ticks_between():
    assert ticks_between(1, 20) == [5, 10, 15, 20]
    assert ticks_between(3, 3) == [3]
