"""Lists per second over HTTP, beside a bare JSON echo and FastAPI with implicit in the same run.

python benchmarks/serve.py            # about ten minutes, writes benchmarks/results/serve.json
python benchmarks/serve.py --quick    # about a minute, writes nothing

Lists have at most ten items, as those of the echo and of implicit; one more run leaves them as long as the
model wants. The load generator runs on this machine and shares its cores with the server, so the processor
time of the server per request is recorded beside the time that a client waits: it does not depend on what
else the machine does. Every run is bounded in time, and only the loopback address is used.
"""

import argparse
import asyncio
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
import uvloop
from machine import describe, save_results

CONNECTIONS = (1, 16, 64)
SECONDS = 8.0
WARM_UP = 1.5
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


def prepare(folder: Path, dataset: str) -> list[str]:
    """Fit the models once; return user ids."""
    from scipy.sparse import csr_matrix, save_npz

    import shortlist as sl

    data = sl.load_dataset(dataset)
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
    users = [str(user) for user in data.users.values]
    (folder / "users.json").write_text(json.dumps(users))
    return users


# ------------------------------------------------------------------ load generator
async def connection(port: int, bodies: list[bytes], end: float, times: list[tuple[float, float]]) -> int:
    """Send one request after the other until `end`; return the number of failures."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    failures, at = 0, 0
    while time.perf_counter() < end:
        body = bodies[at % len(bodies)]
        at += 1
        started = time.perf_counter()
        writer.write(body)
        head = await reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        length = int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        failures += not head.startswith(b"HTTP/1.1 200")
        times.append((started, time.perf_counter() - started))
    writer.close()
    return failures


def request_bytes(user: str, max_items: int | None) -> bytes:
    """A complete request for the list of one user."""
    limit = {} if max_items is None else {"max_items": max_items}
    body = json.dumps({"users": [user], **limit}).encode()
    head = (
        "POST /v1/recommend HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def processor_seconds(pid: int) -> float:
    """What a process has used so far, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    pid: int, port: int, users: list[str], n_connections: int, seconds: float, max_items: int | None
) -> dict[str, float]:
    """Requests per second, latency after a short warm-up, and processor time of the server."""
    rng = np.random.default_rng(n_connections)
    bodies = [
        [request_bytes(users[at], max_items) for at in rng.integers(0, len(users), 500)]
        for _ in range(n_connections)
    ]
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    end = start + WARM_UP + seconds

    async def run() -> int:
        return sum(await asyncio.gather(*(connection(port, one, end, times) for one in bodies)))

    before = processor_seconds(pid)
    failures = uvloop.run(run())
    used = processor_seconds(pid) - before
    counted = np.array([took for began, took in times if began >= start + WARM_UP])
    return {
        "requests_per_second": counted.size / seconds,
        "p50_ms": float(np.quantile(counted, 0.5) * 1000),
        "p99_ms": float(np.quantile(counted, 0.99) * 1000),
        "cpu_ms": used / max(len(times), 1) * 1000,
        "failures": failures,
    }


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_server(name: str, folder: Path, users: list[str], seconds: float) -> dict[str, Any]:
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
        return {str(n): measure(process.pid, port, users, n, seconds, max_items) for n in CONNECTIONS}
    finally:
        process.terminate()
        process.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS)
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
    dataset = "sample" if options.quick else "ta-feng"
    seconds = 2.0 if options.quick else options.seconds
    found: dict[str, list[Any]] = {name: [] for name in SERVERS}
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        is_prepared = (folder / "users.json").exists()
        users = json.loads((folder / "users.json").read_text()) if is_prepared else prepare(folder, dataset)
        for _ in range(1 if options.quick else options.rounds):  # rounds interleave the servers
            for server in SERVERS:
                found[server].append(run_server(server, folder, users, seconds))
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
