"""The time of day, protected against jumps of the machine's clock, and the log, whose lines begin with it."""

import sys
import threading
import time
from typing import Any

import orjson

JUMP_SECONDS = 60.0  # a larger step than this is a jump
SETTLE_SECONDS = 600.0  # a clock that has jumped is believed after this time


def _steady() -> float:
    """Seconds that only grow, also while the machine sleeps where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    """Seconds since 1970; after a jump, the old time goes on until the new one has lasted for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wall, self._start = time.time(), _steady()
        self._jumped: float | None = None  # when the jump was noticed

    def now(self) -> float:
        """Seconds since 1970."""
        with self._lock:
            wall, steady = time.time(), _steady()
            expected = self._wall + steady - self._start
            if abs(wall - expected) > JUMP_SECONDS:
                self._jumped = steady if self._jumped is None else self._jumped
                if steady - self._jumped < SETTLE_SECONDS:
                    return expected
            self._wall, self._start, self._jumped = wall, steady, None
            return wall

    @property
    def has_jumped(self) -> bool:
        """Whether the machine's clock says another time than `now`."""
        return self._jumped is not None


CLOCK = Clock()


def now() -> float:
    """Seconds since 1970 on the clock of this process."""
    return CLOCK.now()


def write_log(entry: dict[str, Any]) -> None:
    """One line of JSON on standard error."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(orjson.dumps({"time": stamp, **entry}).decode() + "\n")
    sys.stderr.flush()
