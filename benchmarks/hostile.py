"""Ordinary clients beside hostile ones, and a clock that jumps: latency, lost events, wrong lists, memory.

python benchmarks/hostile.py                      # 60 minutes, writes benchmarks/results/hostile.json
python benchmarks/hostile.py --minutes 2 --no-save

Ordinary clients ask for lists and send events all the time. In every second minute, hostile clients of
another process join them, so both latencies come from one run and share whatever else the machine does.
Latencies are compared over all minutes of both kinds, and pair by pair of neighboring minutes.
Hostile clients have a token that may read and send events. They send bodies and requests that are too large
or just small enough, poisoned events, unknown ids and wrong tokens, leave connections idle or requests half
sent, and do not take large answers. Meanwhile the machine's clock jumps (libfaketime; Debian: faketime).

Lists are compared with those of the library. At the end, every acknowledged event must be in the store with a
plausible time, and after a restart the service must answer as a model that has observed the stored events.
All requests go to the loopback address; every client waits between two requests.
"""

import argparse
import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvloop
from machine import describe, save_results
from serve import free_port
from serve_soak import call, resident_mib

ORDINARY = 8  # connections
PAUSE = 0.4  # seconds between two requests of an ordinary connection, on average
EVENT_SHARE = 0.2
WINDOW = 60.0  # seconds with, then without hostile clients
WINDOWS = ("quiet", "hostile")
SETTLE = 1.5  # seconds at both ends of a window whose latencies do not count
IDLE = 120  # connections of each kind that are left alone
JUMPS = ("+365d", "-365d", "+2h", "-30d", "+40y")
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def prepare(folder: Path, dataset: str) -> tuple[list[str], list[str], dict[str, str]]:
    """A model and two tokens; return user ids, item ids and the tokens."""
    import shortlist as sl
    from shortlist.serve.tokens import create_token

    frame = sl.load_dataset(dataset).to_frame()
    data = sl.Interactions.from_frame(
        frame.with_columns(frame["user_id"].cast(str), frame["item_id"].cast(str))
    )
    split = sl.split.last_basket(data)
    model = sl.BPRMF(n_factors=32, n_epochs=5).fit(split.train)
    lists = model.recommend(N=50, at=split.valid)
    model.set_cutoff(sl.cutoff.ExpectedF1(calibration="platt").fit(lists, split.valid))
    model.save(folder / "shop.shortlist")
    tokens = {
        "ordinary": create_token(folder / "tokens", "ordinary", ["read", "events"]),
        "hostile": create_token(folder / "tokens", "hostile", ["read", "events"]),
    }
    return model.users_.values.to_list(), model.items_.values.to_list(), tokens


