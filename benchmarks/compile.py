"""What the first run compiles: every function, in how many specializations, and its processor seconds.

    python benchmarks/compile.py                    # fit 100 rows, the sample; a list of the service; help
    python benchmarks/compile.py --run rows --all   # one of them, with all functions

Every run starts with an empty cache of compiled code, in a process of its own with one thread. The seconds
of a function are its own: without those of the functions that it calls, which are compiled in between.
`second` is the same run once more, with the cache of the first. `startup`: processor seconds of
`import shortlist` and of the help of every command, each in a process of its own, the fastest of five, with
compiled bytecode and without packages that extend shortlist. results/compile.json keeps what was measured.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from machine import RESULTS, describe, save_results
from numba.core.event import Event, Listener, register

RUNS = ("rows", "sample", "service", "startup")
REPEATS = 5
# as where only shortlist is installed
ALONE = """
import importlib.metadata as metadata
entry_points = metadata.entry_points
metadata.entry_points = lambda **of: [] if of == {"group": "shortlist"} else entry_points(**of)
from shortlist.cli import main
main()
"""
N_SHOWN = 25


class OwnSeconds(Listener):
    """Processor seconds and specializations of each compiled function."""

    def __init__(self) -> None:
        self.open: list[list[float]] = []  # start and seconds of callees of the functions being compiled
        self.seconds: dict[str, float] = defaultdict(float)
        self.specializations: dict[str, int] = defaultdict(int)

    def on_start(self, event: Event) -> None:
        """Note when a compilation starts."""
        self.open.append([time.process_time(), 0.0])

    def on_end(self, event: Event) -> None:
        """Add the seconds without those of the callees."""
        start, callees = self.open.pop()
        seconds = time.process_time() - start
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('shortlist.')}.{function.__name__}"
        self.seconds[name] += seconds - callees
        self.specializations[name] += 1
        if self.open:
            self.open[-1][1] += seconds


def write_rows(path: Path) -> None:
    """A table of 100 purchases of 20 users."""
    rows = [f"u{n % 20},i{n * n % 13},2024-01-{1 + n // 20:02}" for n in range(100)]
    path.write_text("user_id,item_id,timestamp\n" + "\n".join(rows) + "\n")


def run_command(run: str, folder: Path) -> None:
    """What a user would start."""
    from shortlist.cli import main

    if run == "service":
        use_service()
        return
    source = "sample"
    if run == "rows":
        source = str(folder / "rows.csv")
        write_rows(Path(source))
    if main(["fit", source, "--out", str(folder / "model.shortlist")]):
        raise SystemExit(1)


def use_service() -> None:
    """Load a model as the service does, and answer one request."""
    import shortlist as sl

    model = sl.load_model(os.environ["SHORTLIST_COMPILE_MODEL"])
    model.recommend(["u1"])


def measure(run: str) -> dict[str, Any]:
    """One run in this process."""
    start = time.process_time()
    listener = OwnSeconds()
    register("numba:compile", listener)
    with tempfile.TemporaryDirectory() as folder:
        run_command(run, Path(folder))
    functions = [
        {"function": name, "specializations": listener.specializations[name], "seconds": seconds}
        for name, seconds in sorted(listener.seconds.items(), key=lambda pair: -pair[1])
    ]
    return {
        "seconds": time.process_time() - start,
        "compiling": sum(listener.seconds.values()),
        "functions": len(functions),
        "specializations": sum(listener.specializations.values()),
        "table": functions,
    }


def run_alone(run: str, cache: str, model: str) -> dict[str, Any]:
    """Measure in a process of its own with this cache."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": cache,
        "OMP_NUM_THREADS": "1",
        "SHORTLIST_THREADS": "1",
        "SHORTLIST_COMPILE_MODEL": model,
    }
    done = subprocess.run(
        [sys.executable, __file__, "--measure", run],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def processor_seconds(words: list[str], folder: str) -> float:
    """Of a Python process, the fastest of several; the first one writes the bytecode into this folder."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    seconds = []
    for _ in range(1 + REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds[1:])


def measure_startup() -> dict[str, float]:
    """Processor seconds of Python alone, of `import shortlist`, and of every help."""
    from shortlist.cli.app import COMMANDS

    with tempfile.TemporaryDirectory() as folder:
        found = {"python": processor_seconds(["-c", "pass"], folder)}
        found["import shortlist"] = processor_seconds(["-c", "import shortlist"], folder)
        for command in ("", *COMMANDS):
            words = [command, "--help"] if command else ["--help"]
            found[" ".join(["shortlist", *words])] = processor_seconds(["-c", ALONE, *words], folder)
    for name, seconds in found.items():
        print(f"{name:<30}{seconds:.2f} s", flush=True)
    return found


def save_model(path: Path) -> None:
    """A model with a cutoff, for the service."""
    import shortlist as sl

    sl.fit(sl.load_dataset("sample")).save(path)


def show(run: str, first: dict[str, Any], second: dict[str, Any], n_shown: int) -> None:
    """Print the table of one run."""
    print(
        f"{run}: {first['seconds']:.1f} s, of which {first['compiling']:.1f} s compile {first['functions']} "
        f"functions in {first['specializations']} specializations; second run {second['seconds']:.1f} s"
    )
    for row in first["table"][:n_shown]:
        print(f"  {row['function']:<60}{row['specializations']:>4}{row['seconds']:>8.2f}")
    sys.stdout.flush()


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", choices=RUNS, action="append")
    parser.add_argument("--all", action="store_true", help="print all functions")
    parser.add_argument("--measure", choices=RUNS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    path = RESULTS / "compile.json"
    results = json.loads(path.read_text()) if path.is_file() else {}
    for run in options.run or RUNS:
        if run == "startup":
            results[run] = measure_startup()
            save_results("compile", results)
            continue
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            model = Path(folder) / "model.shortlist"
            if run == "service":
                save_model(model)
            first, second = (run_alone(run, cache, str(model)) for _ in range(2))
        show(run, first, second, len(first["table"]) if options.all else N_SHOWN)
        results[run] = first | {"second": second["seconds"]}
        results["machine"] = describe("lightgbm")
        save_results("compile", results)


if __name__ == "__main__":
    main()
