"""`shortlist serve`: lists over HTTP, events in, and a dashboard."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shortlist.cli.flags import flags_of
from shortlist.cli.output import print_note
from shortlist.core.options import help_texts
from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig, load_config
from shortlist.text import redact_uri

if TYPE_CHECKING:
    Settings = ServeConfig
    NO_SETTINGS: ServeConfig
else:
    Settings = flags_of(ServeConfig, is_settings=True)
    NO_SETTINGS = Settings()


def serve_command(
    model: Annotated[str | None, Parameter(help=help_texts(ServeConfig)["model"])] = None,
    /,
    *,
    flags: Settings = NO_SETTINGS,
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
    config
        TOML file with any of the settings.
    """
    try:
        from shortlist.serve.run import run_service
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the service needs {error.name}, which is not installed; run pip install {error.name}."
        ) from None
    settings = load_config({"model": model, **vars(flags)}, file=config)
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
