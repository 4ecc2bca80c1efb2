"""`shortlist observe`: add events to a saved model without training."""

import time
from pathlib import Path

import shortlist as sl
from shortlist.cli.screen import Json, print_note, show_json, show_text
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


def refit_command(
    model: Path,
    /,
    *,
    db: str | None = None,
    keep: int | None = None,
    json: Json = False,
) -> None:
    """Fit the served model again with the stored events, and activate it if it is not worse.

    Run it from cron, or let `serve --refit` run it. The new model is checked
    against the one in service on the latest day. If it is not worse, it is saved
    beside it and activated; running services switch to it without a restart.
    Variables of the service, such as SHORTLIST_SERVE_DB, are read too.

    For example:
      shortlist refit shop.shortlist
      shortlist refit shop.shortlist --db postgresql://shop@db/events

    Parameters
    ----------
    model
        The model file that `shortlist serve` was started with.
    db
        Event store of the service; default: the file beside the model.
    keep
        Number of refitted models to keep; default: 3.
    """
    from shortlist.auto.fit import refit as fit_again
    from shortlist.core.serialization import read_header
    from shortlist.serve.config import load_config
    from shortlist.serve.deployment import SUFFIX, Deployment, load_refit_data, remove_old_models
    from shortlist.serve.store import EventStore

    config = load_config({"model": str(model), "db": db, "keep_models": keep})
    store = EventStore(config.database)
    if store.is_sqlite or config.model_path.exists():  # other servers send their models by PostgreSQL
        read_header(config.model_path)
    store.create()
    folder, base = config.model_folder, config.model_path.name.removesuffix(SUFFIX)
    data = load_refit_data(store, folder, base)
    result = fit_again(data.model, data.events, progress=print_note)
    path = None
    if result.model is not None:
        path = folder / f"{base}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}{SUFFIX}"
        result.model.save(path)
        name, limits = path.name.removesuffix(SUFFIX), (config.shared_bytes, config.keep_models)
        deployed = Deployment(folder, store, share_models=limits[0], keep_models=limits[1])
        checksum = deployed.share(name)
        store.add_activation(name, checksum, data.last_event, "refit", forgotten_until=data.last_forgotten)
        deployed.remove_shared()
        remove_old_models(store, folder, base, config.keep_models)
    store.close()
    about = {
        "model": None if path is None else path.name,
        "old_f1": result.old_f1,
        "new_f1": result.new_f1,
        "lists": result.n_lists,
        "reason": result.reason,
    }
    if json:
        return show_json(about)
    outcome = f"activated {path.name}" if path is not None else "kept the model in service"
    return show_text(f"{outcome}: {result.reason} (F1 {result.new_f1:.4f}, before {result.old_f1:.4f}).")
