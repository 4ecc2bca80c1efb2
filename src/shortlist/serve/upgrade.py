"""Brings the tables of release 0.3 up to date in one transaction.

Events, logged lists and erased users stay. The rest is about model files, which 0.4 cannot read.
"""

import json
from typing import Any

import sqlalchemy as sa

from shortlist.errors import ConfigError
from shortlist.serve.tables import VERSION, changes, metadata, snapshots

OLD_TABLES = (
    "activations",
    "budgets",
    "counters",
    "cutoffs",
    "experiments",
    "exposures",
    "forgotten",
    "model_parts",
    "models",
    "settings",
)
OLD_COLUMNS = (("lists", "propensities"), ("lists", "used"))


def upgrade_tables(connection: sa.Connection) -> None:
    """Create the tables that are missing; bring those of release 0.3 up to date."""
    present = sa.inspect(connection)
    if present.has_table("snapshots"):
        version = connection.scalar(sa.select(snapshots.c.content).where(snapshots.c.name == "version"))
        if version != VERSION:
            raise ConfigError(
                f"the event store must have the version {VERSION}, got {version!r:.20}; use the release of "
                "shortlist that wrote it, or a newer one."
            )
        return
    old = [name for name in OLD_TABLES if present.has_table(name)]
    erased: list[dict[str, Any]] = []
    if "forgotten" in old:
        query = "SELECT user_id, forgotten, events_until FROM forgotten ORDER BY number"
        erased = [dict(row) for row in connection.exec_driver_sql(query).mappings()]
    for table, column in OLD_COLUMNS:
        if old and column in {each["name"] for each in present.get_columns(table)}:
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    for name in old:
        connection.exec_driver_sql(f"DROP TABLE {name}")
    metadata.create_all(connection)
    connection.execute(sa.insert(snapshots), {"name": "version", "content": VERSION})
    for row in erased:
        content = json.dumps({"events_until": row["events_until"]})
        values = {"kind": "erasure", "name": row["user_id"], "at": row["forgotten"], "content": content}
        connection.execute(sa.insert(changes), values)
