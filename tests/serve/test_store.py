"""The event store: stores of release 0.2 keep their events, and users can be forgotten."""

import time

import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig
from shortlist.serve.store import EventStore
from tests.postgres import running, started


def test_a_user_can_be_forgotten_on_the_command_line(tmp_path, capsys):
    model = sl.Popularity().fit(sl.load_dataset("sample")).save(tmp_path / "shop.shortlist")
    assert (
        main(["service", "forget", str(model), "--user", "u1", "--db", f"sqlite:///{tmp_path / 'e.db'}"]) == 0
    )
    assert "0 events and 0 logged lists" in capsys.readouterr().out
    store = EventStore(f"sqlite:///{tmp_path / 'e.db'}")
    with store._engine.connect() as connection:
        users = connection.exec_driver_sql("SELECT name FROM changes WHERE kind = 'erasure'").scalars().all()
    assert users == ["u1"]
    store.close()


@pytest.mark.parametrize("command", [["forget", "--user", "u1"], ["refit"]])
def test_a_mistyped_model_is_an_error_and_creates_no_store(tmp_path, capsys, command):
    verb, *flags = command
    assert main(["service", verb, str(tmp_path / "shopp.shortlist"), *flags]) == 2
    assert "shopp.shortlist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing folder", "folder", "other file"])
def test_a_file_that_cannot_be_a_store_is_named_at_the_start(tmp_path, kind):
    path = tmp_path / "missing" / "e.db" if kind == "missing folder" else tmp_path / "e.db"
    if kind == "folder":
        path.mkdir()
    if kind == "other file":
        path.write_bytes(b"no database" * 1_000)
    store = EventStore(f"sqlite:///{path}")
    with pytest.raises(ConfigError, match="check db: the path"):
        store.create()
    store.close()


def test_the_time_is_that_of_the_database(monkeypatch):
    """A server whose own clock is wrong by a day stores the time of PostgreSQL."""
    true = time.time()
    with started() as address:
        shared = EventStore(ServeConfig(model="x", db=address).database)
        monkeypatch.setattr(time, "time", lambda: true + 86_400)
        assert true <= shared.now() < true + 60
        shared.close()


def test_a_server_of_the_tests_starts_whatever_the_path_is(monkeypatch):
    """As root it runs as another user, without a program that only the path of administrators has."""
    monkeypatch.setenv("PATH", "/nowhere")
    with running() as server:
        server.execute("select 1")
