"""An experiment over HTTP: two weeks of real purchases replayed, three arms, two workers, kill -9 in between.

Run: python benchmarks/live_experiment.py [--days 14]; writes results/live_experiment.json.

A model of Online Retail learns from everything before the last days. Before each basket of these days its
user requests a list; then the purchases are sent as events. The arms are ten items for everyone, lists of the
expected-F1 cutoff, and lists of a `Budget` of ten items per list on average. Time is compressed:
the window after the first list is a minute. All processes of the service are killed twice during the run and
started again. The outcomes of the service are then compared with a count over all lists that arrived and all
events that were sent. `overhead` is the time of a request in an experiment divided by that without one, in
alternating blocks of requests.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from machine import describe, save_results

import shortlist as sl

DAY = 86_400 * 1_000_000
WINDOW_SECONDS = 60.0
BLOCKS, REQUESTS = 20, 300  # of the measurement of the overhead
ARMS = ("ten", "dynamic", "budget")


class LocalService:
    """`shortlist serve` with two workers on loopback, which can be killed and started again."""

    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        made = subprocess.run(
            [
                *(sys.executable, "-m", "shortlist", "service", "token", "tokens", "--name", "all"),
                *("--scope", "read", "--scope", "events", "--scope", "admin"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        self.token = made.stdout.strip().splitlines()[-1]
        self.start()

    def start(self):
        """Start and wait until lists can be served."""
        command = [sys.executable, "-m", "shortlist", "serve", "shop.shortlist", "--workers", "2"]
        command += ["--port", str(self.port), "--token_file", "tokens"]
        self.process = subprocess.Popen(
            command, cwd=self.folder, stderr=subprocess.DEVNULL, start_new_session=True
        )
        end = time.monotonic() + 300
        while self.call("/ready")[0] != 200:
            assert time.monotonic() < end, "the service did not start"
            time.sleep(0.1)

    def kill(self):
        """kill -9 for the service and its workers, which this script started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def call(self, path, body=None):
        """Return (status, answer); status 0 if there is none."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except OSError:
            return 0, None


def fit_models(folder, days):
    """Save the models of the arms; return the baskets of the last days as (user, items), in order."""
    data = sl.load_dataset("online-retail")
    cut = data.end_time - days * DAY
    train, later = data.where(data.time < cut), data.where(data.time >= cut)
    split = sl.split.last_basket(train)
    ranker = sl.PersonalFrequency()
    lists = ranker.clone().fit(split.train_valid).recommend(N=50, filter_seen=False)
    cutoff = sl.cutoff.ExpectedF1().fit(lists, split.test, history=split.train_valid)
    model = ranker.fit(train).set_cutoff(cutoff)
    model.save(folder / "shop.shortlist")
    budget = sl.cutoff.Budget(items_per_list=10.0).fit(lists, split.test, history=split.train_valid)
    model.set_cutoff(budget).save(folder / "budget.shortlist")
    known = np.isin(later.users.values.to_numpy()[later.user], train.users.values.to_numpy())
    table = later.where(known).to_frame().sort("timestamp", "user_id", maintain_order=True)
    groups = table.group_by("timestamp", "user_id", maintain_order=True).agg("item_id")
    return [(row["user_id"], row["item_id"]) for row in groups.to_dicts()]


def replay(service, baskets):
    """Request a list before each basket, send the basket; return lists and events with their times."""
    lists, events, failed, kills = [], [], 0, 0
    for number, (user, items) in enumerate(baskets):
        if number in (len(baskets) // 3, 2 * len(baskets) // 3):
            time.sleep(0.5)  # lists are logged within 0.2 seconds; an answer that was just sent may be lost
            service.kill()
            service.start()
            kills += 1
        status, answer = service.call("/v1/recommend", {"users": [user]})
        if status == 200:
            row = answer["lists"][0]
            arm = row.get("arm", "none/none").split("/")[1]  # none: a worker does not know the experiment yet
            lists.append((time.time(), user, arm, [item["item_id"] for item in row["items"]]))
        failed += status != 200
        body = [{"user_id": user, "item_id": item, "event_id": f"{number}-{item}"} for item in items]
        status, _ = service.call("/v1/events", {"events": body})
        failed += status != 200
        events += [(time.time(), user, item) for item in items]
    return lists, events, failed, kills


def count(lists, events):
    """Return arm -> hits of each user, counted from what the client saw."""
    first, shown, arm_of = {}, {}, {}
    for made, user, arm, items in lists:
        first.setdefault(user, made)
        arm_of[user] = arm
        for item in items:
            shown.setdefault((user, item), made)
    hits = {user: set() for user in first}
    for received, user, item in events:
        inside = user in first and first[user] <= received < first[user] + WINDOW_SECONDS
        if inside and shown.get((user, item), np.inf) <= received:
            hits[user].add(item)
    return {arm: [len(hits[user]) for user in first if arm_of[user] == arm] for arm in ARMS}


def measure_overhead(service, users):
    """Return the median ratio of request times with and without an experiment, in alternating blocks."""
    ratios = []
    arms = [{"name": "now", "share": 0.5}, {"name": "same", "share": 0.5}]
    for block in range(BLOCKS):
        seconds = {}
        for running in (False, True):
            if running:
                service.call("/v1/experiment", {"name": f"overhead{block}", "arms": arms})
                time.sleep(0.7)
            start = time.perf_counter()
            for k in range(REQUESTS):
                service.call("/v1/recommend", {"users": [users[k % len(users)]]})
            seconds[running] = time.perf_counter() - start
            if running:
                service.call("/v1/experiment/stop", {"name": f"overhead{block}"})
                time.sleep(0.7)
        ratios.append(seconds[True] / seconds[False])
    return {"median": float(np.median(ratios)), "quartiles": np.percentile(ratios, [25, 75]).tolist()}


def main():
    """Replay, compare and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=14)
    days = parser.parse_args().days
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        baskets = fit_models(folder, days)
        service = LocalService(folder)
        try:
            arms = [
                {"name": "ten", "share": 1 / 3, "options": {"N": 10}},
                {"name": "dynamic", "share": 1 / 3},
                {"name": "budget", "share": 1 - 2 / 3, "model": "budget"},
            ]
            body = {"name": "replay", "arms": arms, "window_days": WINDOW_SECONDS / 86_400}
            status, answer = service.call("/v1/experiment", body)
            assert status == 200, answer
            time.sleep(20)  # until both workers have loaded the model of the third arm
            lists, events, failed, kills = replay(service, baskets)
            outside = sum(arm == "none" for _, _, arm, _ in lists)
            lists = [entry for entry in lists if entry[2] != "none"]
            counted = count(lists, events)
            users = len({user for _, user, _, _ in lists})
            end = time.monotonic() + 3 * WINDOW_SECONDS + 120
            while time.monotonic() < end:
                report = service.call("/v1/experiment")[1]["report"]
                if report and sum(arm["users"] for arm in report["arms"]) >= users:
                    break
                time.sleep(5)
            service.call("/v1/experiment/stop", {"name": "replay"})
            overhead = measure_overhead(service, [user for user, _ in baskets[:200]])
        finally:
            service.kill()
    rows = []
    for row in report["differences"]:
        if row["metric"] != "hits":
            continue
        difference = float(np.mean(counted[row["arm"]]) - np.mean(counted["ten"]))
        inside = row["low"] is not None and row["low"] <= difference <= row["high"]
        rows.append({**row, "counted_difference": difference, "interval_contains_it": inside})
    means = {arm["arm"]: arm["hits"] for arm in report["arms"]}
    result = {
        "baskets": len(baskets),
        "users": users,
        "users_in_report": sum(arm["users"] for arm in report["arms"]),
        "kills": kills,
        "failed_requests": failed,
        "lists_outside": outside,
        "mean_hits": {arm: float(np.mean(values)) for arm, values in counted.items()},
        "mean_hits_of_the_service": means,
        "items_per_list": {a: float(np.mean([len(i) for *_, arm, i in lists if arm == a])) for a in ARMS},
        "differences": rows,
        "verdict": report["verdict"],
        "overhead": overhead,
        "machine": describe(),
    }
    print(json.dumps(result, indent=2))
    save_results("live_experiment", result)


if __name__ == "__main__":
    main()
