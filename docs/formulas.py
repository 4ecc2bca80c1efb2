"""A hook for MkDocs: render the LaTeX formulas of a page as MathML when the site is built."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def render(formula: re.Match[str]) -> str:
    """Return the MathML of one formula."""
    tag, kind, latex = formula.groups()
    display = "block" if kind == "[" else "inline"
    mathml = convert(html.unescape(latex).strip(), display=display)
    return f'<{tag} class="formula">{mathml}</{tag}>'


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula in the HTML of a page."""
    return FORMULA.sub(render, content)
