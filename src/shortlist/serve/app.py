"""The routes of the service and the application they form.

A route declares its body, its answer and the scope that it needs; everything else reads the declaration.
"""

import asyncio
import logging
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from shortlist.core.codec import library_version
from shortlist.errors import DataWarning, ShortlistError, UnknownIdError
from shortlist.serve import schemas
from shortlist.serve.deployment import ServedModel
from shortlist.serve.events import new_items, parse_events, spread_users
from shortlist.serve.lists import answer_beside, check_count, cut_lists
from shortlist.serve.middleware import LARGE_BODY, Middleware, answer_error, needs
from shortlist.serve.projections import erase_user, find_activations
from shortlist.serve.schemas import RequestError, check_id, invalid_body
from shortlist.serve.service import Service
from shortlist.text import printable
from shortlist.types import Longs

EXAMPLES = 5  # users that are named
HISTORY_ROWS = 200  # latest events of a user that are shown
PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FILES = {path.name: path for path in PAGE.iterdir() if path.suffix in TYPES}
ERRORS = (400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)


class BodyRoute(APIRoute):
    """A route that validates large bodies, and computes and writes their answers, in a thread of their own.

    One after the other, so that they delay the answers to small requests by little.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler of the route."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            if len(await request.body()) <= LARGE_BODY:
                return await handler(request)
            service: Service = request.app.state.service
            run = asyncio.get_running_loop().run_in_executor
            return await run(service.large_bodies, lambda: asyncio.run(handler(request)))

        return answer


router = APIRouter(
    route_class=BodyRoute,
    responses={code: {"model": schemas.ErrorAnswer, "description": "Refused."} for code in ERRORS},
)
READ, EVENTS, ADMIN = [needs("read")], [needs("events")], [needs("admin")]


async def _get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_get_service)]


# ---------------------------------------------------------------------- lists
@router.post(
    "/v1/recommend",
    response_model=schemas.RecommendAnswer,
    response_model_exclude_unset=True,
    dependencies=READ,
)
async def recommend(body: schemas.RecommendBody, service: Shared) -> Any:
    """Return a list for each user or session, ended where the cutoff says."""
    return await service.lists.answer(body)


@router.post("/v1/cut", response_model=schemas.CutAnswer, dependencies=READ)
async def cut(body: schemas.CutBody, service: Shared) -> Any:
    """Cut the scores of any ranker with a fitted cutoff."""
    check_count(len(body.lists), service.config.max_users, "lists")
    cutoff = await asyncio.to_thread(service.cutoffs.read, body.cutoff)
    return await asyncio.to_thread(cut_lists, body, cutoff)


# ---------------------------------------------------------------------- events
@router.post("/v1/events", response_model=schemas.EventsAnswer, dependencies=EVENTS, tags=["lines"])
async def events(body: schemas.EventsInput, service: Shared) -> Any:
    """Store events; they are durable before they are acknowledged, and reach the model within a second."""
    check_count(len(body.events), service.config.max_events, "events")
    served = service.deployment.served
    rows, rejected = parse_events(body.events, served.model, served.form, service.store.now())
    new = await asyncio.wrap_future(service.writer.add_events(rows)) if rows else 0
    service.metrics.count_events(new, len(rows) - new, len(rejected))
    if rejected and not rows:
        reason = rejected[0]["reason"]
        rule, hint = f"no event was stored: {reason}", "correct the events and send them again"
        raise RequestError(422, "all_rejected", rule, hint, rejected)
    return {
        "accepted": new,
        "duplicates": len(rows) - new,
        "rejected": rejected,
        "new_items": new_items(rows, served.model),
    }


# ---------------------------------------------------------------------- users and items
@router.get("/v1/users/{user_id:path}", response_model=schemas.UserAnswer, dependencies=READ)
async def user(user_id: str, service: Shared) -> Any:
    """Return what the model knows about a user."""
    return await asyncio.to_thread(_describe_user, service.deployment.served, user_id)


@router.delete("/v1/users/{user_id:path}", response_model=schemas.ErasureAnswer, dependencies=ADMIN)
async def forget(user_id: str, service: Shared) -> Any:
    """Erase a user: events, logged lists and what is served; model files follow with the next refit."""
    erased_id = check_id(user_id, service.deployment.served.model.users_, "user_id")
    erased = await asyncio.to_thread(erase_user, service.store, str(erased_id))
    await asyncio.to_thread(service.deployment.follow)
    return {"n_events": erased.n_events, "n_lists": erased.n_lists}


def _describe_user(served: ServedModel, text: str) -> dict[str, Any]:
    """The latest events of a user, newest first."""
    model = served.model
    user_id = check_id(text, model.users_, "user_id")
    if user_id not in model.users_:
        raise UnknownIdError(f"there is no user {text[:80]!r}; check the id.")
    history = model.build_request([user_id]).history  # of this user alone
    items = history.item[::-1][:HISTORY_ROWS]
    ids = history.items.to_ids(items).to_list()
    names = [None] * len(ids) if history.item_names is None else [history.item_names[int(i)] for i in items]
    times = [None] * len(ids) if history.time is None else _iso(history.time[::-1][:HISTORY_ROWS])
    return {
        "user_id": user_id,
        "n_events": history.n_rows,
        "n_baskets": history.n_baskets,
        "events": [
            {"item_id": item, "name": name, "time": time}
            for item, name, time in zip(ids, names, times, strict=True)
        ],
    }


def _iso(times: Longs) -> list[str]:
    """Microseconds since 1970 as texts, such as 2026-05-01T12:30:00Z."""
    seconds = bool((times % 1_000_000 == 0).all())
    texts = np.datetime_as_string(times.astype("M8[us]"), unit="s" if seconds else "us").tolist()
    return [f"{text}Z" for text in texts]


# ---------------------------------------------------------------------- the model in service
@router.get("/v1/model", response_model=schemas.ModelAnswer, dependencies=READ)
async def model(service: Shared) -> Any:
    """Return the model in service, the available models and the latest activations."""
    return await asyncio.to_thread(_describe_models, service)


@router.post("/v1/model", response_model=schemas.ModelAnswer, dependencies=ADMIN)
async def activate(body: schemas.ModelBody, service: Shared) -> Any:
    """Activate a model by name; requests are answered by the old one until the new one is ready."""
    await asyncio.to_thread(service.activate, body.name, body.activation)
    return await asyncio.to_thread(_describe_models, service)


# ---------------------------------------------------------------------- experiments
@router.get("/v1/experiment", response_model=schemas.ExperimentAnswer, dependencies=READ)
async def experiment(service: Shared, name: str | None = None) -> Any:
    """Return the latest experiment, or the one of this name, with the comparison of its arms."""
    return await asyncio.to_thread(service.describe_experiment, name)


@router.post("/v1/experiment", response_model=schemas.ExperimentAnswer, dependencies=ADMIN)
async def start_experiment(body: schemas.ExperimentBody, service: Shared) -> Any:
    """Start an experiment; requests that leave the length of lists open take part."""
    await asyncio.to_thread(service.start_experiment, body)
    return await asyncio.to_thread(service.describe_experiment, body.name)


@router.post("/v1/experiment/stop", response_model=schemas.ExperimentAnswer, dependencies=ADMIN)
async def stop_experiment(body: schemas.StopBody, service: Shared) -> Any:
    """Stop an experiment and, with `ship`, put one of its arms into service."""
    await asyncio.to_thread(service.stop_experiment, body.name, body.ship)
    return await asyncio.to_thread(service.describe_experiment, body.name)


def _describe_models(service: Service) -> dict[str, Any]:
    """The model in service, the available ones and the latest activations."""
    served = service.deployment.served
    model = served.model
    return {
        "name": served.name,
        "class": type(model).__name__,
        "cutoff": served.cutoff_name,
        "cutoff_description": None if model.cutoff_ is None else repr(model.cutoff_),
        "has_boundary": model.has_boundary,
        "n_users": len(model.users_),
        "n_items": len(model.items_),
        "loaded": served.loaded,
        "can_change": bool(service.config.token_file),
        "available": service.deployment.available(),
        "examples": [user for user in spread_users(model, EXAMPLES) if "@" not in str(user)],  # no addresses
        "activations": [
            {name: getattr(activation, name) for name in schemas.ActivationRow.model_fields}
            for activation in find_activations(service.store, 20)
        ],
        "error": service.deployment.activation_error or service.deployment.store_error,
        "report": None if model.selection_ is None else str(model.selection_),
        "version": library_version(),
    }


# ---------------------------------------------------------------------- operation
@router.get("/health", response_model=schemas.HealthAnswer)
async def health(service: Shared) -> Any:
    """Return 200 while the process works."""
    if not service.is_alive:
        raise RequestError(503, "not_healthy", "a thread of the service has ended", "restart the process")
    return {"status": "ok"}


@router.get("/ready", response_model=schemas.ReadyAnswer)
async def ready(service: Shared) -> Any:
    """Return 200 when lists can be served, and 503 as soon as the process is to end."""
    if service.is_draining:
        raise RequestError(503, "not_ready", "the service is shutting down", "ask another server")
    if not service.deployment.is_ready:
        raise RequestError(503, "not_ready", "no model is loaded yet", "try again in a few seconds")
    if service.deployment.lacks_arm or service.lacks_history:
        hint = "see Health, or stop the experiment"
        raise RequestError(503, "not_ready", "the model of an arm of the experiment cannot be loaded", hint)
    return {"status": "ready", "model": service.deployment.served.name}


@router.get("/v1/status", response_model=schemas.StatusAnswer, dependencies=READ)
async def status(service: Shared) -> Any:
    """Return the figures of the last hour and the checks on them."""
    return await asyncio.to_thread(service.status)


@router.get("/metrics", response_class=Response, dependencies=READ)
async def metrics(service: Shared) -> Response:
    """Return all metrics in the format of Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    """Return a file of the page; only names in its folder exist."""
    if name not in FILES:
        raise RequestError(404, "not_found", "there is nothing at this path", "see /docs")
    path = FILES[name]
    headers = {"cache-control": "no-cache"}
    return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=headers)


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page."""
    return await page_file("index.html")


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """Return the description of the API."""
    return await page_file("docs.html")


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Any:
    """Return the schema of all routes."""
    return request.app.openapi()


# ---------------------------------------------------------------------- the application
def create_app(service: Service) -> ASGIApp:
    """Build the application; the model is loaded when the server starts."""
    warnings.simplefilter("ignore", DataWarning)  # answers report what they ignore in their notes

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        end: Any = signal.getsignal(signal.SIGTERM)  # of the server: it answers what has arrived, then ends

        def drain() -> None:
            if not service.is_draining:
                middleware.close_connections()
                loop.call_later(service.drain(), end, signal.SIGTERM, None)

        with suppress(ValueError, RuntimeError, NotImplementedError):  # a thread of a test, Windows
            loop.add_signal_handler(signal.SIGTERM, drain)
        try:
            await asyncio.to_thread(service.open)
        except ShortlistError as error:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # one sentence, no traceback
            sys.stderr.write(f"shortlist: {printable(str(error))}\n")
            raise
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="shortlist",
        version=library_version(),
        description="Recommendations that know when to stop.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # its spans hold paths, and so ids
        redirect_slashes=False,
    )
    app.state.service = service
    for kind in (ShortlistError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.include_router(router)
    middleware = Middleware(
        answer_beside(app, service),
        config=service.config,
        routes=[route for route in router.routes if isinstance(route, APIRoute)],
        tokens=service.tokens,
        observe=service.metrics.count_request,
    )
    origins = [origin.strip() for origin in service.config.cors.split(",") if origin.strip()]
    if not origins:
        return middleware
    return CORSMiddleware(
        middleware,
        allow_origins=origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["authorization", "content-type"],
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    """Every error in the one form."""
    if isinstance(error, HTTPException):
        code = 422 if error.status_code == 400 else error.status_code  # a body that is no JSON
        error = RequestError(code, "invalid_request", str(error.detail)[:200], "see /docs")
    if isinstance(error, RequestValidationError):
        field = getattr(request.scope.get("route"), "body_field", None)
        error = invalid_body(error, None if field is None else field.field_info.annotation)
    status, body = answer_error(error)
    return Response(body, status, media_type="application/json")
