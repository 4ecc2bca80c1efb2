"""Fuzzed requests to every route of a service with every model: how many, and the statuses of their answers.

python benchmarks/fuzzed_requests.py                 # SHORTLIST_FUZZ=7, above 100,000 requests
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

from machine import describe, save_results

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", "tests/serve/test_schema.py"],
        cwd=ROOT,
        env={**os.environ, "SHORTLIST_FUZZ": str(options.times)},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [line[line.index('{"model"') :] for line in done.stdout.splitlines() if '{"model"' in line]
    answers = {(one := json.loads(line))["model"]: one["answers"] for line in lines}
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    for counts in answers.values():
        for name, count in counts.items():
            route, _, status = name.rpartition(" ")
            statuses[status] += count
            routes[route] += count
    results = {
        "requests": statuses.total(),
        "models": {model: sum(counts.values()) for model, counts in answers.items()},
        "routes": dict(routes),
        "statuses": dict(sorted(statuses.items())),
        "tests": done.stdout.strip().splitlines()[-1].strip("= "),
    }
    print(json.dumps(results, indent=1))
    if options.save:
        save_results("fuzzed_requests", {"machine": describe(), "results": results})
    if done.returncode:
        raise SystemExit(done.stdout[-4000:])


if __name__ == "__main__":
    main()
