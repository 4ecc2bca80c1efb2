"""Mutation testing: change one place of the source, run the tests of that file, and see whether one fails.

    python -m tests.mutants.run                # the whole sample; continues where the last run stopped
    python -m tests.mutants.run --n 50         # a small sample
    python -m tests.mutants.run --keep         # also write result.json; every survivor needs an explanation

Sources are changed only in a temporary copy. Cosmic Ray makes the mutants; the tests run in a fork of this
process, which has already imported the libraries they need.
"""

import argparse
import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from dataclasses import asdict
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.mutants.sites import Mutant, draw, list_mutants

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SOURCE = "src/shortlist"
MEMORY = 12 * 2**30  # bytes of address space per test run: a mutant may try to allocate anything


def read_config() -> dict:
    """mutants.toml, and for each package its files and the tests of each file."""
    config = tomllib.loads((HERE / "mutants.toml").read_text())
    for package, settings in config["packages"].items():
        module = ROOT / SOURCE / f"{package}.py"  # a package of one file
        folder = SOURCE if module.exists() else f"{SOURCE}/{package}"
        here = [module] if module.exists() else sorted((ROOT / folder).glob("*.py"))
        skipped = settings.get("skip", [])
        names = settings.get("only", [file.name for file in here if file.name not in skipped])
        files = {}
        for name in names:
            own = f"tests/{package}/test_{name}"
            more = settings.get("files", {}).get(name, {})
            tests = [one for one in [own, *more.get("tests", [])] if (ROOT / one).exists()]
            if not tests and name != "__init__.py":  # all tests of the package: slow, but never none
                tests = [str(one.relative_to(ROOT)) for one in (ROOT / f"tests/{package}").glob("test_*.py")]
            files[f"{folder}/{name}"] = {
                "tests": list(dict.fromkeys(tests)),
                "modes": ["cached"] if package != "kernels" else ["plain", "compiled"][: 1 + ("jit" in more)],
            }
        settings["files"] = files
    return config


def copy_project(folder: Path) -> None:
    """Bring a copy of everything that the tests read up to date; files that are equal keep their times."""
    wanted = [ROOT / name for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    for name in ("src", "tests", "benchmarks", "docs", "examples"):
        wanted += [file for file in (ROOT / name).rglob("*") if file.is_file() and file.suffix != ".pyc"]
    for file in wanted:
        copy = folder / file.relative_to(ROOT)
        if not copy.exists() or copy.read_bytes() != file.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
    for copy in [file for name in ("src", "tests") for file in (folder / name).rglob("*.py")]:
        if not (ROOT / copy.relative_to(folder)).exists():
            copy.unlink()


class Plugin:
    """Pytest plugin: runs fast tests first, measures each one, and does not shrink failing examples.

    Tests that fail without a mutant have infinite seconds and are left out.
    """

    def __init__(self, seconds: dict[str, float]):
        self.seconds = dict(seconds)

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.default, phases=phases, database=None, max_examples=30)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = [item for item in items if self.seconds.get(item.nodeid, 0.0) < np.inf]
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0.0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.excinfo is not None and "not usable in pure-python" in str(call.excinfo.value):
            report.outcome, report.longrepr = "skipped", ("", 0, "needs vector instructions")
        return report

    def pytest_runtest_logreport(self, report) -> None:
        if report.when != "teardown":
            seconds = np.inf if report.failed else report.duration
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + seconds


