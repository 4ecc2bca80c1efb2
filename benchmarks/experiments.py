"""Experiments looked at every day: false verdicts without a difference, days until a true lift is decided.

Run: python benchmarks/experiments.py [--runs 10000] [--store_runs 1000] [--part verdicts|power|tables|store];
writes results/experiments.json, of which the other parts stay.

Every run has DAYS days with USERS_PER_DAY new users in two arms. Outcomes depend on a covariate that was
known before. Four kinds are drawn: `hits` (counts), `value` (most users earn nothing, the others a skewed
amount), `f1` (between 0 and 1, most of them 0) and `empty` (yes or no). `z_test` is the usual test of a fixed
sample, looked at every day until it is significant; `z_once` looks once, after the last day. `planned` is the
sequence for which the users of all days were planned. `median_days` is the day on which half of the runs are
decided; `fixed` is the sample that the usual test needs for that. `power` is the share of runs with a lift
that are decided within DAYS.

`tables` and `store` have experiments without any difference as the service makes them: the arms have models
that know different histories and show the same list, lists of other items that are bought as often, or bought
as often but together; one user buys everything; purchases are returned. `tables` are outcomes of 600 to 4,000
users at TABLE_LOOKS looks. `store` passes through an event store, from the model files of the arms to the
stored outcomes, with ids that were invented for one arm and buy everything, users whose events came after the
model file, and a clock that is a week ahead at one look. Both go on where an earlier run ended.
"""

import argparse
import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import sqlalchemy as sa
from machine import RESULTS, describe, save_results
from scipy.stats import norm

import shortlist as sl
from shortlist.evaluation.experiment import (
    MIN_EVENTS,
    MIN_USERS,
    PLANNED_SHARE,
    POWER_QUANTILE,
    half_width,
    mean_difference,
)
from shortlist.serve.deployment import Deployment
from shortlist.serve.experiments import DAY, Arm, Experiments, LiveExperiment, Participants
from shortlist.serve.projections import add_activation
from shortlist.serve.store import EventStore, ListRow
from shortlist.serve.tables import changes, events, exposures, lists

DAYS, USERS_PER_DAY = 60, 100
ERROR = 0.05
AT_ONCE = 250  # runs
LIFTS = (0.05, 0.1, 0.2)
LONG_DAYS = 365
POWER_LIFTS = (0.05, 0.072, 0.1)  # of the second, the usual test finds 71% within DAYS
SAVE_EVERY = 100  # experiments
STORE_RUNS = 1_000  # by default, of experiments that pass through the event store
TABLE_LOOKS, STORE_LOOKS = 20, 6  # of an experiment
ITEMS = [f"i{n}" for n in range(20)]  # ten of them are on every list
SHOP_USERS = 750
START = 1_000_000.0


def draw(kind, rng, lift, days):
    """Return (runs, days, users) arm, covariate and outcome."""
    shape = (AT_ONCE, days, USERS_PER_DAY)
    arm = rng.random(shape) < 0.5
    before = rng.gamma(1.0, 1.0, shape)  # interest in the shop, such as earlier purchases
    factor = 1 + lift * arm
    if kind == "hits":
        outcome = rng.poisson(0.8 * before * factor).astype(float)
    elif kind == "value":
        buys = rng.random(shape) < np.minimum(0.08 * before * factor, 1)
        outcome = buys * rng.lognormal(2.0, 1.0, shape)
    elif kind == "f1":
        some = rng.random(shape) < np.minimum(0.3 * before * factor, 1)
        outcome = some * rng.beta(2, 6, shape)
    else:
        outcome = (rng.random(shape) < np.minimum(0.2 * factor / (0.5 + before), 1)).astype(float)
    return arm, before, outcome


def daily_sums(arm, before, outcome):
    """Return (runs, days, 2, 3, 3) sums of products, and counts of outcomes that are not 0 and that are."""
    columns = np.stack([np.ones(arm.shape), before, outcome], axis=-1)
    parts = [np.einsum("rdui,rduj,rdu->rdij", columns, columns, chosen) for chosen in (~arm, arm)]
    events = np.stack([((outcome != 0) & chosen).sum(-1) for chosen in (~arm, arm)], axis=-1)
    usual = [(chosen & (outcome == 0)).sum(-1) for chosen in (~arm, arm)]
    return np.stack(parts, axis=2), events, np.stack(usual, axis=-1)


