"""Spans of OpenTelemetry: what they name, that they hold no ids, and that there are none by default."""

import json
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shortlist.serve import service as service_module
from shortlist.serve import telemetry
from shortlist.serve.config import ServeConfig
from shortlist.serve.service import RefitSchedule
from tests.serve.conftest import start
from tests.serve.test_app import wait_for

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans(monkeypatch):
    """Spans of this process, as a program that embeds the service would record them."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("shortlist"))
    yield exporter.get_finished_spans
    provider.shutdown()


def named(spans, name):
    """The spans of a name."""
    return [span for span in spans() if span.name == name]


def test_requests_batches_and_the_store_have_spans_without_ids(folder, tokens, spans):
    ids = ("ann@example.org", "secret-item", "e-17", "u1")
    with start(folder, token_file=str(folder / "tokens")) as client:
        headers = {
            "authorization": f"Bearer {tokens['read']}",
            "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
        }
        client.post("/v1/recommend", json={"users": ["u1", "ann@example.org"]}, headers=headers)
        client.get("/v1/users/ann@example.org?q=ann@example.org", headers=headers)
        client.get("/v1/model", headers=headers)
        client.request("ANN@EXAMPLE.ORG", "/ann@example.org", headers=headers)
        event = {"user_id": "ann@example.org", "item_id": "secret-item", "event_id": "e-17"}
        for sent in (event, {"item_id": "secret-item"}):
            client.post(
                "/v1/events", json={"events": [sent]}, headers={"authorization": f"Bearer {tokens['events']}"}
            )
        wait_for(lambda: named(spans, "store add_lists"))
    lists = named(spans, "POST /v1/recommend")[0]
    assert dict(lists.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/recommend",
        "http.response.status_code": 200,
    }
    assert f"{lists.context.trace_id:032x}" == TRACE
    assert named(spans, "GET /v1/users/{user_id}")[0].attributes["http.response.status_code"] == 404
    model = named(spans, "GET /v1/model")[0]
    assert any(
        span.parent and span.parent.span_id == model.context.span_id for span in named(spans, "store read")
    )
    assert named(spans, "batch")[0].attributes["shortlist.requests"] == 1
    assert named(spans, "store add_events")[0].attributes["shortlist.batches"] == 1
    assert named(spans, "load model")
    assert named(spans, "_OTHER other")
    assert all(span.parent for span in named(spans, "store read"))  # none of the thread that polls
    text = " ".join(span.to_json() for span in spans())
    assert not [one for one in ids if f'"{one}' in text or f"/{one}" in text or "ann@" in text.lower()]


def test_a_failure_is_named_by_its_class_alone(spans):
    @telemetry.traced("work")
    def fail():
        raise ValueError("ann@example.org")

    with pytest.raises(ValueError, match="ann"):
        fail()
    span = json.loads(named(spans, "work")[0].to_json())
    assert span["attributes"] == {"error.type": "ValueError"}
    assert span["status"] == {"status_code": "ERROR"}
    assert span["events"] == []


def test_a_refit_has_a_span(folder, spans, monkeypatch):
    class Done:
        returncode = 2

        def __init__(self, *_, **__):
            pass

        def communicate(self):
            return b"", b"no"

        def poll(self):
            return 2

    monkeypatch.setattr(service_module.subprocess, "Popen", Done)
    schedule = RefitSchedule(ServeConfig(model=str(folder / "shop.shortlist"), refit="daily@03:00"), None)
    schedule._refit()
    schedule.close()
    assert named(spans, "refit")[0].attributes["shortlist.exit_code"] == 2


def test_spans_are_recorded_only_where_opentelemetry_is_configured():
    code = """
import os
from opentelemetry import trace
from shortlist.serve import telemetry
endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}
disabled = {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}
none = {"OTEL_TRACES_EXPORTER": "none", **endpoint}
unknown, console = {"OTEL_TRACES_EXPORTER": "unknown"}, {"OTEL_TRACES_EXPORTER": "console"}
for variables in ({}, disabled, none, unknown, console):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ.update(variables)
    started = telemetry.start_tracing()
    print(started, telemetry._tracer is not None, type(trace.get_tracer_provider()).__name__)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    off = "False False ProxyTracerProvider"
    assert found.stdout.splitlines() == [off, off, off, off, "True True TracerProvider"], found.stderr
    assert "exporter unknown is not installed" in found.stderr


def test_without_the_package_nothing_is_traced(monkeypatch):
    """A traced function is then that function and one comparison."""
    monkeypatch.setattr(telemetry, "IS_INSTALLED", False)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    assert not telemetry.start_tracing()
    assert telemetry._tracer is None
    telemetry.add_attribute("n", 1)
    with telemetry.child_span("none"):
        assert telemetry.traced("work")(lambda: 5)() == 5
