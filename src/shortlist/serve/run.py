"""Starts the service: one process, or several behind one socket, with limits for connections."""

import asyncio
import http.client
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors import Multiprocess

from shortlist.core.serialization import read_header
from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import limit_arenas
from shortlist.serve.gate import CheckedRequest
from shortlist.serve.store import EventStore, wait_for_store
from shortlist.serve.tokens import read_tokens

VARIABLE = "SHORTLIST_SERVED"  # hands the settings to worker processes; holds no token
SHUTDOWN_SECONDS = 20
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # not every system connects to "all addresses"
LOOK_SECONDS = 0.2  # between two looks whether the model is loaded
HANGING_SECONDS = 60  # a worker that does not react for so long is replaced; compiling takes seconds
STARTUP_FAILURE = 3  # exit code
SWITCH_SECONDS = 0.001  # after which a thread that computes lets another one run


def run_service(config: ServeConfig, announce: Callable[[str], None] = lambda _: None) -> None:
    """Check the settings, then serve until a signal stops the process.

    `announce` is called once, with the name of the model, when it is loaded and the service answers.
    """
    if hasattr(signal, "SIGHUP"):  # it ends no process; workers that have loaded their model reload
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the first process of a container has no default
    store = EventStore(config.database)
    if store.is_sqlite or config.model_path.exists():  # another model may be in service
        read_header(config.model_path)
    if config.token_file:
        read_tokens(Path(config.token_file))

    def check_store() -> None:
        store.create()
        store.export_models(config.model_folder)
        if not store.activations(1):
            read_header(config.model_path)

    wait_for_store(check_store, threading.Event())
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
UNREAD_SECONDS = 30  # a client that takes nothing of its answer for so long has gone
UNREAD_BYTES = 256 << 20  # of answers that clients have not taken yet
LARGE_ANSWER = 1 << 20
SMALL_BODY = 8 << 10  # bytes
COMPLETE_SECONDS = 0.05  # until the rest of a small request should have arrived
HEADERS_END = b"\r\n\r\n"
MAX_REPEATED = 8  # headers that a connection keeps; those of one client differ in the length of the body
REPEATED_BYTES = 4 << 10  # of a request whose headers are kept: memory is bounded with any number of clients
READ_SECONDS = 0.01  # until what a new connection has sent is read, before it may have to make room


