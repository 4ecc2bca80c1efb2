"""Fuzzed requests to every route of a service with every model: how many, and the statuses of their answers.

python benchmarks/fuzzed_requests.py                 # SHORTLIST_FUZZ=2, above 100,000 requests
python benchmarks/fuzzed_requests.py --times 1 --no-save

Runs tests/serve/test_schema.py, which sends random requests about known users and items, and requests made
from the OpenAPI schema by schemathesis. The tests fail on a 5xx and on an answer
that does not match the schema.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from machine import describe, save_results

ROOT = Path(__file__).parents[1]


def summarize(answers: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Requests by model, route and status."""
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    for counts in answers.values():
        for name, count in counts.items():
            route, _, status = name.rpartition(" ")
            statuses[status] += count
            routes[route] += count
    return {
        "requests": statuses.total(),
        "models": {model: sum(counts.values()) for model, counts in answers.items()},
        "routes": dict(routes),
        "statuses": dict(sorted(statuses.items())),
    }


def run_tests(times: int, models: list[str], answers: dict[str, dict[str, int]]) -> str:
    """Test some models, add their counts of answers, and return the last line of the tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", "tests/serve/test_schema.py"]
    environment = {**os.environ, "SHORTLIST_FUZZ": str(times), "SHORTLIST_FUZZ_MODELS": " ".join(models)}
    last = ""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            last = line.strip("= \n") or last
            if '{"model"' in line:
                counts = json.loads(line[line.index('{"model"') :])
                answers[counts["model"]] = counts["answers"]
                print(counts["model"], sum(counts["answers"].values()), flush=True)
    return last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.models.cases import ALL_MODELS

    answers: dict[str, dict[str, int]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        shares = [ALL_MODELS[first :: options.jobs] for first in range(options.jobs)]
        tests = list(pool.map(lambda models: run_tests(options.times, models, answers), shares))
    results = summarize(answers) | {"tests": tests}
    print(json.dumps(results, indent=1))
    if options.save:
        save_results("fuzzed_requests", {"machine": describe(), "results": results})
    if any("failed" in line or "passed" not in line for line in tests):
        raise SystemExit("some tests failed")


if __name__ == "__main__":
    main()
