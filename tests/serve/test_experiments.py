"""Experiments of the service: assignment, arms over HTTP, outcomes, the comparison and refusals."""

import json
from collections import Counter, namedtuple
from hashlib import blake2b

import numpy as np
import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

import shortlist as sl
from shortlist.errors import ConfigError
from shortlist.serve import experiments
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import Deployment
from shortlist.serve.experiments import Arm, CommonHistory, Experiments, LiveExperiment, measure
from shortlist.serve.projections import erase_user
from shortlist.serve.service import Service
from shortlist.serve.store import EventStore, ListRow
from shortlist.serve.tables import exposures
from shortlist.serve.tokens import SCOPES, create_token
from tests.serve.conftest import start
from tests.serve.test_app import wait_for

HALVES = (Arm("ten", 0.5, None, {"N": 10}), Arm("dynamic", 0.5))
BODY = {
    "name": "spring",
    "arms": [{"name": "three", "share": 0.5, "options": {"N": 3}}, {"name": "dynamic", "share": 0.5}],
    "metric": "value",
    "gain": 2.0,
    "cost": 0.1,
    "window_days": 7.0,
}
ShownList = namedtuple("ShownList", "items made")
ShopEvent = namedtuple("ShopEvent", "item_id received time")


@pytest.fixture
def store(tmp_path):
    store = EventStore(f"sqlite:///{tmp_path}/events.sqlite")
    store.create()
    yield store
    store.close()


# ---------------------------------------------------------------------- assignment
def test_users_are_split_by_the_shares():
    experiment = LiveExperiment("spring", (Arm("a", 0.2), Arm("b", 0.8)))
    counts = Counter(experiment.assign(f"u{k}").name for k in range(20_000))
    assert counts["a"] == pytest.approx(4_000, abs=250)


def test_an_arm_depends_on_the_name_and_the_user_alone():
    one, other = LiveExperiment("spring", HALVES), LiveExperiment("summer", HALVES)
    users = [f"u{k}" for k in range(200)]
    numbers = [int(blake2b(b"spring\0" + user.encode(), digest_size=8).hexdigest(), 16) for user in users]
    assert [one.assign(user).name == "ten" for user in users] == [number < 2**63 for number in numbers]
    same = sum(one.assign(user).name == other.assign(user).name for user in users)
    assert 60 < same < 140


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "a/b"}, "letters, digits"),
        ({"arms": HALVES[:1]}, "2 to 10 arms"),
        ({"arms": (Arm("a", 0.5), Arm("a", 0.5))}, "names of their own"),
        ({"arms": (Arm("a", 0.5), Arm("b", 0.6))}, "add up to 1"),
        ({"arms": (Arm("a", 0.5), Arm("b", 0.5, None, {"users": []}))}, "'users'"),
        ({"metric": "sales"}, "'sales'"),
        ({"guardrails": {"sales": 1}}, "'sales'"),
        ({"window_days": 0}, "window_days"),
    ],
)
def test_wrong_experiments_are_refused(change, text):
    with pytest.raises(ConfigError, match=text):
        LiveExperiment(**{"name": "spring", "arms": HALVES} | change)


def test_json_round_trip():
    experiment = LiveExperiment(
        "spring",
        HALVES,
        metric="value",
        window_days=3.5,
        gain=2.0,
        cost=0.1,
        contact_cost=0.2,
        guardrails={"empty": 0.1},
        smallest_effect=0.5,
        confidence=0.9,
        salt="7f",
        history=CommonHistory(3, 12),
        started=12.0,
    )
    again = LiveExperiment.from_dict("spring", json.loads(json.dumps(experiment.to_dict())), 12.0, None)
    assert again.to_dict() == experiment.to_dict()
    assert [again.assign(f"u{k}").name for k in range(50)] == [
        experiment.assign(f"u{k}").name for k in range(50)
    ]


