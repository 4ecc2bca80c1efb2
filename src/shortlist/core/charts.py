"""Line, bar and interval charts as inline SVG; the page's style sheet sets the colors for light and dark.

Series differ in color (the palette of Okabe and Ito, safe for color blindness), dash and marker.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from shortlist.core.files import write_text
from shortlist.errors import DataError
from shortlist.text import escape_html as escape

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 46
CHARACTER, GAP = 7, 4  # widest character of a label below the x axis, and the space between two labels
INSET = 10  # distance of the first and last marker from the frame
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 3", "4 4")
WIDE, LABELS, ROW = 720, 190, 18  # of an interval chart: width, width of the labels, height of a row
MAX_MARKERS = 25  # curves with more points have no markers

STYLE = """
.chart { width: 100%; height: auto; display: block; }
.chart text { fill: var(--ink); font: 11px system-ui, sans-serif; }
.chart .title { font-size: 13px; font-weight: 600; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .axis { stroke: var(--ink); stroke-width: 1; }
.chart .curve { fill: none; stroke-width: 2; }
.chart .bar { stroke: none; }
.chart .mark { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3; fill: none; }
.chart .zero { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
.chart .range { stroke-width: 3; }
.chart .over { paint-order: stroke; stroke: var(--page); stroke-width: 4px; }
.chart .quiet { fill: var(--quiet); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; margin: .2rem 0 0; padding: 0; }
.legend li { display: flex; align-items: center; gap: .4rem; font-size: .8rem; }
.legend svg { width: 34px; height: 12px; flex: none; }
""" + "\n".join(f".s{k} {{ stroke: var(--s{k}); fill: var(--s{k}); }}" for k in range(len(DASHES)))


# A figure cannot rely on a style sheet: its text takes the surrounding color, its curves have middle tones
# that are readable on light and dark backgrounds.
COLORS = """.shortlist-figure { --ink: currentColor; --page: transparent; --line: #8886; --quiet: #888;
  --s0: #2b8fd0; --s1: #e06c1f; --s2: #12a57c; --s3: #c263a0; --s4: #b08a1a; --s5: #5aa9d6; --s6: #999;
  --s7: #888; }
"""
STANDALONE = """.shortlist-figure { color: #1a1a1a; }
@media (prefers-color-scheme: dark) { .shortlist-figure { color: #e8e8e8; } }
"""


@dataclass(frozen=True, repr=False)
class Figure:
    """A chart for notebooks and files.

    Parameters
    ----------
    title
        What the chart shows.
    chart
        SVG of a chart function.
    names
        (name, style) of every series, for the legend.

    Examples
    --------
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> sl.evaluate({"ann": ["tea"]}, truth).plot()
    Figure('List lengths of 2 users')
    """

    title: str
    chart: str
    names: tuple[tuple[str, int], ...] = ()

    def save(self, path: str | Path) -> Path:
        """Write the figure to an SVG file.

        Parameters
        ----------
        path
            A file that ends in .svg.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        DataError
            If the extension is another one or the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sl.evaluate({"ann": ["tea"]}, truth).plot().save(f"{folder}/lengths.svg").name
        'lengths.svg'
        """
        target = Path(path)
        if target.suffix != ".svg":
            raise DataError(f"figures are written as .svg, got {target.name!r}; change the extension.")
        write_text(target, f"{self._repr_svg_()}\n")
        return target

    def _svg(self, colors: str) -> str:
        """The chart above its legend; all style rules are limited to the figure."""
        width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', self.chart)[0])
        rows = [
            f'<g class="chart" transform="translate({LEFT} {height + 4 + ROW * k:g})">'
            f'{_stroke(style)}<text x="42" y="10">{escape(name)}</text></g>'
            for k, (name, style) in enumerate(self.names)
        ]
        total = height + (4 + ROW * len(rows) if rows else 0)
        rules = re.sub(r"(?m)^[.]", ".shortlist-figure .", re.sub(r"[.]chart {.*?}", "", STYLE))
        size = f'width="{width:g}" height="{height:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="shortlist-figure" '
            f'viewBox="0 0 {width:g} {total:g}" width="{width:g}" height="{total:g}">'
            f"<style>{COLORS}{colors}{rules}</style>"
            f"{self.chart.replace('<svg', f'<svg {size}', 1)}{''.join(rows)}</svg>"
        )

    def _repr_svg_(self) -> str:
        return self._svg(STANDALONE)

    def _repr_html_(self) -> str:
        return self._svg("")

    def __repr__(self) -> str:
        return f"Figure({self.title!r})"


@dataclass(frozen=True)
class Series:
    """One curve; `style` selects color, dash and marker."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: int
    dotted: bool = True  # whether points have markers, if there are few enough
    around: Sequence[tuple[float, float]] = ()  # an interval of y at every point


@dataclass(frozen=True)
class Mark:
    """An annotated point: a ring with a label."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Span:
    """A mean with its interval; `group` is the heading above consecutive spans."""

    group: str
    label: str
    middle: float
    low: float
    high: float
    style: int


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    even: bool = False,
    top: float | None = None,
    marks: Sequence[Mark] = (),
) -> str:
    """Curves on a y axis that includes 0 and ends at `top` or the largest value.

    `even` spaces the x values equally.
    """
    xs = sorted({x for curve in series for x in curve.x})
    place = {x: (float(k) if even else float(x)) for k, x in enumerate(xs)}
    across = _Scale(min(place.values()), max(place.values()), LEFT + INSET, WIDTH - RIGHT - INSET)
    lowest = min((min(curve.y) for curve in series), default=0.0)
    highest = max((max(curve.y) for curve in series), default=1.0) if top is None else top
    ticks = ticks_to(highest) if lowest >= 0 else ticks_between(lowest, max(highest, 0.0), beyond=True)
    upward = _Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    gaps = [later - x for x, later in pairwise(xs)]
    whole = all(float(x).is_integer() for x in xs) and 10 * min(gaps, default=1) >= xs[-1] - xs[0]
    at = xs if even or (whole and len(xs) <= 8) else ticks_between(xs[0], xs[-1])
    below = [(across(place[x] if even else float(x)), _short(x)) for x in at]
    body = _frame(title, x_label, y_label, below, [(upward(y), _short(y)) for y in ticks])
    for curve in series:
        points = [(across(place[x]), upward(y)) for x, y in zip(curve.x, curve.y, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = DASHES[curve.style % len(DASHES)]
        for (x, _), (low, high) in zip(points, curve.around, strict=False):
            ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{upward(low):.1f}" y2="{upward(high):.1f}"'
            body.append(f'<line class="s{curve.style}" {ends}/>')
        body.append(f'<polyline class="s{curve.style} curve" stroke-dasharray="{dash}" points="{line}"/>')
        if curve.dotted and len(points) <= MAX_MARKERS:
            body += [_marker(x, y, curve.style) for x, y in points]
    for mark in marks:
        body += _ring(across(mark.x), upward(mark.y), mark.text)
    return _svg(title, body)


def bar_chart(
    title: str,
    x_label: str,
    y_label: str,
    labels: Sequence[str],
    values: Sequence[float],
    style: int = 0,
    *,
    mark: tuple[float, str] | None = None,
) -> str:
    """One bar per label; some of many labels are omitted. `mark`: (bar number, text) of a vertical line."""
    n_fitting = (WIDTH - LEFT - RIGHT) // (CHARACTER * max(map(len, labels), default=1) + GAP)
    every = math.ceil(len(labels) / max(min(n_fitting, 11), 1)) or 1
    ticks = ticks_to(max(values, default=1.0))
    upward = _Scale(0.0, ticks[-1], HEIGHT - BOTTOM, TOP)
    step = (WIDTH - RIGHT - LEFT) / max(len(values), 1)
    below = [(LEFT + (k + 0.5) * step, labels[k]) for k in range(0, len(labels), every)]
    body = _frame(title, x_label, y_label, below, [(upward(y), _short(y)) for y in ticks])
    for k, value in enumerate(values):
        low, high = upward(0.0), upward(value)
        body.append(
            f'<rect class="s{style} bar" x="{LEFT + (k + 0.08) * step:.1f}" y="{high:.1f}" '
            f'width="{0.84 * step:.1f}" height="{low - high:.1f}"/>'
        )
    if mark is not None:
        x, right = LEFT + (mark[0] + 0.5) * step, mark[0] > len(values) / 2
        body.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        body.append(
            f'<text class="over" x="{x + (-5 if right else 5):.1f}" y="{TOP + 4}" '
            f'text-anchor="{"end" if right else "start"}">{escape(mark[1])}</text>'
        )
    return _svg(title, body)


def length_chart(
    title: str, counts: Sequence[int], style: int, *, mark: tuple[float, str] | None = None
) -> str:
    """Number of users with a list of 0, 1, 2 … items; the last count is that of all longer lists."""
    labels = [str(k) for k in range(len(counts) - 1)] + [f">{len(counts) - 2}"]
    return bar_chart(title, "items in the list", "users", labels, counts, style, mark=mark)


def span_chart(title: str, x_label: str, spans: Sequence[Span]) -> str:
    """Means with intervals, one below the other, and a line at 0; groups have a heading."""
    low = min([0.0, *(span.low for span in spans)])
    high = max([0.0, *(span.high for span in spans)])
    ticks = ticks_between(low, high)
    across = _Scale(low, high if high > low else low + 1, LABELS, WIDE - RIGHT - INSET)
    body, y, group = [], TOP + 4.0, None
    for span in spans:
        if span.group != group:
            group = span.group
            y += ROW * 1.15
            body.append(f'<text class="quiet" x="0" y="{y + 4:.1f}">{escape(group)}</text>')
        y += ROW
        body.append(f'<text x="10" y="{y + 4:.1f}">{escape(span.label)}</text>')
        ends = f'x1="{across(span.low):.1f}" x2="{across(span.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
        body.append(
            f'<line class="s{span.style} range" {ends}/>{_marker(across(span.middle), y, span.style)}'
        )
    floor = y + ROW
    axis = [f'<text class="title" x="0" y="16">{escape(title)}</text>']
    for x in ticks:
        kind = "zero" if x == 0 else "grid"
        axis.append(
            f'<line class="{kind}" x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{TOP}" y2="{floor:.1f}"/>'
        )
        label = _short(x) if x <= 0 else f"+{_short(x)}"
        axis.append(f'<text x="{across(x):.1f}" y="{floor + 15:.1f}" text-anchor="middle">{label}</text>')
    middle = (LABELS + WIDE - RIGHT) / 2
    axis.append(f'<text x="{middle}" y="{floor + 34:.1f}" text-anchor="middle">{escape(x_label)}</text>')
    return _svg(title, [*axis, *body], WIDE, floor + 42)


def legend(names: Sequence[tuple[str, int]]) -> str:
    """An HTML list of (name, style) pairs, each with its line and marker."""
    rows = []
    for name, style in names:
        line = f'<svg viewBox="0 0 34 12" aria-hidden="true">{_stroke(style)}</svg>'
        rows.append(f"<li>{line}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(rows)}</ul>'


def _stroke(style: int) -> str:
    """A short line with a marker, for a legend."""
    dash = DASHES[style % len(DASHES)]
    line = f'<line class="s{style}" stroke-width="2" stroke-dasharray="{dash}" x1="0" y1="6" x2="34" y2="6"/>'
    return f"{line}{_marker(17, 6, style)}"


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)


def ticks_to(top: float) -> list[float]:
    """Round numbers from 0 to at least `top`, about five of them."""
    return ticks_between(0.0, top if top > 0 else 1.0, beyond=True)


def ticks_between(low: float, high: float, *, beyond: bool = False) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten; `beyond` adds those outside."""
    if not high > low:
        return [low]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = math.floor(low / step + 1e-9) if beyond else math.ceil(low / step - 1e-9)
    last = math.ceil(high / step - 1e-9) if beyond else math.floor(high / step + 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


def _frame(
    title: str,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
) -> list[str]:
    """Title, labels, grid and axes."""
    floor, middle = HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2
    body = [f'<text class="title" x="{LEFT}" y="16">{escape(title)}</text>']
    for y, label in y_ticks:
        body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    for x, label in x_ticks:
        body.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 4}"/>')
        body.append(f'<text x="{x:.1f}" y="{floor + 17}" text-anchor="middle">{escape(label)}</text>')
    body.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    body.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    center = (TOP + floor) / 2
    body.append(
        f'<text transform="translate(13 {center}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return body


def _marker(x: float, y: float, style: int) -> str:
    """Circle, square, triangle or diamond."""
    if style % 4 == 0:
        return f'<circle class="s{style}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
    corners = {
        1: ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        2: ((0, -4), (4, 3), (-4, 3)),
        3: ((0, -4.4), (4.4, 0), (0, 4.4), (-4.4, 0)),
    }[style % 4]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="s{style}" points="{points}"/>'


def _ring(x: float, y: float, text: str) -> list[str]:
    """A ring around a point, and a line down to its label above the x axis."""
    right, floor = x > (LEFT + WIDTH) / 2, HEIGHT - BOTTOM
    return [
        f'<circle class="axis" fill="none" cx="{x:.1f}" cy="{y:.1f}" r="6"/>',
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{min(y + 6, floor):.1f}" y2="{floor}"/>',
        f'<text class="over" x="{x + (-6 if right else 6):.1f}" y="{floor - 8}" '
        f'text-anchor="{"end" if right else "start"}">{escape(text)}</text>',
    ]


def _svg(title: str, body: Sequence[str], width: float = WIDTH, height: float = HEIGHT) -> str:
    head = f'<svg class="chart" viewBox="0 0 {width} {height:g}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(body)}</svg>"


def _short(value: float) -> str:
    text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"
    return text.replace("-", "−")