def request(path: str, body: bytes, token: str, length: int | None = None, method: str = "POST") -> bytes:
    """The bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    if method == "POST":
        head += (
            f"Content-Type: application/json\r\nContent-Length: {len(body) if length is None else length}\r\n"
        )
    return head.encode() + b"\r\n" + body


class Connection:
    """A connection that is opened again when the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, content: bytes) -> tuple[int, bytes]:
        """(status, body) of the answer; status 0 if there is none."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(content)
            lines = await reader.readuntil(b"\r\n\r\n")
            length = int(lines.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            return int(lines.split(b" ", 2)[1]), await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0, b"{}"
        except asyncio.CancelledError:  # the answer took too long, and must not be taken for the next one
            self.close()
            raise

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


class Ordinary:
    """What the ordinary clients send, and what came of it."""

    def __init__(self, port: int, token: str, users: list[str], items: list[str], start: float) -> None:
        self.port, self.token, self.users, self.items, self.start = port, token, users, items, start
        self.expected: dict[str, list[str]] = {}
        self.statuses: Counter[str] = Counter()
        self.seconds: dict[tuple[str, str, int], list[float]] = {}  # by kind of request and window, and pair
        self.acknowledged: list[str] = []
        self.wrong_lists = self.n_lists = 0

    async def run(self, end: float) -> None:
        """All connections until the end."""
        await asyncio.gather(*(self._connection(number, end) for number in range(ORDINARY)))

    async def _connection(self, number: int, end: float) -> None:
        rng = np.random.default_rng(number)
        connection, sent = Connection(self.port), 0
        while time.monotonic() < end:
            kind = "events" if rng.random() < EVENT_SHARE else "lists"
            ids = [f"o{number}-{sent}-{at}" for at in range(rng.integers(1, 4))]
            sent += 1
            users = [self.users[at] for at in rng.choice(len(self.users), len(ids), replace=False)]
            body: dict[str, Any] = {"users": users}
            if kind == "events":
                body = {"events": [self._event(event_id, rng) for event_id in ids]}
            path = "/v1/events" if kind == "events" else "/v1/recommend"
            started = time.monotonic()
            status, answer = await connection.send(request(path, json.dumps(body).encode(), self.token))
            self._note(kind, started, time.monotonic() - started)
            self.statuses[f"{kind} {status}"] += 1
            if status == 200 and kind == "events":
                self.acknowledged += ids
            elif status == 200:
                for found in json.loads(answer)["lists"]:
                    self.n_lists += 1
                    items = [item["item_id"] for item in found["items"]]
                    self.wrong_lists += items != self.expected[found["user_id"]]
            await asyncio.sleep(PAUSE * rng.uniform(0.5, 1.5))
        connection.close()

    def _event(self, event_id: str, rng: np.random.Generator) -> dict[str, Any]:
        """An event of a user who is not among those whose lists are compared."""
        user, item = f"visitor-{rng.integers(0, 2_000)}", self.items[rng.integers(0, len(self.items))]
        return {"user_id": user, "item_id": item, "event_id": event_id}

    def _note(self, kind: str, started: float, seconds: float) -> None:
        """Keep a latency unless it lies near the end of a window."""
        pair, at = divmod(started - self.start, 2 * WINDOW)
        window = "hostile" if at >= WINDOW else "quiet"
        if at % WINDOW >= SETTLE and at % WINDOW + seconds <= WINDOW - SETTLE / 2:
            self.seconds.setdefault((kind, window, int(pair)), []).append(seconds)


# ---------------------------------------------------------------------- hostile clients
def hostile_requests(token: str) -> dict[str, tuple[float, list[bytes]]]:
    """Seconds between two requests, and the requests, by kind."""

    def post(path: str, body: Any) -> bytes:
        return request(path, body if isinstance(body, bytes) else json.dumps(body).encode(), token)

    def events(*bodies: str) -> bytes:
        return post("/v1/events", ('{"events": [' + ",".join(bodies) + "]}").encode())

    many = [f"missing-{at}" for at in range(1_000)]
    poison = [
        f'{{"user_id": "u", "item_id": "i", "weight": {weight}}}'
        for weight in ("1e39", "-1e39", "3e38", "NaN", "Infinity", "9" * 400)
    ]
    poison += [
        '{"user_id": "u\\u0000", "item_id": "i"}',
        '{"user_id": "u", "item_id": "i", "time": "9999-12-31"}',
        '{"user_id": "u", "item_id": "i", "time": "0001-01-01T00:00:00+23:59"}',
        '{"user_id": "' + "u" * 5_000 + '", "item_id": "i"}',
        '{"user_id": 1e400, "item_id": []}',
        '{"user_id": "\\ud800", "item_id": "i"}',
    ]
    scored = [
        {"user_id": user, "items": [{"item_id": at, "score": 0.5} for at in range(50)]} for user in many
    ]
    return {
        "oversized": (
            0.2,
            [
                request("/v1/recommend", b"x" * 1_000, token, length=1 << 30),
                post("/v1/recommend", {"users": many, "N": 1_000}),
                post("/v1/recommend", {"users": many * 3}),
                post("/v1/recommend", b"[" * 100_000),
                post("/v1/recommend", {"users": many[:1], "N": 10**400 // 10**100}),
            ],
        ),
        "large": (  # as large as is allowed
            8.0,
            [
                post("/v1/recommend", {"users": many, "fallback": "popular", "N": 100}),
                post("/v1/recommend", {"users": many[:1], "candidates": [f"n{at}" for at in range(99_000)]}),
                post("/v1/cut", {"lists": scored, "cutoff": "none"}),
                events(*(f'{{"user_id": "u", "item_id": {at}}}' for at in range(9_000))),
                post("/v1/recommend", {"history": {user: ["a", "b", "c"] * 20 for user in many}, "N": 50}),
            ],
        ),
        "poisoned": (0.1, [events(body) for body in poison] + [events(*poison)]),
        "unknown": (
            0.05,
            [
                post("/v1/recommend", {"users": ["missing", "../..", "%00", "'; drop table events; --"]}),
                post("/v1/recommend", {"users": ["missing"], "cutoff": "0" * 24}),
                request("/v1/users/missing", b"", token, method="GET"),
                request("/v1/model", b"", "wrong", method="GET"),
                request("/etc/passwd", b"", token, method="GET"),
                post("/v1/model", {"name": "../shop"}),
            ],
        ),
    }


async def attack(port: int, token: str, seconds: float) -> dict[str, int]:
    """All hostile clients for some seconds; return the statuses that they got."""
    end = time.monotonic() + seconds
    statuses: Counter[str] = Counter()

    async def send(kind: str, pause: float, contents: list[bytes]) -> None:
        connection, number = Connection(port), 0
        while time.monotonic() < end:
            with suppress(TimeoutError):
                status, _ = await asyncio.wait_for(connection.send(contents[number % len(contents)]), 15)
                statuses[f"{kind} {status}"] += 1
            number += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        connection.close()

    async def leave(content: bytes) -> None:
        """Open a connection, send something, take nothing."""
        while time.monotonic() < end:
            writer = None
            with suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
                writer.write(content)
                if content.startswith(b"POST") and content.endswith(b"}"):
                    await asyncio.sleep(max(min(end - time.monotonic(), 20), 0))  # does not read the answer
                else:
                    await asyncio.wait_for(reader.read(), max(end - time.monotonic(), 0.1))
                statuses["left alone"] += 1
            if writer is not None:
                writer.transport.abort()
            await asyncio.sleep(random.uniform(0.5, 1.5))

    half = request("/v1/recommend", b'{"users": ["', token, length=100_000)
    kinds = [send(kind, *choice) for kind, choice in hostile_requests(token).items()]
    many = json.dumps({"users": [f"n{at}" for at in range(1_000)], "fallback": "popular", "N": 100}).encode()
    kinds += [leave(content) for content in (b"", half, half[:60]) for _ in range(IDLE)]
    kinds += [leave(request("/v1/recommend", many, token)) for _ in range(2)]
    await asyncio.gather(*kinds)
    return dict(statuses)


async def operate(port: int, token: str, clock: Path, start: float, end: float) -> Counter[str]:
    """Start the hostile clients of every second window and let the clock jump in it."""
    statuses: Counter[str] = Counter()
    number = 0
    while start + (2 * number + 2) * WINDOW <= end:
        await asyncio.sleep(start + (2 * number + 1) * WINDOW - time.monotonic())
        command = [sys.executable, __file__, "--attack", str(WINDOW - SETTLE), "--port", str(port)]
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "HOSTILE_TOKEN": token}, stdout=subprocess.PIPE
        )
        await asyncio.sleep(WINDOW / 4)
        set_clock(clock, JUMPS[number % len(JUMPS)])
        await asyncio.sleep(WINDOW / 3)
        set_clock(clock, "+0")
        output, _ = await process.communicate()
        statuses.update(json.loads(output))
        number += 1
    return statuses


def set_clock(path: Path, text: str) -> None:
    """Change what libfaketime tells the service."""
    beside = path.with_name("next")
    beside.write_text(text)
    beside.replace(path)


class Sample(NamedTuple):
    """What the server and the machine use at one time."""

    window: str
    mib: float
    load: float  # processes of the machine that want to run
    files: int  # that the server has open
    seconds: float  # of a processor that the server has used


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


async def watch(pid: int, start: float, end: float) -> list[Sample]:
    """Look every five seconds."""
    samples = []
    while (now := time.monotonic()) < end:
        window = WINDOWS[int((now - start) // WINDOW) % 2]
        running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        samples.append(Sample(window, round(resident_mib(pid), 1), running, files, processor_seconds(pid)))
        if len(samples) % 12 == 0:
            print(samples[-1], flush=True)
        await asyncio.sleep(5)
    return samples


@contextmanager
def service(folder: Path, port: int, clock: Path):  # type: ignore[no-untyped-def]
    """`shortlist serve` under libfaketime, which leaves the steady clock as it is."""
    command = [sys.executable, "-m", "shortlist", "serve", str(folder / "shop.shortlist")]
    command += ["--port", str(port), "--token_file", str(folder / "tokens")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SHORTLIST_SERVE_KEEP_LISTS_DAYS": "30"}
    if LIBRARIES:
        environment |= {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
    try:
        for _ in range(1_200):
            with suppress(OSError):
                call(port, "", "/ready")
                break
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


def expected_lists(folder: Path, users: list[str], events: bool) -> dict[str, list[str]]:
    """The lists of the library, with or without the events in the store."""
    import shortlist as sl
    from shortlist.serve.deployment import load_refit_data
    from shortlist.serve.store import EventStore

    model = sl.load_model(folder / "shop.shortlist")
    if events:
        store = EventStore(f"sqlite:///{folder / 'shop.events.sqlite'}")
        stored = load_refit_data(store, folder, "shop").events
        store.close()
        model = model if stored is None else model.observe(stored)
    lists = model.recommend(users)
    return {user: list(lists[user].items) for user in users}


def served_lists(port: int, token: str, users: list[str]) -> dict[str, list[str]]:
    """The lists of the service."""
    answer = {}
    for first in range(0, len(users), 200):
        lists = call(port, token, "/v1/recommend", {"users": users[first : first + 200]})["lists"]
        answer |= {found["user_id"]: [item["item_id"] for item in found["items"]] for found in lists}
    return answer


def check_store(folder: Path, acknowledged: list[str], began: float) -> dict[str, int]:
    """What is in the store, compared with what was acknowledged."""
    with sqlite3.connect(folder / "shop.events.sqlite") as connection:
        stored = dict(connection.execute("SELECT event_id, received FROM events").fetchall())
        made = [row[0] for row in connection.execute("SELECT made FROM lists")]
    return {
        "acknowledged": len(acknowledged),
        "lost": len(set(acknowledged) - stored.keys()),
        "doubled": len(acknowledged) - len(set(acknowledged)),
        "not_sent_by_ordinary_clients": len(stored.keys() - set(acknowledged)),
        "events_with_a_wrong_time": sum(not began - 60 < at < time.time() + 60 for at in stored.values()),
        "logged_lists": len(made),
        "lists_with_a_wrong_time": sum(not began - 60 < at < time.time() + 60 for at in made),
    }


def percentiles(seconds: dict[tuple[str, str, int], list[float]]) -> dict[str, Any]:
    """Latencies in milliseconds by kind and window, and their ratios over all windows and pair by pair."""
    table: dict[str, Any] = {}
    n_pairs = 1 + max(pair for _, _, pair in seconds)
    for kind in ("lists", "events"):
        pairs = {w: [seconds.get((kind, w, pair), []) for pair in range(n_pairs)] for w in WINDOWS}
        rows: dict[str, Any] = {
            w: _percentiles([value for values in pairs[w] for value in values]) for w in WINDOWS
        }
        rows["ratio"] = {q: rows["hostile"][q] / rows["quiet"][q] for q in ("p50", "p99")}
        ratios = [
            _percentiles(hostile)["p99"] / _percentiles(quiet)["p99"]
            for quiet, hostile in zip(pairs["quiet"], pairs["hostile"], strict=True)
            if quiet and hostile
        ]
        rows["ratio_of_pairs"] = {
            "pairs": len(ratios),
            **{f"p99_quartile_{n}": float(np.percentile(ratios, 25 * n)) for n in (1, 2, 3)},
        }
        table[kind] = rows
    return table


def _percentiles(seconds: list[float]) -> dict[str, float]:
    """Percentiles in milliseconds, and the number of requests."""
    return {f"p{q}": float(np.percentile(seconds, q) * 1000) for q in (50, 99)} | {"requests": len(seconds)}


def count_lines(path: Path) -> dict[str, int]:
    """The lines of the log by level and cause."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    names = ("level", "task", "route", "status", "problem")
    return dict(Counter(" ".join(str(line[name]) for name in names if name in line) for line in lines))


