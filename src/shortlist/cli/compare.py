"""`shortlist compare`: several files of lists, of any origin, against one truth."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shortlist.cli.screen import Json, say, show, show_text
from shortlist.cli.source import AS_NAMED, Reading, interactions
from shortlist.errors import DataError


def compare(
    *lists: Annotated[str, Parameter(help="Files of lists, each as FILE or NAME=FILE.")],
    truth: Annotated[str, Parameter(help="What the users took afterwards: a file, folder or database URI.")],
    baseline: Annotated[
        str | None, Parameter(help="Name of the lists that the others are tested against; else the first.")
    ] = None,
    max_items: Annotated[int, Parameter(help="The longest list that would ever be shown.")] = 20,
    out: Annotated[
        Path | None, Parameter(help="Write the table as .md, .tex, .csv, .json or .txt, and do not print it.")
    ] = None,
    reading: Reading = AS_NAMED,
    json: Json = False,
) -> None:
    """Judge lists side by side over all users, with intervals and p-values; an empty list counts 0.

    For example:
      shortlist recommend shop --N 10 --out ten.parquet
      shortlist compare ten.parquet dynamic=lists.parquet --truth held.parquet
    """
    from shortlist.data.ranked_lists import RankedLists
    from shortlist.evaluation import compare as judge

    named = dict(map(named_file, lists))
    if len(named) < len(lists) or not named:
        raise DataError(f"lists must have different names, got {list(lists)}; write NAME=FILE for each.")
    happened = interactions(truth, reading, training=False)
    results = {name: RankedLists.read(path) for name, path in named.items()}
    found = judge(results, happened, baseline=baseline, max_items=max_items)
    if out is not None:
        say(f"written to {found.write(out)}")
    if json:
        show_text(found.to_json().rstrip())
    elif out is None:
        show(found)


def named_file(text: str) -> tuple[str, Path]:
    """NAME=FILE, or a file whose stem is the name."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals else (Path(text).stem, Path(text))
