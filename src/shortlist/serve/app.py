"""The whole service as one ASGI application."""

import asyncio
import hashlib
import random
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shortlist.core.serialization import library_version
from shortlist.data.ids import IdMap
from shortlist.errors import DataWarning, ShortlistError, UnknownIdError
from shortlist.serve import schemas
from shortlist.serve.cutting import cut_lists, cutoff_with_coverage, fit_cutoff
from shortlist.serve.deployment import Served, cutoff_bytes
from shortlist.serve.events import check_id, check_ids, new_items, parse_events
from shortlist.serve.gate import Answered, Gate, RequestError, describe_error
from shortlist.serve.lists import ListJob
from shortlist.serve.schemas import RecommendBody, invalid_body, parse_body
from shortlist.serve.service import Service
from shortlist.serve.tokens import read_tokens
from shortlist.types import Longs

HISTORY_ROWS = 200  # latest events of a user that are shown


def describe_user(served: Served, text: str) -> dict[str, Any]:
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
            {"item_id": one, "name": name, "time": time_of}
            for one, name, time_of in zip(ids, names, times, strict=True)
        ],
    }


def _iso(times: Longs) -> list[str]:
    """Microseconds since 1970 as texts, such as 2026-05-01T12:30:00Z."""
    seconds = bool((times % 1_000_000 == 0).all())
    texts = np.datetime_as_string(times.astype("M8[us]"), unit="s" if seconds else "us").tolist()
    return [f"{text}Z" for text in texts]


def describe_models(service: Service) -> dict[str, Any]:
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
        "available": service.deployment.model_names(),
        "activations": [
            {"number": one.number, "model": one.model, "activated": one.activated, "note": one.note}
            for one in service.store.activations(20)
        ],
        "error": service.deployment.error,
        "report": None if model.selection_ is None else str(model.selection_),
        "version": library_version(),
    }


LOOK_UP = "/v1/recommend explain"  # in the metrics: to explain a list takes longer than to make one


async def answer_lists(content: bytes, service: Service) -> Answered:
    """The JSON answer to a JSON request for lists; they are logged and counted unless they are explained."""
    body = parse_body(content, RecommendBody)
    if not service.has_cutoff(body.cutoff):
        await asyncio.to_thread(service.cutoff, body.cutoff)  # from the store
    result = await service.lists.submit(build_job(body, service))
    if body.explain:  # such a list is inspected, not shown to the user
        return Answered(result.body, LOOK_UP)
    service.metrics.count_lists(result.lengths, result.unknown)
    share = service.config.log_share
    if share > 0:
        service.writer.add_lists(
            result.log if share == 1 else [row for row in result.log if random.random() < share]
        )
    return Answered(result.body)


def build_job(body: RecommendBody, service: Service) -> ListJob:
    """Check a request against the model in service."""
    served = service.deployment.served
    model, config = served.model, service.config
    if (body.users is None) == (body.history is None):
        raise RequestError(
            422,
            "invalid_request",
            "pass either users or history",
            "use history for people the model does not know",
        )
    n_lists = len(body.users if body.users is not None else body.history or ())
    check_size(n_lists, config.max_users, "users")
    check_size(len(body.candidates or ()), config.max_candidates, "candidates")
    check_size(len(body.exclude or ()), config.max_candidates, "exclude")
    if body.explain and n_lists != 1:
        raise RequestError(422, "invalid_request", "explain works for one user", "send one request per user")
    known = model.items_
    notes: list[str] = []
    history = None
    if body.history is not None:
        history = {}
        for key, items in body.history.items():
            check_size(len(items), config.max_candidates, "history")
            kept = _known(check_ids(items, known, "history"), known, "history", notes)
            history[key] = kept
    candidates = exclude = None
    if body.candidates is not None:
        candidates = _known(check_ids(body.candidates, known, "candidates"), known, "candidates", notes)
    if body.exclude is not None:
        exclude = _known(check_ids(body.exclude, known, "exclude"), known, "exclude", notes)
    return ListJob(
        served=served,
        users=None if body.users is None else tuple(check_ids(body.users, model.users_, "users")),
        history=history,
        candidates=candidates,
        exclude=exclude,
        N=body.N,
        min_items=body.min_items,
        max_items=body.max_items,
        cutoff="auto" if body.N is not None else service.cutoff(body.cutoff),
        at=body.at,
        withheld=body.withheld,
        explain=body.explain,
        notes=tuple(notes),
        log_share=config.log_share,
    )


