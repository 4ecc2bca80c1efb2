"""How long `shortlist demo` takes, with an empty compile cache and with a full one, and what it shows.

python benchmarks/demo.py
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe, save_results

CODE = "import sys; from shortlist.cli import main; sys.exit(main(sys.argv[1:]))"


def run_demo(folder: Path) -> tuple[dict[str, object], dict[str, float]]:
    """Return the output of the demo, and its seconds of wall and processor time."""
    words = ["demo", "--json", "--report", str(folder / "report.html")]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "numba")},
        check=True,
        capture_output=True,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), {"seconds": round(wall, 1), "processor_seconds": round(processor, 1)}


def main() -> None:
    """Run the demo twice in one folder: the second run finds the kernels compiled."""
    with tempfile.TemporaryDirectory() as name:
        (found, cold), (again, warm) = (run_demo(Path(name)) for _ in range(2))
    if found["results"] != again["results"]:
        raise SystemExit("two runs of the demo differ")
    kept = ("dataset", "rows", "users", "items", "model", "lift", "results", "tests", "fixed_n_f1", "lengths")
    shown = {key: found[key] for key in kept}
    result = {"machine": describe("lightgbm"), "cold": cold, "warm": warm, "demo": shown}
    save_results("demo", result)
    print(f"empty compile cache: {cold}")
    print(f"full compile cache:  {warm}")


if __name__ == "__main__":
    main()
