"""The whole service as one ASGI application."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shortlist.core.serialization import library_version
from shortlist.errors import DataWarning, ShortlistError
from shortlist.serve.bodies import invalid_body
from shortlist.serve.gate import Gate, RequestError, describe_error
from shortlist.serve.jobs import answer_lists
from shortlist.serve.routes import (
    add_event_routes,
    add_list_routes,
    add_model_routes,
    add_operation_routes,
)
from shortlist.serve.service import Service
from shortlist.serve.tokens import read_tokens


def create_app(service: Service) -> Gate:
    """Build the application; the model is loaded when the server starts."""
    warnings.simplefilter("ignore", DataWarning)  # answers report what they ignore in their notes
    config = service.config

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.open)
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="shortlist",
        version=library_version(),
        description="Recommendations that know when to stop.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for kind in (ShortlistError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)
    add_list_routes(app, service)
    add_event_routes(app, service)
    add_model_routes(app, service)
    add_operation_routes(app, service)
    tokens = read_tokens(Path(config.token_file)) if config.token_file else None
    direct = {("POST", "/v1/recommend"): partial(answer_lists, service=service)}
    observe = service.metrics.count_request
    return Gate(app, config=config, tokens=tokens, observe=observe, direct=direct)


async def _answer_error(_: Request, error: Exception) -> Response:
    """Every error in the one form."""
    if isinstance(error, HTTPException):
        error = RequestError(error.status_code, "invalid_request", str(error.detail)[:200], "see /docs")
    if isinstance(error, RequestValidationError):
        error = invalid_body(error)
    status, body = describe_error(error)
    return Response(body, status, media_type="application/json")