def _known(ids: list[Any], known: IdMap, name: str, notes: list[str]) -> list[Any]:
    """The ids that the model knows; the others are counted in a note."""
    positions, n = known.positions, len(known)  # the positions of a longer map may be among them
    kept = [one for one in ids if positions.get(one, n) < n]
    if len(kept) < len(ids):
        notes.append(f"{name}: {len(ids) - len(kept):,} of {len(ids):,} items are unknown and were ignored")
    return kept


def check_size(size: int, limit: int, name: str) -> None:
    if size > limit:
        raise RequestError(
            422, "too_many", f"{name} may have {limit:,} entries, got {size:,}", "send several requests"
        )


PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
ERRORS = (401, 403, 404, 409, 413, 415, 422, 503, 507)

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, model: type[M]) -> M:
    """The validated body of a request."""
    return parse_body(await request.body(), model)


def to_json(content: Any) -> Response:
    """Any JSON value."""
    return Response(orjson.dumps(content), media_type="application/json")


def documented(answer: type[BaseModel], body: type[BaseModel] | None = None) -> dict[str, Any]:
    """What the schema says about a route that reads and writes JSON by itself."""
    found: dict[str, Any] = {
        "responses": {200: {"model": answer}} | {code: {"model": schemas.ErrorAnswer} for code in ERRORS},
        "response_class": Response,
    }
    if body is not None:
        schema = _write_out(body.model_json_schema(ref_template="{model}"))
        content = {"application/json": {"schema": schema}}
        found["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return found


def _write_out(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose definitions are written out where they are used."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return walk(definitions[value["$ref"]])
            return {key: walk(one) for key, one in value.items()}
        return [walk(one) for one in value] if isinstance(value, list) else value

    found: dict[str, Any] = walk(schema)
    return found


def add_list_routes(app: FastAPI, service: Service) -> None:
    """Lists from the model, and the cut alone for scores of any ranker."""

    @app.post("/v1/recommend", **documented(schemas.RecommendAnswer, schemas.RecommendBody))
    async def recommend(request: Request) -> Response:
        """Return a list for each user or session, ended where the cutoff says."""
        answer = await answer_lists(await request.body(), service)
        return Response(answer.body, media_type="application/json")

    @app.post("/v1/cut", **documented(schemas.CutAnswer, schemas.CutBody))
    async def cut(request: Request) -> Response:
        """Cut the scores of any ranker with a fitted cutoff."""
        body = await read_body(request, schemas.CutBody)
        check_size(len(body.lists), service.config.max_users, "lists")
        cutoff = await asyncio.to_thread(service.cutoff, body.cutoff)
        return to_json(await asyncio.to_thread(cut_lists, body, cutoff))

    @app.post("/v1/cut/fit", **documented(schemas.CutFitAnswer, schemas.CutFitBody))
    async def cut_fit(request: Request) -> Response:
        """Learn a cutoff from scores of any ranker and their outcomes."""
        body = await read_body(request, schemas.CutFitBody)
        fitted = await asyncio.to_thread(fit_cutoff, body)
        content = await asyncio.to_thread(cutoff_bytes, fitted)
        cutoff_id = hashlib.sha256(content).hexdigest()[:24]
        await asyncio.to_thread(service.store.add_cutoff, cutoff_id, content)
        return to_json({"cutoff_id": cutoff_id, "description": repr(fitted)})


def add_event_routes(app: FastAPI, service: Service) -> None:
    """Events, durable before they are acknowledged."""

    @app.post("/v1/events", **documented(schemas.EventsAnswer, schemas.EventsBody))
    async def events(request: Request) -> Response:
        """Store events; they reach the model within a second."""
        lines = request.headers.get("content-type", "").startswith("application/x-ndjson")
        model, limit = service.deployment.served.model, service.config.max_events
        rows, rejected = parse_events(await request.body(), model, limit, lines=lines)
        new = await asyncio.wrap_future(service.writer.add_events(rows)) if rows else 0
        service.metrics.count_events(new, len(rows) - new, len(rejected))
        found = {"accepted": new, "duplicates": len(rows) - new, "rejected": rejected}
        return to_json(found | {"new_items": new_items(rows, model)})


def add_model_routes(app: FastAPI, service: Service) -> None:
    """Users, items, the model in service and its trade-off."""

    @app.get("/v1/users", **documented(schemas.ExamplesAnswer))
    async def users() -> Response:
        """Return a few users with long, short and empty lists, to begin with."""
        usual = await asyncio.to_thread(lambda: service.usual)
        return to_json({"examples": [{"user_id": user, "n_items": n} for user, n in usual.examples.items()]})

    @app.get("/v1/users/{user_id:path}", **documented(schemas.UserAnswer))
    async def user(user_id: str) -> Response:
        """Return what the model knows about a user."""
        return to_json(await asyncio.to_thread(describe_user, service.deployment.served, user_id))

    @app.get("/v1/items/{item_id:path}/similar", **documented(schemas.SimilarAnswer))
    async def similar(item_id: str, n: int = 10) -> Response:
        """Return the items most similar to an item."""
        model = service.deployment.served.model
        wanted = check_id(item_id, model.items_, "item_id")
        table = await asyncio.to_thread(model.similar_items, wanted, min(max(n, 1), 100))
        return to_json({"items": table.to_dicts()})

    @app.get("/v1/model", **documented(schemas.ModelAnswer))
    async def model() -> Response:
        """Return the model in service, the available models and the latest activations."""
        return to_json(await asyncio.to_thread(describe_models, service))

    @app.post("/v1/model", **documented(schemas.ModelAnswer, schemas.ModelBody))
    async def activate(request: Request) -> Response:
        """Activate a model by name; requests are answered by the old one until the new one is ready."""
        body = await read_body(request, schemas.ModelBody)
        await asyncio.to_thread(service.activate, body.name, body.cutoff, body.activation)
        return to_json(await asyncio.to_thread(describe_models, service))

    @app.get("/v1/tradeoff", **documented(schemas.TradeoffAnswer))
    async def tradeoff() -> Response:
        """Return expected precision and length by the share of users who get a list."""
        return to_json(await asyncio.to_thread(service.tradeoff))

    @app.post("/v1/tradeoff", **documented(schemas.ModelAnswer, schemas.TradeoffBody))
    async def choose(request: Request) -> Response:
        """Keep the model and change its cutoff so that this share of the users gets a list."""
        body = await read_body(request, schemas.TradeoffBody)
        served = service.deployment.served
        cutoff = await asyncio.to_thread(cutoff_with_coverage, served, float(body.coverage))
        note = f"coverage {body.coverage:.0%}"
        await asyncio.to_thread(service.deployment.activate, served.name, note, cutoff)
        return to_json(await asyncio.to_thread(describe_models, service))


def add_operation_routes(app: FastAPI, service: Service) -> None:
    """Health, metrics and the page."""

    @app.get("/health", **documented(schemas.StateAnswer))
    async def health() -> Response:
        """Return 200 while the process works."""
        return to_json({"status": "ok"})

    @app.get("/ready", **documented(schemas.StateAnswer))
    async def ready() -> Response:
        """Return 200 when lists can be served."""
        if not service.deployment.is_ready:
            raise RequestError(503, "not_ready", "no model is loaded yet", "try again in a few seconds")
        return to_json({"status": "ready"})

    @app.get("/v1/status", **documented(schemas.StatusAnswer))
    async def status() -> Response:
        """Return the figures of the last hour and the checks on them."""
        return to_json(await asyncio.to_thread(service.status))

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return all metrics in the format of Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    files = {path.name: path for path in PAGE.iterdir() if path.suffix in TYPES}

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        """Return a file of the page; only names in its folder exist."""
        if name not in files:
            raise RequestError(404, "not_found", "there is nothing at this path", "see /docs")
        path = files[name]
        headers = {"cache-control": "no-cache"}
        return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=headers)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        """Return the page."""
        return await page_file("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        """Return the description of the API."""
        return await page_file("docs.html")


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