class JoinedWrites:
    """A transport that sends the headers of an answer together with the beginning of its body.

    Sending takes longer than computing most lists, and the server would send both on their own.
    """

    __slots__ = ("_head", "_transport", "abort", "get_write_buffer_size", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._head = transport, b""
        self.is_closing, self.abort = transport.is_closing, transport.abort
        self.get_write_buffer_size = transport.get_write_buffer_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data; the headers of an answer wait for what follows, which the same task writes at once."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def send(self, answer: bytes) -> None:
        """Send a whole answer."""
        self._transport.write(answer)

    def flush(self) -> None:
        """Send headers that nothing follows."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Send what waits, then close the connection."""
        self.flush()
        self._transport.close()


class DirectRequest:
    """A complete request that is answered without ASGI, and the next ones with the same headers."""

    __slots__ = ("_writes", "checked", "cycle")

    def __init__(self, cycle: RequestResponseCycle, writes: JoinedWrites, checked: CheckedRequest) -> None:
        self.cycle, self._writes, self.checked = cycle, writes, checked

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        return self.cycle.disconnected

    def send(self, head: bytes, body: bytes) -> None:
        """Send the answer; the connection stays open for the next request if the client wants it."""
        cycle = self.cycle
        cycle.response_started = cycle.response_complete = True
        if cycle.keep_alive:
            self._writes.send(b"%b\r\n%b" % (head, body))
        else:
            self._writes.send(b"%bconnection: close\r\n\r\n%b" % (head, body))
            self._writes.close()
        cycle.on_response()


class LimitedProtocol(HttpToolsProtocol):
    """HTTP with limits that hold before any token is checked: connections, and time and size of requests.

    Small requests that the gate answers directly begin when they are complete, all others with their headers.
    The next requests of a connection usually have the same headers as the one before: these are neither
    parsed nor checked again.
    """

    max_connections = 800
    body_seconds = 15.0  # until the body must have arrived; the gate answers before

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, another one makes room for it."""
        self._writes = JoinedWrites(transport)
        super().connection_made(self._writes)  # type: ignore[arg-type]
        opened = transport.get_extra_info("socket")
        if opened is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        self._header_bytes = self._n_requests = 0
        self._awaited: str | None = "headers"  # what is to arrive next
        self._timed: str | None = None  # what `_until` is about
        self._whole = b""  # what is being parsed, if it may be a whole request to remember
        self._repeated: dict[bytes, DirectRequest] = {}  # earlier requests, by their headers
        self._incomplete: RequestResponseCycle | None = None  # a request that the gate may answer directly
        self._watch()
        self._look()
        if len(self.connections) > self.max_connections:
            self.loop.call_later(READ_SECONDS, self._make_room)

    def _make_room(self) -> None:
        """End the connection that has sent nothing for the longest time, if there are too many."""
        is_open = [each for each in self._all() if not each.transport.is_closing()]
        if len(is_open) > self.max_connections:
            waiting = [each for each in is_open if each is not self and each.waits_for_client]
            min(waiting, key=lambda each: (each._n_requests, each._since), default=self).transport.abort()
        for each in set(self._all()).difference(is_open):  # also if its client does not take the last answer
            each.transport.abort()

    def _all(self) -> "list[LimitedProtocol]":
        """All connections of this worker."""
        return [each for each in self.connections if isinstance(each, LimitedProtocol)]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._timer.cancel()
        super().connection_lost(exc)

    @property
    def waits_for_client(self) -> bool:
        """Whether the rest of a request, the next one or the end of the connection is waited for."""
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return self._awaited is not None or cycle is None or cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Pass data on, unless the headers are too long."""
        is_between = self._awaited is None and self.cycle.response_complete
        if is_between and self._repeat(data):
            return
        self._whole = data if is_between and len(data) <= REPEATED_BYTES else b""
        self._header_bytes += len(data)
        super().data_received(data)
        self._whole = b""
        if self._header_bytes > HEADER_BYTES:
            self.transport.abort()
        if self._incomplete is not None:
            is_small = len(self._incomplete.body) <= SMALL_BODY
            self.loop.call_later(COMPLETE_SECONDS if is_small else 0, self._begin, self._incomplete)
        self._watch()

    def _repeat(self, data: bytes) -> bool:
        """Begin to answer a whole request with the same headers as an earlier one; False for all others."""
        headers, _, body = data.partition(HEADERS_END)
        request = self._repeated.get(headers)
        if request is None or request.checked.length != len(body) or self.flow.write_paused:
            return False
        self.cycle = cycle = request.cycle
        cycle.response_started = cycle.response_complete = False
        if not self.app.begin(request.checked, body, request):
            cycle.response_started = cycle.response_complete = True
            del self._repeated[headers]
            return False
        self._n_requests += 1
        self._watch()
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start to answer a request, unless it is better to wait for the rest of it."""
        is_direct = hasattr(app, "begin") and app.is_direct(cycle.scope)
        if not is_direct or cycle.waiting_for_100_continue:
            super()._start_asgi_task(cycle, app)
        elif cycle.more_body:
            self._incomplete = cycle
        elif self.flow.write_paused or not self._begin_directly(cycle, app):
            super()._start_asgi_task(cycle, app)

    def _begin_directly(self, cycle: RequestResponseCycle, app: Any) -> bool:
        """Let the gate answer a complete request; False if it does not."""
        checked = app.check(cycle.scope)
        if checked is None:
            return False
        request = DirectRequest(cycle, self._writes, checked)
        if not app.begin(checked, bytes(cycle.body), request):
            return False
        headers, _, body = self._whole.partition(HEADERS_END)
        if body == cycle.body and checked.length == len(body):
            if len(self._repeated) >= MAX_REPEATED:
                self._repeated.clear()
            self._repeated[headers] = request
        return True

    def _begin(self, cycle: RequestResponseCycle) -> None:
        """Start to answer a request whose rest does not arrive soon."""
        if self._incomplete is cycle:
            self._incomplete = None
            super()._start_asgi_task(cycle, self.app)

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
        if self._incomplete is not None:
            cycle, self._incomplete = self._incomplete, None
            self._start_asgi_task(cycle, self.app)

    def on_response_complete(self) -> None:
        """Wait for the next request, or begin with one that has arrived already."""
        self._writes.flush()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        self._watch()
        if self.transport.get_write_buffer_size() > LARGE_ANSWER:
            self._drop_unread()

    def _drop_unread(self) -> None:
        """Keep a bounded amount of answers that no client takes; the oldest goes first."""
        sizes = {each: each.transport.get_write_buffer_size() for each in self._all()}
        unread = sum(sizes.values())
        for oldest in sorted((each for each in sizes if sizes[each]), key=lambda each: each._since):
            if unread <= UNREAD_BYTES:
                break
            unread -= sizes[oldest]
            oldest.transport.abort()

    def _watch(self) -> None:
        """Note until when what is awaited must have arrived."""
        self._since = self.loop.time()
        if self._awaited is None:
            self._until = self._since + self.timeout_keep_alive if self.waits_for_client else float("inf")
        elif self._awaited != self._timed:
            seconds = HEADER_SECONDS if self._awaited == "headers" else self.body_seconds
            self._until = self._since + seconds
        self._timed = self._awaited

    def _look(self) -> None:
        """End the connection if what is awaited has not arrived in time; look again later."""
        left = self._until - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(min(left, HEADER_SECONDS / 4), self._look)
        elif self._awaited is None:
            self.transport.close()
        else:
            self.transport.abort()


class Workers(Multiprocess):
    """Several processes behind one socket."""

    def handle_hup(self) -> None:
        """Let every worker reload, as a service with one worker does."""
        for worker in self.processes:
            if worker.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGHUP)


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
        http=LimitedProtocol,
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
    sys.setswitchinterval(SWITCH_SECONDS)
    config = ServeConfig(**json.loads(text))
    LimitedProtocol.max_connections = config.max_connections
    LimitedProtocol.body_seconds = config.timeout + 5
    return create_app(Service(config))
