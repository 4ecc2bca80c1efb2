"""The event store: events, logged lists, activations, experiments and counters in SQLite or PostgreSQL."""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from shortlist.core.files import atomic_write
from shortlist.errors import ConfigError, DataError, ShortlistError
from shortlist.serve.log import write_log
from shortlist.serve.model_files import kept_path

BUSY_SECONDS = 10  # how long a writer waits for another process
EVENTS_LOCK = 0x51_0E_57  # advisory lock of PostgreSQL: events become visible in the order of `seq`
# A server that was cut off loses its transaction, and with it the lock that the others wait for.
SESSION = f"SET lock_timeout = '{BUSY_SECONDS}s'; SET idle_in_transaction_session_timeout = '30s'"
CONNECTION = {  # a database that no longer answers is noticed within ten seconds
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
REFUSED = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
START_SECONDS = 0.5  # between two tries while a server that starts waits for its database
UPGRADE_LOCK = EVENTS_LOCK + 1  # one server after the other
OLD_TABLES = ("budgets", "model_parts", "models")  # of release 0.3
JUMP_SECONDS = 60.0  # by which wall and monotonic time differ after a jump of the clock
SETTLE_SECONDS = 600.0  # a clock that has gone evenly for so long is believed
DISK_FULL = ("disk is full", "No space left", "could not extend file", "disk full")

metadata = sa.MetaData()
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers only INTEGER keys by itself

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", Id, primary_key=True, autoincrement=True),
    sa.Column("event_id", sa.Text, nullable=False, unique=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("item_id", sa.Text, nullable=False),
    sa.Column("time", sa.BigInteger, nullable=False),  # microseconds since 1970 UTC
    sa.Column("weight", sa.Float),
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
    sa.Column("used", sa.Boolean, nullable=False, default=False),  # whether its outcome is known
    sa.Column("arm", sa.Text),  # "experiment/arm"; null outside of experiments
    sa.Column("n_before", sa.BigInteger),  # events of the user that the model knew, in experiments only
)
IS_PURCHASE = sa.or_(events.c.weight.is_(None), events.c.weight >= 0)  # and no return
sa.Index("lists_made", lists.c.made)
sa.Index("lists_user", lists.c.user_id, lists.c.made)
sa.Index("events_user", events.c.user_id, events.c.time)
activations = sa.Table(
    "activations",
    metadata,
    sa.Column("number", Id, primary_key=True, autoincrement=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),  # of the model file
    sa.Column("events_until", sa.BigInteger, nullable=False),  # events up to this one are in the file
    sa.Column("cutoff", sa.LargeBinary),  # a cutoff that replaces the one of the file
    sa.Column("forgotten_until", sa.BigInteger, nullable=False),  # users up to this one are not in the file
    sa.Column("activated", sa.Float, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
cutoffs = sa.Table(
    "cutoffs",
    metadata,
    sa.Column("cutoff_id", sa.Text, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
)
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("minute", sa.BigInteger, primary_key=True),
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
)
settings = sa.Table(
    "settings",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


experiments = sa.Table(
    "experiments",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),  # JSON
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
)
exposures = sa.Table(
    "exposures",
    metadata,
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("arm", sa.Text, nullable=False),
    sa.Column("first", sa.Float, nullable=False),  # when the user got the first list
    sa.Column("n_before", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text),  # JSON; null until the window has passed
    sa.Column("complete", sa.Float),  # when the outcome was stored
)
sa.Index("exposures_first", exposures.c.experiment, exposures.c.first)
forgotten = sa.Table(
    "forgotten",
    metadata,
    sa.Column("number", Id, primary_key=True, autoincrement=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("events_until", sa.BigInteger, nullable=False),  # later events of the user are kept
    sa.Column("forgotten", sa.Float, nullable=False),
    sqlite_autoincrement=True,
)


class StoreError(ShortlistError, RuntimeError):
    """The event store cannot be reached now; the request can be repeated."""


class StoreAwayError(StoreError):
    """The database does not answer, or another server holds a lock for too long; it is worth to wait."""


class RowError(StoreError):
    """The database refuses the content of a row; to repeat it is useless."""


class StoreFullError(StoreError):
    """The disk of the event store is full."""


class Activation(NamedTuple):
    """One row of the table of activations."""

    number: int
    model: str
    checksum: str
    events_until: int
    cutoff: bytes | None
    forgotten_until: int
    activated: float
    note: str


class ModelChecksums(NamedTuple):
    """Model files that a store names, apart from those of the arms of the running experiment."""

    activated: list[str]  # latest first
    ended: list[str]  # of arms of earlier experiments


class ForgottenUser(NamedTuple):
    """A user who was erased: what the models knew until this event, and what was deleted here."""

    number: int
    user_id: str
    events_until: int
    n_events: int = 0
    n_lists: int = 0


class ListRow(NamedTuple):
    """One row of the table of lists."""

    list_id: str
    user_id: str | None
    model: str
    cutoff: str | None
    made: float
    items: str
    probabilities: str | None
    reason: str | None
    share: float
    used: bool = False
    arm: str | None = None
    n_before: int | None = None


class Exposure(NamedTuple):
    """A user of an experiment; the outcome is None until the window has passed."""

    experiment: str
    user_id: str
    arm: str
    first: float
    n_before: int
    outcome: str | None = None
    complete: float | None = None


class EventStore:
    """Access to the tables; every method is one transaction and may be called from any thread."""

    def __init__(self, url: str) -> None:
        try:
            self.url = sa.make_url(url)
        except sa.exc.ArgumentError:
            raise ConfigError(
                "db must be an address such as sqlite:///events.sqlite or postgresql://user@host/name; "
                "check its form."
            ) from None
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if not self.is_sqlite and self.url.get_backend_name() != "postgresql":
            raise ConfigError(
                f"db must be SQLite or PostgreSQL, got {self.url.get_backend_name()}; use one of them."
            )
        self._ahead: float | None = None  # seconds by which the database is ahead of `time.monotonic`
        self._even_since = time.monotonic()  # when the clock was first read, or has jumped
        self.has_jumped = False  # and was not settled since
        arguments: dict[str, Any] = {"timeout": BUSY_SECONDS, "check_same_thread": False}
        if not self.is_sqlite:  # what the address says counts more
            arguments = {name: value for name, value in CONNECTION.items() if name not in self.url.query}
        self._engine = sa.create_engine(
            self.url, pool_pre_ping=True, hide_parameters=True, connect_args=arguments
        )
        if self.is_sqlite:
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_immediately)
        else:
            sa.event.listen(self._engine, "connect", _prepare_postgres)
        # the one that is not used would take a tenth of a second to import
        self._insert = import_module(f"sqlalchemy.dialects.{self.url.get_backend_name()}").insert
        marks = ", ".join(["?" if self.is_sqlite else "%s"] * len(ListRow._fields))
        columns = ", ".join(ListRow._fields)
        self._insert_lists = (
            f"INSERT INTO lists ({columns}) VALUES ({marks}) ON CONFLICT (list_id) DO NOTHING"
        )

    def create(self) -> None:
        """Create the tables that do not exist yet; ConfigError if the database cannot be used.

        StoreAwayError if it does not answer: `wait_for_store` tries again.
        """
        if self.is_sqlite and self.url.database not in (None, "", ":memory:"):
            with suppress(OSError):  # SQLite itself says what is wrong with the path
                os.close(os.open(str(self.url.database), os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            if not self.is_sqlite:
                self._check_encoding()
            with self._begin() as connection:
                self._lock_events(connection)
                metadata.create_all(connection)
                _add_columns(connection)
        except StoreFullError:
            raise
        except StoreError as error:
            kind = StoreAwayError if isinstance(error, StoreAwayError) else ConfigError
            raise kind(
                "the event store cannot be opened; check db: the path of a SQLite file must be writable, a "
                "PostgreSQL server must run and accept the user and the password."
            ) from None

    def export_models(self, folder: Path) -> None:
        """Write the model files that release 0.3 kept in the database into a folder, then drop its tables."""
        find = sa.text("SELECT content FROM model_parts WHERE checksum = :checksum AND number = :number")
        with self._begin() as connection:
            if not self.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(UPGRADE_LOCK)))
            present = [name for name in OLD_TABLES if sa.inspect(connection).has_table(name)]
            query = "SELECT checksum FROM models"
            rows: Any = connection.exec_driver_sql(query) if "models" in present else ()
            for (checksum,) in list(rows):
                number, path = 0, kept_path(folder, checksum)
                if path.is_file():
                    continue
                try:
                    with atomic_write(path) as temporary, temporary.open("wb") as file:
                        while content := connection.scalar(find, {"checksum": checksum, "number": number}):
                            file.write(content)
                            number += 1
                except DataError as error:
                    raise ConfigError(
                        f"model files of release 0.3 must leave the database: {error} Run the service or "
                        "`shortlist service refit` once where the folder of the model can be written."
                    ) from None
            for name in present:
                connection.exec_driver_sql(f"DROP TABLE {name}")

    def _check_encoding(self) -> None:
        """Raise ConfigError unless the database holds every id."""
        try:
            with self._read() as connection:
                encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        except TypeError:  # the driver returns bytes if the database has no encoding
            encoding = "SQL_ASCII"
        if str(encoding).upper() not in ("UTF8", "UTF-8"):
            raise ConfigError(
                f"the database of the event store must have the encoding UTF8, got {encoding}; "
                "create it with `createdb --encoding=UTF8 --template=template0`."
            )

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        """A transaction."""
        with _plain_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        """A connection without a transaction of its own, so that readers never wait for a writer."""
        options = {"isolation_level": "AUTOCOMMIT"}
        with _plain_errors(), self._engine.connect().execution_options(**options) as connection:
            yield connection

    def _rows(self, query: sa.Select[Any], user_ids: Sequence[str] | None = None) -> list[Any]:
        """The rows of a query; those of many users come in slices that fit into one."""
        with self._read() as connection:
            if user_ids is None:
                return list(connection.execute(query))
            named = query.selected_columns.user_id
            return [
                row for some in _slices(user_ids) for row in connection.execute(query.where(named.in_(some)))
            ]

    def _lock_events(self, connection: sa.Connection) -> None:
        """Let no other server write events until the end of the transaction; SQLite has one writer anyway."""
        if not self.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(EVENTS_LOCK)))

    # ------------------------------------------------------------------ time
    def now(self) -> float:
        """Seconds since 1970 on the clock of the database; this machine only counts on from the last look."""
        if self._ahead is None:
            self.read_time()
        return time.monotonic() + (self._ahead or 0.0)

    def read_time(self) -> None:
        """Look at the clock of the database; that of SQLite is the clock of this machine."""
        seconds = time.time()
        if not self.is_sqlite:
            with self._read() as connection:
                now = sa.select(sa.extract("epoch", sa.func.clock_timestamp()))
                seconds = float(connection.scalar(now) or 0)
        ahead = seconds - time.monotonic()
        if self._ahead is None or abs(ahead - self._ahead) > JUMP_SECONDS:
            self.has_jumped, self._even_since = self._ahead is not None, time.monotonic()
        elif self.time_is_settled:
            self.has_jumped = False
        self._ahead = ahead

    @property
    def time_is_settled(self) -> bool:
        """Whether the clock has gone evenly for a while, so that windows may close and old rows may go.

        A machine that starts with a wrong clock corrects it soon; the clock of PostgreSQL is believed.
        """
        return not self.is_sqlite or time.monotonic() - self._even_since >= SETTLE_SECONDS

    # ------------------------------------------------------------------ events
    def add_events(self, batches: Sequence[Sequence[Mapping[str, Any]]]) -> list[int]:
        """Store several batches in one transaction; return how many events of each were new."""
        insert = (
            self._insert(events)
            .on_conflict_do_nothing(index_elements=["event_id"])
            .returning(events.c.seq)  # one row per new event
        )
        with self._begin() as connection:
            self._lock_events(connection)
            return [len(connection.execute(insert, list(rows)).all()) if rows else 0 for rows in batches]

    def events_after(self, seq: int, limit: int) -> list[Any]:
        """Up to `limit` events with larger numbers, in order."""
        query = sa.select(events).where(events.c.seq > seq).order_by(events.c.seq).limit(limit)
        return self._rows(query)

    def later_events(self, user_ids: Sequence[str], seq: int) -> list[Any]:
        """Events of these users with larger numbers, in order."""
        rows = self._rows(sa.select(events).where(events.c.seq > seq), user_ids)
        return sorted(rows, key=lambda row: int(row.seq))

    def events_of(self, user_ids: Sequence[str], start: float, end: float) -> dict[str, list[Any]]:
        """Purchases of these users received after `start` and not after `end`, by user."""
        received = events.c.received
        query = sa.select(events).where(received > start, received <= end, IS_PURCHASE)
        return _by_user(self._rows(query, user_ids))

    def last_event(self) -> int:
        """The number of the newest event, 0 for none."""
        return int(self._rows(sa.select(sa.func.max(events.c.seq)))[0][0] or 0)

    # ------------------------------------------------------------------ erasure
    def forget_user(self, user_id: str) -> ForgottenUser:
        """Delete the events and the logged lists of a user, and note it for the models."""
        with self._begin() as connection:
            self._lock_events(connection)
            last = int(connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0)
            n_events = connection.execute(sa.delete(events).where(events.c.user_id == user_id)).rowcount
            n_lists = connection.execute(sa.delete(lists).where(lists.c.user_id == user_id)).rowcount
            connection.execute(sa.delete(exposures).where(exposures.c.user_id == user_id))
            values = {"user_id": user_id, "events_until": last, "forgotten": self.now()}
            key = connection.execute(sa.insert(forgotten).values(values)).inserted_primary_key
        with suppress(StoreError), self._read() as connection:
            if self.is_sqlite:  # the log of SQLite still has the deleted pages
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return ForgottenUser(int(key[0]) if key is not None else 0, user_id, last, n_events, n_lists)

    def forgotten_after(self, number: int) -> list[ForgottenUser]:
        """Users who were forgotten later, in order."""
        query = sa.select(forgotten).where(forgotten.c.number > number).order_by(forgotten.c.number)
        return [ForgottenUser(row.number, row.user_id, row.events_until) for row in self._rows(query)]

    # ------------------------------------------------------------------ lists
    def add_lists(self, rows: Sequence[ListRow]) -> None:
        """Log lists; there are thousands a second, so the rows go to the driver as they are."""
        if rows:
            with self._begin() as connection:
                connection.exec_driver_sql(self._insert_lists, list(rows))
                self._add_exposures(connection, [row for row in rows if row.arm and row.user_id is not None])

    def _add_exposures(self, connection: sa.Connection, rows: Sequence[ListRow]) -> None:
        """Note the users who are in an experiment for the first time."""
        values = [
            Exposure(experiment, str(row.user_id), arm, row.made, row.n_before or 0)._asdict()
            for row in rows
            for experiment, _, arm in [str(row.arm).partition("/")]
        ]
        if values:
            connection.execute(self._insert(exposures).on_conflict_do_nothing(), values)

    def open_lists(self, user_ids: Sequence[str], start: float, end: float) -> dict[str, list[Any]]:
        """Lists between two times in seconds whose outcome is not known, by user, oldest first."""
        query = sa.select(lists).where(lists.c.made.between(start, end), ~lists.c.used)
        return _by_user(self._rows(query.order_by(lists.c.made, lists.c.list_id), user_ids))

    def expired_lists(self, model: str, before: float, limit: int) -> list[Any]:
        """Up to `limit` lists of a model from before a time whose outcome is not known, oldest first."""
        query = (
            sa.select(lists)
            .where(lists.c.model == model, lists.c.made < before, ~lists.c.used)
            .order_by(lists.c.made, lists.c.list_id)
            .limit(limit)
        )
        return self._rows(query)

    def close_lists(self, list_ids: Sequence[str], name: str, before: str | None, after: str) -> bool:
        """Mark lists whose outcome is known and change a setting, unless another worker changed it first."""
        insert = self._insert(settings).values({"name": name, "value": after})
        upsert = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={"value": insert.excluded.value},
            where=settings.c.value == before if before is not None else sa.false(),
        ).returning(settings.c.name)
        with self._begin() as connection:
            if connection.execute(upsert).first() is None:
                return False
            for some in _slices(list_ids):
                connection.execute(sa.update(lists).where(lists.c.list_id.in_(some)).values(used=True))
        return True

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to `limit` lists, and all counters, from before a time; return the number of lists."""
        old = sa.select(lists.c.list_id).where(lists.c.made < before).order_by(lists.c.made).limit(limit)
        with self._begin() as connection:
            removed = connection.execute(sa.delete(lists).where(lists.c.list_id.in_(old))).rowcount
            connection.execute(sa.delete(counters).where(counters.c.minute < before // 60))
        return removed

    # ------------------------------------------------------------------ experiments
    def start_experiment(self, name: str, definition: str, started: float) -> None:
        """Begin an experiment; ConfigError if another one runs or the name was used before."""
        with self._begin() as connection:
            self._lock_events(connection)
            query = sa.select(experiments.c.name).where(experiments.c.ended.is_(None))
            running = connection.scalar(query)
            if running is not None:
                raise ConfigError(
                    f"a user can be in one experiment only, and {running!r} runs; stop it before you start "
                    "another one. Arms cannot be changed while an experiment runs."
                )
            if connection.scalar(sa.select(experiments.c.name).where(experiments.c.name == name)):
                raise ConfigError(f"an experiment named {name!r} has ended already; choose another name.")
            values = {"name": name, "definition": definition, "started": started, "ended": None}
            connection.execute(sa.insert(experiments).values(values))

    def stop_experiment(self, name: str, ended: float) -> None:
        """End an experiment; one that has ended stays as it is."""
        change = sa.update(experiments).where(experiments.c.name == name, experiments.c.ended.is_(None))
        with self._begin() as connection:
            connection.execute(change.values(ended=ended))

    def experiment(self, name: str | None, *, running: bool = False) -> Any:
        """(name, definition, started, ended) of one experiment or of the latest; None if there is none."""
        query = sa.select(experiments).order_by(experiments.c.started.desc(), experiments.c.name).limit(1)
        if name is not None:
            query = query.where(experiments.c.name == name)
        if running:
            query = query.where(experiments.c.ended.is_(None))
        with self._read() as connection:
            return connection.execute(query).first()

    def open_experiments(self) -> list[Any]:
        """Experiments that run or have users whose outcome is not known."""
        waiting = sa.select(exposures.c.experiment).where(exposures.c.outcome.is_(None))
        query = sa.select(experiments).where(
            sa.or_(experiments.c.ended.is_(None), experiments.c.name.in_(waiting))
        )
        return self._rows(query)

    def open_exposures(self, experiment: str, before: float, limit: int) -> list[Exposure]:
        """Users whose first list is older and whose outcome is not known, oldest first."""
        query = (
            sa.select(exposures)
            .where(
                exposures.c.experiment == experiment,
                exposures.c.first < before,
                exposures.c.outcome.is_(None),
            )
            .order_by(exposures.c.first, exposures.c.user_id)
            .limit(limit)
        )
        return [Exposure(*row) for row in self._rows(query)]

    def save_outcomes(self, experiment: str, values: Mapping[str, str], complete: float) -> None:
        """Store the outcomes of users (user id → JSON)."""
        change = (
            sa.update(exposures)
            .where(exposures.c.experiment == experiment, exposures.c.user_id == sa.bindparam("user"))
            .values(outcome=sa.bindparam("value"), complete=complete)
        )
        with self._begin() as connection:
            connection.execute(change, [{"user": user, "value": value} for user, value in values.items()])

    def outcomes(self, experiment: str) -> list[Exposure]:
        """Users whose outcome is known, in the order of their first lists."""
        query = (
            sa.select(exposures)
            .where(exposures.c.experiment == experiment, exposures.c.outcome.is_not(None))
            .order_by(exposures.c.first, exposures.c.user_id)
        )
        return [Exposure(*row) for row in self._rows(query)]

    def count_exposures(self, experiment: str) -> dict[str, int]:
        """Arm → number of users who got a list."""
        query = (
            sa.select(exposures.c.arm, sa.func.count())
            .where(exposures.c.experiment == experiment)
            .group_by(exposures.c.arm)
        )
        return {str(arm): int(n) for arm, n in self._rows(query)}

    def lists_of_users(self, user_ids: Sequence[str], start: float, end: float) -> list[Any]:
        """Logged lists of these users from start to end, in the order of time."""
        query = sa.select(lists).where(lists.c.made >= start, lists.c.made < end)
        return self._rows(query.order_by(lists.c.made, lists.c.list_id), user_ids)

    def events_of_users(self, user_ids: Sequence[str], start: float, end: float) -> list[Any]:
        """Purchases of these users that were received from start to end, in the order of arrival."""
        received = events.c.received
        query = sa.select(events).where(received >= start, received < end, IS_PURCHASE)
        return self._rows(query.order_by(received, events.c.seq), user_ids)

    # ------------------------------------------------------------------ activations and cutoffs
    def add_activation(
        self,
        model: str,
        checksum: str,
        events_until: int,
        note: str,
        cutoff: bytes | None = None,
        forgotten_until: int = 0,
    ) -> int:
        """Record which model is served from now on; every worker follows."""
        values = {
            "model": model,
            "checksum": checksum,
            "events_until": events_until,
            "cutoff": cutoff,
            "forgotten_until": forgotten_until,
            "activated": self.now(),
            "note": note,
        }
        with self._begin() as connection:
            key = connection.execute(sa.insert(activations).values(values)).inserted_primary_key
            return int(key[0]) if key is not None else 0

    def activations(
        self, limit: int, *, model: str | None = None, checksum: str | None = None, number: int | None = None
    ) -> list[Activation]:
        """The latest activations, newest first; of one model, file or number if it is given."""
        wanted = {"model": model, "checksum": checksum, "number": number}
        query = sa.select(activations).order_by(activations.c.number.desc()).limit(limit)
        query = query.where(
            *(activations.c[name] == value for name, value in wanted.items() if value is not None)
        )
        return [Activation(*row) for row in self._rows(query)]

    def model_checksums(self) -> ModelChecksums:
        """Checksums of the model files that this store names."""
        definitions = self._rows(sa.select(experiments.c.definition, experiments.c.ended))
        arms: dict[bool, list[str]] = {True: [], False: []}
        for definition, ended in definitions:
            found = [arm.get("checksum") for arm in json.loads(definition)["arms"]]
            arms[ended is None] += [checksum for checksum in found if checksum is not None]
        activated = [one.checksum for one in self.activations(1_000) if one.checksum not in arms[True]]
        ended = [checksum for checksum in arms[False] if checksum not in (*arms[True], *activated)]
        return ModelChecksums(list(dict.fromkeys(activated)), ended)

    def add_cutoff(self, cutoff_id: str, content: bytes) -> None:
        """Store a fitted cutoff under its id."""
        values = {"cutoff_id": cutoff_id, "content": content, "created": self.now()}
        insert = self._insert(cutoffs).values(values).on_conflict_do_nothing(index_elements=["cutoff_id"])
        with self._begin() as connection:
            connection.execute(insert)

    def cutoff(self, cutoff_id: str) -> bytes | None:
        """The content of a stored cutoff."""
        with self._read() as connection:
            return connection.scalar(sa.select(cutoffs.c.content).where(cutoffs.c.cutoff_id == cutoff_id))

    # ------------------------------------------------------------------ counters and settings
    def put_counters(self, worker: str, minute: int, values: Mapping[str, float]) -> None:
        """Replace the counters of one worker and minute."""
        rows = [
            {"minute": minute, "worker": worker, "name": name, "value": value}
            for name, value in values.items()
        ]
        if rows:
            insert = self._insert(counters)
            upsert = insert.on_conflict_do_update(
                index_elements=["minute", "worker", "name"], set_={"value": insert.excluded.value}
            )
            with self._begin() as connection:
                connection.execute(upsert, rows)

    def counters_since(self, minute: int) -> list[Any]:
        """(minute, name, value) summed over workers."""
        total = sa.func.sum(counters.c.value).label("value")
        query = (
            sa.select(counters.c.minute, counters.c.name, total)
            .where(counters.c.minute >= minute)
            .group_by(counters.c.minute, counters.c.name)
            .order_by(counters.c.minute, counters.c.name)
        )
        return self._rows(query)

    def claim(self, name: str, turn: int, ahead: int) -> bool:
        """Whether this call is the first of all workers with this turn.

        Turns grow. One that lies further ahead than `ahead` was claimed by a clock that was wrong.
        """
        insert = self._insert(settings).values({"name": name, "value": f"{turn:020d}"})
        stored, limit = settings.c.value, f"{turn + ahead:020d}"
        upsert = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={"value": insert.excluded.value},
            where=sa.or_(stored < insert.excluded.value, stored > limit),
        ).returning(settings.c.name)  # not every driver counts the rows of an insert
        with self._begin() as connection:
            return connection.execute(upsert).first() is not None

    def put_setting(self, name: str, value: str) -> None:
        """Store a text under a name."""
        insert = self._insert(settings).values({"name": name, "value": value})
        upsert = insert.on_conflict_do_update(index_elements=["name"], set_={"value": value})
        with self._begin() as connection:
            connection.execute(upsert)

    def setting(self, name: str) -> str | None:
        """The text stored under a name."""
        with self._read() as connection:
            return connection.scalar(sa.select(settings.c.value).where(settings.c.name == name))


def wait_for_store(action: Callable[[], None], stop: threading.Event) -> None:
    """Do something at the start; as long as the database does not answer, try again until `stop` is set."""
    logged = -60.0
    while True:
        try:
            action()
        except StoreAwayError as error:
            if time.monotonic() - logged >= 60:
                logged = time.monotonic()
                write_log({"level": "warning", "task": "start", "problem": f"waiting: {error}"})
            if stop.wait(START_SECONDS):
                raise
        else:
            return


def erase_user(database: str, user_id: str) -> ForgottenUser:
    """Delete the events and logged lists of a user; services on this store follow within a second.

    `database` is the address in `ServeConfig.database`. What the model files know of the user goes with the
    next refit.
    """
    store = EventStore(database)
    try:
        store.create()
        return store.forget_user(user_id)
    finally:
        store.close()


def _add_columns(connection: sa.Connection) -> None:
    """Add the columns that a store of release 0.2 lacks."""
    present = sa.inspect(connection)
    for table in metadata.sorted_tables:
        names = {column["name"] for column in present.get_columns(table.name)}
        for column in table.columns:
            if column.name not in names:
                kind = column.type.compile(connection.dialect)
                rule = "" if column.nullable else " NOT NULL DEFAULT 0"
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}{rule}")


def _by_user(rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Rows by user, in their order."""
    by_user: dict[str, list[Any]] = {}
    for row in rows:
        by_user.setdefault(row.user_id, []).append(row)
    return by_user


