"""`shortlist serve`: lists over HTTP, events in, and a dashboard."""

import socket
from pathlib import Path

from shortlist.cli.output import print_note
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
    log_share: float | None = None,
    config: Path | None = None,
) -> None:
    """Serve a model over HTTP, with a dashboard.

    The page is at /, the description of the API at /docs. Flags override
    variables such as SHORTLIST_SERVE_PORT, which override the file of --config.

    For example:
      shortlist serve shop.shortlist
      shortlist serve shop.shortlist --db postgresql://shop@db/events --workers 2

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
        File of hashed tokens, from `shortlist service token`; needed beyond loopback.
    log_share
        Share of lists that are logged; default: 1.
    config
        TOML file with any of the settings.
    """
    try:
        from shortlist.serve.config import load_config
        from shortlist.serve.run import run_service
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the service needs {error.name}, which is not installed; run pip install {error.name}."
        ) from None
    settings = load_config(
        {
            "model": model,
            "db": db,
            "host": host,
            "port": port,
            "workers": workers,
            "token_file": token_file,
            "log_share": log_share,
        },
        file=config,
    )
    check_port(settings.host, settings.port)
    address = f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}/"

    def announce(name: str) -> None:
        print_note(f"shortlist serves {name}.shortlist at {address}")
        print_note(f"events are stored in {redact_uri(settings.database).removeprefix('sqlite:///')}")

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
