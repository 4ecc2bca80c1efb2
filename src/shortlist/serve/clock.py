"""The time of day, protected against jumps of the clock; random ids; and the log, whose lines have a time."""

import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

import orjson

JUMP_SECONDS = 60.0  # a larger step than this is a jump
RANDOM_IDS = 256  # that are drawn together
SETTLE_SECONDS = 600.0  # a clock that has jumped is believed after this time


def _steady() -> float:
    """Seconds that only grow, also while the machine sleeps where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Seconds since 1970; after a jump, the old time goes on until the new one has lasted for a while.

    It is the time of this machine or, once `follow` was called, of the database that all servers share.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wall, self._start = time.time(), _steady()
        self._since = self._start  # when the time was last set
        self._jumped: float | None = None  # when the jump was noticed
        self._ahead: float | None = None  # seconds by which the database is ahead of this machine

    def now(self) -> float:
        """Seconds since 1970."""
        with self._lock:
            wall, steady = time.time() + (self._ahead or 0.0), _steady()
            expected = self._wall + steady - self._start
            if abs(wall - expected) > JUMP_SECONDS:
                self._jumped = steady if self._jumped is None else self._jumped
                if steady - self._jumped < SETTLE_SECONDS:
                    return expected
                self._since = steady
            self._wall, self._start, self._jumped = wall, steady, None
            return wall

    def follow(self, seconds: float) -> None:
        """Take over the time of the database; the first one replaces whatever this machine says."""
        with self._lock:
            if self._ahead is None:
                self._wall, self._start, self._jumped = seconds, _steady(), None
            self._ahead = seconds - time.time()

    @property
    def has_jumped(self) -> bool:
        """Whether the clock says another time than `now`."""
        return self._jumped is not None

    @property
    def is_settled(self) -> bool:
        """Whether the time has gone on evenly for a while, so that what is too old may be deleted."""
        return self._jumped is None and _steady() - self._since >= SETTLE_SECONDS


CLOCK = Clock()


def now() -> float:
    """Seconds since 1970 on the clock of this process."""
    return CLOCK.now()


_RANDOM: deque[str] = deque()  # drawn together: each call of the system takes longer than an id


def random_id() -> str:
    """24 hexadecimal digits that cannot be guessed."""
    while True:
        try:
            return _RANDOM.popleft()
        except IndexError:
            text = os.urandom(12 * RANDOM_IDS).hex()
            _RANDOM.extend(text[at : at + 24] for at in range(0, len(text), 24))


def timed_id(seconds: float) -> str:
    """24 hexadecimal digits that cannot be guessed, and that grow with the time.

    Ids in the order of time are added at the end of an index, random ones all over it.
    """
    return f"{int(seconds):08x}{random_id()[:16]}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RANDOM.clear)


def write_log(entry: dict[str, Any]) -> None:
    """One line of JSON on standard error, unless that is closed or full: a lost line stops nothing."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now()))
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(orjson.dumps({"time": stamp, **entry}).decode() + "\n")
        sys.stderr.flush()
