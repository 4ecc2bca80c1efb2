"""Draw the pictures of the README, allocation.md and for-product.md from stored results of benchmarks.

python docs/picture.py
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from shortlist.core.charts import HEIGHT, STYLE, WIDTH, Series, bar_chart, line_chart

HERE = Path(__file__).parent
PICTURE = HERE / "pictures" / "lengths.svg"
ALLOCATION_PICTURE = HERE / "pictures" / "allocation.svg"
PRODUCT = HERE / "pictures" / "product.svg"
RESULTS = HERE.parent / "benchmarks" / "results" / "demo.json"
ALLOCATION = RESULTS.with_name("allocate.json")
BIN = 2  # list lengths per bar
LONGEST = 80  # lists from this length on share a bar
LAST_N = 60  # of the curve
COLORS = """
svg { --ink: #1a1a1a; --line: #d8d8d8; --page: #ffffff; --quiet: #666666; --s0: #0072b2; --s1: #d55e00; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e8e8e8; --line: #444444; --page: #0d1117; --quiet: #aaaaaa; --s0: #4da6e0; --s1: #ff8a3d; }
}
"""


def count_lengths(lengths: list[int]) -> tuple[list[str], list[int]]:
    """Return the labels and heights of a histogram of list lengths."""
    counts = [0] * (LONGEST // BIN + 1)
    for length in lengths:
        counts[min(length, LONGEST) // BIN] += 1
    return [str(BIN * k) for k in range(len(counts))], counts


def draw() -> str:
    """Return two charts side by side as one self-contained SVG file."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["demo"]
    (fixed_name, fixed), (_, dynamic) = ((row["model"], row) for row in found["results"])
    best, lengths, curve = int(fixed_name.split()[-1]), found["lengths"], found["fixed_n_f1"][:LAST_N]
    labels, counts = count_lengths(lengths)
    charts = (
        bar_chart(
            f"List lengths of {len(lengths):,} customers",
            f"items in the list (last bar: {LONGEST} or more)",
            "customers",
            labels,
            counts,
            0,
            mark=(best / BIN, f"best fixed N = {best}"),
        ),
        line_chart(
            f"F1: fixed {fixed['F1']:.3f}, dynamic {dynamic['F1']:.3f} ({found['lift']:+.0%})",
            "length of all lists (orange); individual lengths (blue)",
            "F1",
            [
                Series("fixed", list(range(1, len(curve) + 1)), curve, 1),
                Series("dynamic", [1, len(curve)], [dynamic["F1"]] * 2, 0, dotted=False),
            ],
        ),
    )
    return join(charts, "List lengths on Online Retail, and F1 of fixed and dynamic lists")


def draw_allocation() -> str:
    """Return hits against items per user for two shops, both ways."""
    found = json.loads(ALLOCATION.read_text(encoding="utf-8"))
    charts = []
    for name, title in (("online-retail", "Online Retail"), ("complete-journey", "The Complete Journey")):
        row = found[name]["last_basket"]
        n, hits = [float(n) for n in row["hits"]], row["hits"].values()
        ours, same = ([1000 * one[key] / row["users"] for one in hits] for key in ("hits", "hits_same_n"))
        gain = row["hits"]["2"]["relative"]
        charts.append(
            line_chart(
                f"{title}: {gain:+.0%} at two items",
                "items per customer (orange: the same for everyone)",
                "purchases per 1,000 customers",
                [Series("same", n, same, 1), Series("allocation", n, ours, 0)],
            )
        )
    return join(charts, "Purchases against items per customer, for the same number and for an allocation")


def draw_product() -> str:
    """Return the lengths, and how much of the same volume is bought, without technical terms."""
    lengths = json.loads(RESULTS.read_text(encoding="utf-8"))["demo"]["lengths"]
    volumes = json.loads(ALLOCATION.read_text(encoding="utf-8"))["online-retail"]["by_time"]["hits"]
    per_user = [float(n) for n in volumes]
    own, same = (
        [100 * row[name] / row["items"] for row in volumes.values()] for name in ("hits", "hits_same_n")
    )
    charts = (
        bar_chart(
            f"How many items {len(lengths):,} customers are shown",
            f"items (last bar: {LONGEST} or more)",
            "customers",
            *count_lengths(lengths),
            0,
        ),
        line_chart(
            "Bought, of 100 items shown",
            "items per customer on average; orange: the same for all",
            "items bought",
            [Series("same", per_user, same, 1), Series("own", per_user, own, 0)],
            even=True,
        ),
    )
    return join(charts, "How many items each customer is shown, and how many of 100 items shown are bought")


def join(charts: Sequence[str], label: str) -> str:
    """Two charts side by side as one self-contained SVG file."""
    placed = [
        re.sub(r"^<svg", f'<svg x="{n * WIDTH}" y="0" width="{WIDTH}" height="{HEIGHT}"', chart)
        for n, chart in enumerate(charts)
    ]
    size = f'viewBox="0 0 {2 * WIDTH} {HEIGHT}" width="{2 * WIDTH}" height="{HEIGHT}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    style = f"<style>{COLORS}{re.sub(r'[.]chart {.*?}', '', STYLE)}</style>"
    return "\n".join((opening, style, *placed, "</svg>")) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
    PRODUCT.write_text(draw_product(), encoding="utf-8")
    ALLOCATION_PICTURE.write_text(draw_allocation(), encoding="utf-8")
