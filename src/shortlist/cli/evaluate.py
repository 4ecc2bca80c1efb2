"""`shortlist evaluate`: lists from any source against what users did next."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.screen import Json, hide_panics, show_json, show_text
from shortlist.cli.source import BY_NAME, Reading, read_source

Lists = Annotated[
    Path, Parameter(help="Lists as .parquet, .csv or .jsonl with user_id, item_id, and rank or score.")
]
Truth = Annotated[str, Parameter(help="What users did next: a file, a folder or a database URI.")]


def evaluate(
    lists: Lists,
    truth: Truth,
    /,
    *,
    history: Annotated[
        str | None, Parameter(help="Interactions before the lists were computed; adds metrics on repeats.")
    ] = None,
    max_items: Annotated[int, Parameter(help="Maximum length of a list, for metrics that need one.")] = 20,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Evaluate lists from any source against what users did next.

    The metrics are averages over all users in the truth; users without a list count as
    users with an empty list.

    For example:
      shortlist evaluate lists.parquet held.parquet
    """
    with hide_panics(lists):
        ranked = sl.RankedLists.read(lists)
    actual = read_source(truth, reading, training=False)
    known = None if history is None else read_source(history, reading, training=False)
    report = sl.evaluate(ranked, actual, history=known, max_items=max_items)
    if json:
        return show_json(report.to_dict())
    return show_text(str(report))
