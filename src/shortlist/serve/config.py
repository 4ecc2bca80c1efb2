"""Settings of the service, from flags, environment variables and a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from shortlist.errors import ConfigError

PREFIX = "SHORTLIST_SERVE_"
EVENTS_SUFFIX = ".events.sqlite"
STARTS = ("activated", "given")
KINDS = {int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """All settings of the service; a flag overrides the environment, which overrides the file."""

    model: str  # path of the model that is served first
    start_with: str = "activated"  # or "given": which model to serve after a restart
    db: str = ""  # SQLAlchemy address of the event store; empty: a SQLite file beside the model
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token_file: str = ""  # written by `shortlist service token`; needed to listen on anything but loopback
    max_body: int = 4 << 20  # bytes of a request body
    max_users: int = 1_000  # lists per request
    max_events: int = 10_000  # events per request
    max_candidates: int = 100_000  # item ids per request
    max_items: int = 100_000  # users × items per list of one request
    max_connections: int = 800  # open connections of a worker
    max_requests: int = 256  # of each route, that a worker has in progress
    timeout: float = 10.0  # seconds until a request is given up
    log_share: float = 1.0  # share of lists that are logged
    keep_lists_days: int = 90  # until logged lists and counters are deleted; events are kept
    poll: float = 0.1  # seconds between two looks for new events and activations
    cors: str = ""  # origins that browsers may call from, separated by commas; empty: none
    keep_models: int = 3  # earlier models that are kept in the folder, to go back to
    drain: float = 5.0  # seconds from SIGTERM, when /ready turns 503, until connections are closed

    def __post_init__(self) -> None:
        limits = {
            "port": (1, 65_535),
            "workers": (1, 64),
            "max_body": (1_024, 1 << 30),
            "max_users": (1, 100_000),
            "max_events": (1, 1_000_000),
            "max_candidates": (1, 10_000_000),
            "max_items": (1_000, 10_000_000),
            "max_connections": (1, 1_000_000),
            "max_requests": (1, 1_000_000),
            "timeout": (0.1, 3_600),
            "log_share": (0, 1),
            "keep_lists_days": (8, 36_500),  # windows of experiments last for a week
            "poll": (0.02, 60),
            "keep_models": (1, 1_000),
            "drain": (0, 300),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(
                    f"{name} must be between {low} and {high}, got {value}; change the setting."
                )
        if self.start_with not in STARTS:
            raise ConfigError(
                f"start_with must be {' or '.join(STARTS)}, got {self.start_with!r}; change the setting."
            )
        if not self.token_file and not is_loopback(self.host):
            raise ConfigError(
                f"a token file is needed to listen on {self.host}, because anybody on the network could "
                "read lists and add events; create one with `shortlist service token`, or listen on "
                "127.0.0.1."
            )

    @property
    def model_path(self) -> Path:
        """The file of the model that is served first."""
        return Path(self.model)

    @property
    def model_folder(self) -> Path:
        """The folder whose models can be activated by name."""
        return self.model_path.resolve().parent

    @property
    def database(self) -> str:
        """SQLAlchemy address of the event store."""
        if not self.db:
            path = self.model_path.resolve()
            return f"sqlite:///{path.with_name(path.stem + EVENTS_SUFFIX)}"
        scheme, _, rest = self.db.partition("://")
        return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else self.db


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def load_config(
    flags: Mapping[str, Any], *, file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> ServeConfig:
    """Combine flags (None: not given), environment variables and the TOML file."""
    types = {field.name: type(field.default) for field in fields(ServeConfig)} | {"model": str}
    values: dict[str, Any] = {}
    if file is not None:
        values |= _check_settings(_read_file(file), types, str(file))
    variables = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }
    values |= _check_settings(variables, types, "the environment")
    values |= {name: value for name, value in flags.items() if value is not None}
    if not values.get("model"):
        raise ConfigError("the service needs a model file; pass `shortlist serve shop.shortlist`.")
    return ServeConfig(**values)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config file {path} does not exist; check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} is not valid TOML: {error}; correct it.") from None


def _check_settings(given: Mapping[str, Any], types: Mapping[str, type], place: str) -> dict[str, Any]:
    """The settings in their types; unknown names and other types are errors."""
    values = {}
    for name, value in given.items():
        if name not in types:
            raise ConfigError(
                f"{place} has the unknown setting {name!r}; settings are {', '.join(sorted(types))}."
            )
        kind = types[name]
        if isinstance(value, bool) or not isinstance(value, (str, kind, int)):
            raise ConfigError(f"{name} in {place} must be {KINDS[kind]}, got {value!r}; correct it.")
        try:
            values[name] = kind(value)
        except ValueError:
            raise ConfigError(
                f"{name} in {place} must be {KINDS[kind]}, got {value!r}; correct it."
            ) from None
    return values
