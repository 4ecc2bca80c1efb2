"""`shortlist serve --demo`: models of an online shop, and its last two weeks as traffic."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import shortlist as sl
from shortlist.core.files import write_text
from shortlist.cutoff.expected import ExpectedUtility
from shortlist.data.datasets import cache_home
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError
from shortlist.models.base import Recommender
from shortlist.serve.tokens import create_token

DAY = 86_400_000_000  # microseconds
HELD_OUT_DAYS = 14  # not in the models: what the shop's customers do while the demo runs
EARLIER_DAYS = 42  # how much the earlier model, to which one can go back, knows less
COVERAGE = 0.9  # share of users who get a list
VERSION = 2  # a folder of another version is built again
MODEL, EARLIER, TOKENS, BASKETS = "shop.shortlist", "shop-earlier.shortlist", "tokens", "baskets.json"
FIRST_BASKETS = 150  # sent at once, so that the page opens with figures
PAUSE_SECONDS = 2.0  # between two later ones


@dataclass(frozen=True)
class Demo:
    """What the demo serves, and what its customers buy."""

    model: Path
    tokens: Path
    token: str
    baskets: list[tuple[Any, list[Any]]]  # (user_id, item_ids) in order of time


def prepare_demo(report: Callable[[str], None]) -> Demo:
    """The files of the demo; the models are fitted once and kept in the cache, events start anew."""
    folder = cache_home() / "serve-demo"
    try:
        demo = json.loads((folder / BASKETS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        demo = {}
    if demo.get("version") != VERSION or not (folder / MODEL).exists():
        demo = _build(folder, report)
    for old in (*folder.glob("*.sqlite*"), folder / TOKENS):
        old.unlink(missing_ok=True)
    token = create_token(folder / TOKENS, "demo", ["read", "events", "admin"])
    baskets = [(user, items) for user, items in demo["baskets"]]
    return Demo(folder / MODEL, folder / TOKENS, token, baskets)


def _build(folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Fit two models and write down the baskets that come after them."""
    try:
        data = sl.load_dataset("online-retail", progress=report)
    except DataError as error:
        report(f"{error} The generated sample is used instead.")
        data = sl.load_dataset("sample")
    assert data.time is not None
    cut = int(data.time.max()) // DAY * DAY - HELD_OUT_DAYS * DAY
    today = int(time.time()) * 1_000_000 // DAY * DAY
    data = replace(data, time=data.time + (today - cut))  # the history ends yesterday
    assert data.time is not None
    folder.mkdir(parents=True, exist_ok=True)
    report("fitting two models; this takes about a minute")
    earlier = data.where(data.time < today - EARLIER_DAYS * DAY).compact()
    _fit(earlier, [sl.PersonalFrequency()], report).save(folder / EARLIER)
    history = data.where(data.time < today).compact()
    _fit(history, [sl.PersonalFrequency(), sl.TIFUKNN()], report).save(folder / MODEL)
    demo = {"version": VERSION, "baskets": list(_baskets(data.where(data.time >= today)))}
    write_text(folder / BASKETS, json.dumps(demo))
    return demo


def _fit(data: Interactions, models: list[Recommender], report: Callable[[str], None]) -> Recommender:
    """The best model; the users whose lists are the least certain get none."""
    model = sl.fit(data, models=models, progress=report)
    if isinstance(model.cutoff_, ExpectedUtility):
        model.set_cutoff(model.cutoff_.with_coverage(COVERAGE), model.selection_)
    return model


def _baskets(data: Interactions) -> Iterator[tuple[Any, list[Any]]]:
    frame = data.to_frame().sort("timestamp", "user_id", maintain_order=True)
    for (_, user), rows in frame.group_by(["timestamp", "user_id"], maintain_order=True):
        yield user, rows["item_id"].to_list()


def start_traffic(demo: Demo, host: str, port: int) -> threading.Thread:
    """Send the baskets in the background: first ask the service for a list, then report the purchase."""
    thread = threading.Thread(target=_send, args=(demo, host, port), name="demo-traffic", daemon=True)
    thread.start()
    return thread


def _send(demo: Demo, host: str, port: int) -> None:
    for number, (user, items) in enumerate(demo.baskets):
        try:
            _post(demo, host, port, "/v1/recommend", {"users": [user]})
            _post(demo, host, port, "/v1/events", {"events": _events(number, user, items)})
        except (OSError, http.client.HTTPException):
            return  # the service has stopped
        if number >= FIRST_BASKETS:
            time.sleep(PAUSE_SECONDS)


def _events(number: int, user: Any, items: Sequence[Any]) -> list[dict[str, Any]]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return [
        {"event_id": f"demo-{number}-{line}", "user_id": user, "item_id": item, "time": now}
        for line, item in enumerate(items)
    ]


def _post(demo: Demo, host: str, port: int, path: str, body: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    headers = {"content-type": "application/json", "authorization": f"Bearer {demo.token}"}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        connection.getresponse().read()
    finally:
        connection.close()
