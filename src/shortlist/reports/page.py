"""Render Jinja2 templates to HTML pages that need no other file."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from shortlist.core import charts
from shortlist.core.metrics import Metric
from shortlist.evaluation.significance import PairedTest
from shortlist.text import printable


def render(template: str, **context: Any) -> str:
    """Fill one template; values are escaped unless the template marks them safe; no control characters."""
    return printable(ENVIRONMENT.get_template(template).render(context), keep="\n\t")


def format_decimal(value: float | None, digits: int = 4) -> str:
    """A dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def format_percent(value: float | None, digits: int = 0) -> str:
    """A dash for None."""
    return "–" if value is None else f"{value:.{digits}%}"


def format_count(value: int) -> str:
    """Thousands separated by commas."""
    return f"{value:,}"


def format_test(test: PairedTest | None, metric: str = "f1") -> str:
    """The difference and its interval; nothing for None."""
    if test is None:
        return ""
    difference, low, high = (
        Metric.registry[metric].text(value, "+") for value in (test.difference, test.low, test.high)
    )
    return f"{difference} [{low}, {high}]"


ENVIRONMENT = Environment(
    loader=PackageLoader("shortlist.reports"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals["chart_style"] = charts.STYLE
ENVIRONMENT.filters.update(
    decimal=format_decimal, percent=format_percent, count=format_count, test=format_test
)
