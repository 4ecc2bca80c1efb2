"""Find the processes that this process started, directly or not; also for the tests."""

import os
from pathlib import Path


def worker_pids(name: bytes = b"ray::WorkerProcess") -> list[int]:
    """The workers, or other processes of Ray, that this process started; those of other clusters are not."""
    return sorted(pid for pid, (command, _) in started_processes().items() if command.startswith(name))


def started_processes() -> dict[int, tuple[bytes, float]]:
    """Command and processor seconds, with those of ended children, of the processes of this process."""
    parents, found, tick = {}, {}, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = folder.joinpath("stat").read_text(), folder.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        parents[int(folder.name)] = int(fields[1])
        found[int(folder.name)] = command, sum(map(int, fields[11:15])) / tick
    return {pid: found[pid] for pid in found if pid != os.getpid() and descends(pid, parents)}


def descends(pid: int, parents: dict[int, int]) -> bool:
    """Whether this process started a process, directly or not."""
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()
