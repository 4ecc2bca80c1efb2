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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", "tests/serve/test_schema.py"]
    environment = {**os.environ, "SHORTLIST_FUZZ": str(options.times)}
    answers: dict[str, dict[str, int]] = {}
    last = ""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            last = line.strip("= \n") or last
            if '{"model"' in line:
                counts = json.loads(line[line.index('{"model"') :])
                answers[counts["model"]] = counts["answers"]
                print(counts["model"], sum(counts["answers"].values()), flush=True)
    results = summarize(answers) | {"tests": last}
    print(json.dumps(results, indent=1))
    if options.save:
        save_results("fuzzed_requests", {"machine": describe(), "results": results})
    raise SystemExit(tests.returncode)


if __name__ == "__main__":
    main()
