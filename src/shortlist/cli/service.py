"""`shortlist service`: access tokens, models to serve, refits and erasure."""

import sys
import time
from pathlib import Path
from typing import Literal

from cyclopts import App

from shortlist.cli.arguments import ServedModel, Store, read_content
from shortlist.cli.output import Json, print_note, show_json, show_text
from shortlist.errors import ConfigError

service_command = App(name="service")  # its help is in `app.COMMANDS`


@service_command.command(name="token")
def create_token_command(
    file: Path,
    /,
    *,
    name: str,
    scope: tuple[Literal["read", "events", "admin"], ...] = ("read",),
) -> None:
    """Create an access token for the service.

    The token is printed once, and only its hash is stored. Send it as "Authorization: Bearer …".

    For example:
      shortlist service token tokens --name shop --scope read --scope events
      shortlist serve shop.shortlist --token_file tokens --host 0.0.0.0

    Parameters
    ----------
    file
        The token file; created if it does not exist.
    name
        Who uses the token, such as shop.
    scope
        read: lists; events: send events; admin: change the model. Repeat for several.
    """
    from shortlist.serve import tokens

    def show(secret: str) -> None:
        print_note(
            f"adding {name} with {', '.join(sorted(set(scope)))} to {file}; this token is not shown again:"
        )
        show_text(secret)
        if sys.stdout is not None:
            sys.stdout.flush()

    tokens.create_token(file, name, scope, show)


@service_command.command(name="activate")
def activate_model(
    model: Path,
    /,
    *,
    db: str | None = None,
) -> None:
    """Let all services on a store serve another model.

    The file must be in the folder that the services read. It is loaded and tried
    here, kept under its checksum, and activated. Running services switch to it
    without a restart; it may be replaced by another file afterwards.

    For example:
      shortlist service activate models/shop.shortlist \\
        --db postgresql://shop@db/events

    Parameters
    ----------
    model
        The model file, in the folder of the services.
    db
        Event store of the services; default: SHORTLIST_SERVE_DB.
    """
    from shortlist.core.codec import read_header
    from shortlist.serve.config import load_config
    from shortlist.serve.deployment import SUFFIX, Deployment
    from shortlist.serve.store import EventStore

    config = load_config({"model": str(model), "db": db})
    read_header(config.model_path)
    if not config.db:
        raise ConfigError("activate needs the store of the services; pass --db postgresql://….")
    store = EventStore(config.database)
    if store.is_sqlite and not Path(store.url.database or "").is_file():
        raise ConfigError(f"there is no event store at {config.db}; pass the --db of the service.")
    store.create()
    try:
        deployed = Deployment(config.model_folder, store, keep_models=config.keep_models)
        name = config.model_path.name.removesuffix(SUFFIX)
        number = deployed.activate(name, "by shortlist service activate").number
    finally:
        store.close()
    show_text(f"activated {name} (number {number}); services on this store switch to it.")


@service_command.command(name="forget")
def forget_user(
    model: ServedModel,
    /,
    *,
    user: str,
    db: Store = None,
) -> None:
    """Delete the events and logged lists of a user from the service's store.

    Running services stop using the user's history within a second. The next
    refit leaves the user out of the model file.

    For example:
      shortlist service forget shop.shortlist --user u1

    Parameters
    ----------
    user
        The id of the user.
    """
    from shortlist.core.codec import read_header
    from shortlist.serve.config import load_config
    from shortlist.serve.projections import erase_user
    from shortlist.serve.store import EventStore

    config = load_config({"model": str(model), "db": db})
    read_header(config.model_path)
    store = EventStore(config.database)
    try:
        store.create()
        erased = erase_user(store, user)
    finally:
        store.close()
    show_text(
        f"{erased.n_events:,} events and {erased.n_lists:,} logged lists of the user are deleted; services "
        "on this store no longer know the user. Model files forget the user with the next refit."
    )


@service_command.command(name="refit")
def refit_model(
    model: ServedModel,
    /,
    *,
    db: Store = None,
    items: Path | None = None,
    keep: int | None = None,
    json: Json = False,
) -> None:
    """Fit the served model again with the stored events, and activate it if it is not worse.

    Run it from cron, a systemd timer or a CronJob. The new model is checked
    against the one in service on the latest days. If it is not worse, for enough
    users to show it, it is saved into the folder of the model and activated;
    running services switch to it without a restart.

    Variables of the service, such as SHORTLIST_SERVE_DB, are read too.

    For example:
      shortlist service refit shop.shortlist
      shortlist service refit shop.shortlist --db postgresql://shop@db/events
      shortlist service refit shop.shortlist --items items.csv

    Parameters
    ----------
    items
        File with the content of all items, as for `shortlist fit`; needed if the model uses content.
    keep
        Number of earlier models to keep; default: 3.
    """
    from shortlist.auto.refit import refit as fit_again
    from shortlist.core.codec import read_header
    from shortlist.serve.config import load_config
    from shortlist.serve.deployment import (
        SUFFIX,
        Deployment,
        kept_path,
        load_refit_data,
        save_model,
    )
    from shortlist.serve.projections import add_activation
    from shortlist.serve.store import EventStore

    config = load_config({"model": str(model), "db": db, "keep_models": keep})
    store = EventStore(config.database)
    if store.is_sqlite or config.model_path.exists():  # a refitted model has no file with a name
        read_header(config.model_path)
    store.create()
    folder, base = config.model_folder, config.model_path.name.removesuffix(SUFFIX)
    content = None if items is None else read_content(items)
    data = load_refit_data(store, folder, base)
    result = fit_again(data.model, data.events, items=content, progress=print_note)
    name = checksum = None
    if result.model is not None:
        name = f"{base}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(store.now()))}"
        checksum = save_model(result.model, folder)
        add_activation(store, name, checksum, data.last_event, "refit", erased_until=data.last_erased)
        Deployment(folder, store, keep_models=config.keep_models).remove_unused()
    store.replace_snapshot("refit", store.snapshot("refit"), "" if name else result.reason)
    store.close()
    about = {
        "model": name,
        "file": None if checksum is None else kept_path(folder, checksum).name,
        "old_f1": result.old_f1,
        "new_f1": result.new_f1,
        "lists": result.n_lists,
        "users": result.n_users,
        "users_needed": result.users_needed,
        "smallest_loss": result.smallest_loss,
        "reason": result.reason,
    }
    if json:
        return show_json(about)
    outcome = "kept the model in service" if name is None else f"activated {name}"
    scores = f" (F1 {result.new_f1:.4f}, before {result.old_f1:.4f})" if result.n_users else ""
    return show_text(f"{outcome}: {result.reason}{scores}.")
