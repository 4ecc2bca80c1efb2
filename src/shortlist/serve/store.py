"""The event store: a log in SQLite or PostgreSQL, with snapshots of what was concluded from it.

Concurrent requests write through `StoreWriter`, which groups their rows.

Events, lists and changes are appended, and read after a number or for some users. Snapshots replace each
other, and turns are claimed by one of several workers. `tables` names what is stored; `projections`,
`experiments` and `metrics` conclude the rest.
"""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NamedTuple

import sqlalchemy as sa

from shortlist.errors import ConfigError, ShortlistError
from shortlist.serve.log import write_log
from shortlist.serve.tables import changes, counters, events, lists, snapshots, upgrade_tables

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
JUMP_SECONDS = 60.0  # by which wall and monotonic time differ after a jump of the clock
SETTLE_SECONDS = 600.0  # a clock that has gone evenly for so long is believed
DISK_FULL = ("disk is full", "No space left", "could not extend file", "disk full")


class StoreError(ShortlistError, RuntimeError):
    """The event store cannot be reached now; the request can be repeated."""


class StoreAwayError(StoreError):
    """The database does not answer, or another server holds a lock for too long; it is worth to wait."""


class RowError(StoreError):
    """The database refuses the content of a row; to repeat it is useless."""


class StoreFullError(StoreError):
    """The disk of the event store is full."""


class ListRow(NamedTuple):
    """One row of the log of lists."""

    list_id: str
    user_id: str | None
    model: str
    cutoff: str | None
    made: float
    items: str
    probabilities: str | None
    reason: str | None
    share: float
    arm: str | None = None
    n_before: int | None = None


class Change(NamedTuple):
    """One row of the log of changes: an activation, an experiment or an erased user."""

    number: int
    kind: str
    name: str
    at: float
    content: dict[str, Any]


