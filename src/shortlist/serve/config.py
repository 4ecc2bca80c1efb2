"""Settings of the service, from flags, environment variables and a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from shortlist.core.options import AtLeast, AtMost, Help, Only, Probability, check_options, nearest_name
from shortlist.errors import ConfigError

PREFIX = "SHORTLIST_SERVE_"
EVENTS_SUFFIX = ".events.sqlite"


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """All settings of the service; a flag overrides the environment, which overrides the file."""

    model: Annotated[str, Help("A saved model, such as shop.shortlist; it is served first."), Only()]
    start_with: Annotated[
        Literal["activated", "given"], Help("Which model to serve after a restart."), Only()
    ] = "activated"
    db: Annotated[
        str, Help("Event store: sqlite:///file or postgresql://…; default: a file beside the model.")
    ] = ""
    host: Annotated[str, Help("Address to listen on; default: 127.0.0.1.")] = "127.0.0.1"
    port: Annotated[int, AtLeast(1), AtMost(65_535), Help("Port to listen on; default: 8000.")] = 8000
    workers: Annotated[int, AtLeast(1), AtMost(64), Help("Processes that answer requests; default: 1.")] = 1
    token_file: Annotated[
        str, Help("File of hashed tokens, from `shortlist service token`; needed beyond loopback.")
    ] = ""
    max_body: Annotated[int, AtLeast(1_024), AtMost(1 << 30), Help("Bytes of a request."), Only()] = 4 << 20
    max_users: Annotated[int, AtLeast(1), AtMost(100_000), Help("Lists per request."), Only()] = 1_000
    max_events: Annotated[int, AtLeast(1), AtMost(1_000_000), Help("Events per request."), Only()] = 10_000
    max_candidates: Annotated[int, AtLeast(1), AtMost(10_000_000), Help("Item ids per request."), Only()] = (
        100_000
    )
    max_items: Annotated[
        int, AtLeast(1_000), AtMost(10_000_000), Help("Users × items per list of a request."), Only()
    ] = 100_000
    max_connections: Annotated[
        int, AtLeast(1), AtMost(1_000_000), Help("Open connections of a worker."), Only()
    ] = 800
    max_requests: Annotated[
        int, AtLeast(1), AtMost(1_000_000), Help("Requests of a route that a worker has in progress."), Only()
    ] = 256
    timeout: Annotated[
        float, AtLeast(0.1), AtMost(3_600), Help("Seconds until a request is given up."), Only()
    ] = 10.0
    log_share: Annotated[Probability, Help("Share of lists that are logged; default: 1.")] = 1.0
    keep_lists_days: Annotated[  # feedback looks back for a week
        int,
        AtLeast(8),
        AtMost(36_500),
        Help("Days until logged lists and counters are deleted; events are kept."),
        Only(),
    ] = 90
    poll: Annotated[
        float, AtLeast(0.02), AtMost(60), Help("Seconds between two looks for new events."), Only()
    ] = 0.1
    cors: Annotated[
        str, Help("Origins that browsers may call from, separated by commas; empty: none."), Only()
    ] = ""
    keep_models: Annotated[
        int, AtLeast(1), AtMost(1_000), Help("Earlier models that are kept, to go back to."), Only()
    ] = 3
    drain: Annotated[
        float, AtLeast(0), AtMost(300), Help("Seconds from SIGTERM until connections are closed."), Only()
    ] = 5.0

    def __post_init__(self) -> None:
        check_options(ServeConfig, vars(self))
        if not self.token_file and not is_loopback(self.host):
            raise ConfigError(
                f"a token file is needed to listen on {self.host}, where anybody could read lists and add "
                "events; create one with `shortlist service token`, or listen on 127.0.0.1."
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
    """Combine flags (None: not set), environment variables and the TOML file."""
    variables = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }
    values = _check_names({} if file is None else _read_file(file), str(file))
    values |= {name: _parse(name, text) for name, text in _check_names(variables, "the environment").items()}
    values |= {name: value for name, value in flags.items() if value is not None}
    if not values.get("model"):
        raise ConfigError("the service needs a model file; run `shortlist serve shop.shortlist`.")
    return ServeConfig(**values)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config file {path} does not exist; check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} is not valid TOML: {error}; correct it.") from None


def _check_names(settings: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The settings; ConfigError for an unknown one."""
    names = list(ServeConfig.__dataclass_fields__)
    for name in settings:
        if name not in names:
            near = nearest_name(name, names)
            advice = f"did you mean {near!r}?" if near else f"settings are {', '.join(names)}."
            raise ConfigError(f"{place} has the unknown setting {name!r:.60}; {advice}")
    return dict(settings)


def _parse(name: str, text: str) -> Any:
    """The value of an environment variable; a text that is no number is refused with the other checks."""
    kind = type(ServeConfig.__dataclass_fields__[name].default)
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text
