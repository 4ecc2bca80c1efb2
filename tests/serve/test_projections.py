"""Projections can be computed again from the log; an erased user is in none of them, before and after."""

import json

import numpy as np
import pytest
import sqlalchemy as sa

from shortlist.serve.config import ServeConfig
from shortlist.serve.experiments import DAY, Arm, Experiments, LiveExperiment
from shortlist.serve.projections import erase_user
from shortlist.serve.store import EventStore, ListRow
from shortlist.serve.tables import exposures, metadata
from tests.postgres import started
from tests.serve.conftest import logged_lists

NOW = 1_000_000.0
END = NOW + 30 * DAY
USERS = [f"u{n}" for n in range(120)]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    if request.param == "sqlite":
        found = EventStore(f"sqlite:///{tmp_path / 'e.sqlite'}")
        found.create()
        yield found
        found.close()
    else:
        with started() as address:
            found = EventStore(ServeConfig(model="x", db=address).database)
            found.create()
            yield found
            found.close()


@pytest.fixture
def experiments(store):
    found = Experiments(store)
    found.start(LiveExperiment("spring", (Arm("a", 0.5), Arm("b", 0.5)), window_days=3.0))
    return found


def act(store, experiments, seed=0, days=10):
    """Lists, purchases and returns of random users on some days."""
    rng, experiment, rows, events = np.random.default_rng(seed), experiments.running, [], []
    for day in range(days):
        for user in rng.choice(USERS, 40, replace=False).tolist():
            made = NOW + day * DAY + float(rng.uniform(0, DAY / 2))
            items = [f"i{n}" for n in rng.integers(1, 9, rng.integers(0, 4))]
            texts = (json.dumps(items), json.dumps([0.3] * len(items)))
            arm = {"arm": f"spring/{experiment.assign(user).name}", "n_before": day}
            rows.append(ListRow(f"{user}-{day}", user, "shop", "N", made, *texts, "top_n", 1.0, **arm))
            for item in set(rng.integers(1, 9, rng.integers(0, 3)).tolist()):
                for weight in (None, -1.0)[: 1 + (rng.random() < 0.2)]:
                    received = made + float(rng.uniform(1, DAY / 4)) * (1 if weight is None else 2)
                    about = {"user_id": user, "item_id": f"i{item}", "weight": weight, "list_id": None}
                    times = {"time": int(received * 1e6), "received": received}
                    events.append(about | times | {"event_id": f"{user}-{day}-{item}-{weight}"})
    store.add_lists(sorted(rows, key=lambda row: row.made))
    store.add_events([sorted(events, key=lambda event: event["received"])])


def rebuild_outcomes(experiments, at):
    experiments.rebuild()
    while experiments.step(at):
        pass


def all_exposures(store):
    return store.rows(sa.select(exposures).order_by(exposures.c.experiment, exposures.c.user_id))


def test_outcomes_of_an_experiment_are_those_of_the_log(store, experiments):
    act(store, experiments)
    while experiments.step(NOW + 8 * DAY):
        pass
    before = all_exposures(store)
    assert {row.outcome is None for row in before} == {True, False}
    assert sum(json.loads(row.outcome or '{"hits": 0}')["hits"] for row in before) > 20
    rebuild_outcomes(experiments, NOW + 8 * DAY)
    assert all_exposures(store) == before


def test_windows_that_a_wrong_clock_has_closed_are_computed_again(store, experiments):
    act(store, experiments, days=1)
    rows = [dict(row._mapping) for row in store.events_after(0, 10_000)]
    with store.begin() as connection:
        connection.execute(sa.text("DELETE FROM events"))
    while experiments.step(END):  # the clock is a month ahead, and no event has arrived
        pass
    assert {json.loads(row.outcome)["hits"] for row in all_exposures(store)} == {0}
    store.add_events([rows])
    assert experiments.step(NOW + DAY) == 0
    assert {row.outcome for row in all_exposures(store)} == {None}
    while experiments.step(NOW + 5 * DAY):
        pass
    assert sum(json.loads(row.outcome)["hits"] for row in all_exposures(store)) > 0


def test_outcomes_whose_lists_are_deleted_stay(store, experiments):
    act(store, experiments)
    while experiments.step(END):
        pass
    before = all_exposures(store)
    assert store.remove_old(NOW + 5 * DAY, 10_000) > 100
    rebuild_outcomes(experiments, END)
    assert all_exposures(store) == before


# ---------------------------------------------------------------------- erasure
def everything(store):
    """All that the store holds, as text."""
    with store.read() as connection:
        tables = {table.name: connection.execute(sa.select(table)).all() for table in metadata.sorted_tables}
    return {name: str(rows) for name, rows in tables.items()}


def test_an_erased_user_is_nowhere_and_no_rebuild_brings_it_back(store, experiments):
    act(store, experiments)
    erased = "u77-secret"
    texts = ('["i1"]', "[0.5]")
    arm = f"spring/{experiments.running.assign(erased).name}"
    row = ListRow("secret-list", erased, "shop", "N", NOW, *texts, "top_n", 1.0, arm=arm, n_before=7)
    store.add_lists([row])
    about = {"event_id": "secret-event", "user_id": erased, "item_id": "i1", "weight": None, "list_id": None}
    store.add_events([[about | {"time": 1, "received": NOW + 9}]])
    experiments.step(END)
    assert [name for name, text in everything(store).items() if "secret" in text] == [
        name for name in everything(store) if name in ("events", "exposures", "lists")
    ]
    assert erase_user(store, erased)[3:] == (1, 1)
    rebuild_outcomes(experiments, END)
    found = everything(store)
    assert [name for name, text in found.items() if "secret" in text] == ["changes"]
    assert found["changes"].count(erased) == 1  # older model files need the id


def test_a_list_that_was_made_before_the_erasure_and_is_logged_after_it_is_dropped(store, experiments):
    made = store.now() - 0.4
    erase_user(store, "ann")
    rows = [
        ListRow(f"of-{user}", user, "shop", "N", made, "[]", None, "top_n", 1.0, arm="spring/a", n_before=1)
        for user in ("ann", "bob")
    ]
    store.add_lists(rows)
    assert [row.user_id for row in logged_lists(store)] == ["bob"]
    assert [row.user_id for row in all_exposures(store)] == ["bob"]
    store.add_lists([rows[0]._replace(list_id="new", made=store.now() + 1)])  # who came back
    assert [row.user_id for row in logged_lists(store)] == ["bob", "ann"]
