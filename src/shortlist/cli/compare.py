"""`shortlist compare`: several files of lists against one truth."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.screen import Json, print_note, show, show_json_text
from shortlist.cli.source import BY_NAME, Reading, read_lists, read_source
from shortlist.errors import DataError


def compare(
    *lists: Annotated[str, Parameter(help="Files of lists, each given as FILE or NAME=FILE.")],
    truth: Annotated[str, Parameter(help="What users did next: a file, a folder or a database URI.")],
    baseline: Annotated[
        str | None, Parameter(help="Name of the lists that the others are compared with; default: the first.")
    ] = None,
    max_items: Annotated[int, Parameter(help="Maximum length of a list, for metrics that need one.")] = 20,
    out: Annotated[
        Path | None,
        Parameter(help="Write the table as .md, .tex, .csv, .json or .txt, instead of printing it."),
    ] = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Compare several files of lists, with confidence intervals and p-values.

    The metrics are averages over all users; empty lists score 0. Flags for
    columns name those of the truth; a file of lists has the columns user_id and
    item_id.

    For example:
      shortlist recommend shop.shortlist --N 10 --out ten.parquet
      shortlist compare ten.parquet dynamic=lists.parquet --truth held.parquet
    """
    files = dict(map(parse_name, lists))
    if len(files) < len(lists) or not files:
        raise DataError(f"lists must have different names, got {list(lists)}; write NAME=FILE for each.")
    actual = read_source(truth, reading, training=False)
    results = {name: read_lists(path) for name, path in files.items()}
    comparison = sl.compare(results, actual, baseline=baseline, max_items=max_items)
    if out is not None:
        print_note(f"table written to {comparison.write(out)}")
    if json:
        show_json_text(comparison.to_json().rstrip())
    elif out is None:
        show(comparison)


def parse_name(text: str) -> tuple[str, Path]:
    """Split NAME=FILE; without a name, use the stem of the file name."""
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals else (Path(text).stem, Path(text))
