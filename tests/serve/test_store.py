"""The event store: stores of release 0.2 keep their events, and users can be forgotten."""

import sqlalchemy as sa

from shortlist.cli import main
from shortlist.serve.store import EventStore

OLD_COLUMNS = {"lists": "propensities", "activations": "forgotten_until"}


def test_a_store_of_the_last_release_gets_the_new_columns(tmp_path):
    address = f"sqlite:///{tmp_path / 'events.db'}"
    store = EventStore(address)
    store.create()
    store.add_activation("shop", "0" * 64, 0, "start")
    store.close()
    engine = sa.create_engine(address)
    with engine.begin() as connection:
        for table, column in OLD_COLUMNS.items():
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.exec_driver_sql("DROP TABLE forgotten")
    store = EventStore(address)
    store.create()
    store.create()  # nothing is left to add
    assert [activation.model for activation in store.activations(5)] == ["shop"]
    store.close()
    present = sa.inspect(engine)
    for table, column in OLD_COLUMNS.items():
        assert column in {each["name"] for each in present.get_columns(table)}
    assert present.has_table("forgotten")
    engine.dispose()


def test_a_user_can_be_forgotten_on_the_command_line(tmp_path, capsys):
    model = tmp_path / "shop.shortlist"
    model.write_bytes(b"")
    assert main(["forget", str(model), "--user", "u1", "--db", f"sqlite:///{tmp_path / 'e.db'}"]) == 0
    assert "Events and logged lists of the user are deleted" in capsys.readouterr().out
    store = EventStore(f"sqlite:///{tmp_path / 'e.db'}")
    with store._engine.connect() as connection:
        users = connection.exec_driver_sql("SELECT user_id FROM forgotten").scalars().all()
    assert users == ["u1"]
    store.close()