def _slices(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """Slices that fit into one query; SQLite limits the number of variables."""
    return (values[first : first + 500] for first in range(0, len(values), 500))


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Readers do not block the writer, and a commit is on the disk before it returns."""
    connection.isolation_level = None  # transactions begin where `_begin_immediately` says
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten
    cursor.close()


def _prepare_postgres(connection: Any, _: Any) -> None:
    """Wait for no lock, and keep none, longer than a request may take."""
    connection.execute(SESSION)
    connection.commit()


def _begin_immediately(connection: sa.Connection) -> None:
    """Take the write lock first, so that a transaction waits for others instead of failing midway."""
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of the database, without address, query and data."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise _store_error(error) from None
    except sa.exc.TimeoutError:
        raise StoreError("the event store is busy; repeat the request in a few seconds.") from None
    except (UnicodeError, OverflowError) as error:  # of the driver
        raise RowError(f"the event store refuses a value ({type(error).__name__}); change it.") from None


def _store_error(error: sa.exc.DBAPIError) -> StoreError:
    """A sentence without address, query or data."""
    text = str(error.orig)
    if any(word in text for word in DISK_FULL):
        return StoreFullError("the disk of the event store is full; free space and repeat the request.")
    if isinstance(error, (sa.exc.DataError, sa.exc.IntegrityError)):
        return RowError(f"the event store refuses a value ({type(error.orig).__name__}); change it.")
    is_away = isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)) and (
        type(error.orig).__module__.startswith("psycopg") and not any(word in text for word in REFUSED)
    )
    kind = StoreAwayError if is_away else StoreError
    return kind("the event store cannot be reached; repeat the request in a few seconds.")


MAX_LISTS = 100_000  # logged lists that wait for the store; more are counted and dropped
LISTS_EVERY = 0.5  # seconds; larger groups touch fewer pages per list
LISTS_AT_ONCE = 2_500
MAX_WAITING = 64  # requests that wait for a database that is away; it answers further ones at once
AGAIN_SECONDS = 0.1  # between two tries

Rows = Sequence[Mapping[str, Any]]


class EventBatch(NamedTuple):
    """The events of a request, who waits for them, and until when."""

    rows: Rows
    future: "Future[int]"
    until: float


class StoreWriter:
    """Groups what concurrent requests write; events are confirmed after the commit, lists are not.

    While the database does not answer, as when it restarts, events wait for it for `patience` seconds.
    """

    def __init__(self, store: EventStore, patience: float = 0.0) -> None:
        self._store, self._patience = store, patience
        self._is_away = False
        self._events: deque[EventBatch] = deque()
        self._lists: deque[ListRow] = deque()
        self.lists_dropped = 0
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def add_events(self, rows: Rows) -> "Future[int]":
        """Store events; the future holds the number of new ones once they are durable."""
        future: Future[int] = Future()
        with self._wake:
            if self._closed:
                raise StoreError("the service is shutting down; repeat the request in a few seconds.")
            if self._is_away and len(self._events) >= MAX_WAITING:
                raise StoreError("the event store cannot be reached; repeat the request in a few seconds.")
            self._events.append(EventBatch(rows, future, time.monotonic() + self._patience))
            self._wake.notify()
        return future

    def add_lists(self, rows: Sequence[ListRow]) -> None:
        """Log lists within a second."""
        self.lists_dropped += max(len(self._lists) + len(rows) - MAX_LISTS, 0)
        self._lists.extend(rows[: MAX_LISTS - len(self._lists)])

    def close(self) -> None:
        """Write what is waiting, then stop."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        closed = False
        while not closed:
            with self._wake:
                if not self._events and not self._closed:
                    self._wake.wait(LISTS_EVERY)
                closed = self._closed
                waiting = [self._events.popleft() for _ in range(len(self._events))]
            self._write_events(waiting)
            if self._is_away:
                time.sleep(AGAIN_SECONDS)
            else:
                self._write_lists(everything=closed)

    def _write_events(self, waiting: list[EventBatch]) -> None:
        """Store the events of several requests; if one cannot be stored, the others are."""
        waiting = [b for b in waiting if b.future.running() or b.future.set_running_or_notify_cancel()]
        self._is_away = False
        if not waiting:
            return
        try:
            counts = self._store.add_events([batch.rows for batch in waiting])
        except StoreAwayError as error:
            self._wait_for_store(waiting, error)
            return
        except Exception as error:  # whatever it is, the requests must be answered
            is_row = isinstance(error, RowError) or not isinstance(error, StoreError)
            for rows, future, _ in waiting:
                try:
                    if not is_row or len(waiting) == 1:
                        raise error
                    future.set_result(self._store.add_events([rows])[0])
                except Exception as cause:
                    future.set_exception(cause)
            return
        for batch, count in zip(waiting, counts, strict=True):
            batch.future.set_result(count)

    def _wait_for_store(self, waiting: list[EventBatch], error: StoreAwayError) -> None:
        """Keep events that may still wait for the database; answer the others."""
        with self._wake:
            n_kept = 0 if self._closed else MAX_WAITING
            at = time.monotonic()
            late = [batch for batch in waiting if at >= batch.until]
            kept = [batch for batch in waiting if at < batch.until]
            self._events.extendleft(reversed(kept[:n_kept]))
            self._is_away = bool(kept)
        for batch in (*late, *kept[n_kept:]):
            batch.future.set_exception(error)

    def _write_lists(self, *, everything: bool) -> None:
        """Write lists; those that cannot be written now are kept, those that never can are dropped."""
        at_once = LISTS_AT_ONCE
        while self._lists:
            rows = [self._lists.popleft() for _ in range(min(len(self._lists), at_once))]
            try:
                self._store.add_lists(rows)
            except Exception as error:  # no row may stop the thread
                if isinstance(error, StoreError) and not isinstance(error, RowError):
                    self._lists.extendleft(reversed(rows))
                    return
                at_once = max(len(rows) // 8, 1)  # until the bad row is alone
                if len(rows) > 1:
                    self._lists.extendleft(reversed(rows))
                else:
                    self.lists_dropped += 1
                continue
            at_once = min(2 * at_once, LISTS_AT_ONCE)
            if not everything and self._events:
                return
