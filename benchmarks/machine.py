"""What every benchmark does: say what machine it ran on, and keep its numbers as JSON beside the scripts."""

import json
import platform
import resource
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def describe(*packages: str) -> dict[str, object]:
    """Processor, cores, Python and package versions; nothing that names the machine or its user."""
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
    """The processor's trade name, where the system tells."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def cores() -> int:
    """Cores this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_mib() -> float:
    """The largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would count what the parent held when it started us
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    scale = 1024 if platform.system() == "Linux" else 1024 * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def forget_peak() -> float:
    """Start to look for the peak anew, where the system lets us; the resident size now."""
    reset = Path("/proc/self/clear_refs")
    if reset.is_file():
        reset.write_text("5")
    return peak_mib()


def keep(name: str, result: dict[str, object]) -> Path:
    """Write results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.json"
    target.write_text(json.dumps(result, indent=2) + "\n")
    return target
