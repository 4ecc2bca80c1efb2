"""Spans of OpenTelemetry for requests, batches, the store, activations and refits.

There are none unless OpenTelemetry is installed and configured. A span has the route of a request, never its
path, and no ids, bodies, queries or error texts.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from importlib.metadata import entry_points
from typing import Any, ParamSpec, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.serve.clock import write_log

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    IS_INSTALLED = True
except ModuleNotFoundError:
    IS_INSTALLED = False

P = ParamSpec("P")
R = TypeVar("R")
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT")
ENDPOINTS = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PLAIN = {"record_exception": False, "set_status_on_exception": False}  # error texts may hold ids

_tracer: Any = None  # None: no spans
_method: ContextVar[str] = ContextVar("method", default="")


def start_tracing() -> bool:
    """Whether spans are recorded: the program or the environment has configured OpenTelemetry."""
    global _tracer
    if not IS_INSTALLED or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if _tracer is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
        if exporter == "none" or not any(os.environ.get(name) for name in ENDPOINTS):
            return False
        try:
            _configure(exporter)
        except (ImportError, LookupError, ValueError) as error:
            write_log({"level": "warning", "task": "telemetry", "problem": f"no spans: {error}"})
            return False
    if _tracer is None:
        _tracer = trace.get_tracer("shortlist")
    return True


def _configure(exporter: str) -> None:
    """Send spans to the exporter that the variables of OpenTelemetry name."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf").partition("/")[0]
    name = f"otlp_proto_{protocol}" if exporter == "otlp" else exporter
    classes = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not classes:
        raise LookupError(f"the exporter {name} is not installed (opentelemetry-exporter-otlp-proto-http)")
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "shortlist"}
    provider = TracerProvider(resource=Resource.create(service))
    provider.add_span_processor(BatchSpanProcessor(classes[0].load()()))
    trace.set_tracer_provider(provider)


@contextmanager
def span(name: str, attributes: Mapping[str, int]) -> Iterator[None]:
    """A span; an error is named by its class alone."""
    with _tracer.start_as_current_span(name, attributes=attributes, **PLAIN) as started:
        try:
            yield
        except Exception as error:
            started.set_attribute("error.type", type(error).__name__)
            started.set_status(trace.StatusCode.ERROR)
            raise


def child_span(name: str) -> AbstractContextManager[None]:
    """A span within another one; nothing outside: what is read again and again would hide the rest."""
    if _tracer is None or not trace.get_current_span().is_recording():
        return nullcontext()
    return span(name, {})


def traced(name: str, count: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function run in a span; `count` names the length of its last positional argument."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if _tracer is None:
                return function(*args, **kwargs)
            with span(name, {} if count is None else {f"shortlist.{count}": len(args[-1])}):  # type: ignore[arg-type]
                return function(*args, **kwargs)

        return run

    return decorate


def add_attribute(name: str, value: str | int) -> None:
    """Add an attribute to the current span."""
    if _tracer is not None:
        trace.get_current_span().set_attribute(f"shortlist.{name}", value)


def trace_requests(app: ASGIApp) -> ASGIApp:
    """The application with a span for each request, which continues the trace of the caller."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        parents = [value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"]
        context = TraceContextTextMapPropagator().extract({"traceparent": parents[0]} if parents else {})
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        _method.set(method)
        attributes = {"http.request.method": method}
        kind = trace.SpanKind.SERVER
        with _tracer.start_as_current_span(
            method, context=context, kind=kind, attributes=attributes, **PLAIN
        ):
            return await app(scope, receive, send)

    return answer


def describe_request(route: str, status: int) -> None:
    """Name the span of the current request by its route."""
    if _tracer is not None:
        span = trace.get_current_span()
        span.update_name(f"{_method.get()} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
