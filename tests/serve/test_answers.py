"""The answer of every route against the schema that the service publishes."""

import time

import jsonschema
import pytest

import shortlist as sl
from shortlist.serve.tokens import create_token
from tests.serve.conftest import start


@pytest.fixture(scope="module")
def live(tmp_path_factory, model_file):
    """A service with one token for everything, and a second model that has item vectors."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "shop.shortlist").write_bytes(model_file.read_bytes())
    factors = sl.BPRMF(n_factors=2, n_epochs=1).fit(sl.load_dataset("sample"))
    factors.set_cutoff(sl.cutoff.FixedN(N=3)).save(folder / "factors.shortlist")
    secret = create_token(folder / "tokens", "all", ["read", "events", "admin"])
    with start(folder, token_file=str(folder / "tokens")) as client:
        client.headers["authorization"] = f"Bearer {secret}"
        client.folder = folder
        yield client


def scored_lists(n=40):
    return [
        {
            "user_id": f"u{user}",
            "items": [{"item_id": f"i{i}", "score": 1 / (1 + i) + 0.001 * (user % 7)} for i in range(10)],
        }
        for user in range(n)
    ]


def requests_of(live):
    """(method, path of the schema, real path, body) for every route, so that each one answers 200."""
    sl.cutoff.FixedN(N=2).save(live.folder / "two.shortlist")
    recommend = ("POST", "/v1/recommend", "/v1/recommend")
    yield (*recommend, {"users": ["u1", "nobody"], "withheld": 2})
    yield (*recommend, {"users": ["u1"], "explain": True, "N": 3})
    yield (*recommend, {"history": {"s": ["i1"]}, "cutoff": "two"})
    yield "POST", "/v1/cut", "/v1/cut", {"lists": scored_lists(3), "cutoff": "two"}
    yield "POST", "/v1/events", "/v1/events", {"events": [{"user_id": "u1", "item_id": "i1"}, {}]}
    yield "GET", "/v1/users/{user_id}", "/v1/users/u1", None
    yield "DELETE", "/v1/users/{user_id}", "/v1/users/u7", None
    yield "GET", "/v1/model", "/v1/model", None
    yield "GET", "/v1/status", "/v1/status", None
    arms = [{"name": "three", "share": 0.5, "options": {"N": 3}}, {"name": "dynamic", "share": 0.5}]
    yield "GET", "/v1/experiment", "/v1/experiment", None
    yield "POST", "/v1/experiment", "/v1/experiment", {"name": "spring", "arms": arms}
    yield (*recommend, {"users": [f"u{k}" for k in range(1, 20)]})
    yield "GET", "/v1/experiment", "/v1/experiment?name=spring", None
    yield "POST", "/v1/experiment/stop", "/v1/experiment/stop", {"name": "spring"}
    yield "GET", "/health", "/health", None
    yield "GET", "/ready", "/ready", None
    yield "POST", "/v1/model", "/v1/model", {"name": "factors"}


def validator(document, method, path, status):
    """What checks that an answer is what the schema declares, with no field more."""
    content = document["paths"][path][method.lower()]["responses"][str(status)]["content"]
    schema = content["application/json"]["schema"] | {"components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


def check(document, method, path, status, answer):
    """Raise ValidationError unless an answer is what the schema declares."""
    validator(document, method, path, status).validate(answer)


def test_every_answer_matches_the_schema(live):
    document = live.get("/openapi.json").json()
    seen = {("GET", "/metrics")}  # text
    for method, path, real, body in requests_of(live):
        answer = live.request(method, real, json=body)
        assert answer.status_code == 200, (path, answer.text)
        check(document, method, path, 200, answer.json())
        seen.add((method, path))
    paths = document["paths"]
    assert seen == {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_fields_that_the_schema_does_not_have_are_noticed(live):
    document = live.get("/openapi.json").json()
    with pytest.raises(jsonschema.ValidationError):
        check(document, "GET", "/health", 200, {"status": "ok", "more": 1})


@pytest.mark.parametrize("wrong", [{}, {"users": [1.5]}, {"users": ["u1"], "withheld": 70}])
def test_errors_match_the_schema(live, wrong):
    document = live.get("/openapi.json").json()
    answer = live.post("/v1/recommend", json=wrong)
    assert answer.status_code == 422
    check(document, "POST", "/v1/recommend", 422, answer.json())


def test_a_saved_cutoff_cuts_lists_over_http(live):
    candidates = sl.PersonalFrequency().fit(sl.load_dataset("sample")).recommend(N=8, filter_seen=False)
    cutoff = sl.cutoff.Threshold(threshold=float(candidates.scores[3]))
    cutoff.save(live.folder / "cut.shortlist")
    body = {"lists": scored_lists(3), "cutoff": "cut"}
    answer = live.post("/v1/cut", json=body)
    assert answer.status_code == 200
    lengths = [len(row["items"]) for row in answer.json()["lists"]]
    assert all(row["explanation"] for row in answer.json()["lists"])
    table = {
        row["user_id"]: sum(item["score"] > cutoff.threshold for item in row["items"])
        for row in body["lists"]
    }
    assert lengths == list(table.values())
    sl.cutoff.FixedN(N=1).save(live.folder / "cut.shortlist")  # replaced: it is read again

    def lengths_now():
        return [len(row["items"]) for row in live.post("/v1/cut", json=body).json()["lists"]]

    deadline = time.monotonic() + 20  # it is read again within `poll` seconds
    while lengths_now() != [1, 1, 1] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert lengths_now() == [1, 1, 1]
    assert live.post("/v1/cut", json=body | {"cutoff": "shop"}).status_code == 409  # a model, not a cutoff
    assert live.post("/v1/cut", json=body | {"cutoff": "none"}).status_code == 404
    (live.folder / "cut.shortlist").unlink()
