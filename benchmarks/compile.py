"""Processor seconds of the first compilation, in one process with an empty compile cache.

    python benchmarks/compile.py                          # writes benchmarks/results/compile.json
    python benchmarks/compile.py --compare OTHER/src      # and another version of the package

A step runs after those before it, on the generated sample with one thread. Its time is the processor time of
everything that happens in it, minus that of the same step with all kernels in the cache.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import describe, save_results

STEPS = """
import json, time
from numba.core import event
import shortlist as sl

data, seconds, depth, kernels = sl.load_dataset("sample"), {}, [0], []

class Listener(event.Listener):
    def on_start(self, event):
        if depth[0] == 0:
            kernels.append((event.data["dispatcher"].py_func.__name__, time.process_time()))
        depth[0] += 1
    def on_end(self, event):
        depth[0] -= 1
        if depth[0] == 0:
            kernels[-1] = kernels[-1][0], time.process_time() - kernels[-1][1]

event.register("numba:compile", Listener())

def step(name, work):
    start = time.process_time()
    found = work()
    seconds[name] = time.process_time() - start
    return found

names, items = ("BPRMF", "DKBPRMF", "HRM", "DKHRM"), data.items.values[:3].to_list()
models = [step(f"fit {name}", lambda: getattr(sl, name)(n_epochs=1, n_threads=1).fit(data)) for name in names]
lists = step("recommend", lambda: models[0].recommend(N=10, n_threads=1))
step("recommend with a boundary", lambda: models[3].recommend(n_threads=1))
step("sessions", lambda: models[3].recommend(history={"new": items}, n_threads=1))
print(json.dumps({"seconds": seconds, "kernels": kernels}))
"""


def run(source: str | None, cache: str) -> dict[str, Any]:
    """Run the steps in a process of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = source
    done = subprocess.run(
        [sys.executable, "-c", STEPS], capture_output=True, text=True, check=True, env=environment
    )
    return json.loads(done.stdout)


def measure(source: str | None) -> dict[str, Any]:
    """Seconds of each step that the compiler takes, their sums, and the most expensive kernels."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = run(source, cache), run(source, cache)
    spent = {name: cold["seconds"][name] - warm["seconds"][name] for name in cold["seconds"]}
    top = sorted(cold["kernels"], key=lambda one: -one[1])[:12]
    return {
        "four_models": sum(value for name, value in spent.items() if name.startswith("fit")),
        "first_recommend": spent["recommend"],
        "sessions": spent["sessions"],
        "steps": spent,
        "kernels_compiled": len(cold["kernels"]),
        "compiled_again": len(warm["kernels"]),
        "most_expensive": {name: round(value, 2) for name, value in top},
    }


def main() -> None:
    """Measure this version, and another one for comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--compare", type=Path, help="the src folder of another version")
    other = parser.parse_args().compare
    found = {"machine": describe(), "now": measure(None)}
    found["load_average"] = os.getloadavg()[0]
    if other is not None:
        found["before"] = measure(str(other.resolve()))
    print(json.dumps(found, indent=1))
    save_results("compile", found)


if __name__ == "__main__":
    main()
