"""Ids in paths: encoded slashes, dots and nothing at all, as they arrive at the server."""

import http.client
import json
from urllib.parse import quote

import pytest

import shortlist as sl
from tests.serve.server import Server

USERS = ["a/b", "..", "a/../b", "x/similar", "100%", "ü ö", "?#", "a"]
ITEMS = ["i/1", "..", "i/similar", "50%", "j"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A service whose ids are hard to put into a path."""
    folder = tmp_path_factory.mktemp("paths")
    rows = [(user, item, f"2025-01-0{day}") for user in USERS for day, item in enumerate(ITEMS, 1)]
    model = sl.Popularity().fit(sl.Interactions.from_tuples(rows))
    model.set_cutoff(sl.cutoff.FixedN(N=2)).save(folder / "shop.shortlist")
    running = Server(folder)
    yield running
    running.kill()


def get(server, path):
    """(status, answer) of exactly this path; other clients tidy it up first."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize("user", USERS)
def test_every_user_can_be_looked_up(server, user):
    status, answer = get(server, f"/v1/users/{quote(user, safe='')}")
    assert (status, answer.get("user_id")) == (200, user)


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/users/", 422, "invalid_request"),
        ("/v1/users/%00", 422, "invalid_request"),
        ("/v1/users/" + "x" * 300, 422, "invalid_request"),
        ("/v1/users/../../etc/passwd", 404, "unknown_id"),
        ("/v1/users/%2e%2e%2fshop.shortlist", 404, "unknown_id"),
        ("/v1/users/%FF", 404, "unknown_id"),
        ("/page/..%2frun.py", 404, "not_found"),
        ("/page/../run.py", 404, "not_found"),
        ("/page/", 404, "not_found"),
        ("//v1/users/a", 404, "not_found"),
        ("/v1/users/a?x=%00", 200, None),
    ],
)
def test_other_paths_have_a_clean_answer(server, path, status, error):
    found, answer = get(server, path)
    assert (found, answer.get("error")) == (status, error), answer
    if error is not None:
        assert answer.keys() == {"error", "rule", "hint"}
        assert "shortlist" not in answer["rule"].replace("shop.shortlist", "")