def run_in_child(copy: Path, tests: list[str], mode: str, cache: Path, cpu_limit: int, known: dict) -> None:
    """Run the tests and end the process with their exit code; called after a fork."""
    import numba

    os.setsid()
    for kind, limit in ((resource.RLIMIT_CPU, cpu_limit), (resource.RLIMIT_AS, MEMORY)):
        resource.setrlimit(kind, (limit, limit))
    output = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(copy)
    sys.dont_write_bytecode = bool(known)  # bytecode is kept only without a mutant
    os.environ |= {"PYTHONPATH": str(copy / "src"), "NUMBA_CACHE_DIR": str(cache)}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    numba.config.CACHE_DIR = str(cache)
    if mode == "plain":
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        numba.config.DISABLE_JIT = 1
    sys.path[:] = [str(copy / "src"), *(one for one in sys.path if one not in ("", str(ROOT)))]
    for name in [one for one in sys.modules if one.split(".")[0] in ("tests", "shortlist")]:
        del sys.modules[name]
    code, plugin = 99, Plugin(known)
    try:
        arguments = ["-q", *["-x"][: len(known)], "--tb=line", "-m", "not real and not fuzz"]
        arguments += ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        if mode == "plain":  # machine arithmetic overflows in silence, NumPy scalars warn
            arguments += ["-W", "ignore::RuntimeWarning"]
        code = int(pytest.main([*arguments, *tests], plugins=[plugin]))
        if not sys.modules["shortlist"].__file__.startswith(str(copy)):
            code = 98  # the tests imported another copy of the package
        if not known:
            (copy / "seconds.json").write_text(json.dumps(plugin.seconds))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_tests(copy: Path, tests: list[str], mode: str, cache: Path, limit: int, known: dict) -> dict:
    """Exit code (negative: signal) and processor time of the tests; `known` has the seconds of each."""
    if mode == "compiled":  # never reuse machine code that was compiled from another source
        cache = Path(tempfile.mkdtemp(dir=cache.parent))
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        run_in_child(copy, tests, mode, cache, limit, known)
    deadline = began + 20 * limit
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the tests started
    if mode == "compiled":
        shutil.rmtree(cache)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "seconds": round(usage.ru_utime + usage.ru_stime, 1)}


def digest_of(root: Path, path: str, tests: list[str]) -> str:
    """Digest of a source file and of the tests that must notice its mutants."""
    digest = sha256()
    for one in [path, *tests]:
        digest.update((root / one).read_bytes())
    return digest.hexdigest()[:16]


