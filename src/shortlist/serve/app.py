"""The application: routes from requests to the model, the store and the metrics."""

import asyncio
import hashlib
import random
import threading
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shortlist import __version__
from shortlist.cutoff.base import Cutoff
from shortlist.errors import DataWarning, ShortlistError, UnknownIdError
from shortlist.serve import schemas
from shortlist.serve.batching import BatchRunner
from shortlist.serve.config import ServeConfig
from shortlist.serve.cutting import cut_lists, fit_cutoff
from shortlist.serve.deployment import Deployment, Served, cutoff_bytes, cutoff_from_bytes
from shortlist.serve.events import parse_events
from shortlist.serve.gate import Gate, RequestError, describe_error, write_log
from shortlist.serve.ids import check_id, check_ids
from shortlist.serve.lists import ListJob, ListResult, answer_jobs
from shortlist.serve.metrics import Metrics
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import read_tokens
from shortlist.serve.writer import StoreWriter

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
HISTORY_ROWS = 200  # latest events of a user that are shown
FLUSH_SECONDS = 2.0

M = TypeVar("M", bound=BaseModel)


class Service:
    """What the routes share: one worker's model, store, writer, batches and metrics."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.store = EventStore(config.database)
        self.deployment = Deployment(config.model_folder, self.store)
        self.metrics = Metrics(many_workers=config.workers > 1)
        self.worker = random.randbytes(6).hex()
        self.started = time.time()
        self._cutoffs: dict[str, Cutoff] = {}
        self._stop = threading.Event()

    def open(self) -> None:
        """Create the tables, load the model and begin to follow the store."""
        self.store.create()
        self.deployment.start(self.config.model_path)
        self.writer = StoreWriter(self.store)
        self.lists: BatchRunner[ListJob, ListResult] = BatchRunner(answer_jobs)
        self._follower = threading.Thread(target=self._follow, name="store-follower", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """Finish what has begun; acknowledged events are already stored."""
        self._stop.set()
        self._follower.join()
        self.lists.close()
        self.writer.close()
        with suppress(ShortlistError):
            self.store.put_counters(self.worker, *self.metrics.take_minute())
        self.store.close()

    def _follow(self) -> None:
        """Look for activations and events, and write the counters."""
        flushed = 0.0
        while not self._stop.wait(self.config.poll):
            try:
                self.deployment.follow()
                if time.time() - flushed > FLUSH_SECONDS:
                    self.store.put_counters(self.worker, *self.metrics.take_minute())
                    flushed = time.time()
            except ShortlistError as error:
                self.deployment.error = str(error)
            except Exception as error:  # the service goes on; the log names the place
                write_log({"level": "error", "problem": type(error).__name__, "task": "follow"})
            if self.deployment.is_ready:
                self.metrics.model_loaded.set(self.deployment.served.loaded)
            self.metrics.events_skipped.set(self.deployment.events_skipped)

    def cutoff(self, name: str) -> Cutoff | Literal["auto", "boundary"]:
        """The cutoff that a request names."""
        if name == "auto" or name == "boundary":
            return name
        if name not in self._cutoffs:
            content = self.store.cutoff(name)
            if content is None:
                raise RequestError(
                    404,
                    "unknown_cutoff",
                    'cutoff must be "auto", "boundary" or a known cutoff_id',
                    "POST /v1/cut/fit returns one",
                )
            self._cutoffs[name] = cutoff_from_bytes(content)
        return self._cutoffs[name]


async def read_body(request: Request, model: type[M]) -> M:
    """The validated body of a request."""
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        raise invalid_body(error) from None


def invalid_body(error: ValidationError | RequestValidationError) -> RequestError:
    """The first problem of a body, without its values."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the body"
    return RequestError(422, "invalid_request", f"{place[:100]}: {first['msg'][:200]}", "see /docs")


def json_response(content: Any) -> Response:
    """Any JSON value."""
    return Response(orjson.dumps(content), media_type="application/json")


def create_app(config: ServeConfig) -> Gate:
    """The whole service as one ASGI application."""
    warnings.simplefilter("ignore", DataWarning)  # requests report what they ignore in their notes
    service = Service(config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.open)
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="shortlist",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        description="Recommendations that know when to stop.",
    )
    app.state.service = service
    for kind in (ShortlistError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)
    add_list_routes(app, service)
    add_event_routes(app, service)
    add_model_routes(app, service)
    add_operation_routes(app, service)
    tokens = read_tokens(Path(config.token_file)) if config.token_file else None
    return Gate(app, config=config, tokens=tokens, observe=service.metrics.count_request)


