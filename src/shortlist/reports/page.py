"""What a page is made of: its style, tables, and numbers as people read them."""

from collections.abc import Sequence
from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>
:root {{ --ink: #1a1a1a; --page: #fff; --line: #d9d9d9; --soft: #f4f4f4; --quiet: #5c5c5c;
  --good: #00664a; --part: #7a5200; --bad: #a3340b;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #b04a86; --s4: #9a6f00; --s5: #3a8fc4; --s6: #1a1a1a;
  --s7: #7a7a7a; }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ --ink: #e8e8e8; --page: #16181b; --line: #3a3d42;
  --soft: #212429; --quiet: #a6a6a6; --good: #4fd1a5; --part: #f0b54a; --bad: #ff8f66;
  --s0: #4da6e0; --s1: #ff8a3d; --s2: #2fd3a3; --s3: #e592c0; --s4: #f0c04a; --s5: #8fd0f5; --s6: #f2f2f2;
  --s7: #9a9a9a; }} }}
body {{ margin: 0 auto; max-width: 84rem; padding: 1.5rem; color: var(--ink); background: var(--page);
  font: 15px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.6rem; }} h2 {{ margin-top: 2.5rem; border-bottom: 2px solid var(--line); }}
h3 {{ margin: 1.8rem 0 .3rem; }}
p, li {{ max-width: 60rem; }}
.quiet {{ color: var(--quiet); font-size: .85rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .22rem .5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child, td.text, th.text {{ text-align: left; }}
td.text {{ white-space: normal; min-width: 14rem; }}
thead th {{ background: var(--soft); white-space: normal; vertical-align: bottom; }}
.grid3 {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem; }}
figure {{ margin: .6rem 0; }}
.holds {{ color: var(--good); font-weight: 600; }} .part {{ color: var(--part); font-weight: 600; }}
.fails {{ color: var(--bad); font-weight: 600; }}
@media print {{ body {{ max-width: none; padding: 0; font-size: 11px; }} .wide {{ overflow: visible; }}
  figure, tr, .card {{ break-inside: avoid; }} h2, h3 {{ break-after: avoid; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }} }}
{style}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""


def page(title: str, style: str, body: str) -> str:
    """One file that needs nothing else; `body` is HTML already, the title is not."""
    return _PAGE.format(title=escape(title), style=style, body=body)


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = ()) -> str:
    """Cells are HTML already."""

    def cell(tag: str, k: int, value: str) -> str:
        return f"<{tag} class='text'>{value}</{tag}>" if k in text else f"<{tag}>{value}</{tag}>"

    top = "".join(cell("th", k, head) for k, head in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell('td', k, value) for k, value in enumerate(row))}</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def mark(row: dict[str, Any], metric: str) -> str:
    if row.get(f"{metric}_p_holm", 1.0) > 0.05:
        return ""
    return "+" if row[f"{metric}_difference"] > 0 else "-"


def difference(row: dict[str, Any], metric: str) -> str:
    if f"{metric}_p_holm" not in row:
        return ""
    low, high, p = (row[f"{metric}_{part}"] for part in ("low", "high", "p_holm"))
    return f"{row[f'{metric}_difference']:+.4f} [{low:+.4f}, {high:+.4f}], {p:.3f}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def or_dash(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