def decide(sums, events, usual, n_covariates, planned_users=None):
    """Return (runs, days) whether the interval of each day excludes 0, and the z-values."""
    total = sums.cumsum(1)
    columns = [0, 2] if n_covariates == 0 else [0, 1, 2]
    some = total[..., columns, :][..., columns]
    estimate = mean_difference(some[:, :, 1], some[:, :, 0], n_covariates + 1, n_covariates)
    width = half_width(estimate.variance, estimate.n_users, ERROR, planned_users)
    unusual = np.minimum(events.cumsum(1), usual.cumsum(1)).min(-1)
    enough = (total[..., 0, 0].min(-1) >= MIN_USERS) & (unusual >= MIN_EVENTS)
    spread = np.sqrt(estimate.variance / estimate.n_users)
    z = np.abs(estimate.difference) / np.maximum(spread, 1e-300)  # on the first days all may be 0
    return enough & (np.abs(estimate.difference) > width), z


def first_day(decided):
    """Return (runs,) the first day of a verdict, from 1; days + 1 for none."""
    return np.where(decided.any(1), decided.argmax(1) + 1, decided.shape[1] + 1)


def measure_verdicts(runs):
    """The share of runs without a difference that end with a verdict, by metric and method."""
    rng, rows = np.random.default_rng(0), []
    for kind in ("hits", "value", "f1", "empty"):
        wrong = Counter()
        for _ in range(runs // AT_ONCE):
            sums = daily_sums(*draw(kind, rng, 0.0, DAYS))
            decided, z = decide(*sums, 1)
            wrong["sequence"] += int(decided.any(1).sum())
            wrong["sequence_unadjusted"] += int(decide(*sums, 0)[0].any(1).sum())
            wrong["planned"] += int(decide(*sums, 1, DAYS * USERS_PER_DAY)[0].any(1).sum())
            wrong["z_test"] += int((z > norm.ppf(1 - ERROR / 2)).any(1).sum())
            wrong["z_once"] += int((z[:, -1] > norm.ppf(1 - ERROR / 2)).sum())
        row = {"metric": kind, **{name: n / (runs // AT_ONCE * AT_ONCE) for name, n in wrong.items()}}
        rows.append(row)
        print(row, flush=True)
    return rows


def measure_days():
    """Median days until a lift is decided, by metric and method."""
    rng, rows = np.random.default_rng(1), []
    for kind in ("hits", "value"):
        for lift in LIFTS:
            sums = daily_sums(*draw(kind, rng, lift, LONG_DAYS))
            row = {"metric": kind, "lift": lift}
            for name, n_covariates in (("sequence", 1), ("sequence_unadjusted", 0)):
                row[name] = float(np.median(first_day(decide(*sums, n_covariates)[0])))
            for name, columns, n_covariates in (("fixed", [0, 1, 2], 1), ("fixed_unadjusted", [0, 2], 0)):
                total = sums[0].sum(1)[..., columns, :][..., columns]
                estimate = mean_difference(total[:, 1], total[:, 0], n_covariates + 1, n_covariates)
                per_user = estimate.variance.mean() / estimate.difference.mean() ** 2
                row[name] = float((norm.ppf(1 - ERROR / 2) ** 2) * per_user / USERS_PER_DAY)
                if n_covariates:  # the number of users with which a plan is decided with probability 0.8
                    planned = (norm.ppf(1 - PLANNED_SHARE * ERROR / 4) + POWER_QUANTILE) ** 2 * per_user
                    row["planned_days"] = float(np.ceil(planned / USERS_PER_DAY))
                    decided, _ = decide(*sums, 1, planned)
                    row["planned"] = float(np.median(first_day(decided)))
            rows.append(row)
            print(row, flush=True)
    return rows


def measure_power(runs):
    """The share of runs with a lift that are decided within DAYS, by method."""
    rng, rows = np.random.default_rng(2), []
    for lift in POWER_LIFTS:
        right = Counter()
        for _ in range(runs // AT_ONCE):
            sums = daily_sums(*draw("hits", rng, lift, DAYS))
            decided, z = decide(*sums, 1)
            right["sequence"] += int(decided.any(1).sum())
            right["planned"] += int(decide(*sums, 1, DAYS * USERS_PER_DAY)[0].any(1).sum())
            right["z_once"] += int((z[:, -1] > norm.ppf(1 - ERROR / 2)).sum())
        n_runs = runs // AT_ONCE * AT_ONCE
        row = {"metric": "hits", "lift": lift, **{name: n / n_runs for name, n in right.items()}}
        rows.append(row)
        print(row, flush=True)
    return rows


# ---------------------------------------------------------------------- what a service makes of it
class ShopFiles:
    """Users of a shop, with a model file of all events and one of the first two of each user."""

    def __init__(self, folder):
        rng, self.folder = np.random.default_rng(4), folder
        self.activity = rng.geometric(0.1, SHOP_USERS)
        user = np.repeat(np.arange(SHOP_USERS), self.activity)
        frame = pl.DataFrame({"user_id": [f"u{u}" for u in user], "item_id": rng.choice(ITEMS, user.size)})
        for name, rows in (("all", frame), ("short", frame.group_by("user_id", maintain_order=True).head(2))):
            model = sl.Popularity().fit(sl.Interactions.from_frame(rows))
            model.set_cutoff(sl.cutoff.FixedN(N=10)).save(folder / f"{name}.shortlist")


def draw_case(part, number):
    """What is in an experiment, and its random numbers."""
    rng = np.random.default_rng([part, number])
    case = {
        "lists": str(rng.choice(["same", "others", "bundles"])),
        "returns": bool(rng.random() < 0.5),
        "planned": bool(rng.random() < 0.5),
    }
    return case, rng


def draw_choices(rng, activity, case):
    """(n_users, 20) whether each user buys each item, and whether it is returned; the arm plays no part."""
    share = np.minimum(activity, 40)[:, None] / 80
    chosen = rng.random((activity.size, len(ITEMS))) < share
    if case["lists"] == "bundles":  # the items of one arm are bought together: as many, less evenly
        chosen[:, 10:] = rng.random((activity.size, 1)) < share
    chosen[0] |= rng.random() < 0.1  # a user who buys everything
    returned = chosen & (rng.random(chosen.shape) < (0.2 if case["returns"] else 0.0))
    return chosen, returned


def run_table(number):
    """One experiment without a difference: its table of outcomes, as the service would make it."""
    case, rng = draw_case(3, number)
    n = int(rng.integers(600, 4_000))
    activity = rng.geometric(0.1, n)
    arms = np.where(rng.random(n) < 0.5, "old", "new")
    chosen, returned = draw_choices(rng, activity, case)
    counts = chosen & ~returned
    second = (arms == "new") & (case["lists"] != "same")
    table = {
        "arm": arms,
        "day": np.arange(n) * TABLE_LOOKS // n,
        "log_events_before": np.log1p(activity),
        "hits": np.where(second, counts[:, 10:].sum(1), counts[:, :10].sum(1)).astype(float),
    }
    planned = n if case["planned"] else None
    report = sl.evaluate_experiment(
        table, metric="hits", control="old", covariates=["log_events_before"], planned_users=planned
    )
    outside = (report.looks["low"].fill_null(-1) > 0) | (report.looks["high"].fill_null(1) < 0)
    return case | {"decided": bool(outside.any()) or report.verdict in ("better", "worse")}


def run_in_store(shop, experiments, store, number):
    """The same in an empty event store, with invented ids, wrong clocks and models of the arms."""
    case, rng = draw_case(4, number)
    case |= {"invented": int(rng.choice([0, 20, 200])), "jump": bool(rng.random() < 0.5)}
    deployment = Deployment(shop.folder, store)
    add_activation(store, "all", deployment.find_checksum("all"), 0, "given at the start")
    people = rng.permutation(SHOP_USERS)[: int(rng.integers(450, SHOP_USERS + 1))]
    late = people[: people.size // 10]  # have an event that is not in the file of the model
    store.add_events([[event_row(0.0, f"u{u}", ITEMS[0], None) for u in late]])
    planned = people.size if case["planned"] else None
    arms = (Arm("old", 0.5, "short"), Arm("new", 0.5))
    experiment = LiveExperiment("null", arms, window_days=1.0, planned_users=planned)
    experiment = replace(experiment.freeze(deployment), salt=str(number))  # the same in every run
    experiments.start(experiment)
    participants = Participants.load(store, shop.folder, experiment)
    jump_at, decided = int(rng.integers(STORE_LOOKS)) if case["jump"] else -1, False
    unknown_ids = (f"x{k}" for k in range(100_000) if experiment.assign(f"x{k}").name == "new")
    for look, users in enumerate(np.array_split(people, STORE_LOOKS)):
        at, names = START + look * DAY, [f"u{u}" for u in users]
        names += [next(unknown_ids) for _ in range(case["invented"] // STORE_LOOKS + 1) if case["invented"]]
        shown = zip(names, participants.count(names), strict=True)
        store.add_lists([list_row(at, *row, experiment, case) for row in shown])
        if look == jump_at:  # all windows are over, as far as the clock says
            experiments.step(at + 8 * DAY)
        chosen, returned = draw_choices(rng, shop.activity[users], case)
        buys = [(names[k], ITEMS[i]) for k, i in np.argwhere(chosen).tolist()]
        buys += [(name, item) for name in names[users.size :] for item in ITEMS]  # everything
        rows = [event_row(at + 100, *pair, None) for pair in buys]
        pairs = [(names[k], ITEMS[i]) for k, i in np.argwhere(returned).tolist()]
        store.add_events([[*rows, *(event_row(at + 5_000, *pair, -1.0) for pair in pairs)]])
        experiments.step(at + 200)  # the clock is right again
        experiments.step(at + DAY + 120)
        report = experiments.compare(experiment)
        decided |= report is not None and report.verdict in ("better", "worse")
    n_users = len(experiments.users("null"))
    assert n_users == people.size, (number, n_users)
    warned = "invents" in experiments.describe("null")["summary"]
    with store.begin() as connection:
        for table in (events, lists, changes, exposures):
            connection.execute(sa.delete(table))
    return case | {"decided": decided, "noticed": warned}


def list_row(at, user, n_before, experiment, case):
    """The log of a list of the user's arm."""
    arm = experiment.assign(user).name if n_before else ""
    items = ITEMS[10:] if arm == "new" and case["lists"] != "same" else ITEMS[:10]
    texts = (json.dumps(items), None, "top_n")
    return ListRow(f"{user}-{at}", user, "m", "N", at, *texts, 1.0, f"null/{arm}", n_before or None)


def event_row(at, user, item, weight):
    """A purchase, or its return."""
    key = f"{user}-{item}-{weight}-{at}"
    values = {"event_id": key, "user_id": user, "item_id": item, "time": int(at * 1e6), "received": at}
    return values | {"weight": weight, "list_id": None}


def count_verdicts(runs, before, run_one):
    """Experiments without a difference: how many there were of each case, and how many had a verdict.

    Goes on after those that `before` has; yields what is known after each SAVE_EVERY of them.
    """
    done = before.get("runs", 0)
    cells = {json.dumps(row["case"]): row for row in before.get("cells", [])}
    for number in range(done, runs):
        case = run_one(number)
        counts = {name: case.pop(name, False) for name in ("decided", "noticed")}
        cell = cells.setdefault(json.dumps(case), {"case": case, "runs": 0, "decided": 0, "noticed": 0})
        for name, count in (counts | {"runs": 1}).items():
            cell[name] += count
        if (number + 1) % SAVE_EVERY == 0 or number + 1 == runs:
            decided = sum(cell["decided"] for cell in cells.values())
            print(f"{number + 1} experiments, {decided} verdicts", flush=True)
            yield {"runs": number + 1, "decided": decided, "cells": list(cells.values())}


def measure_store(runs, before):
    """Experiments without a difference in an event store."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        shop, store = ShopFiles(Path(folder)), EventStore(f"sqlite:///{folder}/events.sqlite")
        store.create()
        experiments = Experiments(store)
        yield from count_verdicts(runs, before, lambda n: run_in_store(shop, experiments, store, n))
        store.close()


def main():
    """Measure and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--store_runs", type=int, default=STORE_RUNS)
    parser.add_argument("--part", choices=("verdicts", "power", "tables", "store"))
    options = parser.parse_args()
    path = RESULTS / "experiments.json"
    results = json.loads(path.read_text()) if options.part and path.exists() else {}
    settings = {"days": DAYS, "users_per_day": USERS_PER_DAY, "error": ERROR}
    results |= {"settings": settings, "machine": describe()}
    runs = results.setdefault("runs", {})
    if options.part in (None, "verdicts"):
        runs["verdicts"] = options.runs
        results["false_verdicts"] = measure_verdicts(options.runs)
    if options.part in (None, "power"):
        runs["power"] = options.runs
        results |= {"median_days": measure_days(), "power": measure_power(options.runs)}
    save_results("experiments", results)
    if options.part in (None, "tables"):
        for counts in count_verdicts(options.runs, results.get("tables", {}), run_table):
            save_results("experiments", results | {"tables": counts})
    if options.part in (None, "store"):
        results = json.loads(path.read_text())
        for counts in measure_store(options.store_runs, results.get("store", {})):
            save_results("experiments", results | {"store": counts})


if __name__ == "__main__":
    main()