async def _answer_error(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = RequestError(error.status_code, "invalid_request", str(error.detail)[:200], "see /docs")
    if isinstance(error, RequestValidationError):
        error = invalid_body(error)
    status, body = describe_error(error)
    return Response(body, status, media_type="application/json")


def _documented(body: type[BaseModel] | None, answer: type[BaseModel]) -> dict[str, Any]:
    """What /docs shows of a route that reads and writes JSON by itself."""
    found: dict[str, Any] = {
        "responses": {
            200: {"model": answer},
            **{
                code: {"model": schemas.ErrorAnswer}
                for code in (400, 401, 403, 404, 409, 413, 415, 422, 503, 507)
            },
        },
        "response_class": Response,
    }
    if body is not None:
        schema = body.model_json_schema(ref_template=f"#/components/schemas/{body.__name__}.{{model}}")
        found["openapi_extra"] = {
            "requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema)}}}
        }
    return found


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose definitions are written out where they are used."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return walk(definitions[value["$ref"].rpartition(".")[2]])
            return {key: walk(one) for key, one in value.items()}
        return [walk(one) for one in value] if isinstance(value, list) else value

    found: dict[str, Any] = walk(schema)
    return found


# ------------------------------------------------------------------ lists
def add_list_routes(app: FastAPI, service: Service) -> None:
    """Lists from the model, and the cut alone for scores of any ranker."""

    @app.post("/v1/recommend", **_documented(schemas.RecommendBody, schemas.RecommendAnswer))
    async def recommend(request: Request) -> Response:
        """Return a list for each user or session, ended where the cutoff says."""
        body = await read_body(request, schemas.RecommendBody)
        job = build_job(body, service)
        result = await service.lists.submit(job)
        service.metrics.count_lists(result.lengths, result.unknown)
        share = service.config.log_share
        if share > 0:
            service.writer.add_lists(
                result.log if share == 1 else [row for row in result.log if random.random() < share]
            )
        return Response(result.body, media_type="application/json")

    @app.post("/v1/cut", **_documented(schemas.CutBody, schemas.CutAnswer))
    async def cut(request: Request) -> Response:
        """Cut the scores of any ranker with a fitted cutoff."""
        body = await read_body(request, schemas.CutBody)
        _check_size(len(body.lists), service.config.max_users, "lists")
        chosen = await asyncio.to_thread(service.cutoff, body.cutoff)
        return json_response(await asyncio.to_thread(cut_lists, body, chosen))

    @app.post("/v1/cut/fit", **_documented(schemas.CutFitBody, schemas.CutFitAnswer))
    async def cut_fit(request: Request) -> Response:
        """Learn a cutoff from scores of any ranker and their outcomes."""
        body = await read_body(request, schemas.CutFitBody)
        fitted = await asyncio.to_thread(fit_cutoff, body)
        content = await asyncio.to_thread(cutoff_bytes, fitted)
        cutoff_id = hashlib.sha256(content).hexdigest()[:24]
        await asyncio.to_thread(service.store.add_cutoff, cutoff_id, content)
        return json_response({"cutoff_id": cutoff_id, "description": repr(fitted)})


def build_job(body: schemas.RecommendBody, service: Service) -> ListJob:
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
    _check_size(n_lists, config.max_users, "users")
    _check_size(len(body.candidates or ()), config.max_candidates, "candidates")
    _check_size(len(body.exclude or ()), config.max_candidates, "exclude")
    if body.explain and n_lists != 1:
        raise RequestError(422, "invalid_request", "explain works for one user", "send one request per user")
    known = model.items_
    notes: list[str] = []
    history = None
    if body.history is not None:
        history = {}
        for key, items in body.history.items():
            _check_size(len(items), config.max_candidates, "history")
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
    )


def _known(ids: list[Any], known: Any, name: str, notes: list[str]) -> list[Any]:
    """The ids that the model knows; the others are counted in a note."""
    positions = known.positions
    kept = [one for one in ids if one in positions]
    if len(kept) < len(ids):
        notes.append(f"{name}: {len(ids) - len(kept):,} of {len(ids):,} items are unknown and were ignored")
    return kept


def _check_size(size: int, limit: int, name: str) -> None:
    if size > limit:
        raise RequestError(
            422, "too_many", f"{name} may have {limit:,} entries, got {size:,}", "send several requests"
        )


