"""`shortlist evaluate`: lists of any origin against what happened."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.screen import Json, show_json, show_text
from shortlist.cli.source import AS_NAMED, Reading, interactions

Lists = Annotated[
    Path, Parameter(help="Lists as .parquet, .csv or .jsonl with user_id, item_id, and rank or score.")
]
Truth = Annotated[str, Parameter(help="What the users took afterwards: a file, a folder or a database URI.")]


def evaluate(
    lists: Lists,
    truth: Truth,
    /,
    *,
    history: Annotated[
        str | None, Parameter(help="What was known when the lists were made; adds repeats.")
    ] = None,
    max_items: Annotated[int, Parameter(help="The longest list that would ever be shown.")] = 20,
    reading: Reading = AS_NAMED,
    json: Json = False,
) -> None:
    """Judge lists over every user with truth; a user without a list counts as one with an empty list.

    For example:
      shortlist evaluate lists.parquet held.parquet
    """
    shown = sl.RankedLists.read(lists)
    happened = interactions(truth, reading, training=False)
    past = None if history is None else interactions(history, reading, training=False)
    report = sl.evaluate(shown, happened, history=past, max_items=max_items)
    if json:
        return show_json(report.to_dict())
    return show_text(str(report))
