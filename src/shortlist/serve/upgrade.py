"""Brings the tables of release 0.3 up to date in one transaction."""

import base64
import hashlib
import json
from typing import Any

import sqlalchemy as sa

from shortlist.errors import ConfigError
from shortlist.serve.tables import VERSION, changes, metadata, snapshots

OLD_TABLES = ("activations", "cutoffs", "experiments", "forgotten", "settings")
OLD_COLUMNS = (("lists", "propensities"), ("lists", "used"), ("exposures", "complete"))
ARM_OPTIONS = ("N", "cutoff", "min_items", "max_items")
STOPPED = "ended by the upgrade to release 0.4, which counts what users did before in another way"


def upgrade_tables(connection: sa.Connection, at: float) -> None:
    """Create the tables that are missing; move what release 0.3 stored into them."""
    present = sa.inspect(connection)
    old = [name for name in OLD_TABLES if present.has_table(name)]
    if present.has_table("snapshots"):
        version = connection.scalar(sa.select(snapshots.c.content).where(snapshots.c.name == "version"))
        if version != VERSION:
            raise ConfigError(
                f"the event store must have the version {VERSION}, got {version!r:.20}; use the release of "
                "shortlist that wrote it, or a newer one."
            )
        return
    for table, column in OLD_COLUMNS:
        if old and column in {each["name"] for each in present.get_columns(table)}:
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    metadata.create_all(connection)
    connection.execute(sa.insert(snapshots), {"name": "version", "content": VERSION})
    if old:
        rows = {name: _read_table(connection, name) for name in OLD_TABLES}
        _move(connection, rows, at)
        for name in OLD_TABLES:
            connection.exec_driver_sql(f"DROP TABLE {name}")


def _read_table(connection: sa.Connection, name: str) -> list[Any]:
    """All rows of a table of release 0.3, as dictionaries."""
    return [dict(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}").mappings()]


def _move(connection: sa.Connection, rows: dict[str, list[dict[str, Any]]], at: float) -> None:
    """Write what was in the tables of release 0.3 as changes, each kind in its order."""

    def add(kind: str, name: str, when: float, content: dict[str, Any]) -> int:
        values = {"kind": kind, "name": name, "at": when, "content": json.dumps(content)}
        key = connection.execute(sa.insert(changes).values(values)).inserted_primary_key
        return int(key[0]) if key is not None else 0

    numbers = {0: 0}  # of an erased user in release 0.3 → now
    for row in _sorted(rows["forgotten"], "number"):
        content = {"events_until": row["events_until"]}
        numbers[row["number"]] = add("erasure", row["user_id"], row["forgotten"], content)
    for row in rows["cutoffs"]:
        add("cutoff", row["cutoff_id"], row["created"], _encode(row["content"]))
    for row in _sorted(rows["activations"], "number"):
        content = {name: row[name] for name in ("checksum", "events_until", "note")} | {"cutoff": None}
        content["erased_until"] = max(new for old, new in numbers.items() if old <= row["forgotten_until"])
        if row["cutoff"] is not None:
            content["cutoff"] = hashlib.sha256(row["cutoff"]).hexdigest()[:24]
            add("cutoff", content["cutoff"], row["activated"], _encode(row["cutoff"]))
        add("activation", row["model"], row["activated"], content)
    for row in _sorted(rows["experiments"], "started"):
        add("experiment", row["name"], row["started"], _update_definition(row["definition"]))
        ended, note = (at, STOPPED) if row["ended"] is None else (row["ended"], "")
        add("experiment end", row["name"], ended, {"note": note, "is_recorded": True})


def _sorted(rows: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: float(row[column]))


def _encode(content: bytes) -> dict[str, Any]:
    return {"content": base64.b64encode(content).decode()}


def _update_definition(text: str) -> dict[str, Any]:
    """An experiment with the options that its arms may still have."""
    definition: dict[str, Any] = json.loads(text)
    for arm in definition["arms"]:
        arm["options"] = {name: arm["options"][name] for name in ARM_OPTIONS if name in arm["options"]}
        arm["version"] = None
    return definition
