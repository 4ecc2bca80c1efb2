"""A PostgreSQL server for the tests that need one; they are skipped where none is installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def programs() -> Path | None:
    """The newest PostgreSQL of Debian's package, or what the path offers."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(homes[-1]) if homes else shutil.which("initdb")
    return Path(found).parent if found else None


@contextmanager
def started(*commands: str) -> Iterator[str]:
    """URI of a fresh server on a socket of its own, run by another user where we are root, as it demands.

    Each command is one of psql's: SQL, or \\copy from a file that others may read.
    """
    home = programs()
    if home is None:
        pytest.skip("no PostgreSQL server binary here (Debian: apt-get install postgresql)")
    room = Path(tempfile.mkdtemp(prefix="pg-"))
    owner = "postgres" if os.geteuid() == 0 else None
    if owner:
        shutil.chown(room, owner)

    def run(*command):
        as_owner = ["runuser", "-u", owner, "--"] if owner else []
        subprocess.run([*as_owner, *map(str, command)], check=True, capture_output=True, cwd=room, timeout=60)

    options = f"-c listen_addresses='' -c unix_socket_directories={room} -c fsync=off"
    run(home / "initdb", "-D", room / "data", "-U", "shop", "-A", "trust", "-E", "UTF8", "--no-sync")
    run(home / "pg_ctl", "-D", room / "data", "-w", "-l", room / "log", "-o", options, "start")
    psql = [home / "psql", "-h", room, "-U", "shop", "-d", "postgres", "-q", "-v", "ON_ERROR_STOP=1"]
    try:
        for command in commands:
            run(*psql, "-c", command)
        yield f"postgresql://shop@/postgres?host={room}"
    finally:
        run(home / "pg_ctl", "-D", room / "data", "-m", "immediate", "stop")
        shutil.rmtree(room, ignore_errors=True)
