"""`shortlist observe`: add events to a saved model without training."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import shortlist as sl
from shortlist.cli.screen import Json, show_json, show_text
from shortlist.cli.source import BY_NAME, Reading, add_content, read_source


def observe(
    model: Annotated[Path, Parameter(help="A model saved by `shortlist fit`.")],
    events: Annotated[str, Parameter(help="New interactions: a file, a folder or a database URI.")],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="Where to save; by default, the model is replaced.")] = None,
    items: Annotated[
        Path | None,
        Parameter(help="File with new items and their content; the columns are those of fit --items."),
    ] = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Add events to a saved model without training, and save it.

    Histories, counts, trends and co-occurrences advance; what the model learned stays.

    For example:
      shortlist observe shop.shortlist held.parquet
      shortlist observe model.shortlist reads.csv --items new.csv
    """
    loaded = sl.load_model(model)
    if items is not None:
        add_content(loaded, items)
    before = loaded.history_
    known = loaded.observe(read_source(events, reading, training=False)).history_
    path = loaded.save(model if out is None else out)
    added = {"rows": known.n_rows - before.n_rows, "users": known.n_users - before.n_users}
    if json:
        return show_json({"model": str(path), "added": added, "rows": known.n_rows})
    return show_text(f"Added {added['rows']:,} rows and {added['users']:,} new users; saved {path}.")
