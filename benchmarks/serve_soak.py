"""Mixed load for an hour: 80% lists, 20% events, with a refit and two activations in the middle.

python benchmarks/serve_soak.py              # an hour, writes benchmarks/results/serve_soak.json
python benchmarks/serve_soak.py --minutes 2  # writes nothing

The load is bounded: every connection waits between two requests. Both models are activated once before the
memory counts. No request may fail, and the memory of the server in the last tenth of the time must be within
5% of that in the tenth after the first third.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from machine import describe, save_results
from serve import free_port

CONNECTIONS = 16
PAUSE = 0.15  # seconds between two requests of a connection
EVENT_SHARE = 0.2  # of the requests
SAMPLE_SECONDS = 5.0  # between two looks at the memory
WARM_SHARE = 1 / 3  # of the time, before memory counts
TOLERANCE = 0.05


def prepare(folder: Path, dataset: str) -> tuple[list[Any], list[Any], str]:
    """Two models and a token; return user ids, item ids and the token."""
    import shortlist as sl
    from shortlist.serve.tokens import create_token

    data = sl.load_dataset(dataset)
    split = sl.split.last_basket(data)
    lists = None
    for name, model in {"shop": sl.PersonalFrequency(), "other": sl.TIFUKNN()}.items():
        model.fit(split.train)
        lists = model.recommend(N=50, filter_seen=False, at=split.valid)
        model.set_cutoff(sl.cutoff.ExpectedF1(calibration="platt").fit(lists, split.valid))
        model.save(folder / f"{name}.shortlist")
    token = create_token(folder / "tokens", "soak", ["read", "events", "admin"])
    return data.users.values.to_list(), data.items.values.to_list(), token


class Load:
    """What the connections send, and what came of it."""

    def __init__(self, port: int, token: str, users: list[Any], items: list[Any], end: float) -> None:
        self.port, self.token, self.users, self.items, self.end = port, token, users, items, end
        self.statuses: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {"lists": [], "events": []}
        self.n_events = 0

    async def run(self) -> None:
        """All connections until the end."""
        await asyncio.gather(*(self._connection(number) for number in range(CONNECTIONS)))

    async def _connection(self, number: int) -> None:
        rng = np.random.default_rng(number)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while time.time() < self.end:
            kind = "events" if rng.random() < EVENT_SHARE else "lists"
            body = self._events(rng) if kind == "events" else self._lists(rng)
            started = time.perf_counter()
            try:
                status, answer = await self._send(reader, writer, kind, body)
            except (OSError, asyncio.IncompleteReadError) as error:
                status, answer = type(error).__name__, b"{}"
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            self.seconds[kind].append(time.perf_counter() - started)
            self._note(kind, status, answer)
            await asyncio.sleep(PAUSE * rng.uniform(0.5, 1.5))
        writer.close()

    def _note(self, kind: str, status: str, answer: bytes) -> None:
        self.statuses[f"{kind} {status}"] += 1
        found = json.loads(answer)
        if kind == "lists" and status == "200":
            self.models[found["model"]] += 1
        if kind == "events" and status == "200":
            self.n_events += found["accepted"]
            self.statuses["events rejected"] += len(found["rejected"])

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str, body: dict[str, Any]
    ) -> tuple[str, bytes]:
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/{'events' if kind == 'events' else 'recommend'} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        lines = await reader.readuntil(b"\r\n\r\n")
        length = int(lines.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        return lines.split(b" ", 2)[1].decode(), await reader.readexactly(length)

    def _lists(self, rng: np.random.Generator) -> dict[str, Any]:
        chosen = rng.integers(0, len(self.users), rng.integers(1, 4))
        return {"users": [self.users[at] for at in dict.fromkeys(chosen.tolist())], "max_items": 20}

    def _events(self, rng: np.random.Generator) -> dict[str, Any]:
        user = self.users[rng.integers(0, len(self.users))]
        items = [self.items[at] for at in rng.integers(0, len(self.items), rng.integers(1, 6))]
        return {"events": [{"user_id": user, "item_id": item} for item in items]}


def call(port: int, token: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request outside of the load."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read() or b"null")
        return found


def activate(port: int, token: str, name: str) -> dict[str, Any]:
    """Activate a model; again if the service is too busy to load it within its time limit."""
    for _ in range(5):
        try:
            return call(port, token, "/v1/model", {"name": name})
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(float(error.headers["retry-after"]))
    raise SystemExit(f"the model {name} could not be activated in five attempts")


def resident_mib(pid: int) -> float:
    """Memory of a process that is in use, without files that it only reads."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(found["RssAnon"].split()[0]) / 1024