def run(folder: Path, dataset: str, minutes: float) -> dict[str, Any]:
    """The whole run."""
    users, items, tokens = prepare(folder, dataset)
    clock = folder / "clock"
    set_clock(clock, "+0")
    port, began = free_port(), time.time()
    compared = users[:: max(len(users) // 500, 1)]
    with service(folder, port, clock) as process:
        start = time.monotonic()
        end = start + max(round(minutes * 60 / (2 * WINDOW)), 1) * 2 * WINDOW
        clients = Ordinary(port, tokens["ordinary"], compared, items, start)
        clients.expected = expected_lists(folder, compared, events=False)

        async def everything() -> tuple[Any, Counter[str], list[Sample]]:
            return await asyncio.gather(  # type: ignore[return-value]
                clients.run(end),
                operate(port, tokens["hostile"], clock, start, end),
                watch(process.pid, start, end),
            )

        _, hostile, samples = uvloop.run(everything())
        time.sleep(5)
        status = call(port, tokens["ordinary"], "/v1/status")
        healthy = call(port, "", "/health")["status"] == "ok"
        stored = check_store(folder, clients.acknowledged, began)
    everyone = compared + [f"visitor-{number}" for number in range(0, 2_000, 10)]
    with service(folder, port, clock):
        restarted = served_lists(port, tokens["ordinary"], everyone)
    observed = expected_lists(folder, everyone, events=True)
    memory = [sample.mib for sample in samples]
    tenth = max(len(memory) // 10, 1)
    return {
        "dataset": dataset,
        "minutes": (end - start) / 60,
        "ordinary": {
            "statuses": dict(clients.statuses),
            "lists": clients.n_lists,
            "wrong_lists": clients.wrong_lists,
            "milliseconds": percentiles(clients.seconds),
        },
        "hostile": dict(sorted(hostile.items())),
        "store": stored,
        "after_restart": {
            "lists": len(restarted),
            "wrong_lists": sum(restarted[user] != observed[user] for user in everyone),
        },
        "memory_mib": {
            "first_tenth": float(np.median(memory[:tenth])),
            "last_tenth": float(np.median(memory[-tenth:])),
            "highest": max(memory),
            "samples": memory[:: max(len(memory) // 120, 1)],
        },
        "open_files": max(sample.files for sample in samples),
        "processor_seconds_of_the_service": {
            w: sum(b.seconds - a.seconds for a, b in pairwise(samples) if a.window == b.window == w)
            for w in WINDOWS
        },
        "processes_that_want_to_run": {
            **{w: float(np.mean([sample.load for sample in samples if sample.window == w])) for w in WINDOWS},
            "cores": os.cpu_count(),
        },
        "clock_jumps": bool(LIBRARIES),
        "log_lines": count_lines(folder / "log"),
        "events": next(check["sentence"] for check in status["checks"] if check["name"] == "Events"),
        "healthy": healthy,
        "checks": {check["name"]: check["state"] for check in status["checks"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--dataset", default="online-retail")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--attack", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.nice(15 if options.attack else 0)  # the load waits for the service, not the other way round
    if options.attack:
        print(json.dumps(uvloop.run(attack(options.port, os.environ["HOSTILE_TOKEN"], options.attack))))
        return
    with tempfile.TemporaryDirectory() as name:
        results = run(Path(name), options.dataset, options.minutes)
    print(json.dumps(results, indent=1))
    if options.save:
        save_results("hostile", {"machine": describe(), "results": results})
    failed = {name for name in results["ordinary"]["statuses"] if not name.endswith(" 200")}
    failed |= {name for name in results["hostile"] if name.rpartition(" ")[2] == "500"}
    wrong = results["ordinary"]["wrong_lists"] + results["after_restart"]["wrong_lists"]
    if failed or wrong or results["store"]["lost"]:
        raise SystemExit(f"failed: {sorted(failed)}, wrong lists: {wrong}, lost: {results['store']['lost']}")


if __name__ == "__main__":
    main()
