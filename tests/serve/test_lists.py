"""Lists over HTTP are those of the library, for every model, while events arrive."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

import shortlist as sl
from shortlist.cutoff.base import Cutoff, are_calibrated
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.service import Service
from tests.models.cases import ALL_MODELS, checkerboard, fit
from tests.serve.conftest import start
from tests.serve.test_app import wait_for

N_BATCHES = 6
USERS = ["u00", "u01", "u07", "u12"]


def batch(number):
    """The events of one request: a basket of a user with lists, one of another user, and a new user."""
    user, timestamp = USERS[number % len(USERS)], f"2024-01-01T00:{number:02}:00Z"
    baskets = {user: ("i03", "i10"), "u20": (f"i{number:02}",), f"new{number}": ("i05",)}
    return [(owner, item, timestamp) for owner, items in baskets.items() for item in items]


def plain(lists, is_calibrated):
    """User id → (items, scores, calibrated probabilities, reason), as JSON has them."""
    return {
        each.user_id: (
            each.items,
            each.scores.tolist(),
            each.probabilities.tolist() if is_calibrated and each.probabilities is not None else None,
            each.reason,
        )
        for each in lists
    }


def from_answer(answer):
    items, probabilities = answer["items"], [item["probability"] for item in answer["items"]]
    named = [item["item_id"] for item in items], [item["score"] for item in items]
    return (*named, None if None in probabilities else probabilities, answer["reason"])


def same(shown, expected):
    """Whether two lists are equal; an empty list over HTTP does not tell whether it has probabilities."""
    return shown == expected or (not shown[0] and shown[0] == expected[0] and shown[3] == expected[3])


@pytest.mark.parametrize("name", ALL_MODELS)
def test_lists_over_http_are_those_of_the_library_beside_running_events(name, tmp_path):
    split = sl.split.last_basket(checkerboard())
    model = fit(name, split.train)
    if not model.has_boundary:
        candidates, cutoff = model.recommend(N=10, filter_seen=False), sl.cutoff.ExpectedF1()
        model.set_cutoff(cutoff.fit(candidates, split.valid, history=split.train))
    model.save(tmp_path / "shop.shortlist")
    local = sl.load_model(tmp_path / "shop.shortlist")
    is_calibrated = are_calibrated("auto", local.cutoff_, local.boundary_)
    states = [plain(local.recommend(USERS), is_calibrated)]
    states += [
        plain(local.observe(batch(number)).recommend(USERS), is_calibrated) for number in range(N_BATCHES)
    ]
    seen = []

    def ask(client, number):
        users = USERS if number % 3 == 0 else [USERS[number % len(USERS)]]
        answer = client.post("/v1/recommend", json={"users": users}).json()
        seen.extend((one["user_id"], from_answer(one)) for one in answer["lists"])

    service = Service(ServeConfig(model=str(tmp_path / "shop.shortlist"), poll=0.02))
    address = "http://127.0.0.1:8000"
    with TestClient(create_app(service), base_url=address) as client, ThreadPoolExecutor(4) as pool:
        for number in range(N_BATCHES):
            asked = [pool.submit(ask, client, 4 * number + k) for k in range(4)]
            rows = [dict(zip(("user_id", "item_id", "time"), row, strict=True)) for row in batch(number)]
            answer = client.post("/v1/events", json={"events": rows}).json()
            assert answer.get("accepted") == len(rows), answer
            [each.result() for each in asked]
        deadline, last = time.monotonic() + 20, service.store.events_after(0, 1000)[-1].seq
        while service.deployment.served.last_event < last:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        n_before = len(seen)
        ask(client, 0)
    for user, shown in seen[:n_before]:
        assert any(same(shown, state[user]) for state in states), user
    for user, shown in seen[n_before:]:
        assert same(shown, states[-1][user]), user


def test_probabilities_without_calibration_are_none(folder):
    """The classification loss gives probabilities that are not compared with what users do."""
    model = sl.DKHRM(n_factors=8, n_epochs=2, boundary="learned").fit(sl.load_dataset("sample"))
    assert model.recommend(["u1"], N=3)["u1"].probabilities is not None
    model.save(folder / "shop.shortlist")
    with start(folder) as client:
        for options in ({"N": 3}, {}):
            body = {"users": ["u1", "u2"], "withheld": 2, **options}
            lists = client.post("/v1/recommend", json=body).json()["lists"]
            items = [item for row in lists for item in (*row["items"], *row["withheld"])]
            assert items
            assert all(item["probability"] is None for item in items)


def test_a_named_cutoff_file_is_read_once_and_again_when_it_has_changed(folder, monkeypatch):
    path, threads, load = folder / "three.shortlist", [], Cutoff.load
    sl.cutoff.FixedN(N=3).save(path)

    def note(file):
        threads.append(threading.current_thread())
        return load(file)

    def lengths():
        body = {"users": ["u1"], "cutoff": "three"}
        return [len(row["items"]) for row in client.post("/v1/recommend", json=body).json()["lists"]]

    monkeypatch.setattr(Cutoff, "load", note)
    with start(folder) as client:
        assert [lengths() for _ in range(5)] == [[3]] * 5
        assert len(threads) == 1
        assert "asyncio" in threads[0].name  # of the pool beside the event loop
        sl.cutoff.FixedN(N=2).save(path)
        wait_for(lambda: lengths() == [2])
    assert len(threads) == 2
