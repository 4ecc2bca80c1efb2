"""Three servers on one PostgreSQL behind a proxy: mixed load, kills, a database restart and a rolling update.

Run: python benchmarks/servers.py [--minutes 10] [--kills 20]; writes results/servers.json. It needs the
programs of a PostgreSQL server.

A model of Online Retail is served by three processes with folders of their own; only the first one has the
model file. Clients request lists and send events through a proxy, which takes turns between the servers that
are ready and never sends a request twice. Meanwhile servers are killed (SIGKILL) and started again, models
are activated, the database is stopped at once and started again, and at the end all servers are restarted one
after the other (SIGTERM). A failed request is one on a killed connection if its connection to a server broke
between the kill of that server and its next start. Now and then the load pauses; two seconds later the lists
of the same users are requested from every server and compared. Then events are sent to one server, and the
time is taken until the lists of all servers have changed. At the end, every acknowledged event is looked for
in the store.
"""

import argparse
import collections
import http.client
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import sqlalchemy as sa
from machine import describe, save_results

import shortlist as sl
from shortlist.serve.config import ServeConfig
from shortlist.serve.tokens import create_token
from tests.postgres import PostgresServer
from tests.serve.proxy import Proxy
from tests.serve.server import Server, free_port

CLIENTS, PAUSE_SECONDS, COMPARED = 6, 0.03, 400


def fit_models(folder):
    """Save two models; return users and items."""
    data = sl.load_dataset("online-retail")
    split = sl.split.last_basket(data)
    ranker = sl.PersonalFrequency()
    lists = ranker.clone().fit(split.train).recommend(N=50, filter_seen=False)
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.valid, history=split.train)
    model = ranker.fit(split.train_valid).set_cutoff(cutoff)
    model.save(folder / "shop.shortlist")
    sl.Popularity().fit(split.train_valid).set_cutoff(sl.cutoff.FixedN(N=8)).save(folder / "next.shortlist")
    return model.users_.values.to_list(), model.items_.values.to_list()


class Servers:
    """The database, the servers and their kills."""

    def __init__(self, room):
        self.postgres = PostgresServer()
        self.postgres.start()
        self.folders = [room / name for name in "abc"]
        for folder in self.folders:
            folder.mkdir()
        self.users, self.items = fit_models(self.folders[0])
        self.token = create_token(room / "tokens", "all", ["read", "events", "admin"])
        self.tokens = room / "tokens"
        self.ports = [free_port() for _ in self.folders]
        self.running, self.kills, self.start_seconds = [None] * 3, [], []
        for number in range(3):
            self.start(number)

    def start(self, number):
        """Start a server and wait until it is ready."""
        started = time.monotonic()
        folder = self.folders[number]
        with (folder / "log").open("a") as log:
            self.running[number] = Server(
                folder, self.postgres.uri, self.tokens, self.token, log=log, port=self.ports[number], drain=2
            )
        self.start_seconds.append(time.monotonic() - started)
        for kill in self.kills:
            if kill[0] == self.ports[number] and kill[2] is None:
                kill[2] = time.monotonic()

    def kill(self, number):
        """Kill a server."""
        self.kills.append([self.ports[number], time.monotonic(), None])  # port, killed, ready again
        self.running[number].kill()

    def lists(self, number, users):
        """The lists of one server."""
        status, answer = self.running[number].call("/v1/recommend", {"users": users, "max_items": 30}, 60)
        if status != 200:
            return status, answer
        return answer["model"], [[row["reason"], row["items"]] for row in answer["lists"]]

    def close(self):
        """End what was started."""
        for server in self.running:
            if server is not None:
                server.kill()
        self.postgres.stop()
        shutil.rmtree(self.postgres.room, ignore_errors=True)