# ---------------------------------------------------------------------- outcomes
def test_an_outcome_worked_by_hand():
    experiment = LiveExperiment("spring", HALVES, gain=2.0, cost=0.1, contact_cost=0.5)
    lists = [ShownList('["a", "b"]', 10.0), ShownList("[]", 20.0), ShownList('["c"]', 30.0)]
    events = [
        ShopEvent("a", 15.0, 1),
        ShopEvent("x", 15.1, 1),
        ShopEvent("c", 25.0, 2),
        ShopEvent("a", 40.0, 3),
    ]
    outcome = measure(experiment, lists, events)
    assert outcome["hits"] == 1  # `a` counts once, `c` was chosen before it was shown
    assert outcome["shown"] == 3
    assert outcome["hits_per_item"] == pytest.approx(1 / 3)
    assert outcome["value"] == pytest.approx(2.0 - 0.3 - 1.0)
    assert outcome["f1"] == pytest.approx(2 / 4)
    assert outcome["empty"] == 0


def test_no_user_counts_for_more_than_the_limit():
    items = [f"i{n}" for n in range(60)]
    lists = [ShownList(json.dumps(items), float(n)) for n in range(100)]
    events = [ShopEvent(item, 200.0, 1) for item in items]
    experiment = LiveExperiment("spring", HALVES, gain=2.0, max_hits=5)
    assert measure(experiment, lists, events)["hits"] == 5
    assert measure(experiment, lists, events)["value"] == 10.0
    costly = LiveExperiment("spring", HALVES, gain=2.0, cost=0.5, max_hits=5)
    assert measure(costly, lists, [])["value"] == -10.0
    with pytest.raises(ConfigError, match="max_hits"):
        LiveExperiment("spring", HALVES, max_hits=0)


def test_a_user_without_events_counts_with_the_costs():
    experiment = LiveExperiment("spring", HALVES, cost=0.1)
    outcome = measure(experiment, [ShownList('["a"]', 1.0)], [])
    assert (outcome["value"], outcome["f1"], outcome["hits"]) == (pytest.approx(-0.1), 0, 0)
    assert measure(experiment, [ShownList("[]", 1.0)], [])["empty"] == 1


def log_lists(store, experiment, users, made):
    rows = []
    for user in users:
        arm = experiment.assign(user)
        items = '["i1", "i2", "i3"]' if arm.name == "ten" else '["i1"]'
        label = f"{experiment.name}/{arm.name}"
        rows.append(
            ListRow(f"{user}-{made}", user, "m", "N", made, items, None, None, 1.0, arm=label, n_before=3)
        )
    store.add_lists(rows)


def add_events(store, pairs, received):
    rows = [
        {
            "event_id": f"{user}{item}{received}",
            "user_id": user,
            "item_id": item,
            "time": int(received * 1e6),
            "weight": None,
            "list_id": None,
            "received": received,
        }
        for user, item in pairs
    ]
    store.add_events([rows])


def test_outcomes_wait_for_the_window_and_are_stored_once(store):
    own = Experiments(store)
    experiment = own.start(LiveExperiment("spring", HALVES, window_days=1.0))
    day = experiments.DAY
    log_lists(store, experiment, ["u1", "u2"], 1_000.0)
    log_lists(store, experiment, ["u1"], 2_000.0)  # the first list stays the exposure
    add_events(store, [("u1", "i1"), ("u2", "i9")], 5_000.0)
    add_events(store, [("u2", "i1")], 1_000.0 + day + 1)  # too late
    assert own.step(1_000.0 + day) == 0
    assert own.step(1_000.0 + day + 61) == 2
    assert own.step(1_000.0 + day + 61) == 0
    outcomes = {row.user_id: json.loads(row.outcome) for row in own.users("spring")}
    assert outcomes["u1"]["hits"] == 1
    assert outcomes["u1"]["shown"] == (6 if experiment.assign("u1").name == "ten" else 2)
    assert outcomes["u2"]["hits"] == 0


def test_an_erased_user_leaves_the_experiment(store):
    own = Experiments(store)
    experiment = own.start(LiveExperiment("spring", HALVES))
    log_lists(store, experiment, ["u1", "u2"], 1_000.0)
    erase_user(store, "u1")
    assert sum(own.count_users("spring").values()) == 1