# ------------------------------------------------------------------ events
def add_event_routes(app: FastAPI, service: Service) -> None:
    """Events, durable before they are acknowledged."""

    @app.post("/v1/events", **_documented(schemas.EventsBody, schemas.EventsAnswer))
    async def events(request: Request) -> Response:
        """Store events; they reach the model within a second."""
        lines = request.headers.get("content-type", "").startswith("application/x-ndjson")
        rows, rejected = parse_events(
            await request.body(), service.deployment.served.model, service.config.max_events, lines=lines
        )
        new = await asyncio.wrap_future(service.writer.add_events(rows)) if rows else 0
        service.metrics.count_events(new, len(rows) - new, len(rejected))
        return json_response({"accepted": new, "duplicates": len(rows) - new, "rejected": rejected})


# ------------------------------------------------------------------ model
def add_model_routes(app: FastAPI, service: Service) -> None:
    """Users, items and the model in service."""

    @app.get("/v1/users/{user_id}")
    async def user(user_id: str) -> Response:
        """Return what the model knows about a user."""
        return json_response(await asyncio.to_thread(describe_user, service.deployment.served, user_id))

    @app.get("/v1/items/{item_id}/similar")
    async def similar(item_id: str, n: int = 10) -> Response:
        """Return the items most similar to an item."""
        model = service.deployment.served.model
        wanted = check_id(item_id, model.items_, "item_id")
        table = await asyncio.to_thread(model.similar_items, wanted, min(max(n, 1), 100))
        return json_response({"items": table.to_dicts()})

    @app.get("/v1/model")
    async def model() -> Response:
        """Return the model in service, the available models and the latest activations."""
        return json_response(await asyncio.to_thread(describe_models, service))

    @app.post("/v1/model", **_documented(schemas.ModelBody, BaseModel))
    async def activate(request: Request) -> Response:
        """Activate a model by name; requests are answered by the old one until the new one is ready."""
        body = await read_body(request, schemas.ModelBody)
        cutoff = None if body.cutoff is None else await asyncio.to_thread(service.cutoff, body.cutoff)
        if isinstance(cutoff, str):
            raise RequestError(422, "invalid_request", "cutoff must be a cutoff_id", "leave it out")
        await asyncio.to_thread(service.deployment.activate, body.name, "by request", cutoff)
        return json_response(await asyncio.to_thread(describe_models, service))


def describe_user(served: Served, text: str) -> dict[str, Any]:
    """The latest events of a user, newest first."""
    model = served.model
    user_id = check_id(text, model.users_, "user_id")
    if user_id not in model.users_:
        raise UnknownIdError(f"there is no user {text[:80]!r}; check the id.")
    history = model.history_
    number = history.users.index(user_id)
    rows = slice(int(history.indptr[number]), int(history.indptr[number + 1]))
    items = history.item[rows][::-1][:HISTORY_ROWS]
    ids = history.items.to_ids(items).to_list()
    names = [None] * len(ids) if history.item_names is None else [history.item_names[int(i)] for i in items]
    times = [None] * len(ids) if history.time is None else history.time[rows][::-1][:HISTORY_ROWS].tolist()
    return {
        "user_id": user_id,
        "n_events": rows.stop - rows.start,
        "n_baskets": int(history.user_baskets[number + 1] - history.user_baskets[number]),
        "events": [
            {"item_id": one, "name": name, "time": time_of}
            for one, name, time_of in zip(ids, names, times, strict=True)
        ],
    }


def describe_models(service: Service) -> dict[str, Any]:
    """The model in service, the available ones and the latest activations."""
    served = service.deployment.served
    model = served.model
    return {
        "name": served.name,
        "class": type(model).__name__,
        "cutoff": served.cutoff_name,
        "cutoff_description": None if model.cutoff_ is None else repr(model.cutoff_),
        "n_users": len(model.users_),
        "n_items": len(model.items_),
        "loaded": served.loaded,
        "available": service.deployment.model_names(),
        "activations": [
            {"number": one.number, "model": one.model, "activated": one.activated, "note": one.note}
            for one in service.store.activations(20)
        ],
        "error": service.deployment.error,
        "version": __version__,
    }


# ------------------------------------------------------------------ operation
def add_operation_routes(app: FastAPI, service: Service) -> None:
    """Health, metrics, the page and its documentation."""

    @app.get("/health")
    async def health() -> Response:
        """Return 200 while the process works."""
        return json_response({"status": "ok"})

    @app.get("/ready")
    async def ready() -> Response:
        """Return 200 when lists can be served."""
        if not service.deployment.is_ready:
            raise RequestError(503, "not_ready", "no model is loaded yet", "try again in a few seconds")
        return json_response({"status": "ready", "model": service.deployment.served.name})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return all metrics in the format of Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
