"""Results on disk, one JSON file each, named by a hash of their settings: a killed run continues."""

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.files import atomic_write
from shortlist.types import Doubles

LAYOUT = 1  # raised when what a unit holds changes, so that older ones are made anew


class ResultCache:
    """A folder of finished work."""

    def __init__(self, folder: Path, told: Callable[[str], None] | None = None) -> None:
        self.folder, self.told = folder, told
        self.seconds = 0.0  # of the units asked for, whenever they were made

    def path(self, kind: str, settings: dict[str, Any], ending: str = "json") -> Path:
        """Where a unit of these settings lies."""
        text = json.dumps([LAYOUT, kind, settings], sort_keys=True)
        return self.folder / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.{ending}"

    def get(
        self, kind: str, settings: dict[str, Any], make: Callable[[], dict[str, Any]], label: str
    ) -> dict[str, Any]:
        """The unit's result: from disk where it is there, else made and written."""
        path = self.path(kind, settings)
        found = _read(path)
        if found is None:
            began = time.perf_counter()
            made = make()
            found = {
                "kind": kind,
                "settings": settings,
                "seconds": round(time.perf_counter() - began, 2),
                "result": made,
            }
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
            if self.told is not None:
                self.told(f"{label}: {found['seconds']:.1f} s")
        self.seconds += found["seconds"]
        result: dict[str, Any] = json.loads(json.dumps(found["result"]))  # the same types, made or read
        return result


def _read(path: Path) -> dict[str, Any] | None:
    """A whole unit, or None."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"result", "seconds"} <= found.keys() else None


def packed(values: Doubles) -> str:
    """(n,) numbers as text: single precision, compressed; per-user tables would swell JSON otherwise."""
    return base64.b85encode(zlib.compress(np.asarray(values, "<f4").tobytes(), 6)).decode()


def unpacked(text: str) -> Doubles:
    """The way back."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), "<f4").astype(np.float64)
