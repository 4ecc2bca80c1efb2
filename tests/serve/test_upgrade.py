"""Stores of release 0.3, written by that release (`data/`), are brought up to date in one transaction."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from shortlist.errors import ConfigError
from shortlist.serve import tables
from shortlist.serve.config import ServeConfig
from shortlist.serve.projections import erased_after, find_activations
from shortlist.serve.store import EventStore
from shortlist.serve.tables import metadata
from tests.postgres import running
from tests.serve.conftest import logged_lists

DATA = Path(__file__).parent / "data"
NOW = 1_760_000_000.0


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
    assert [(user.user_id, user.events_until) for user in erased_after(store, 0)] == [("eve", 3)]
    assert find_activations(store) == []  # their files cannot be read by 0.4
    assert {table.name for table in metadata.sorted_tables} <= tables_of(store)
    assert not tables_of(store) & (set(tables.OLD_TABLES) - {"exposures", "counters"})


def test_numbers_go_on_and_a_turn_can_be_claimed(store):
    store.create()
    row = {"event_id": "new", "user_id": "ann", "item_id": "i1", "time": 1, "received": NOW}
    assert store.add_events([[row | {"weight": None, "list_id": None}]]) == [1]
    assert store.last_event() > 6
    assert store.claim("retention turn", 100, ahead=60)


def test_an_upgrade_that_fails_changes_nothing(store, monkeypatch):
    before = tables_of(store)

    def fail(*_):
        raise ConfigError("stopped in the middle")

    monkeypatch.setattr(tables.json, "dumps", fail)
    with pytest.raises(ConfigError, match="stopped in the middle"):
        store.create()
    assert tables_of(store) == before
    with store.begin() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM activations")) == 2
        assert "propensities" in {column["name"] for column in sa.inspect(connection).get_columns("lists")}
    monkeypatch.undo()
    store.create()
    assert len(erased_after(store, 0)) == 1


def test_a_store_of_a_newer_release_is_refused(tmp_path):
    store = EventStore(f"sqlite:///{tmp_path / 'events.sqlite'}")
    store.create()
    assert store.replace_snapshot("version", "4", "5")
    with pytest.raises(ConfigError, match="must have the version 4, got '5'"):
        store.create()
    store.close()
