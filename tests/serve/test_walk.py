"""How far a request for lists goes, and that HTTP offers what Python does."""

import asyncio
import inspect
import json
import os
import sys
from pathlib import Path

import pytest

import shortlist as sl
from shortlist.models.base import Recommender
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.schemas import RecommendBody
from shortlist.serve.service import Service

COMPUTES = str(Path("recommend") / "retrieval.py")
MAX_FILES = {"N": 23, "saved cutoff": 28}  # 20 and 25 in release 0.3


def test_http_offers_every_option_of_recommend():
    options = set(inspect.signature(Recommender.recommend).parameters) - {"self"}
    assert options <= set(RecommendBody.model_fields)
    assert set(RecommendBody.model_fields) - options == {"explain", "withheld"}


def test_every_option_reaches_the_model(client, folder):
    model = sl.load_model(folder / "shop.shortlist")
    for options in (
        {"filter_seen": True, "N": 4},
        {"filter_seen": False, "N": 4},
        {"exclude": ["i1", "i2"], "min_items": 3},
        {"candidates": ["i1", "i2", "i3"], "N": 2},
        {"at": "2024-06-01", "N": 3},
    ):
        expected = model.recommend(["u1", "u2"], **options)
        answer = client.post("/v1/recommend", json={"users": ["u1", "u2"], **options}).json()
        for user, one in zip(("u1", "u2"), answer["lists"], strict=True):
            assert [item["item_id"] for item in one["items"]] == expected[user].items, options


def test_unknown_users_get_a_fallback(client, folder):
    expected = sl.load_model(folder / "shop.shortlist").recommend(["nobody"], fallback="popular")["nobody"]
    body = {"users": ["nobody"], "fallback": "popular"}
    [answer] = client.post("/v1/recommend", json=body).json()["lists"]
    assert [item["item_id"] for item in answer["items"]] == expected.items
    assert answer["reason"] == expected.reason


def count_files(service, body):
    """The files of the package that answer a request."""
    base, seen = str(Path(sl.__file__).parent) + os.sep, set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(base):
            seen.add(frame.f_code.co_filename.removeprefix(base))

    async def post(app):
        statuses = []
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/recommend", "headers": headers}

        async def receive():
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message):
            statuses.append(message.get("status"))

        await app(scope, receive, send)
        assert statuses[0] == 200

    async def scenario():
        app = create_app(service)
        for _ in range(200):  # until a batch is computed in the event loop, where it can be seen
            seen.clear()
            sys.setprofile(note)
            try:
                await post(app)
            finally:
                sys.setprofile(None)
            if COMPUTES in seen:
                break

    service.open()
    asyncio.run(scenario())
    service.close()
    return seen


@pytest.mark.parametrize(("ended_by", "options"), [("N", {"N": 5}), ("saved cutoff", {})])
def test_a_request_passes_few_files(folder, ended_by, options):
    service = Service(ServeConfig(model=str(folder / "shop.shortlist"), poll=60))
    files = count_files(service, {"users": ["u1"], **options})
    assert COMPUTES in files
    assert len(files) <= MAX_FILES[ended_by], sorted(files)
    assert len([name for name in files if name.startswith("serve")]) <= 6, sorted(files)
