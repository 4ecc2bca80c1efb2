"""Every route with inputs made from its OpenAPI schema: no answer is a failure, no answer tells a path.

SHORTLIST_FUZZ=20 sends twenty times as many requests, to every model.
"""

import os
import zlib

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

from shortlist.cutoff.threshold import FixedN
from tests.models.cases import ALL_MODELS, checkerboard, fit
from tests.serve.conftest import start
from tests.serve.test_answers import check

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore::shortlist.errors.DataWarning"),  # as the service does
]
FUZZ = int(os.environ.get("SHORTLIST_FUZZ", "1"))
N_EXAMPLES = 15 * FUZZ
ROUTES = (
    ("POST", "/v1/recommend"),
    ("POST", "/v1/cut"),
    ("POST", "/v1/cut/fit"),
    ("POST", "/v1/events"),
    ("GET", "/v1/users"),
    ("GET", "/v1/users/{user_id}"),
    ("DELETE", "/v1/users/{user_id}"),
    ("GET", "/v1/items/{item_id}/similar"),
    ("GET", "/v1/model"),
    ("POST", "/v1/model"),
    ("GET", "/v1/status"),
    ("GET", "/v1/tradeoff"),
    ("POST", "/v1/tradeoff"),
    ("GET", "/v1/experiment"),
    ("POST", "/v1/experiment"),
    ("POST", "/v1/experiment/stop"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
)


@pytest.fixture(scope="module", params=ALL_MODELS if FUZZ > 1 else ["PersonalFrequency"])
def live(request, tmp_path_factory, model_file):
    """A service with one token for everything."""
    from shortlist.serve.tokens import create_token

    folder = tmp_path_factory.mktemp("schema")
    if request.param == "PersonalFrequency":
        (folder / "shop.shortlist").write_bytes(model_file.read_bytes())
    else:
        fit(request.param, checkerboard()).set_cutoff(FixedN(N=3)).save(folder / "shop.shortlist")
    secret = create_token(folder / "tokens", "all", ["read", "events", "admin"])
    with start(folder, token_file=str(folder / "tokens")) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        client.folder, client.model, client.n_requests = folder, request.param, 0
        yield client
        print(f"{request.param}: {client.n_requests:,} requests")  # noqa: T201


def test_all_routes_are_here(live):
    paths = live.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_answer_is_a_failure(live, method, path, mode):
    document = live.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    operation = schema[path][method]
    chosen = schemathesis.GenerationMode(mode)
    try:
        strategy = operation.as_strategy(generation_mode=chosen)
    except Exception as error:  # an operation without parameters has no negative cases
        pytest.skip(str(error)[:80])
    settings = hypothesis.settings(
        max_examples=N_EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    @hypothesis.seed(zlib.crc32(f"{live.model} {method} {path} {mode}".encode()))
    @settings
    @hypothesis.given(case=strategy)
    def send(case):
        arguments = case.as_transport_kwargs()
        url = arguments["url"]
        headers = {
            name: value
            for name, value in (arguments.get("headers") or {}).items()
            if name.lower() not in ("authorization", "host", "user-agent")
            and name.isascii()
            and str(value).isprintable()
        }
        kept = {
            key: arguments[key] for key in ("params", "json", "content") if arguments.get(key) is not None
        }
        if isinstance(arguments.get("data"), str | bytes):
            kept["content"] = arguments["data"]
        answer = live.request(method, url, headers=headers, **kept)
        live.n_requests += 1
        assert answer.status_code < 500 or answer.status_code in (503, 507), answer.text[:300]
        assert str(live.folder) not in answer.text
        assert "Traceback" not in answer.text
        if path != "/metrics" and answer.status_code not in (204, 405):
            check(document, method, path, answer.status_code, answer.json())
        if answer.status_code >= 400:
            assert answer.json().keys() - {"rejected"} == {"error", "rule", "hint"}

    try:
        send()
    except hypothesis.errors.Unsatisfiable:
        assert mode == "negative", "no valid request can be made"
        pytest.skip("no invalid request can be made for a route without parameters")
