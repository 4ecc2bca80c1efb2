"""The report's ten users: what they were shown, a line, what was withheld, and what they took next."""

from html import escape
from typing import Any

from shortlist.data.ranked_lists import RankedList
from shortlist.data.reasons import REASON_TEXT
from shortlist.reports.model_report import ModelReport, names_of, taken_by

ROWS, WITHHELD, NAMED = 8, 3, 3  # of an example: items shown, items below the line, items told from the past

STYLE = """
.users { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1rem; }
.users h4 { margin: 0; font-size: 1rem; } .users p { margin: .2rem 0 .5rem; }
.users table { width: 100%; table-layout: fixed; }
.users td { border: 0; padding: .1rem .3rem; white-space: nowrap; }
.users .rank { width: 1.8rem; } .users .chance { width: 4.2rem; }
.users td:nth-child(1) { text-align: right; color: var(--quiet); }
.users td:nth-child(2) { text-align: left; overflow-wrap: anywhere; white-space: normal; }
.users tr.end td { border-top: 3px solid var(--ink); font-weight: 600; text-align: left; white-space: normal;
  padding-top: .2rem; }
.users tr.withheld td { color: var(--quiet); }
.taken { color: var(--good); font-weight: 700; }
@media print { .users { grid-template-columns: 1fr 1fr; } }
"""


def example_users(brief: ModelReport) -> str:
    lists, name = brief.lists[brief.main], names_of(brief.history)
    cards = [_user(brief, lists.at(int(number)), name) for number in brief.ten]
    words = (
        "Not picked by hand: users in order of the length of their list, at even distances. The thick line "
        "is where the list ends; below it are the next items, which were withheld. A tick marks what the "
        "user took next."
    )
    return f"<p>{escape(words)}</p><div class='users'>{''.join(cards)}</div>"


def _user(brief: ModelReport, one: RankedList, name: Any) -> str:
    ranked, next_ = brief.heads[one.user_id], taken_by(one.user_id, brief.truth)
    before = [name(item) for item in taken_by(one.user_id, brief.history)[-NAMED:]]
    chance = (
        {} if ranked.probabilities is None else dict(zip(ranked.items, ranked.probabilities, strict=True))
    )

    def row(item: Any, rank: str, kind: str = "") -> str:
        tick = " <span class='taken'>✓</span>" if item in next_ else ""
        p = chance.get(item)
        return (
            f"<tr class='{kind}'><td>{rank}</td><td>{escape(name(item))}{tick}</td>"
            f"<td>{'' if p is None else f'{p:.1%}'}</td></tr>"
        )

    rows = [row(item, str(rank + 1)) for rank, item in enumerate(one.items[:ROWS])]
    if len(one) > ROWS:
        rows.append(f"<tr><td></td><td>… and {len(one) - ROWS} more</td><td></td></tr>")
    why = REASON_TEXT.get(one.reason or "", "the list ends here")
    rows.append(f"<tr class='end'><td colspan='3'>{escape(why)}</td></tr>")
    left = [item for item in ranked.items if item not in set(one.items)][:WITHHELD]
    rows += [row(item, "", "withheld") for item in left]
    took = [name(item) for item in next_]
    more = f" and {len(took) - NAMED} more" if len(took) > NAMED else ""
    return (
        f"<div class='card'><h4>User {escape(str(one.user_id))}: {len(one)} "
        f"item{'' if len(one) == 1 else 's'}</h4>"
        f"<p class='quiet'>Last took: {escape('; '.join(before))}.<br>"
        f"Took next: {escape('; '.join(took[:NAMED]) + more)}.</p>"
        f"<table><colgroup><col class='rank'><col><col class='chance'></colgroup>{''.join(rows)}</table>"
        "</div>"
    )
