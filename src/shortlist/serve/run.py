"""Starts the service: one process, or several behind one socket, with limits for connections."""

import asyncio
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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

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


HEADER_SECONDS = 10.0  # until the headers of a request must have arrived
HEADER_BYTES = 64 << 10
IDLE_SECONDS = 30  # a connection without a request is closed after this time


class LimitedProtocol(HttpToolsProtocol):
    """HTTP with limits that hold before any token is checked: connections, and time and size of requests."""

    max_connections = 800
    body_seconds = 15.0  # until the body must have arrived; the gate answers before

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; the one that was idle longest makes room for it."""
        super().connection_made(transport)
        self._header_bytes = self._n_requests = 0
        self._awaited: str | None = "headers"  # what is to arrive next
        self._timer: asyncio.TimerHandle | None = None
        self._timed: str | None = None  # what the timer waits for
        self._watch()
        if len(self.connections) > self.max_connections:
            others = [c for c in self.connections if isinstance(c, LimitedProtocol) and c is not self]
            idle = [connection for connection in others if connection.is_idle]
            min(idle, key=lambda c: (c._n_requests, c._since), default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is None or cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Pass data on, unless the headers are too long."""
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > HEADER_BYTES:
            self.transport.abort()
        self._watch()

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        super().on_message_begin()
        self._awaited, self._header_bytes = "headers", 0

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._awaited = "body"
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """What arrives does not belong to the headers."""
        self._header_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; from here on, the service is waited for."""
        self._awaited, self._header_bytes, self._n_requests = None, 0, self._n_requests + 1
        super().on_message_complete()

    def _watch(self) -> None:
        """Set the timer for what is awaited; a request that arrives at once needs none."""
        self._since = self.loop.time()
        if self._awaited == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, self._awaited
        if self._awaited is not None:
            seconds = HEADER_SECONDS if self._awaited == "headers" else self.body_seconds
            self._timer = self.loop.call_later(seconds, self.transport.abort)


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
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        timeout_keep_alive=IDLE_SECONDS,
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
    config = ServeConfig(**json.loads(text))
    LimitedProtocol.max_connections = config.max_connections
    LimitedProtocol.body_seconds = config.timeout + 5
    return create_app(Service(config))
