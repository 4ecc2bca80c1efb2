"""Starts the service: one process, or several behind one socket, with limits for connections."""

import asyncio
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from shortlist.core.codec import read_header
from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig
from shortlist.serve.projections import find_activations
from shortlist.serve.store import EventStore, wait_for_store
from shortlist.serve.tokens import read_tokens

SETTINGS_VARIABLE = "SHORTLIST_SERVED"  # hands the settings to worker processes; holds no token
SHUTDOWN_SECONDS = 20
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # not every system connects to "all addresses"
READY_SECONDS = 0.2  # between two looks whether the model is loaded
HANGING_SECONDS = 60  # a worker that does not react for so long is replaced; compiling takes seconds
STARTUP_FAILURE = 3  # exit code
SWITCH_SECONDS = 0.001  # after which a thread that computes lets another one run


def run_service(config: ServeConfig, announce: Callable[[str], None] = lambda _: None) -> None:
    """Check the settings, then serve until a signal stops the process.

    `announce` is called once, with the name of the model, when it is loaded and the service answers.
    """
    if hasattr(signal, "SIGHUP"):  # it ends no process: tokens, models and events are followed anyway
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the first process of a container has no default
    store = EventStore(config.database)
    if store.is_sqlite or config.model_path.exists():  # another model may be in service
        read_header(config.model_path)
    if config.token_file:
        read_tokens(Path(config.token_file))

    def check_store() -> None:
        store.create()
        if not find_activations(store, 1):
            read_header(config.model_path)

    wait_for_store(check_store, threading.Event())
    store.close()
    with tempfile.TemporaryDirectory(prefix="shortlist-metrics-") as folder:
        if config.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        os.environ[SETTINGS_VARIABLE] = json.dumps(asdict(config))
        with _when_ready(config, announce):
            _run(config)


class Workers(Multiprocess):
    """Several processes behind one socket."""

    def handle_hup(self) -> None:
        """Restart no worker."""


def _run(config: ServeConfig) -> None:
    """Serve until a signal ends it; a service that cannot start ends the process with an exit code."""
    options = uvicorn.Config(
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
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        timeout_worker_healthcheck=HANGING_SECONDS,
    )
    if config.workers > 1:
        workers = Workers(options, sockets=[options.bind_socket()])
        workers.run()
        has_started = all(worker.exitcode != STARTUP_FAILURE for worker in workers.processes)
    else:
        server = uvicorn.Server(options)
        with suppress(KeyboardInterrupt):
            server.run()
        has_started = server.started
    if not has_started:
        sys.exit(STARTUP_FAILURE)


@contextmanager
def _when_ready(config: ServeConfig, announce: Callable[[str], None]) -> Iterator[None]:
    """Call `announce` from another thread as soon as a worker answers, unless the service ends before."""
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(READY_SECONDS):
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

    text = os.environ.get(SETTINGS_VARIABLE)
    if not text:
        raise ConfigError("the service is started with `shortlist serve`.")
    sys.setswitchinterval(SWITCH_SECONDS)
    config = ServeConfig(**json.loads(text))
    GuardedProtocol.max_connections = config.max_connections
    return create_app(Service(config))


HEADER_SECONDS = 10.0  # until a request has begun and its headers have arrived
HEADER_BYTES = 64 << 10
IDLE_SECONDS = 30  # between an answer and the next request
UNREAD_SECONDS = 60.0  # in which a client must have taken all that was sent to it
UNREAD_BYTES = 256 << 20  # of answers that clients have not taken yet
LARGE_ANSWER = 1 << 20
READ_SECONDS = 0.01  # until what a new connection has sent is read, before it may have to make room
ENDED_SECONDS = 1.0  # that an answer may take for a client that sends no more: most such clients have gone


class GuardedProtocol(HttpToolsProtocol):
    """The HTTP of uvicorn, which limits neither connections nor headers; it only closes connections."""

    max_connections = 800

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, another one is closed."""
        super().connection_made(transport)
        self._header_bytes = 0  # since the last body or the end of the last request
        self._is_between = self._was_used = False  # between two requests; a request was answered
        self._has_ended = False  # the client sends no more
        self._since = self._taken = self.loop.time()  # the client's turn; when all answers had been taken
        self._close_if_late()
        if len(self.connections) > self.max_connections:
            self.loop.call_later(READ_SECONDS, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on, unless the headers are too long."""
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > HEADER_BYTES:
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that sends no more may still wait for its answers; whether to keep the connection."""
        self._has_ended = self._is_between and not self._is_free
        if self._has_ended:
            self.loop.call_later(ENDED_SECONDS, self.transport.close)
        return self._has_ended

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        super().on_message_begin()
        self._since, self._is_between = self.loop.time(), False

    def on_headers_complete(self) -> None:
        """What comes later are trailers, which the application does not see."""
        super().on_headers_complete()
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """What arrived does not belong to headers."""
        super().on_body(body)
        self._header_bytes = 0

    def on_message_complete(self) -> None:
        """The request has arrived."""
        super().on_message_complete()
        self._header_bytes, self._is_between = 0, True

    def on_response_complete(self) -> None:
        """It is the client's turn."""
        self._since, self._was_used = self.loop.time(), True
        super().on_response_complete()
        if self._has_ended and self._is_free:
            self.transport.close()
        if self.transport.get_write_buffer_size() > LARGE_ANSWER:
            self._make_room()

    def _make_room(self) -> None:
        """Close a waiting connection if there are too many, and those with the oldest of too many answers."""
        all_connections: Any = self.connections
        connections = sorted(
            all_connections, key=lambda connection: (connection._was_used, connection._since)
        )
        if len(connections) > self.max_connections:
            next((c for c in connections if c._is_free or c.cycle.more_body), self).transport.abort()
        unread = [(c, c.transport.get_write_buffer_size()) for c in connections]
        too_many = sum(size for _, size in unread) - UNREAD_BYTES
        for connection, size in unread:
            if size and too_many > 0:
                too_many -= size
                connection.transport.abort()

    @property
    def _is_free(self) -> bool:
        """Whether the service owes no answer."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _close_if_late(self) -> None:
        """Close the connection if what is awaited does not arrive or is not taken in time; look again."""
        now, patience = self.loop.time(), IDLE_SECONDS if self._is_between else HEADER_SECONDS
        if self.transport.get_write_buffer_size():
            is_late = now - self._taken > UNREAD_SECONDS
        else:
            self._taken = now
            is_late = self._is_free and now - self._since > patience
        if is_late:
            self.transport.abort()
        self._timer = self.loop.call_later(min(HEADER_SECONDS, UNREAD_SECONDS) / 4, self._close_if_late)
