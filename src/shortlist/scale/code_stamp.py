"""Identification of the code that runs on a node: all nodes of a fit must run the same."""

import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "polars")


@cache
def code_stamp() -> dict[str, str]:
    """Versions of Python and of the packages that compute, and a digest of this package's sources."""
    folder, digest = Path(__file__).parents[1], sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    stamp = {"python": platform.python_version(), "machine": platform.machine()}
    return stamp | {name: version(name) for name in PACKAGES} | {"shortlist sources": digest.hexdigest()[:12]}


def find_difference(own: dict[str, str], other: dict[str, str]) -> str | None:
    """The first thing that differs, in words; None if everything is equal."""
    for name, value in own.items():
        if other.get(name) != value:
            return f"{name} {other.get(name, 'missing')} instead of {value}"
    return None
