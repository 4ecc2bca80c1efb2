"""Shared by all benchmarks: describe the machine, measure memory, store results as JSON."""

import json
import platform
import resource
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def describe(*packages: str) -> dict[str, object]:
    """Return processor, cores, Python and package versions, but nothing that identifies the machine."""
    found = {}
    for name in ("shortlist", "numpy", "numba", "scipy", "polars", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return {
        "processor": processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "system": platform.system(),
        "packages": found,
    }


def processor() -> str:
    """Return the name of the processor if the system provides it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def cores() -> int:
    """Count the cores available to this process."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_mib() -> float:
    """Return the peak resident size of this process."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would include the memory of the parent process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    scale = 1024 if platform.system() == "Linux" else 1024 * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def reset_peak() -> float:
    """Reset the peak if the system permits it; return the current resident size."""
    reset = Path("/proc/self/clear_refs")
    if reset.is_file():
        reset.write_text("5")
    return peak_mib()


def save_results(name: str, result: dict[str, object]) -> Path:
    """Write results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.json"
    target.write_text(json.dumps(result, indent=2) + "\n")
    return target