class EventStore:
    """Access to the log; every method is one transaction and may be called from any thread."""

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
        self.on_lists: list[Callable[[sa.Connection, Sequence[ListRow]], None]] = []  # projections
        # the one that is not used would take a tenth of a second to import
        self.insert = import_module(f"sqlalchemy.dialects.{self.url.get_backend_name()}").insert
        marks = ", ".join(["?" if self.is_sqlite else "%s"] * len(ListRow._fields))
        columns = ", ".join(ListRow._fields)
        self._insert_lists = (
            f"INSERT INTO lists ({columns}) VALUES ({marks}) ON CONFLICT (list_id) DO NOTHING"
        )

    def create(self) -> None:
        """Create the tables, or bring those of release 0.3 up to date.

        ConfigError if the database cannot be used; StoreAwayError if it does not answer.
        """
        if self.is_sqlite and self.url.database not in (None, "", ":memory:"):
            with suppress(OSError):  # SQLite itself says what is wrong with the path
                os.close(os.open(str(self.url.database), os.O_CREAT | os.O_WRONLY, 0o600))
        try:
            if not self.is_sqlite:
                self._check_encoding()
            with self.begin(in_order=True) as connection:
                upgrade_tables(connection)
        except (StoreFullError, ConfigError):
            raise
        except StoreError as error:
            kind = StoreAwayError if isinstance(error, StoreAwayError) else ConfigError
            raise kind(
                "the event store cannot be opened; check db: the path of a SQLite file must be writable, a "
                "PostgreSQL server must run and accept the user and the password."
            ) from None

    def _check_encoding(self) -> None:
        """Raise ConfigError unless the database holds every id."""
        try:
            with self.read() as connection:
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
    def begin(self, *, in_order: bool = False) -> Iterator[sa.Connection]:
        """A transaction; `in_order`: one after the other, so that numbers become visible in order."""
        with _plain_errors(), self._engine.begin() as connection:
            if in_order and not self.is_sqlite:  # SQLite has one writer anyway
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(EVENTS_LOCK)))
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection without a transaction of its own, so that readers never wait for a writer."""
        options = {"isolation_level": "AUTOCOMMIT"}
        with _plain_errors(), self._engine.connect().execution_options(**options) as connection:
            yield connection

    def rows(self, query: sa.Select[Any], user_ids: Sequence[str] | None = None) -> list[Any]:
        """The rows of a query; those of many users come in slices that fit into one."""
        with self.read() as connection:
            if user_ids is None:
                return list(connection.execute(query))
            named = query.selected_columns.user_id
            return [
                row for some in slices(user_ids) for row in connection.execute(query.where(named.in_(some)))
            ]

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
            with self.read() as connection:
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

    # ------------------------------------------------------------------ the log
    def add_events(self, batches: Sequence[Sequence[Mapping[str, Any]]]) -> list[int]:
        """Store several batches in one transaction; return how many events of each were new."""
        insert = (
            self.insert(events)
            .on_conflict_do_nothing(index_elements=["event_id"])
            .returning(events.c.seq)  # one row per new event
        )
        with self.begin(in_order=True) as connection:
            return [len(connection.execute(insert, list(rows)).all()) if rows else 0 for rows in batches]

    def add_lists(self, rows: Sequence[ListRow]) -> None:
        """Log lists; there are thousands a second, so the rows go to the driver as they are."""
        with self.begin() as connection:
            erased = set(connection.scalars(_erased_since(min((row.made for row in rows), default=0.0))))
            rows = [row for row in rows if row.user_id not in erased] if erased else list(rows)
            if rows:
                connection.exec_driver_sql(self._insert_lists, rows)
            for apply in self.on_lists:
                apply(connection, rows)

    def add_change(
        self, kind: str, name: str, content: Mapping[str, Any], connection: sa.Connection | None = None
    ) -> int:
        """Append a change, in a transaction that is in order; return its number."""
        if connection is None:
            with self.begin(in_order=True) as connection:
                return self.add_change(kind, name, content, connection)
        values = {"kind": kind, "name": name, "at": self.now(), "content": json.dumps(content)}
        key = connection.execute(sa.insert(changes).values(values)).inserted_primary_key
        return int(key[0]) if key is not None else 0

    def events_after(self, seq: int, limit: int) -> list[Any]:
        """Up to `limit` events with larger numbers, in order."""
        return self.rows(sa.select(events).where(events.c.seq > seq).order_by(events.c.seq).limit(limit))

    def last_event(self) -> int:
        """The number of the newest event, 0 for none."""
        return int(self.rows(sa.select(sa.func.max(events.c.seq)))[0][0] or 0)

    def changes_after(self, kind: str, number: int) -> list[Change]:
        """Changes of a kind with larger numbers, in order."""
        query = sa.select(changes).where(changes.c.kind == kind, changes.c.number > number)
        return [_parse_change(row) for row in self.rows(query.order_by(changes.c.number))]

    def latest_changes(self, kinds: Sequence[str], limit: int, name: str | None = None) -> list[Change]:
        """The latest changes of some kinds, newest first; of one name if it is given."""
        query = sa.select(changes).where(changes.c.kind.in_(kinds))
        query = query if name is None else query.where(changes.c.name == name)
        return [_parse_change(row) for row in self.rows(query.order_by(changes.c.number.desc()).limit(limit))]

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to `limit` lists, and all counters, from before a time; return the number of lists."""
        old = sa.select(lists.c.list_id).where(lists.c.made < before).order_by(lists.c.made).limit(limit)
        with self.begin() as connection:
            removed = connection.execute(sa.delete(lists).where(lists.c.list_id.in_(old))).rowcount
            connection.execute(sa.delete(counters).where(counters.c.minute < before // 60))
        return removed

    # ------------------------------------------------------------------ snapshots and turns
    def snapshot(self, name: str) -> str | None:
        """The text stored under a name."""
        with self.read() as connection:
            return connection.scalar(sa.select(snapshots.c.content).where(snapshots.c.name == name))

    def replace_snapshot(
        self, name: str, before: str | None, after: str, connection: sa.Connection | None = None
    ) -> bool:
        """Store a text in the place of another one, unless another worker has replaced that first."""
        if connection is None:
            with self.begin() as connection:
                return self.replace_snapshot(name, before, after, connection)
        insert = self.insert(snapshots).values({"name": name, "content": after})
        upsert = insert.on_conflict_do_update(
            index_elements=["name"],
            set_={"content": insert.excluded.content},
            where=snapshots.c.content == before if before is not None else sa.false(),
        ).returning(snapshots.c.name)  # not every driver counts the rows of an insert
        return connection.execute(upsert).first() is not None

    def claim(self, name: str, turn: int, ahead: int) -> bool:
        """Whether this call is the first of all workers with this turn.

        Turns grow. One that lies further ahead than `ahead` was claimed by a clock that was wrong.
        """
        last = self.snapshot(name)
        if last is not None and turn <= int(last) <= turn + ahead:
            return False
        return self.replace_snapshot(name, last, str(turn))


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


def _erased_since(at: float) -> sa.Select[Any]:
    """Users who were erased after a time: a list that was made before may be logged later."""
    return sa.select(changes.c.name).where(changes.c.kind == "erasure", changes.c.at >= at)


def _parse_change(row: Any) -> Change:
    return Change(row.number, row.kind, row.name, row.at, json.loads(row.content))


def slices(values: Sequence[str]) -> Iterator[Sequence[str]]:
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


MAX_LISTS = 100_000  # lists that wait for the store; more are dropped
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
        self._dropped = 0  # lists, since the last line of the log
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
        self._dropped += max(len(self._lists) + len(rows) - MAX_LISTS, 0)
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
            if self._dropped:
                problem, self._dropped = f"{self._dropped:,} lists could not be logged", 0
                write_log({"level": "error", "task": "log lists", "problem": problem})

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
                    self._dropped += 1
                continue
            at_once = min(2 * at_once, LISTS_AT_ONCE)
            if not everything and self._events:
                return
