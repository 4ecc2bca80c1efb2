"""Starts the service: one process, or several behind one socket, with limits for connections."""

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
from uvicorn.supervisors import Multiprocess

from shortlist.core.serialization import read_header
from shortlist.errors import ConfigError
from shortlist.serve.activations import find_activations
from shortlist.serve.config import ServeConfig
from shortlist.serve.connections import IDLE_SECONDS, GuardedProtocol
from shortlist.serve.deployment import limit_arenas
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
        if not find_activations(store, 1):
            read_header(config.model_path)

    wait_for_store(check_store, threading.Event())
    store.close()
    with tempfile.TemporaryDirectory(prefix="shortlist-metrics-") as folder:
        if config.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        os.environ[VARIABLE] = json.dumps(asdict(config))
        with _when_ready(config, announce):
            _run(config)


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
    GuardedProtocol.max_connections = config.max_connections
    return create_app(Service(config))