def test_the_comparison_finds_what_was_put_in(store):
    own = Experiments(store)
    experiment = own.start(LiveExperiment("spring", HALVES, window_days=1.0))
    users = [f"u{k}" for k in range(1_500)]
    log_lists(store, experiment, users, 1_000.0)
    chosen = [
        (u, "i1") for k, u in enumerate(users) if k % 10 < (6 if experiment.assign(u).name == "ten" else 2)
    ]
    add_events(store, chosen, 5_000.0)
    while own.step(1_000.0 + 2 * experiments.DAY):
        pass
    report = own.compare(own.find("spring"))
    assert report.verdict == "worse"  # the first arm is the control
    assert report.differences["difference"][0] == pytest.approx(-0.4, abs=0.06)
    described = own.describe("spring")
    assert sum(arm["users"] for arm in described["arms"]) == 1_500
    assert [arm["shown"] for arm in described["arms"]] == [3.0, 1.0]
    assert sum(arm["complete"] * arm["hits"] for arm in described["arms"]) == pytest.approx(len(chosen))
    assert "dynamic against ten: worse. The difference in hits" in described["summary"]


def test_one_experiment_at_a_time(store):
    own = Experiments(store)
    own.start(LiveExperiment("spring", HALVES))
    with pytest.raises(ConfigError, match="'spring' runs"):
        own.start(LiveExperiment("summer", HALVES))
    own.stop("spring")
    assert own.running is None
    with pytest.raises(ConfigError, match="another name"):
        own.start(LiveExperiment("spring", HALVES))
    own.start(LiveExperiment("summer", HALVES))
    assert own.running.name == "summer"
    with pytest.raises(ConfigError, match="no such experiment"):
        own.stop("winter")


def log_unknown_ids(store, users):
    """Log a list of each user without an arm, as the service does for those who take no part."""
    row = ListRow("", "", "m", "N", 1_000.0, "[]", None, None, 1.0, arm="spring/")
    store.add_lists([row._replace(list_id=f"of-{user}", user_id=user) for user in users])


def test_unknown_ids_decide_nothing_and_are_counted_apart(store):
    own = Experiments(store)
    experiment = own.start(LiveExperiment("spring", HALVES, window_days=1.0))
    log_lists(store, experiment, [f"u{k}" for k in range(30)], 1_000.0)
    log_unknown_ids(store, [f"new{k}" for k in range(300)])
    while own.step(1_000.0 + 2 * experiments.DAY):
        pass
    assert sum(own.count_users("spring").values()) == len(own.users("spring")) == 30
    assert "invents" not in own.describe("spring")["summary"]  # people who are new are split by chance


@pytest.mark.parametrize("n", [20, 200])
def test_ids_that_were_invented_for_one_arm_are_noticed(store, n):
    own = Experiments(store)
    experiment = own.start(LiveExperiment("spring", HALVES))
    invented = [f"x{k}" for k in range(1_000) if experiment.assign(f"x{k}").name == "dynamic"]
    log_unknown_ids(store, invented[:n])
    assert f"Somebody invents user ids: the {n}" in own.describe("spring")["summary"]


def test_the_arm_of_an_id_cannot_be_told_beforehand(folder):
    store = EventStore(f"sqlite:///{folder}/shop.events.sqlite")
    store.create()
    deployment = Deployment(folder, store)
    deployment.activate("shop", "test")
    first, second = (LiveExperiment("spring", HALVES).freeze(deployment) for _ in range(2))
    same = sum(first.assign(f"u{k}").name == second.assign(f"u{k}").name for k in range(200))
    assert 60 < same < 140
    store.close()


# ---------------------------------------------------------------------- over HTTP
@pytest.fixture
def service(guarded):
    guarded.admin = guarded.bearer("admin")
    guarded.read = guarded.bearer("read")
    return guarded


def wait_for_arms(client, header=None):
    """Wait until the service knows who takes part in the experiment that was started."""
    ask = {"users": ["u1"]}
    wait_for(lambda: "arm" in client.post("/v1/recommend", json=ask, headers=header).json()["lists"][0])