def refit(folder: Path) -> dict[str, Any]:
    """`shortlist service refit` beside the service."""
    command = [
        sys.executable,
        "-m",
        "shortlist",
        "service",
        "refit",
        str(folder / "shop.shortlist"),
        "--json",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if found.returncode:
        raise SystemExit(f"the refit failed: {found.stderr[-500:]}")
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


async def operate(port: int, token: str, folder: Path, start: float, seconds: float) -> list[dict[str, Any]]:
    """Activate both models at the beginning; activate, refit and activate in the middle of the time."""
    steps = []
    for share, name in ((0.05, "other"), (0.1, "shop"), (0.45, "other"), (0.5, "refit"), (0.6, "shop")):
        await asyncio.sleep(max(start + share * seconds - time.time(), 0))
        began = time.time()
        if name == "refit":
            about = await asyncio.to_thread(refit, folder)
        else:
            found = await asyncio.to_thread(activate, port, token, name)
            about = {"model": found["name"]}
        took = time.time() - began
        steps.append({"step": name, "after_seconds": began - start, "took_seconds": took, **about})
        print(steps[-1], flush=True)
    return steps


async def watch(pid: int, start: float, end: float) -> list[tuple[float, float]]:
    """(seconds, MiB) of the server over time."""
    found = []
    while time.time() < end:
        found.append((time.time() - start, resident_mib(pid)))
        if len(found) % 12 == 0:
            print(f"{found[-1][0]:.0f} s: {found[-1][1]:.0f} MiB", flush=True)
        await asyncio.sleep(SAMPLE_SECONDS)
    return found


async def soak(pid: int, load: Load, folder: Path, seconds: float) -> dict[str, Any]:
    """Send the load, operate the service and watch its memory."""
    start = load.end - seconds
    _, steps, memory = await asyncio.gather(
        load.run(),
        operate(load.port, load.token, folder, start, seconds),
        watch(pid, start, load.end),
    )
    status = call(load.port, load.token, "/v1/status")
    first, last = (
        float(np.median([mib for at, mib in memory if share <= at / seconds < share + 0.1]))
        for share in (WARM_SHARE, 0.9)
    )
    return {
        "seconds": seconds,
        "requests": sum(n for name, n in load.statuses.items() if name != "events rejected"),
        "statuses": dict(load.statuses),
        "failed": sum(n for name, n in load.statuses.items() if name not in ("lists 200", "events 200")),
        "events_accepted": load.n_events,
        "lists_by_model": dict(load.models),
        "milliseconds": {
            kind: {f"p{q}": float(np.percentile(times, q) * 1000) for q in (50, 99)}
            for kind, times in load.seconds.items()
        },
        "steps": steps,
        "memory_mib": [round(mib, 1) for _, mib in memory],
        "memory_after_warm_up": {
            "first": first,
            "last": last,
            "change": last / first - 1,
            "highest": max(mib for at, mib in memory if at > WARM_SHARE * seconds),
        },
        "bad_checks": [one["name"] for one in status["checks"] if one["state"] == "bad"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--dataset", default="online-retail")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        users, items, token = prepare(folder, options.dataset)
        port = free_port()
        command = [sys.executable, "-m", "shortlist", "serve", str(folder / "shop.shortlist")]
        command += ["--port", str(port), "--token_file", str(folder / "tokens")]
        process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            for _ in range(1200):
                try:
                    call(port, token, "/ready")
                    break
                except OSError:
                    time.sleep(0.2)
            seconds = options.minutes * 60
            load = Load(port, token, users, items, time.time() + seconds)
            results = uvloop.run(soak(process.pid, load, folder, seconds))
        finally:
            process.terminate()
            process.wait(timeout=60)
    results |= {"dataset": options.dataset, "connections": CONNECTIONS, "exit_code": process.returncode}
    print(json.dumps(results, indent=1))
    if options.minutes >= 60:
        save_results("serve_soak", {"machine": describe(), "results": results})
    change = results["memory_after_warm_up"]["change"]
    if results["failed"] or abs(change) > TOLERANCE:
        raise SystemExit(f"{results['failed']} requests failed, and the memory changed by {change:+.1%}")


if __name__ == "__main__":
    main()