class Runner:
    """One temporary copy of the project, in which mutants are tested one after another."""

    def __init__(self, config: dict, copy: Path, cache: Path, log: Path):
        self.files = {k: v for one in config["packages"].values() for k, v in one["files"].items()}
        self.copy, self.cache, self.log = copy, cache, log
        stored = cache / "baselines.json"
        self.baselines = json.loads(stored.read_text()) if stored.exists() else {}

    def baseline(self, path: str, mode: str) -> tuple[int, dict[str, float]]:
        """Limit of processor time and seconds of each test of a file; without a mutant, all must pass."""
        total, seconds = 0.0, {}
        for test in self.files[path]["tests"]:
            key = f"{mode} {test} {sha256((self.copy / test).read_bytes()).hexdigest()[:16]}"
            if key not in self.baselines:
                result = run_tests(self.copy, [test], mode, self.cache, 900, {})
                if result["code"] not in (0, 1):
                    tail = (self.copy / "output.txt").read_text()[-3000:]
                    sys.exit(f"{tail}\n{test} does not run without a mutant ({result}, mode {mode})")
                parts = json.loads((self.copy / "seconds.json").read_text())
                for name in [one for one, needed in parts.items() if needed == np.inf]:
                    print(f"  left out, because it fails without a mutant: {name}", flush=True)
                self.baselines[key] = {"total": result["seconds"], "parts": parts}
                (self.cache / "baselines.json").write_text(json.dumps(self.baselines))
                print(f"  {result['seconds']:5.1f} s for {test} ({mode})", flush=True)
            total += self.baselines[key]["total"]
            seconds |= self.baselines[key]["parts"]
        return int(6 + 2 * total), seconds  # processor time does not depend on other processes

    def run(self, path: str, mutated: str, mode: str) -> dict:
        """Run the tests of a file with another text of the file, and restore it."""
        (limit, seconds), file = self.baseline(path, mode), self.copy / path
        original, times = file.read_text(), file.stat()
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # a file changed twice within a second could match an older compiled one
        try:
            file.write_text(mutated)
            result = run_tests(self.copy, self.files[path]["tests"], mode, self.cache, limit, seconds)
        finally:
            file.write_text(original)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # cached machine code stays valid
        text = (self.copy / "output.txt").read_text(errors="replace")
        if result["code"] == 98 or (result["code"] in (3, 4, 5, 99) and "Error" not in text):
            sys.exit(f"the tests of {path} did not run: {text[-2000:]}")
        outcome = "killed" if result["code"] else "survived"
        if result["code"] in (-signal.SIGXCPU, -signal.SIGKILL):
            outcome = "timeout"
        return {"outcome": outcome, "mode": mode, **result}

    def run_modes(self, path: str, mutated: str, modes: list[str]) -> dict:
        """The first result in which the tests fail, or the last one."""
        for mode in modes:
            result = self.run(path, mutated, mode)
            if result["outcome"] != "survived":
                break
        return result

    def test(self, mutant: Mutant) -> dict:
        """The result of one mutant."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        original = (self.copy / mutant.path).read_text()
        mutated = mutate_code(original, get_operator(mutant.operator)(), mutant.occurrence)
        pairs = zip(original.splitlines(), mutated.splitlines(), strict=False)
        changed = next(b for a, b in pairs if a != b).strip()
        digest = digest_of(self.copy, mutant.path, self.files[mutant.path]["tests"])
        return (
            asdict(mutant)
            | {"mutated": changed, "digest": digest}
            | self.run_modes(mutant.path, mutated, self.files[mutant.path]["modes"])
        )

    def plant(self, fault: dict) -> dict:
        """The result of one fault that was planted by hand."""
        path = fault["path"]
        source = (self.copy / path).read_text()
        if source.count(fault["find"]) != 1:
            sys.exit(f"planted.toml: {fault['find']!r} must occur once in {path}")
        record = {"key": fault["name"], "path": path, "mutated": fault["plant"], "line": "planted"}
        digest = digest_of(self.copy, path, self.files[path]["tests"])
        mutated = source.replace(fault["find"], fault["plant"])
        return (
            record
            | {"digest": digest}
            | self.run_modes(path, mutated, fault.get("modes", self.files[path]["modes"]))
        )

    def work(self, tasks: list[Mutant | dict]) -> None:
        """Test mutants and planted faults, and append each result to the log."""
        for number, task in enumerate(tasks, 1):
            record = self.test(task) if isinstance(task, Mutant) else self.plant(task)
            with self.log.open("a") as file:
                file.write(json.dumps(record) + "\n")
            head = f"{number}/{len(tasks)} {record['outcome']:8} {record['seconds']:5.1f} s"
            print(f"{head}  {record['path']}:{record['line']} {record['mutated']}", flush=True)


def sample_mutants(config: dict, n: int) -> list[Mutant]:
    """Draw the mutants of a run."""
    by_package = {
        package: [
            mutant
            for path in settings["files"]
            for mutant in list_mutants(ROOT, path, config["operators"], config["text_functions"])
        ]
        for package, settings in config["packages"].items()
    }
    print({package: len(mutants) for package, mutants in by_package.items()})
    return draw(by_package, n, config["least"] if n >= 500 else 1, config["seed"])


def read_log(log: Path, config: dict) -> dict[str, dict]:
    """Results of earlier runs that are still valid: neither the source file nor its tests have changed."""
    files = {k: v for one in config["packages"].values() for k, v in one["files"].items()}
    digests = {path: digest_of(ROOT, path, settings["tests"]) for path, settings in files.items()}
    records = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        record = json.loads(line)
        if digests.get(record["path"]) == record["digest"]:
            records[record["key"]] = record
    return records


def summarize(config: dict, sample: list[Mutant], records: dict[str, dict]) -> dict:
    """Counts per package, the score and the survivors, each with its explanation."""
    explained = tomllib.loads((HERE / "survivors.toml").read_text())
    packages = {}
    for package, settings in config["packages"].items():
        mine = [records[one.key]["outcome"] for one in sample if one.path in settings["files"]]
        count = Counter(mine)
        packages[package] = {
            "mutants": len(mine), **{name: count[name] for name in ("killed", "timeout", "survived")}
        }  # fmt: skip
    total = {
        name: sum(one[name] for one in packages.values())
        for name in ("mutants", "killed", "timeout", "survived")
    }
    survivors = []
    for mutant in sample:
        record = records[mutant.key]
        if record["outcome"] == "survived":
            reason = explained.get(mutant.key, {"kind": "hole", "why": "not explained yet"})
            place = {"key": mutant.key, "path": mutant.path, "function": mutant.function}
            survivors.append(place | {"code": mutant.code, "mutated": record["mutated"]} | reason)
    return {
        "seed": config["seed"],
        "score": round(1 - total["survived"] / total["mutants"], 4),
        **total,
        "survivors_by_kind": dict(Counter(one["kind"] for one in survivors)),
        "packages": packages,
        "survivors": survivors,
    }


def main() -> None:
    """Parse the arguments, test what is missing and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=500, help="mutants in the sample")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep", action="store_true", help="write result.json")
    parser.add_argument("--log", type=Path, default=ROOT / ".mutants.jsonl", help="results so far")
    parser.add_argument("--only", default="", help="test only files whose path contains this text")
    arguments = parser.parse_args()
    config = read_config()
    sample = sample_mutants(config, arguments.n)
    known = read_log(arguments.log, config)
    planted = tomllib.loads((HERE / "planted.toml").read_text())["fault"]
    todo = [one for one in sample if one.key not in known and arguments.only in one.path]
    todo.sort(key=lambda one: (-one.path.count("kernels/"), one.path))  # kernels need no compiler at first
    todo += [one for one in planted if one["name"] not in known and arguments.only in one["path"]]
    print(f"{len(sample)} mutants and {len(planted)} planted faults; {len(todo)} to be tested")
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    folder = Path(tempfile.gettempdir()) / f"shortlist-mutants-{sha256(str(ROOT).encode()).hexdigest()[:8]}"
    preload()
    workers = [
        start_worker(config, folder, number, todo[number :: arguments.jobs], arguments.log)
        for number in range(arguments.jobs)
    ]
    if any(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in workers):
        sys.exit("a worker failed; run again to continue")
    known = read_log(arguments.log, config)
    if missing := [one for one in sample if one.key not in known]:
        sys.exit(f"{len(missing)} mutants of the sample are still to be tested")
    result = summarize(config, sample, known)
    result["planted"] = {one["name"]: known[one["name"]]["outcome"] for one in planted}
    for one in result["survivors"]:
        print(f"survived {one['key']} {one['path']} {one['function']}")
        print(f"  - {one['code']}\n  + {one['mutated']}\n    {one['kind']}: {one['why']}")
    print(json.dumps({name: part for name, part in result.items() if name != "survivors"}, indent=1))
    if arguments.keep:
        (HERE / "result.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def preload() -> None:
    """Import the libraries that the tests need and start the compiler, so that the forks begin at once."""
    for name in ("hypothesis.extra.numpy", "lightgbm", "pandas", "polars", "pyarrow", "pytest", "ranx"):
        import_module(name)
    for name in ("safetensors.numpy", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats", "numba"):
        import_module(name)
    sys.modules["numba"].njit(lambda x: x + x)(np.zeros(2))
    assert "shortlist" not in sys.modules
    gc.collect()
    gc.freeze()


def start_worker(config: dict, folder: Path, number: int, tasks: list[Mutant | dict], log: Path) -> int:
    """Fork a process that tests its share of the mutants in its own copy of the project."""
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            copy = folder / str(number)
            copy_project(copy)
            cache = folder / f"cache-{number}"
            cache.mkdir(exist_ok=True)
            Runner(config, copy, cache, log).work(tasks)
            code = 0
        except (Exception, SystemExit):
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return worker


if __name__ == "__main__":
    main()
