"""Every route with inputs made from its OpenAPI schema: no answer is a failure, no answer tells a path.

SHORTLIST_FUZZ=20 sends twenty times as many requests, to every model.
"""

import json
import os
import random
import zlib
from collections import Counter
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

import shortlist as sl
from shortlist.cutoff.threshold import FixedN
from tests.models.cases import ALL_MODELS, checkerboard, fit
from tests.serve.conftest import start
from tests.serve.test_answers import validator

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore::shortlist.errors.DataWarning"),  # as the service does
]
FUZZ = int(os.environ.get("SHORTLIST_FUZZ", "1"))
N_EXAMPLES = 15 * FUZZ
ROUTES = (
    ("POST", "/v1/recommend"),
    ("POST", "/v1/cut"),
    ("POST", "/v1/events"),
    ("GET", "/v1/users/{user_id}"),
    ("DELETE", "/v1/users/{user_id}"),
    ("GET", "/v1/model"),
    ("POST", "/v1/model"),
    ("GET", "/v1/status"),
    ("GET", "/v1/experiment"),
    ("POST", "/v1/experiment"),
    ("POST", "/v1/experiment/stop"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
)


MODELS = os.environ.get("SHORTLIST_FUZZ_MODELS", " ".join(ALL_MODELS)).split()


@pytest.fixture(scope="module", params=MODELS if FUZZ > 1 else ["PersonalFrequency"])
def live(request, tmp_path_factory, model_file):
    """A service with one token for everything."""
    from shortlist.serve.tokens import create_token

    folder = tmp_path_factory.mktemp("schema")
    if request.param == "PersonalFrequency":
        (folder / "shop.shortlist").write_bytes(model_file.read_bytes())
    else:
        fit(request.param, checkerboard()).set_cutoff(FixedN(N=3)).save(folder / "shop.shortlist")
    FixedN(N=2).save(folder / "two.shortlist")
    secret = create_token(folder / "tokens", "all", ["read", "events", "admin"])
    # Answers are checked, not speed: a kernel may be compiled first, and events may take a second.
    with start(folder, token_file=str(folder / "tokens"), timeout=300.0, poll=1.0) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        client.folder, client.model, client.answers = folder, request.param, Counter()
        client.validators = {}
        yield client
        print(json.dumps({"model": request.param, "answers": client.answers}))  # noqa: T201


def send_and_check(live, document, method, path, url, **content):
    """Send a request; the answer is what the schema declares, no failure, and tells no path."""
    answer = live.request(method, url, **content)
    live.answers[f"{method} {path} {answer.status_code}"] += 1
    assert answer.status_code < 500, answer.text[:300]
    assert str(live.folder) not in answer.text
    assert "Traceback" not in answer.text
    if path != "/metrics" and answer.status_code not in (204, 405):
        key = (method, path, answer.status_code)
        if key not in live.validators:
            live.validators[key] = validator(document, *key)
        live.validators[key].validate(answer.json())
    if answer.status_code >= 400:
        assert answer.json().keys() - {"rejected"} == {"error", "rule", "hint"}
    return answer


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
        send_and_check(live, document, method, path, url, headers=headers, **kept)

    try:
        send()
    except hypothesis.errors.Unsatisfiable:
        assert mode == "negative", "no valid request can be made"
        pytest.skip("no invalid request can be made for a route without parameters")


WILD = (
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1e39,
    -0.0,
    "",
    "x" * 5_000,
    "\0",
    "\ud800",
    "../shop",
    [],
    {},
    [[]],
)
WORDS = {
    "at": ("2025-01-01", "2025-06-01T10:00:00+02:00", "1970-01-01", "9999-12-31", "yesterday"),
    "cutoff": ("auto", "boundary", "none", "two", "two"),
    "name": ("shop", "spring", "a", "b", "c"),
}
WORDS |= {"time": WORDS["at"], "model": ("shop",), "ship": WORDS["name"]}
N_RANDOM = 600 if FUZZ == 1 else 3_000 * FUZZ  # cheaper than requests of schemathesis
WEIGHTS = {"/v1/recommend": 30, "/v1/events": 8, "/v1/cut": 8}


class Requests:
    """Requests drawn from the schema with ids that exist, and a few values that do not belong there."""

    def __init__(self, document, users, items, seed):
        self.schemas, self.random = document["components"]["schemas"], random.Random(seed)
        self.users, self.items = users, items
        self.wild = 0.0

    def draw(self, operation, path):
        """(url, parameters, body) of one request; most have no value that the schema forbids."""
        self.wild = self.random.choice((0.0, 0.0, 0.0, 0.02, 0.2))
        values = {
            field["name"]: self.value(field["schema"], field["name"])
            for field in operation.get("parameters", ())
        }
        for name in [name for name in values if f"{{{name}}}" in path]:
            text = str(values.pop(name)).encode(errors="replace")[:500]
            path = path.replace(f"{{{name}}}", quote(text, safe="") or "%20")
        values = {  # no client can send a lone surrogate in a URL
            name: value
            for name, value in values.items()
            if isinstance(value, str | int) and value != "\ud800"
        }
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        return path, values, body and self.value(body["schema"], "")

    def value(self, schema, name):
        """A random value of a schema; `name` of the field around it says which texts are likely."""
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        if self.random.random() < self.wild:
            return self.random.choice(WILD)
        if "anyOf" in schema:
            choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
            if len(choices) < len(schema["anyOf"]) and self.random.random() < 0.1:
                return None
            return self.value(self.random.choice(choices), name)
        if "enum" in schema or "const" in schema:
            return self.random.choice(schema.get("enum", [schema.get("const")]))
        return getattr(self, f"_{schema['type']}")(schema, name)

    def _object(self, schema, name):
        fields, required = schema.get("properties", {}), schema.get("required", ())
        # Few options at a time: most pairs of options exclude each other.
        chosen = [field for field in fields if field in required or self.random.random() < 0.2]
        if "history" in fields:  # either users or sessions
            chosen = [field for field in chosen if field not in ("users", "history")]
            chosen.append(self.random.choice(("users", "users", "history")))
        values = {field: self.value(fields[field], field) for field in chosen}
        if schema.get("additionalProperties"):
            for _ in range(self.random.randrange(3)):
                key = self.random.choice(("N", "category", "hits", *map(str, self.users[:3])))
                values[key] = self.value(schema["additionalProperties"], name)
        return values

    def _array(self, schema, name):
        length = {"lists": 30, "arms": 2}.get(name) or self.random.choice((1, 2, 2, 3, 12))
        values = [self.value(schema["items"], name) for _ in range(length)]
        if name in ("lists", "items") and self.random.random() < 0.95:  # ids may not repeat
            values = list({json.dumps(_id_of(value)): value for value in values}.values())
        return values

    def _string(self, schema, name):
        if name in ("users", "user_id"):
            return self.random.choice(self.users)
        if name in ("item_id", "items", "candidates", "exclude", "history"):
            return self.random.choice(self.items)
        return self.random.choice(WORDS.get(name, ("x", "é", "0" * 24)))

    def _integer(self, schema, name):
        if name.endswith("_id") or name in ("users", "items", "candidates", "exclude", "history"):
            return self._string(schema, name)
        return self.random.choice((0, 1, 2, 3, 20, int(schema.get("maximum", 1_000))))

    def _number(self, schema, name):
        bounds = [schema[bound] for bound in ("minimum", "maximum") if bound in schema]
        return self.random.choice((0.5, 0.5, 0.5, 0.25, 1.0, *bounds))

    def _boolean(self, schema, name):
        return self.random.random() < 0.5

    def _null(self, schema, name):
        return None


def _id_of(value):
    """The id in an object, or the value itself."""
    return value.get("user_id", value.get("item_id")) if isinstance(value, dict) else value


def test_random_requests_about_known_users_and_items(live):
    """Most requests reach the model; the users that are erased are those that events brought."""
    document = live.get("/openapi.json").json()
    model = sl.load_model(live.folder / "shop.shortlist")
    users, items = model.users_.values.to_list(), model.items_.values.to_list()
    fresh = [f"n{k}" for k in range(20)] if isinstance(users[0], str) else list(range(10_000, 10_020))
    requests = Requests(document, [*users, *fresh], items, zlib.crc32(live.model.encode()))
    chosen = requests.random.choices(ROUTES, [WEIGHTS.get(path, 1) for _, path in ROUTES], k=N_RANDOM)
    for method, path in chosen:
        requests.users = fresh if method == "DELETE" else [*users, *fresh]
        url, params, body = requests.draw(document["paths"][path][method.lower()], path)
        content = {} if body is None else {"content": json.dumps(body)}
        content |= {"headers": {"content-type": "application/json"}} if content else {}
        try:
            send_and_check(live, document, method, path, url, params=params, **content)
        except BaseException as error:
            raise AssertionError(f"{method} {url} {params} {body!r:.2000}") from error
    for path in ("/v1/recommend", "/v1/events", "/v1/cut"):
        assert live.answers[f"POST {path} 200"] > 0.2 * WEIGHTS[path] / 70 * N_RANDOM, live.answers
