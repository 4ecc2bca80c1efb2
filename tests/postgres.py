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


class PostgresServer:
    """A fresh server on a socket of its own, run by another user where we are root, as it demands."""

    def __init__(self) -> None:
        home = programs()
        if home is None:
            pytest.skip("no PostgreSQL server binary here (Debian: apt-get install postgresql)")
        self.home = home
        self.room = Path(tempfile.mkdtemp(prefix="pg-"))
        self.owner = "postgres" if os.geteuid() == 0 else None
        if self.owner:
            try:
                shutil.chown(self.room, self.owner)
            except LookupError:
                pytest.skip("PostgreSQL refuses to run as root, and there is no user named postgres")
        self.uri = f"postgresql://shop@/postgres?host={self.room}"
        self.run("initdb", "-D", self.data, "-U", "shop", "-A", "trust", "-E", "UTF8", "--no-sync")

    @property
    def data(self) -> Path:
        """The folder of the database."""
        return self.room / "data"

    def run(self, program: str, *arguments: object) -> None:
        """Run one of PostgreSQL's programs."""
        command = list(map(str, (self.home / program, *arguments)))
        groups: list[str] | None = [] if self.owner else None
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            cwd=self.room,
            timeout=60,
            user=self.owner,
            extra_groups=groups,
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.room} -c fsync=off"
        self.run("pg_ctl", "-D", self.data, "-w", "-l", self.room / "log", "-o", options, "start")

    def stop(self) -> None:
        """Stop at once; open connections break."""
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")

    def execute(self, command: str) -> None:
        """Run one command of psql: SQL, or \\copy from a file that others may read."""
        where = ("-h", self.room, "-U", "shop", "-d", "postgres")
        self.run("psql", *where, "-q", "-v", "ON_ERROR_STOP=1", "-c", command)


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A running server, removed afterwards."""
    server = PostgresServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.room, ignore_errors=True)


@contextmanager
def started(*commands: str) -> Iterator[str]:
    """URI of a running server, after these commands of psql."""
    with running() as server:
        for command in commands:
            server.execute(command)
        yield server.uri
