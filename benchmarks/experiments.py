"""Experiments looked at every day: false verdicts without a difference, days until a true lift is decided.

Run: python benchmarks/experiments.py [--runs 10000] [--part verdicts|power|service]; writes
results/experiments.json, of which the other parts stay.

Every run has DAYS days with USERS_PER_DAY new users in two arms. Outcomes depend on a covariate that was
known before. Four kinds are drawn: `hits` (counts), `value` (most users earn nothing, the others a skewed
amount), `f1` (between 0 and 1, most of them 0) and `empty` (yes or no). `z_test` is the usual test of a fixed
sample, looked at every day until it is significant; `z_once` looks once, after the last day. `planned` is the
sequence for which the users of all days were planned. `median_days` is the day on which half of the runs are
decided; `fixed` is the sample that the usual test needs for that. `power` is the share of runs with a lift
that are decided within DAYS.

`service` runs experiments without any difference through the event store of the service, with what could make
a difference there: arms with models that know different histories, ids that were invented for one arm and buy
everything, a user who buys everything, returns, and a clock that is a week ahead at one look.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from machine import RESULTS, describe, save_results
from scipy.stats import norm

from shortlist.evaluation.experiment import (
    MIN_EVENTS,
    MIN_USERS,
    PLANNED_SHARE,
    POWER_QUANTILE,
    half_width,
    mean_difference,
)
from shortlist.serve.experiments import DAY, Arm, Experiments, LiveExperiment
from shortlist.serve.store import EventStore, ListRow

DAYS, USERS_PER_DAY = 60, 100
ERROR = 0.05
AT_ONCE = 250  # runs
LIFTS = (0.05, 0.1, 0.2)
LONG_DAYS = 365
POWER_LIFTS = (0.05, 0.072, 0.1)  # of the second, the usual test finds 71% within DAYS
SAVE_EVERY = 250  # experiments in the event store
LOOKS = 8  # of an experiment in the event store
ITEMS = [f"i{n}" for n in range(10)]  # on every list
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


# ---------------------------------------------------------------------- in the event store
def run_in_store(folder, number):
    """One experiment without a difference in its own store: what was in it, and whether a look decided."""
    rng = np.random.default_rng([3, number])
    facts = {
        "invented": int(rng.choice([0, 20, 200])),
        "returns": bool(rng.random() < 0.5),
        "jump": bool(rng.random() < 0.5),
        "planned": bool(rng.random() < 0.5),
    }
    store = EventStore(f"sqlite:///{folder}/{number}.sqlite")
    store.create()
    experiments = Experiments(store)
    n_users = int(rng.integers(450, 750))
    arms = (Arm("old", 0.5, "short"), Arm("new", 0.5))
    planned = n_users if facts["planned"] else None
    experiment = experiments.start(
        LiveExperiment("null", arms, window_days=1.0, planned_users=planned, salt=str(number))
    )
    activity = rng.geometric(0.1, n_users)  # events before: the model of one arm knows the first two only
    jump_at, decided = int(rng.integers(LOOKS)) if facts["jump"] else -1, False
    unknown_ids = (f"x{k}" for k in range(100_000) if experiment.assign(f"x{k}").name == "new")
    for look, users in enumerate(np.array_split(np.arange(n_users), LOOKS)):
        at = START + look * DAY
        invented = [next(unknown_ids) for _ in range(facts["invented"] // LOOKS + 1) if facts["invented"]]
        rows = [(f"u{u}", experiment.assign(f"u{u}").name, int(activity[u])) for u in users]
        store.add_lists([list_row(at, *row) for row in (*rows, *((name, "", None) for name in invented))])
        chosen = rng.random((users.size, len(ITEMS))) < np.minimum(activity[users], 40)[:, None] / 80
        chosen[0] |= rng.random() < 0.1  # a user who buys everything
        buys = [(f"u{users[k]}", ITEMS[i]) for k, i in np.argwhere(chosen).tolist()]
        buys += [(name, item) for name in invented for item in ITEMS]
        events = [event_row(at + 100, *pair, None) for pair in buys]
        if facts["returns"]:
            events += [event_row(at + 5_000, *pair, -1.0) for pair in buys if rng.random() < 0.2]
        if look == jump_at:  # all windows are over, as far as the clock says
            experiments.step(at + 8 * DAY)
        store.add_events([events])
        experiments.step(at + 200)  # the clock is right again
        while experiments.step(at + DAY + 120):
            pass
        report = experiments.compare(experiment)
        decided |= report is not None and report.verdict in ("better", "worse")
    warned = "invents" in experiments.describe("null")["summary"]
    store.close()
    for path in Path(folder).glob(f"{number}.sqlite*"):
        path.unlink()
    return {**facts, "decided": decided, "warned": warned, "jump_at": jump_at}


def list_row(at, user, arm, n_before):
    """The log of a list; every list has the same items."""
    texts = (json.dumps(ITEMS), None, "top_n")
    return ListRow(f"{user}-{at}", user, "m", "N", at, *texts, 1.0, arm=f"null/{arm}", n_before=n_before)


def event_row(at, user, item, weight):
    """A purchase, or its return."""
    key = f"{user}-{item}-{weight}-{at}"
    values = {"event_id": key, "user_id": user, "item_id": item, "time": int(at * 1e6), "received": at}
    return values | {"weight": weight, "list_id": None}


def measure_service(runs):
    """The share of experiments in the event store with a verdict, after each SAVE_EVERY of them."""
    results = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for number in range(runs):
            results.append(run_in_store(folder, number))
            if (number + 1) % SAVE_EVERY == 0 or number + 1 == runs:
                yield summarize_service(results)


def summarize_service(results):
    """The share of runs with a verdict, overall and by what was in them."""

    def share(rows, name="decided"):
        return sum(row[name] for row in rows) / max(len(rows), 1)

    by_fact = {
        f"{name} {value}": share([row for row in results if row[name] == value])
        for name in ("invented", "returns", "jump", "planned")
        for value in sorted({row[name] for row in results})
    }
    noticed = {
        str(n): share([row for row in results if row["invented"] == n], "warned") for n in (0, 20, 200)
    }
    row = {"runs": len(results), "verdicts": share(results), "by": by_fact, "invented_noticed": noticed}
    print(row, flush=True)
    return row


def main():
    """Measure and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--part", choices=("verdicts", "power", "service"))
    options = parser.parse_args()
    path = RESULTS / "experiments.json"
    results = json.loads(path.read_text()) if options.part and path.exists() else {}
    settings = {"days": DAYS, "users_per_day": USERS_PER_DAY, "error": ERROR}
    parts = (options.part,) if options.part else ("verdicts", "power", "service")
    runs = results.get("runs", {}) | dict.fromkeys(parts, options.runs)
    results |= {"settings": settings, "runs": runs, "machine": describe()}
    if options.part in (None, "verdicts"):
        results["false_verdicts"] = measure_verdicts(options.runs)
    if options.part in (None, "power"):
        results |= {"median_days": measure_days(), "power": measure_power(options.runs)}
    save_results("experiments", results)
    if options.part in (None, "service"):
        for row in measure_service(options.runs):
            save_results("experiments", results | {"service": row})


if __name__ == "__main__":
    main()
