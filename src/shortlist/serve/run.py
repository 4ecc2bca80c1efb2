"""Starts the service: one process, or several behind one socket."""

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn

from shortlist.core.serialization import read_header
from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig
from shortlist.serve.memory import limit_arenas
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import read_tokens

VARIABLE = "SHORTLIST_SERVED"  # hands the settings to worker processes; holds no token
SHUTDOWN_SECONDS = 20


def serve(config: ServeConfig) -> None:
    """Check the settings, then serve until a signal stops the process."""
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
        uvicorn.run(
            "shortlist.serve.run:build",
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


def build() -> Any:
    """The application of a worker process, from the settings of its parent."""
    from shortlist.serve.app import create_app
    from shortlist.serve.service import Service

    text = os.environ.get(VARIABLE)
    if not text:
        raise ConfigError("the service is started with `shortlist serve`.")
    limit_arenas()
    return create_app(Service(ServeConfig(**json.loads(text))))
