"""The tables of the event store: the log, and what follows from it.

The log is `events`, `lists` and `changes` (activations, experiments, erased users). Its rows are
added and never changed; only an erasure and the age of lists delete some. `snapshots`, `exposures` and
`counters` are projections: what was concluded from the log.
"""

import json
from typing import Any

import sqlalchemy as sa

from shortlist.errors import ConfigError

VERSION = "4"  # of these tables; stored in `snapshots`

metadata = sa.MetaData()
Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers only INTEGER keys by itself

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Number, primary_key=True, autoincrement=True),
    sa.Column("event_id", sa.Text, nullable=False, unique=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("item_id", sa.Text, nullable=False),
    sa.Column("time", sa.BigInteger, nullable=False),  # microseconds since 1970 UTC
    sa.Column("weight", sa.Float),  # negative for a return
    sa.Column("list_id", sa.Text),  # the list that led to the event, if the sender knows it
    sa.Column("received", sa.Float, nullable=False),
    sqlite_autoincrement=True,  # a number is never used twice
)
lists = sa.Table(
    "lists",
    metadata,
    sa.Column("list_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text),  # null for a session
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("cutoff", sa.Text),
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("items", sa.Text, nullable=False),  # JSON: item ids in order
    sa.Column("probabilities", sa.Text),  # JSON
    sa.Column("reason", sa.Text),
    sa.Column("share", sa.Float, nullable=False),  # of the lists that are logged
    sa.Column("arm", sa.Text),  # "experiment/arm"; "experiment/" for users who take no part
    sa.Column("n_before", sa.BigInteger),  # events of the user before the experiment, for users of an arm
)
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("number", Number, primary_key=True, autoincrement=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),  # of the model or experiment; the erased user
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("content", sa.Text, nullable=False),  # JSON
    sqlite_autoincrement=True,
)
snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
)
exposures = sa.Table(
    "exposures",
    metadata,
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("arm", sa.Text, nullable=False),  # empty for users who take no part
    sa.Column("first", sa.Float, nullable=False),  # when the user got the first list
    sa.Column("n_before", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text),  # JSON; null until the window has passed
)
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("minute", sa.BigInteger, primary_key=True),
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
)
sa.Index("lists_made", lists.c.made)
sa.Index("lists_user", lists.c.user_id, lists.c.made)
sa.Index("events_user", events.c.user_id, events.c.time)
sa.Index("changes_kind", changes.c.kind, changes.c.number)
sa.Index("exposures_first", exposures.c.experiment, exposures.c.first)

# ---------------------------------------------------------------------- the tables of release 0.3
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
    """Create the tables that are missing, or bring those of release 0.3 up to date in one transaction.

    Events, logged lists and erased users stay. The rest is about model files, which 0.4 cannot read.
    """
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