class Load:
    """Clients that go through the proxy."""

    def __init__(self, servers, proxy):
        self.servers, self.proxy = servers, proxy
        self.may_run, self.stop = threading.Event(), threading.Event()
        self.acknowledged, self.failed, self.seconds = set(), [], collections.defaultdict(list)
        self.idle = [threading.Event() for _ in range(CLIENTS)]
        self.threads = [threading.Thread(target=self.run, args=(client,)) for client in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def pause(self):
        """Stop all clients and wait until nothing is on its way."""
        self.may_run.clear()
        for event in self.idle:
            event.wait()

    def resume(self):
        """Let all clients go on."""
        for event in self.idle:
            event.clear()
        self.may_run.set()

    def run(self, client):
        """Send requests until the end."""
        rng = random.Random(client)
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=60)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.servers.token}"}
        for number in itertools.count():
            if not self.may_run.is_set():
                self.idle[client].set()
                self.may_run.wait()
            if self.stop.is_set():
                break
            kind, path, body = self.draw(rng, f"{client}-{number}")
            started = time.monotonic()
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            self.seconds[kind].append(time.monotonic() - started)
            if answer.status != 200:
                self.failed.append(
                    (answer.status, int(answer.headers["x-server"]), time.monotonic(), content)
                )
            elif kind == "events":
                self.acknowledged.update(event["event_id"] for event in body["events"])
            time.sleep(PAUSE_SECONDS * rng.random() * 2)
        connection.close()

    def draw(self, rng, name):
        """A request: 60% lists of one user, 15% of twenty, 25% events."""
        chance = rng.random()
        if chance < 0.75:
            n = 1 if chance < 0.6 else 20
            kind = "one list" if n == 1 else "twenty lists"
            return kind, "/v1/recommend", {"users": rng.sample(self.servers.users, n), "max_items": 20}
        user, items = rng.choice(self.servers.users), rng.sample(self.servers.items, rng.randint(1, 5))
        events = [
            {"user_id": user, "item_id": item, "event_id": f"{name}-{place}"}
            for place, item in enumerate(items)
        ]
        return "events", "/v1/events", {"events": events}

    def end(self):
        """Stop for good."""
        self.stop.set()
        self.resume()
        for thread in self.threads:
            thread.join()


def compare(servers, load, rng, result):
    """Pause, let one event reach all servers, wait for two seconds, and compare their lists."""
    load.pause()
    time.sleep(2.0)
    user, users = rng.choice(servers.users), rng.sample(servers.users, COMPARED)
    answers = [servers.lists(number, users) for number in range(3)]
    result["lists_compared"] += 3 * COMPARED
    for model, lists in answers[1:]:
        if model != answers[0][0] or not isinstance(lists, list):
            result["lists_that_differ"] += COMPARED
            print(
                "another model or no answer", model, answers[0][0], lists if isinstance(lists, dict) else ""
            )
        else:
            result["lists_that_differ"] += sum(a != b for a, b in zip(lists, answers[0][1], strict=True))
    if answers[0][0] == "shop":  # the other model recommends the same to everyone
        before = [servers.lists(number, [user]) for number in range(3)]
        sent = [{"user_id": user, "item_id": item} for item in rng.sample(servers.items, 30)]
        status, _ = servers.running[rng.randrange(3)].call("/v1/events", {"events": sent})
        acknowledged, waiting = time.monotonic(), {0, 1, 2}
        while status == 200 and waiting and time.monotonic() - acknowledged < 30:
            waiting = {number for number in waiting if servers.lists(number, [user]) == before[number]}
        result["seconds_until_all_lists_know_an_event"].append(time.monotonic() - acknowledged)
    load.resume()


