"""The log of the service: one line of JSON on standard error for each entry."""

import sys
import time
from contextlib import suppress
from typing import Any

import orjson


def write_log(entry: dict[str, Any]) -> None:
    """Write an entry with its time, unless standard error is closed or full: a lost line stops nothing."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(orjson.dumps({"time": stamp, **entry}).decode() + "\n")
        sys.stderr.flush()
