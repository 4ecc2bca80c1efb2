"""Finished results on disk, one JSON file each, named by a hash of its settings, so that runs can resume."""

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

MAX_BYTES = 1 << 30  # of one unpacked array
LAYOUT = 2  # increased when the content of a result changes, so that older files are not reused


class ResultCache:
    """A folder of finished results."""

    def __init__(self, folder: Path, progress: Callable[[str], None] | None = None) -> None:
        self.folder, self.progress = folder, progress
        self.seconds = 0.0  # compute time of all results returned, cached or not

    def path(self, kind: str, settings: dict[str, Any], suffix: str = "json") -> Path:
        """The file of a result with these settings."""
        text = json.dumps([LAYOUT, kind, settings], sort_keys=True)
        return self.folder / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.{suffix}"

    def get(
        self, kind: str, settings: dict[str, Any], compute: Callable[[], dict[str, Any]], label: str
    ) -> dict[str, Any]:
        """Read the result, or compute and write it."""
        path = self.path(kind, settings)
        entry = _read(path)
        if entry is None:
            start = time.perf_counter()
            result = compute()
            entry = {
                "kind": kind,
                "settings": settings,
                "seconds": round(time.perf_counter() - start, 2),
                "result": result,
            }
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps(entry, allow_nan=False), encoding="utf-8")
            if self.progress is not None:
                self.progress(f"{label}: {entry['seconds']:.1f} s")
        self.seconds += entry["seconds"]
        copy: dict[str, Any] = json.loads(json.dumps(entry["result"]))  # same types, computed or read
        return copy


def _read(path: Path) -> dict[str, Any] | None:
    """Read an entry; None if the file is missing or damaged."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        return None
    valid = isinstance(entry, dict) and isinstance(entry.get("result"), dict)
    return entry if valid and isinstance(entry.get("seconds"), int | float) else None


def pack(values: Doubles) -> str:
    """(n,) numbers as compressed single-precision text, because plain JSON would be much larger."""
    return base64.b85encode(zlib.compress(np.asarray(values, "<f4").tobytes(), 6)).decode()


def unpack(text: str) -> Doubles:
    """The inverse of `pack`."""
    raw = zlib.decompressobj().decompress(base64.b85decode(text), MAX_BYTES)
    return np.frombuffer(raw, "<f4").astype(np.float64)
