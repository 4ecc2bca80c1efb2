"""`shortlist observe`: add events to a saved model without training."""

from pathlib import Path

import shortlist as sl
from shortlist.cli.screen import Json, show_json, show_text
from shortlist.cli.source import BY_NAME, Reading, add_content, read_event_source


def observe_command(
    model: Path,
    events: str,
    /,
    *,
    out: Path | None = None,
    items: Path | None = None,
    reading: Reading = BY_NAME,
    json: Json = False,
) -> None:
    """Add events to a saved model without training, and save it.

    Histories, counts, trends and co-occurrences advance; learned parameters stay.
    A negative quantity is a return: it is subtracted from earlier purchases of the
    same user and item, those that the model knows included.

    For example:
      shortlist observe shop.shortlist held.parquet
      shortlist observe model.shortlist reads.csv --items new.csv

    Parameters
    ----------
    model
        A model saved by `shortlist fit`.
    events
        New interactions: a file, a folder or a database URI.
    out
        Where to save; by default, the model is replaced.
    items
        File with new items and their content; the columns are those of fit --items.
    """
    from shortlist.data.interactions import subtract_from

    loaded = sl.load_model(model)
    if items is not None:
        add_content(loaded, items)
    before = loaded.history_
    read = read_event_source(events, reading)
    after = loaded.observe(read).history_
    gross = loaded._fitted_state().history.gross
    n_returns, n_matched = read.returns.height, 0
    if gross is not None:
        n_matched = int(subtract_from(gross.merged, read.returns)[1].sum())
    path = loaded.save(model if out is None else out)
    added = {"rows": after.n_rows - before.n_rows, "users": after.n_users - before.n_users}
    returns = {"subtracted": n_matched, "without_purchase": n_returns - n_matched}
    if json:
        return show_json({"model": str(path), "added": added, "returns": returns, "rows": after.n_rows})
    subtracted = f"; {n_matched:,} of {n_returns:,} returns have a purchase" if n_returns else ""
    return show_text(
        f"Added {added['rows']:,} rows and {added['users']:,} new users{subtracted}; saved {path}."
    )
