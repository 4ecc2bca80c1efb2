"""Starts the service: one process, or several behind one socket."""

import http.client
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn

from shortlist.core.serialization import read_header
from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import limit_arenas
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import read_tokens

VARIABLE = "SHORTLIST_SERVED"  # hands the settings to worker processes; holds no token
SHUTDOWN_SECONDS = 20
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # not every system connects to "all addresses"
LOOK_SECONDS = 0.2  # between two looks whether the model is loaded


def run_service(config: ServeConfig, announce: Callable[[str], None] = lambda _: None) -> None:
    """Check the settings, then serve until a signal stops the process.

    `announce` is called once, with the name of the model, when it is loaded and the service answers.
    """
    read_header(config.model_path)
    if config.token_file:
        read_tokens(Path(config.token_file))
    store = EventStore(config.database)
    store.create()
    store.close()
    with tempfile.TemporaryDirectory(prefix="shortlist-metrics-") as folder:
        if config.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        os.environ[VARIABLE] = json.dumps(asdict(config))
        with _when_ready(config, announce):
            _run(config)


def _run(config: ServeConfig) -> None:
    uvicorn.run(
        "shortlist.serve.run:build_app",
        factory=True,
        host=config.host,
        port=config.port,
        workers=config.workers if config.workers > 1 else None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no answer depends on the address of the client
        date_header=False,
        loop="uvloop" if os.name == "posix" else "asyncio",
        http="httptools",
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


@contextmanager
def _when_ready(config: ServeConfig, announce: Callable[[str], None]) -> Iterator[None]:
    """Call `announce` from another thread as soon as a worker answers, unless the service ends before."""
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(LOOK_SECONDS):
            name = served_model(LOOPBACK.get(config.host, config.host), config.port)
            if name is not None:
                announce(name)
                return

    thread = threading.Thread(target=wait, name="ready", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1)


def served_model(host: str, port: int) -> str | None:
    """The model that the service at this address answers with; None while it is not ready."""
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        return str(json.loads(answer.read())["model"]) if answer.status == 200 else None
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def build_app() -> Any:
    """The application of a worker process, from the settings of its parent."""
    from shortlist.serve.app import create_app
    from shortlist.serve.service import Service

    text = os.environ.get(VARIABLE)
    if not text:
        raise ConfigError("the service is started with `shortlist serve`.")
    limit_arenas()
    return create_app(Service(ServeConfig(**json.loads(text))))
