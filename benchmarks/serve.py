"""Lists per second over HTTP with wrk, beside a bare JSON echo and FastAPI with implicit in the same run.

python benchmarks/serve.py            # about ten minutes, writes benchmarks/results/serve.json
python benchmarks/serve.py --quick    # about a minute, writes nothing

Lists have at most ten items, as those of the echo and of implicit; one more run leaves them as long as the
model wants. The load generator runs on this machine and shares its cores with the server, so the processor
time of the server per request is recorded beside the time that a client waits: it does not depend on what
else the machine does. Every run is bounded in time, and only the loopback address is used.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, save_results

CONNECTIONS = (1, 64)
SECONDS = 8
WARM_UP = 2
DATASET = "ml-1m"
MAX_ITEMS = 10  # places on the page: the echo writes and implicit returns as many items
WHOLE = "DKBPRMF, whole lists"  # no limit: everything above the boundary
MODELS = ("DKBPRMF", WHOLE, "HRM", "TwoStage")
SERVERS = ("echo", "implicit", *MODELS)


# ------------------------------------------------------------------ servers, each in a process of its own
def serve_echo(port: int, _: Path) -> None:
    """A bare Starlette application that reads and writes the same amount of JSON."""
    import orjson
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    items = [{"item_id": f"i{i}", "name": None, "score": i / 7, "probability": 0.1} for i in range(10)]

    async def echo(request: Request) -> Response:
        body = orjson.loads(await request.body())
        answer = {"lists": [{"user_id": user, "items": items} for user in body["users"]]}
        return Response(orjson.dumps(answer), media_type="application/json")

    async def ready(_: Request) -> Response:
        return Response(b"{}")

    app = Starlette(routes=[Route("/v1/recommend", echo, methods=["POST"]), Route("/ready", ready)])
    uvicorn.run(app, port=port, log_level="warning", access_log=False, loop="uvloop", http="httptools")


def serve_implicit(port: int, folder: Path) -> None:
    """What a team would write in an afternoon: FastAPI, a body model, one call of implicit per request."""
    import implicit
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from scipy.sparse import load_npz

    matrix = load_npz(folder / "matrix.npz")
    users = json.loads((folder / "users.json").read_text())
    number = {user: at for at, user in enumerate(users)}
    model = implicit.bpr.BayesianPersonalizedRanking(factors=63, iterations=5, num_threads=1)
    model.fit(matrix, show_progress=False)
    app = FastAPI()

    class Body(BaseModel):
        users: list[str]

    @app.post("/v1/recommend")
    def recommend(body: Body) -> dict[str, Any]:
        lists = []
        for user in body.users:
            at = number[user]
            items, scores = model.recommend(at, matrix[at], N=10)
            pairs = zip(items.tolist(), scores.tolist(), strict=True)
            lists.append({"user_id": user, "items": [{"item_id": i, "score": s} for i, s in pairs]})
        return {"lists": lists}

    @app.get("/ready")
    def ready() -> dict[str, str]:
        return {}

    uvicorn.run(app, port=port, log_level="warning", access_log=False, loop="uvloop", http="httptools")


def serve_model(name: str, port: int, folder: Path) -> None:
    """The service with one of our models."""
    from shortlist.serve.config import ServeConfig
    from shortlist.serve.run import run_service

    run_service(ServeConfig(model=str(folder / f"{name.split(',')[0]}.shortlist"), port=port))


def prepare(folder: Path, dataset: str) -> None:
    """Fit the models once."""
    import polars as pl
    from scipy.sparse import csr_matrix, save_npz

    import shortlist as sl

    rows = sl.load_dataset(dataset).to_frame().with_columns(pl.col("user_id").cast(pl.String))
    data = sl.Interactions.from_frame(rows)  # the users of implicit's service are texts
    split = sl.split.last_basket(data)
    models = {
        "DKBPRMF": sl.DKBPRMF(n_factors=64, n_epochs=10, seed=1),
        "HRM": sl.HRM(n_factors=64, n_epochs=5, repeat_decay=0.9, trend_half_life=3.0, seed=1),
        "TwoStage": sl.TwoStage(n_snapshots=4_000, seed=1),
    }
    for name, model in models.items():
        model.fit(split.train)
        if name != "DKBPRMF":
            lists = model.recommend(N=50, filter_seen=False, at=split.valid)
            model.set_cutoff(sl.cutoff.ExpectedF1(calibration="platt").fit(lists, split.valid))
        model.save(folder / f"{name}.shortlist")
    matrix = csr_matrix(split.train.to_csr())
    save_npz(folder / "matrix.npz", matrix)
    (folder / "users.json").write_text(json.dumps([str(user) for user in data.users.values]))


# ------------------------------------------------------------------ load
SCRIPT = """
local users = {}
for user in io.lines("%s") do users[#users + 1] = user end
math.randomseed(1)
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
function request()
  local user = users[math.random(#users)]
  return wrk.format(nil, nil, nil, '{"users": ["' .. user .. '"]%s}')
end
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.status + errors.read + errors.write + errors.timeout + errors.connect
  local ms = function(share) return latency:percentile(share) / 1000 end
  io.write(string.format("RESULT %%d %%d %%f %%f\\n", summary.requests, failed, ms(50), ms(99)))
end
"""


def processor_seconds(pid: int) -> float:
    """What a process has used so far, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    pid: int, port: int, folder: Path, n_connections: int, seconds: int, max_items: int | None
) -> dict[str, float]:
    """Requests per second, latency after a short warm-up, and processor time of the server."""
    limit = "" if max_items is None else f', "max_items": {max_items}'
    (folder / "users.txt").write_text("\n".join(json.loads((folder / "users.json").read_text())))
    (folder / "load.lua").write_text(SCRIPT % (folder / "users.txt", limit))
    command = ["wrk", "-t1", f"-c{n_connections}", "-s", str(folder / "load.lua")]
    address = f"http://127.0.0.1:{port}/v1/recommend"
    subprocess.run([*command, f"-d{WARM_UP}s", address], check=True, capture_output=True)
    before = processor_seconds(pid)
    shown = subprocess.run([*command, f"-d{seconds}s", address], check=True, capture_output=True, text=True)
    used = processor_seconds(pid) - before
    line = next(line for line in shown.stdout.splitlines() if line.startswith("RESULT"))
    n_requests, failures, p50, p99 = map(float, line.split()[1:])
    return {
        "requests_per_second": n_requests / seconds,
        "p50_ms": p50,
        "p99_ms": p99,
        "cpu_ms": used / max(n_requests, 1) * 1000,
        "failures": failures,
    }


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_server(name: str, folder: Path, seconds: int) -> dict[str, Any]:
    """Start one server, measure it with each number of connections, and stop it."""
    port, environment = free_port(), {**os.environ, "OMP_NUM_THREADS": "1"}
    for stored in folder.glob("*.events.sqlite*"):  # every server starts with an empty log
        stored.unlink()
    command = [sys.executable, __file__, "--server", name, "--port", str(port), "--folder", str(folder)]
    process = subprocess.Popen(command, env=environment)
    try:
        for _ in range(3000):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).read()
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise SystemExit(f"{name} did not start")
        max_items = None if name == WHOLE else MAX_ITEMS
        return {str(n): measure(process.pid, port, folder, n, seconds, max_items) for n in CONNECTIONS}
    finally:
        process.terminate()
        process.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--server", choices=SERVERS)
    parser.add_argument("--port", type=int)
    parser.add_argument("--folder", type=Path, help="keeps the fitted models for the next run")
    options = parser.parse_args()
    if options.server:
        plain = {"echo": serve_echo, "implicit": serve_implicit}
        if options.server in plain:
            plain[options.server](options.port, options.folder)
        else:
            serve_model(options.server, options.port, options.folder)
        return
    dataset = "sample" if options.quick else DATASET
    seconds = 2 if options.quick else options.seconds
    found: dict[str, list[Any]] = {name: [] for name in SERVERS}
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        is_prepared = (folder / "users.json").exists()
        if not is_prepared:
            prepare(folder, dataset)
        for _ in range(1 if options.quick else options.rounds):  # rounds interleave the servers
            for server in SERVERS:
                found[server].append(run_server(server, folder, seconds))
                print(server, {n: round(one["requests_per_second"]) for n, one in found[server][-1].items()})
    results = {
        server: {
            n: {key: float(np.median([one[n][key] for one in rounds])) for key in rounds[0][n]}
            for n in map(str, CONNECTIONS)
        }
        for server, rounds in found.items()
    }
    print_table(results)
    if not options.quick:
        stored = {"machine": describe(), "load_average": os.getloadavg(), "dataset": dataset}
        save_results("serve", stored | {"results": results})


def print_table(results: dict[str, Any]) -> None:
    """Requests per second, latency, and the share of the echo."""
    heads = ("connections", "per second", "p50 ms", "p99 ms", "of echo", "cpu ms")
    print(f"{'server':<30}", *(f"{head:>11}" for head in heads))
    for server, by_n in results.items():
        for n, one in by_n.items():
            share = one["requests_per_second"] / results["echo"][n]["requests_per_second"]
            print(
                f"{server:<30} {n:>11} {one['requests_per_second']:>11,.0f} {one['p50_ms']:>11.2f} "
                f"{one['p99_ms']:>11.1f} {share:>11.0%} {one['cpu_ms']:>11.3f}"
            )


if __name__ == "__main__":
    main()