def run(servers, load, args, result):
    """Follow the schedule of kills, pauses, activations, the restart and the rolling update."""
    rng = random.Random(7)
    seconds, started = args.minutes * 60, time.monotonic()
    times = [seconds * 0.9 * (number + 0.5) / args.kills for number in range(args.kills)]
    load.resume()
    for number, at in enumerate(times):
        time.sleep(max(started + at - time.monotonic(), 0))
        if number == args.kills // 2:
            stopped = time.monotonic()
            servers.postgres.stop()
            servers.postgres.start()
            result["database_restart_seconds"] = time.monotonic() - stopped
        which = rng.randrange(3)
        servers.kill(which)
        servers.start(which)
        if number % 5 == 4:
            name = "next" if number % 10 == 4 else "shop"
            status, _ = servers.running[0 if name == "next" else rng.randrange(3)].call(
                "/v1/model", {"name": name}, 60
            )
            result["activations"] += status == 200
        if number % 2:
            compare(servers, load, rng, result)
    before = len(load.failed)
    for number in range(3):
        servers.running[number].stop()
        servers.start(number)
    result["failed_during_the_rolling_update"] = len(load.failed) - before
    time.sleep(max(started + seconds - time.monotonic(), 0))
    compare(servers, load, rng, result)
    load.pause()
    result["minutes"] = (time.monotonic() - started) / 60


def count_events(servers, load, result):
    """Look for every acknowledged event in the store."""
    engine = sa.create_engine(ServeConfig(model="x", db=servers.postgres.uri).database)
    with engine.connect() as connection:
        stored = connection.exec_driver_sql("select event_id from events").scalars().all()
    engine.dispose()
    result["events_acknowledged"] = len(load.acknowledged)
    result["acknowledged_events_lost"] = len(load.acknowledged - set(stored))
    result["events_stored_twice"] = len(stored) - len(set(stored))


def count_requests(servers, load, result):
    """Requests by kind, and failed ones by cause."""
    on_killed = [
        status == 502 and any(port == p and killed <= at < ready for p, killed, ready in servers.kills)
        for status, port, at, _ in load.failed
    ]
    others = [entry for entry, killed in zip(load.failed, on_killed, strict=True) if not killed]
    result["requests"] = sum(map(len, load.seconds.values()))
    result["failed_on_killed_connections"] = sum(on_killed)
    result["failed_otherwise"] = len(others)
    result["failed_otherwise_by_status"] = dict(collections.Counter(str(entry[0]) for entry in others))
    for entry in others[:10]:
        print("failed", entry)
    result["milliseconds"] = {
        kind: {
            "n": len(values),
            "p50": 1000 * statistics.median(values),
            "p99": 1000 * sorted(values)[int(0.99 * len(values))],
        }
        for kind, values in load.seconds.items()
    }
    result["seconds_to_start_a_server"] = statistics.median(servers.start_seconds)


def main():
    """Run and store the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", default="servers")
    args = parser.parse_args()
    result = {"servers": 3, "clients": CLIENTS, "kills": args.kills, "database_restarts": 1, "activations": 0}
    result |= {"lists_compared": 0, "lists_that_differ": 0, "seconds_until_all_lists_know_an_event": []}
    result["load_average_before"] = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as room:
        servers = Servers(Path(room))
        proxy = Proxy(servers.ports)
        while not all(proxy.ready.values()):
            time.sleep(0.1)
        load = Load(servers, proxy)
        try:
            run(servers, load, args, result)
            count_events(servers, load, result)
            count_requests(servers, load, result)
        finally:
            load.end()
            proxy.close()
            logs = "".join((folder / "log").read_text() for folder in servers.folders)
            servers.close()
        levels = [json.loads(line) for line in logs.splitlines() if line.startswith("{")]
        problems = [
            f"{line.get('task') or line.get('route')}: {line.get('problem') or line.get('status')}"
            for line in levels
            if line["level"] == "error"
        ]
        result["errors_in_the_log"] = dict(collections.Counter(problems).most_common(10))
    result["load_average_after"] = os.getloadavg()[0]
    print(json.dumps(result, indent=1))
    save_results(args.out, {"machine": describe("sqlalchemy", "psycopg", "uvicorn"), "result": result})


if __name__ == "__main__":
    main()
