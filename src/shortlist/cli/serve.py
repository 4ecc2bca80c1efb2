"""`shortlist serve`: lists over HTTP, events in, and a dashboard."""

import socket
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shortlist.cli.screen import print_note, show_text
from shortlist.errors import ConfigError
from shortlist.text import redact_uri


def serve_command(
    model: str | None = None,
    /,
    *,
    db: str | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
    token_file: str | None = None,
    refit: str | None = None,
    log_share: float | None = None,
    config: Path | None = None,
    demo: Annotated[bool, Parameter(show_default=False)] = False,
) -> None:
    """Serve a model over HTTP, with a dashboard.

    The page is at /, the description of the API at /docs. Flags override
    variables such as SHORTLIST_SERVE_PORT, which override the file of --config.

    For example:
      shortlist serve shop.shortlist
      shortlist serve shop.shortlist --db postgresql://shop@db/events --workers 2
      shortlist serve --demo

    Parameters
    ----------
    model
        A saved model, such as shop.shortlist.
    db
        Event store: sqlite:///file or postgresql://…; default: a file beside the model.
    host
        Address to listen on; default: 127.0.0.1.
    port
        Port to listen on; default: 8000.
    workers
        Processes that answer requests; default: 1.
    token_file
        File of hashed tokens, from `shortlist token`; needed beyond loopback.
    refit
        When to refit, such as daily@03:00 (time of this machine).
    log_share
        Share of lists that are logged; default: 1.
    config
        TOML file with any of the settings.
    demo
        Train on the Online Retail data and serve it.
    """
    try:
        from shortlist.serve.config import load_config
        from shortlist.serve.run import run_service
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the service needs {error.name}, which is not installed; run pip install {error.name}."
        ) from None
    if demo:
        from shortlist.cli.serve_demo import prepare_demo, start_traffic

        if model or token_file:
            raise ConfigError("--demo brings its own model and token; leave out the model and --token_file.")
        prepared = prepare_demo(print_note)
        model, token_file = str(prepared.model), str(prepared.tokens)
    settings = load_config(
        {
            "model": model,
            "db": db,
            "host": host,
            "port": port,
            "workers": workers,
            "token_file": token_file,
            "refit": refit,
            "log_share": log_share,
        },
        file=config,
    )
    check_port(settings.host, settings.port)
    address = f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}/"

    def announce(name: str) -> None:
        print_note(f"shortlist serves {name}.shortlist at {address}")
        print_note(f"events are stored in {redact_uri(settings.database).removeprefix('sqlite:///')}")
        if demo:
            print_note(f"open {address}#token={prepared.token}")
            start_traffic(prepared, settings.host, settings.port)

    run_service(settings, announce)
    print_note("stopped")


def check_port(host: str, port: int) -> None:
    """Raise ConfigError if the service could not listen there."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ConfigError(
            f"the service cannot listen at {host}:{port} ({error.strerror or error}); pass another --port or "
            "--host, or stop the program that uses it."
        ) from None


def token_command(
    file: Path,
    /,
    *,
    name: str,
    scope: tuple[Literal["read", "events", "admin"], ...] = ("read",),
) -> None:
    """Create an access token for the service.

    The token is printed once, and only its hash is stored. Send it as "Authorization: Bearer …".

    For example:
      shortlist token tokens --name shop --scope read --scope events
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
    from shortlist.serve.tokens import create_token

    def show(secret: str) -> None:
        print_note(
            f"adding {name} with {', '.join(sorted(set(scope)))} to {file}; this token is not shown again:"
        )
        show_text(secret)
        if sys.stdout is not None:
            sys.stdout.flush()

    create_token(file, name, scope, show)


def activate_command(
    model: Path,
    /,
    *,
    db: str | None = None,
) -> None:
    """Let all services on a store serve another model.

    The file is loaded and tried here, then stored in the database and activated.
    Running services switch to it without a restart, and services that start find
    it there: they need no file of their own.

    For example:
      shortlist activate shop.shortlist --db postgresql://shop@db/events

    Parameters
    ----------
    model
        The model file; services get it through the store.
    db
        Event store of the services; default: SHORTLIST_SERVE_DB.
    """
    from shortlist.core.serialization import read_header
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
    if (size := config.model_path.stat().st_size) > config.share_models:
        raise ConfigError(
            f"a model file of {size:,} bytes is larger than share_models ({config.share_models:,}); raise "
            "SHORTLIST_SERVE_SHARE_MODELS."
        )
    store.create()
    try:
        limits = {"share_models": config.share_models, "keep_models": config.keep_models}
        deployed = Deployment(config.model_folder, store, **limits)
        name = config.model_path.name.removesuffix(SUFFIX)
        number = deployed.activate(name, "by shortlist activate").number
    finally:
        store.close()
    show_text(f"activated {name} (number {number}); services on this store switch to it.")


def forget_command(
    model: str,
    /,
    *,
    user: str,
    db: str | None = None,
) -> None:
    """Delete the events and logged lists of a user from the service's store.

    Running services stop using the user's history within a second. The next
    refit leaves the user out of the model file.

    For example:
      shortlist forget shop.shortlist --user u1

    Parameters
    ----------
    model
        The model file that `shortlist serve` was started with.
    user
        The id of the user.
    db
        Event store of the service; default: the file beside the model.
    """
    from shortlist.core.serialization import read_header
    from shortlist.serve.config import load_config
    from shortlist.serve.store import erase_user

    config = load_config({"model": model, "db": db})
    read_header(config.model_path)
    erased = erase_user(config.database, user)
    show_text(
        f"{erased.n_events:,} events and {erased.n_lists:,} logged lists of the user are deleted; services "
        "on this store no longer know the user. Model files forget the user with the next shortlist refit."
    )
