"""Experiments without any difference: arms whose models know different histories end without a verdict."""

import math
import time

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.serve.experiments import Arm, Experiments, LiveExperiment
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import create_token
from tests.serve.conftest import logged_lists, start
from tests.serve.test_app import wait_for

N_USERS = 2_000
ITEMS = [f"i{n}" for n in range(10)]
USERS = [f"u{n}" for n in range(N_USERS)]
ARMS = [{"name": "all", "share": 0.5}, {"name": "short", "share": 0.5, "model": "short"}]


@pytest.fixture(scope="module")
def activity():
    return np.random.default_rng(1).integers(1, 40, N_USERS)


@pytest.fixture(scope="module")
def shop(tmp_path_factory, activity):
    """A folder with a model of all events, and one of the first two of each user."""
    rng, folder = np.random.default_rng(2), tmp_path_factory.mktemp("null")
    user = np.repeat(USERS, activity)
    day = np.concatenate([np.arange(n) for n in activity])
    data = {
        "user_id": user,
        "item_id": rng.choice(ITEMS, user.size),
        "timestamp": 1_700_000_000 + 86_400 * day,
    }
    frame = pl.DataFrame(data)
    recent = frame.group_by("user_id", maintain_order=True).head(2)
    for name, events in (("shop", frame), ("short", recent)):
        model = sl.Popularity().fit(sl.Interactions.from_frame(events))
        model.set_cutoff(sl.cutoff.FixedN(N=10)).save(folder / f"{name}.shortlist")
    return folder


@pytest.fixture(scope="module")
def client(shop):
    token = create_token(shop / "tokens", "all", ["read", "events", "admin"])
    with start(shop, token_file=str(shop / "tokens"), max_users=N_USERS) as running:
        running.headers["authorization"] = f"Bearer {token}"
        yield running


def show_lists(client, shop, name):
    """Start an experiment and show everybody a list; the logged rows by user."""
    body = {"name": name, "metric": "hits", "window_days": 1, "arms": ARMS}
    assert client.post("/v1/experiment", json=body).status_code == 200
    ask = {"users": USERS, "filter_seen": False}

    def answer():
        return client.post("/v1/recommend", json=ask).json()["lists"]

    wait_for(lambda: all("arm" in row for row in answer()))  # the models of all arms are loaded
    assert all({item["item_id"] for item in row["items"]} == set(ITEMS) for row in answer())
    store = EventStore(f"sqlite:///{shop}/shop.events.sqlite")
    wait_for(
        lambda: len({row.user_id for row in logged_lists(store) if str(row.arm).startswith(name)}) == N_USERS
    )
    return store


def test_identical_lists_of_models_with_different_histories_give_no_verdict(shop, client, activity):
    store = show_lists(client, shop, "first")
    chosen = np.random.default_rng(3).random((N_USERS, len(ITEMS))) < activity[:, None] / 80
    events = [
        {"user_id": USERS[u], "item_id": ITEMS[i], "event_id": f"{u}-{i}"}
        for u, i in np.argwhere(chosen).tolist()
    ]
    for first in range(0, len(events), 5_000):
        answer = client.post("/v1/events", json={"events": events[first : first + 5_000]})
        assert answer.status_code == 200
    experiments = Experiments(store)
    while experiments.step(time.time() + 2 * 86_400):
        pass
    report = experiments.compare(experiments.find("first"))
    assert report.arms["users"].sum() == N_USERS
    assert report.verdict == "not yet"
    assert {row.n_before for row in experiments.users("first")} == set(activity.tolist())
    experiments.stop("first")
    store.close()


def test_null_experiments_end_with_a_verdict_in_at_most_one_of_twenty(shop, client, activity):
    """The covariates are those that the service logged for either arm."""
    before = {}
    for name in ("a", "b"):  # until both arms have logged most users
        store = show_lists(client, shop, name)
        before |= {
            (row.arm.split("/")[1], row.user_id): row.n_before for row in logged_lists(store) if row.n_before
        }
        Experiments(store).stop(name)
        store.close()
    both = [u for u, user in enumerate(USERS) if ("all", user) in before and ("short", user) in before]
    assert len(both) > N_USERS / 3
    rng, n_verdicts = np.random.default_rng(4), 0
    for number in range(200):
        experiment = LiveExperiment(f"null{number}", (Arm("all", 0.5), Arm("short", 0.5)))
        arms = [experiment.assign(USERS[u]).name for u in both]
        table = {
            "arm": arms,
            "before": [math.log1p(before[arm, USERS[u]]) for arm, u in zip(arms, both, strict=True)],
            "hits": rng.binomial(len(ITEMS), activity[both] / 80),
            "day": np.arange(len(both)) * 20 // len(both),
        }
        report = sl.evaluate_experiment(table, metric="hits", control="all", covariates=["before"])
        n_verdicts += report.verdict in ("better", "worse")
    assert n_verdicts <= 10
