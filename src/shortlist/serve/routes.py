"""The routes of the service; what they compute lives in the other modules."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response

from shortlist.serve import schemas
from shortlist.serve.bodies import parse_body
from shortlist.serve.cutting import cut_lists, fit_cutoff
from shortlist.serve.deployment import cutoff_bytes
from shortlist.serve.describe import describe_models, describe_user
from shortlist.serve.events import new_items, parse_events
from shortlist.serve.gate import RequestError
from shortlist.serve.ids import check_id
from shortlist.serve.jobs import answer_lists, check_size
from shortlist.serve.service import Service
from shortlist.serve.tradeoff import cutoff_with_coverage

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
