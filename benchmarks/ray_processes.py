"""Find the processes of Ray that this process started, directly or not; also for the tests."""

import os
from pathlib import Path


def worker_pids(name: bytes = b"ray::WorkerProcess") -> list[int]:
    """The workers, or other processes of Ray, that this process started; those of other clusters are not."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = folder.joinpath("stat").read_text(), folder.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
        if command.startswith(name):
            found.append(int(folder.name))
    return sorted(pid for pid in found if descends(pid, parents))


def descends(pid: int, parents: dict[int, int]) -> bool:
    """Whether this process started a process, directly or not."""
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()
