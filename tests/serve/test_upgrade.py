"""Stores of release 0.3, written by that release (`data/`), are brought up to date in one transaction."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from shortlist.errors import ConfigError
from shortlist.serve import upgrade
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import MODEL_TABLES, export_models, kept_path
from shortlist.serve.experiments import Experiments
from shortlist.serve.projections import erased_after, find_activations, read_cutoff
from shortlist.serve.store import EventStore
from shortlist.serve.tables import metadata
from tests.postgres import running
from tests.serve.conftest import logged_lists

DATA = Path(__file__).parent / "data"
NOW = 1_760_000_000.0
DAY = 86_400.0


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    """A store of release 0.3, not upgraded."""
    dump = (DATA / f"store_0.3.{request.param}.sql").read_text(encoding="utf-8")
    if request.param == "sqlite":
        connection = sqlite3.connect(tmp_path / "events.sqlite")
        connection.executescript(dump)
        connection.close()
        found = EventStore(f"sqlite:///{tmp_path / 'events.sqlite'}")
        yield found
        found.close()
    else:
        with running() as server:
            server.execute(dump)
            found = EventStore(ServeConfig(model="x", db=server.uri).database)
            yield found
            found.close()


def tables_of(store):
    return set(sa.inspect(store._engine).get_table_names())


def test_what_was_stored_is_there(store):
    store.create()
    store.create()  # nothing is left to do
    events = store.events_after(0, 100)
    assert [(row.seq, row.user_id, row.item_id, row.weight) for row in events] == [
        (1, "ann", "i1", None),
        (2, "bob", "i2", None),
        (4, "eve", "i4", None),  # after the erasure
        (5, "ann", "i1", -1.0),
        (6, "bob", "i5", 2.0),
    ]
    assert [row.list_id for row in logged_lists(store)] == ["l1", "l2", "l3", "l4", "l5"]
    latest, first = find_activations(store)
    assert (first.model, first.checksum, first.events_until, first.cutoff) == ("shop", "a" * 64, 0, None)
    assert (latest.model, latest.checksum, latest.events_until, latest.note) == (
        "shop-2",
        "b" * 64,
        4,
        "refit",
    )
    assert read_cutoff(store, latest.cutoff) == b"\x01moved threshold"
    assert read_cutoff(store, "f" * 24) == b"\x00cutoff of a request"
    [erased] = erased_after(store, first.erased_until)
    assert (erased.user_id, erased.events_until) == ("eve", 3)
    assert erased_after(store, latest.erased_until) == []  # its file was written without the user
    with store.begin() as connection:
        assert connection.scalar(sa.text("SELECT value FROM counters")) == 5
    assert {table.name for table in metadata.sorted_tables} <= tables_of(store)
    assert not tables_of(store) & set(upgrade.OLD_TABLES)


def test_numbers_go_on_and_a_turn_can_be_claimed(store):
    store.create()
    row = {"event_id": "new", "user_id": "ann", "item_id": "i1", "time": 1, "received": NOW}
    assert store.add_events([[row | {"weight": None, "list_id": None}]]) == [1]
    assert store.last_event() > 6
    assert store.claim("retention turn", 100, ahead=60)


def test_experiments_of_0_3_keep_their_outcomes_and_end(store):
    store.create()
    experiments = Experiments(store)
    experiments.follow()
    assert experiments.running is None
    assert experiments.find(None).name == "spring"
    described = experiments.describe("spring")
    assert "ended by the upgrade to release 0.4" in described["summary"]
    assert described["ended"] is not None
    assert dict(experiments.find("spring").arms[0].options) == {"N": 10}  # exploration is gone
    winter = experiments.users("winter")
    experiments.rebuild()
    experiments.step(NOW)
    assert experiments.users("winter") == winter  # as recorded: ann bought nothing that was shown
    assert [user.outcome[:11] for user in winter] == ['{"hits": 1.', '{"hits": 0.']
    assert experiments.step(NOW + 6 * DAY) == 2  # windows that were open
    assert [user.outcome[:11] for user in experiments.users("spring")] == ['{"hits": 0.', '{"hits": 1.']
    assert experiments.describe("winter")["summary"].endswith("another outcome than most.")


def test_an_upgrade_that_fails_changes_nothing(store, monkeypatch):
    before = tables_of(store)

    def fail(*_):
        raise ConfigError("stopped in the middle")

    monkeypatch.setattr(upgrade, "_update_definition", fail)
    with pytest.raises(ConfigError, match="stopped in the middle"):
        store.create()
    assert tables_of(store) == before
    with store.begin() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM activations")) == 2
        assert "propensities" in {column["name"] for column in sa.inspect(connection).get_columns("lists")}
    monkeypatch.undo()
    store.create()
    assert len(find_activations(store)) == 2


def test_model_files_leave_the_database(store, tmp_path):
    store.create()
    for _ in range(2):  # the second time there is nothing to do
        export_models(store, tmp_path)
    assert kept_path(tmp_path, "a" * 64).read_bytes() == b"first part of a model file, second part"
    assert not tables_of(store) & set(MODEL_TABLES)


def test_models_stay_in_the_database_if_they_cannot_be_written(store, tmp_path):
    store.create()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="must leave the database"):
        export_models(store, tmp_path / "file")
    assert "model_parts" in tables_of(store)


def test_a_store_of_a_newer_release_is_refused(tmp_path):
    store = EventStore(f"sqlite:///{tmp_path / 'events.sqlite'}")
    store.create()
    assert store.replace_snapshot("version", "4", "5")
    with pytest.raises(ConfigError, match="must have the version 4, got '5'"):
        store.create()
    store.close()