def test_lists_of_each_arm_over_http(service):
    assert service.get("/v1/experiment", headers=service.read).json()["name"] is None
    answer = service.post("/v1/experiment", json=BODY, headers=service.admin)
    assert answer.status_code == 200
    wait_for_arms(service, service.read)
    users = [f"u{k}" for k in range(1, 40)]
    lists = service.post("/v1/recommend", json={"users": users}, headers=service.read).json()["lists"]
    assert [row["user_id"] for row in lists] == users
    plain = service.post("/v1/recommend", json={"users": users, "N": 3}, headers=service.read).json()["lists"]
    assert {row["arm"] for row in lists} == {"spring/three", "spring/dynamic"}
    for row, three in zip(lists, plain, strict=True):
        assert "arm" not in three  # the request said how long its lists are
        if row["arm"] == "spring/three":
            assert [item["item_id"] for item in row["items"]] == [item["item_id"] for item in three["items"]]
    again = service.post("/v1/recommend", json={"users": users[:1]}, headers=service.read).json()["lists"]
    assert again[0]["arm"] == lists[0]["arm"]
    sessions = service.post(
        "/v1/recommend", json={"history": {"s1": ["i1"], "s2": ["i1"], "s3": ["i2"]}}, headers=service.read
    ).json()["lists"]
    assert all("arm" not in row for row in sessions)  # they have no user whose outcome could count
    stopped = service.post("/v1/experiment/stop", json={"name": "spring"}, headers=service.admin).json()
    assert stopped["ended"] is not None
    after = service.post("/v1/recommend", json={"users": users[:1]}, headers=service.read).json()["lists"]
    assert "arm" not in after[0]


@pytest.fixture
def header(folder):
    """For a token that may do everything."""
    return {"authorization": f"Bearer {create_token(folder / 'tokens', 'all', SCOPES)}"}


def test_users_without_an_earlier_event_take_no_part(folder, header):
    settings = {"token_file": str(folder / "tokens")}
    with start(folder, **settings) as client:
        old = [{"user_id": "early", "item_id": "i1"}]
        assert client.post("/v1/events", json={"events": old}, headers=header).status_code == 200
        assert client.post("/v1/experiment", json=BODY, headers=header).status_code == 200
        late = [{"user_id": "late", "item_id": "i1"}]
        assert client.post("/v1/events", json={"events": late}, headers=header).status_code == 200
        ask = {"users": ["u1", "early", "late", "nobody"]}

        def arms():
            return [
                "arm" in row for row in client.post("/v1/recommend", json=ask, headers=header).json()["lists"]
            ]

        wait_for(lambda: arms()[0])
        assert arms() == [True, True, False, False]
    with start(folder, **settings) as client:  # counted again from the file and the log
        wait_for(lambda: arms()[0])
        assert arms() == [True, True, False, False]


