"""Templates and number formats."""

import pytest
from jinja2 import UndefinedError

from shortlist.evaluation.significance import PairedTest
from shortlist.reports.page import format_count, format_decimal, format_percent, format_test, render

TEST = PairedTest(difference=0.01, low=-0.02, high=0.04, level=0.95, p_bootstrap=0.5, p_t=0.5, p_wilcoxon=0.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_decimal(0.12345), "0.1235"),
        (format_decimal(2.0, 1), "2.0"),
        (format_decimal(None), "–"),
        (format_percent(0.126), "13%"),
        (format_percent(0.126, 1), "12.6%"),
        (format_percent(None), "–"),
        (format_count(1234567), "1,234,567"),
        (format_test(TEST), "+0.0100 [-0.0200, +0.0400]"),
        (format_test(None), ""),
    ],
)
def test_numbers_are_formatted(text, expected):
    assert text == expected


def test_base_template_has_the_styles_of_charts():
    assert ".chart .grid" in render("base.html.j2")


def test_missing_value_raises():
    with pytest.raises(UndefinedError, match="report"):
        render("model_report.html.j2")