def test_the_covariate_of_a_user_stays_when_another_model_is_activated(folder, header):
    data = sl.load_dataset("sample")
    short = sl.Interactions.from_frame(data.to_frame().head(len(data.to_frame()) // 10))
    sl.Popularity().fit(short).set_cutoff(sl.cutoff.FixedN(N=2)).save(folder / "short.shortlist")
    known = sl.load_model(folder / "shop.shortlist").history_
    users = known.users.values.to_list()
    with start(folder, token_file=str(folder / "tokens")) as client:
        client.headers.update(header)
        assert client.post("/v1/experiment", json=BODY).status_code == 200
        half = users[: len(users) // 2]
        wait_for(lambda: "arm" in client.post("/v1/recommend", json={"users": half}).json()["lists"][0])
        assert client.post("/v1/model", json={"name": "short"}).status_code == 200
        answer = client.post("/v1/recommend", json={"users": users}).json()["lists"]
        assert all("arm" in row for row in answer)
        client.delete(f"/v1/users/{users[0]}")  # and who is erased takes no part any more
        wait_for(
            lambda: "arm" not in client.post("/v1/recommend", json={"users": users[:1]}).json()["lists"][0]
        )
    store = EventStore(f"sqlite:///{folder}/shop.events.sqlite")
    noted = {row.user_id: row.n_before for row in store.rows(sa.select(exposures)) if row.arm}
    expected = dict(zip(users, np.diff(known.indptr).tolist(), strict=True))
    assert noted == {user: expected[user] for user in users[1:]}
    store.close()


def test_exposures_survive_a_restart(folder, header):
    settings = {"token_file": str(folder / "tokens")}
    with start(folder, **settings) as client:
        client.post("/v1/experiment", json=BODY, headers=header)
        wait_for_arms(client, header)
        before = client.post("/v1/recommend", json={"users": ["u1", "u2", "u3"]}, headers=header).json()
    with start(folder, **settings) as client:
        after = client.post("/v1/recommend", json={"users": ["u1", "u2", "u3"]}, headers=header).json()
        arms = [[row["arm"] for row in answer["lists"]] for answer in (before, after)]
        assert arms[0] == arms[1]
        counts = client.get("/v1/experiment", headers=header).json()["arms"]
        assert sum(arm["users"] for arm in counts) == 3


def test_an_arm_with_another_model(folder, header):
    other = sl.Popularity().fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=2))
    other.save(folder / "popular.shortlist")
    arms = [{"name": "now", "share": 0.5}, {"name": "popular", "share": 0.5, "model": "popular"}]
    with start(folder, token_file=str(folder / "tokens")) as client:
        assert client.post("/v1/experiment", json=BODY | {"arms": arms}, headers=header).status_code == 200
        users = [f"u{k}" for k in range(1, 30)]
        for _ in range(100):  # until the model of the arm is loaded
            lists = client.post("/v1/recommend", json={"users": users}, headers=header).json()["lists"]
            if "spring/popular" in {row.get("arm") for row in lists}:
                break
        by_arm = {row["arm"]: row for row in lists}
        assert len(by_arm["spring/popular"]["items"]) == 2
        shipped = client.post(
            "/v1/experiment/stop", json={"name": "spring", "ship": "popular"}, headers=header
        )
        assert shipped.status_code == 200
        assert client.get("/v1/model", headers=header).json()["name"] == "popular"


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"arms": [{"name": "a", "share": 0.4}, {"name": "b", "share": 0.4}]}, 422, "add up to 1"),
        ({"arms": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5, "model": "none"}]}, 422, "none"),
        (
            {"arms": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5, "options": {"cutoff": "x"}}]},
            404,
            "cutoff",
        ),
        ({"window_days": 100.0}, 422, "keep_lists_days"),
        ({"metric": "sales"}, 422, "metric"),
        ({"window_days": -1.0}, 422, "window_days"),
    ],
)
def test_wrong_requests_are_refused(service, change, status, text):
    answer = service.post("/v1/experiment", json=BODY | change, headers=service.admin)
    assert answer.status_code == status
    assert text in answer.text
    assert service.get("/v1/experiment", headers=service.read).json()["name"] is None


def test_only_an_admin_may_start_or_stop(service):
    for path, body in (("/v1/experiment", BODY), ("/v1/experiment/stop", {"name": "spring"})):
        assert service.post(path, json=body, headers=service.read).status_code == 403
    assert (
        service.post("/v1/experiment/stop", json={"name": "none"}, headers=service.admin).status_code == 404
    )


def test_lists_of_arms_do_not_count_for_the_lengths_of_the_model_in_service(folder, header):
    service = Service(ServeConfig(model=str(folder / "shop.shortlist"), token_file=str(folder / "tokens")))
    with TestClient(create_app(service), base_url="http://127.0.0.1:8000", headers=header) as client:
        users = [f"u{k}" for k in range(1, 40)]
        assert client.post("/v1/experiment", json=BODY).status_code == 200
        wait_for(lambda: service.experiments.participants)
        assert client.post("/v1/recommend", json={"users": users}).status_code == 200
        counts = sum(map(Counter, service.metrics.minutes().values()), Counter())
        assert counts["lists"] == 39
        assert not [name for name in counts if name.startswith("length:")]
        service._store_counters()
        status = client.get("/v1/status").json()
        assert status["lengths"]["now"] == {}
        assert status["minutes"][-1]["lists"] == 39
