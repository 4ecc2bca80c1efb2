"""Promises on real data: kept after deployment, watched by a monitor, and adapted under drift.

Run: python benchmarks/promises.py [monitor | adaptive | dataset ...]; writes results/promises.json.

`splits`: the last basket of every user is the future. On everything before it a model is deployed as
`sl.fit(cutoff=Guarantee(...))` does it: users are kept back, the model trains without their last known
basket, the promise is tested on that basket, and `observe` adds it. This is done N_FITS times with other
kept-back users. For each model, the calibration users (half of those kept back, at most 1,500) and the test
users (half of all) are drawn N_SPLITS / N_FITS times. A promise is kept if the mean over the test users meets
the level. `next_basket` measures it on the future baskets of the test users, `same_time` on the kept-back
users who did not calibrate. `refit` is what was done before: test on one model, refit it on everything, keep
the threshold.
"""

import json
import sys
import time
import warnings
from dataclasses import replace

import numpy as np
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.auto.fit import in_history
from shortlist.cutoff import Guarantee
from shortlist.cutoff.base import Labels, label_lists
from shortlist.cutoff.threshold import count_above, running_minimum
from shortlist.errors import InfeasibleError

N_SPLITS, N_FITS = 500, 2
MAX_CALIBRATION = 1_500  # users
N_REFIT = 100  # splits of the earlier way
N_CANDIDATES = 50
CONFIDENCE = 0.9
MAX_EMPTY = 0.2
N_RUNS, N_DAYS, CHANGE, N_DAILY = 1_000, 100, 50, 50
FALSE_ALARMS = 0.05
MODELS = {
    "ta-feng": (sl.Popularity(), sl.PersonalFrequency(decay=0.9)),
    "complete-journey": (sl.Popularity(), sl.PersonalFrequency(decay=0.9)),
    "online-retail": (sl.Popularity(), sl.PersonalFrequency(decay=0.9)),
    "ml-100k": (sl.Popularity(), sl.EASE()),
    "ml-1m": (sl.Popularity(), sl.EASE()),
}


class Deployed:
    """A model trained without the last known baskets of the kept-back users, and its candidates."""

    def __init__(self, model, split, seed):
        known = split.train_valid
        holdout = sl.split.last_basket(known)
        users = holdout.test.active_users
        rng = np.random.default_rng([seed, 1])
        kept = np.zeros(known.n_users, bool)
        kept[rng.permutation(users)[: round(0.6 * users.size)]] = True
        training = known.where(in_history(known, holdout.train_valid) | ~kept[known.user])
        tested = holdout.test.where(kept[holdout.test.user])
        fitted = model.clone().fit(training)
        self.calibration = candidates(fitted, tested)
        fitted.observe(tested)
        self.future = candidates(fitted, split.test)


def candidates(model, truth):
    """Labeled top candidates just before each user's basket."""
    users = truth.users.to_ids(truth.active_users)
    lists = model.recommend(users, N=N_CANDIDATES, at=truth)
    return label_lists(replace(lists, source=None), truth)


def fit_guarantee(labels: Labels, numbers, guarantee: Guarantee) -> float | None:
    """The threshold that passes on these users; None if there is none."""
    part = labels.take(np.sort(numbers).astype(np.int32))
    try:
        fresh = guarantee.clone()
        fresh._fit_labels(part, None)
    except InfeasibleError:
        return None
    return fresh.threshold_


class Rates:
    """The promised mean of any users at any threshold."""

    def __init__(self, labels: Labels, guarantee: Guarantee) -> None:
        self.labels, self.guarantee, self.found = labels, guarantee, {}
        self.values = running_minimum(labels.lists.scores, labels.lists)

    def at(self, threshold: float, numbers) -> float:
        """The mean precision over covered users, or the share of empty lists."""
        if threshold not in self.found:
            labels = self.labels
            lengths = count_above(self.values, labels.lists, threshold)
            ends = labels.lists.indptr[:-1] + lengths - 1
            hits = np.where(lengths > 0, labels.hits[np.maximum(ends, 0)], 0)
            self.found = {threshold: (lengths, hits / np.maximum(lengths, 1))}  # one threshold at a time
        lengths, precision = (values[numbers] for values in self.found[threshold])
        if self.guarantee.max_empty is not None:
            return float((lengths == 0).mean())
        return float(precision[lengths > 0].mean()) if (lengths > 0).any() else 1.0


def count(kept: list[bool | None]) -> dict[str, object]:
    """In how many splits a promise was made and broken, and the share of splits in which none was broken."""
    broken = sum(one is False for one in kept)
    promised = sum(one is not None for one in kept)
    return {"splits": len(kept), "promised": promised, "broken": broken, "kept": 1 - broken / len(kept)}


def splits(name: str, model) -> dict[str, object]:
    """Share of the random splits in which the promise was kept."""
    data = sl.load_dataset(name)
    split = sl.split.last_basket(data)
    found: dict[str, object] = {"users": int(split.test.active_users.size)}
    deployed = [Deployed(model, split, seed) for seed in range(N_FITS)]
    before = candidates(model.clone().fit(split.train), split.valid)
    refit = candidates(model.clone().fit(split.train_valid), split.test)
    level = typical_precision(deployed[0].calibration)
    shared = {"confidence": CONFIDENCE, "n_candidates": N_CANDIDATES}
    for promise, guarantee in (
        ("precision", Guarantee(min_precision=level, **shared)),
        ("coverage", Guarantee(max_empty=MAX_EMPTY, **shared)),
    ):
        kept: dict[str, list[bool | None]] = {"next_basket": [], "same_time": [], "refit": []}
        rates: dict[str, list[float]] = {"next_basket": [], "same_time": [], "refit": []}

        def measure(which, threshold, table, numbers, guarantee=guarantee, kept=kept, rates=rates):
            if threshold is None or not np.isfinite(threshold):
                kept[which].append(None)
                return
            rate = table.at(threshold, numbers)
            rates[which].append(rate)
            limit = guarantee.min_precision
            kept[which].append(rate <= MAX_EMPTY if limit is None else rate >= limit)

        old = Rates(refit, guarantee)
        for fit, one in enumerate(deployed):
            now, later = Rates(one.calibration, guarantee), Rates(one.future, guarantee)
            for number in range(N_SPLITS // N_FITS):
                rng = np.random.default_rng([fit, number, 2])
                pool = rng.permutation(len(one.calibration.lists))
                half = min(pool.size // 2, MAX_CALIBRATION)
                test = rng.permutation(len(one.future.lists))[: len(one.future.lists) // 2]
                threshold = fit_guarantee(one.calibration, pool[:half], guarantee)
                measure("same_time", threshold, now, pool[half:])
                measure("next_basket", threshold, later, test)
                if number >= N_REFIT // N_FITS:
                    continue
                validation = rng.permutation(len(before.lists))[:half]
                measure("refit", fit_guarantee(before, validation, guarantee), old, test)
        found[promise] = {
            "level": level if promise == "precision" else 1 - MAX_EMPTY,
            "confidence": CONFIDENCE,
            **{
                which: count(values) | {"mean": float(np.mean(rates[which])) if rates[which] else None}
                for which, values in kept.items()
            },
        }
    return found


def typical_precision(labels: Labels) -> float:
    """The promised level: 80% of the precision of top-5 lists, rounded to two digits."""
    first = np.minimum(np.diff(labels.lists.indptr), 5)
    total = labels.hits[labels.lists.indptr[:-1] + first - 1]
    return float(f"{0.8 * (total / np.maximum(first, 1)).mean():.2g}")


# ------------------------------------------------------------------ drift
def daily_values(name: str = "online-retail") -> tuple[Labels, np.ndarray]:
    """Labeled candidates of one model, and the precision of its top-5 lists."""
    split = sl.split.last_basket(sl.load_dataset(name))
    labels = candidates(sl.PersonalFrequency(decay=0.9).fit(split.train_valid), split.test)
    first = np.minimum(np.diff(labels.lists.indptr), 5)
    return labels, labels.hits[labels.lists.indptr[:-1] + first - 1] / first


def monitor_runs(values: np.ndarray, level: float, promise: str, loss: float, seed: int, n: int) -> dict:
    """Alarms of n runs of N_DAYS days; from day CHANGE on, a value is replaced with probability `loss`."""
    alarms, early, delays, since = 0, 0, [], []
    for run in range(n):
        rng = np.random.default_rng([seed, run])
        monitor = sl.GuaranteeMonitor(
            None if promise == "calibration" else level,
            guarantee=promise,
            false_alarms=FALSE_ALARMS,
            **({"tolerance": 0.0} if promise == "calibration" else {}),
        )
        for day in range(N_DAYS):
            drawn = rng.choice(values, N_DAILY)
            if day >= CHANGE and loss:
                hit = rng.random(N_DAILY) < loss
                broken = {"precision": 0.0, "empty": 1.0, "calibration": -level}[promise]
                drawn = np.where(hit, broken, drawn)
            monitor.update(drawn, at=day)
            if monitor.status == "alarm":
                break
        if monitor.alarm_at is not None:
            alarms += 1
            day = int(monitor.alarm_at)
            early += day < CHANGE
            if loss and day >= CHANGE:
                delays.append(day - CHANGE + 1)
                since.append(int(monitor.since) - CHANGE)
    return {
        "runs": n,
        "alarms": alarms / n,
        "alarms_before_change": early / n,
        "median_delay_days": float(np.median(delays)) if delays else None,
        "median_delay_lists": float(np.median(delays)) * N_DAILY if delays else None,
        "since_median_error_days": float(np.median(since)) if since else None,
    }


def monitoring(values: np.ndarray) -> dict[str, object]:
    """False alarms at the level that is exactly met, and delays after a change."""
    mean = float(values.mean())
    kinds = {
        "precision": (values, mean),
        "empty": ((values == 0).astype(float), float((values == 0).mean())),
        "calibration": (values - mean, mean),
    }
    found: dict[str, object] = {"false_alarms_allowed": FALSE_ALARMS, "lists_per_day": N_DAILY}
    for seed, (promise, (drawn, level)) in enumerate(kinds.items()):
        found[promise] = {"level": level} | {
            label: monitor_runs(drawn, level, promise, loss, seed, n)
            for label, loss, n in (
                ("no_change", 0.0, N_RUNS),
                ("change_20%", 0.2, N_RUNS // 4),
                ("change_50%", 0.5, N_RUNS // 4),
            )
        }
    return found


def adaptive(labels: Labels, n_runs: int = 5, n_updates: int = 200, size: int = 100) -> dict[str, object]:
    """Long-run precision of a fixed and of an adapted threshold; from update 100 on, 60% of hits vanish."""
    lists, level = labels.lists, typical_precision(labels)
    fixed, adapted, slack = [], [], []
    for run in range(n_runs):
        rng = np.random.default_rng([run, 5])
        cut = Guarantee(min_precision=level, confidence=CONFIDENCE, n_candidates=N_CANDIDATES)
        cut._fit_labels(labels.take(np.sort(rng.permutation(len(lists))[:1000]).astype(np.int32)), None)
        first, rates = cut, ([], [])
        for t in range(n_updates):
            numbers = rng.choice(len(lists), size, replace=False).astype(np.int32)
            part = labels.take(numbers)
            hits = part.relevant & (rng.random(part.relevant.size) < (1.0 if t < 100 else 0.4))
            item = part.lists.item_ids.to_ids(part.lists.items[hits])
            user = part.lists.users.to_ids(part.list_number[hits])
            truth = sl.Interactions.from_tuples(list(zip(user.to_list(), item.to_list(), strict=True)))
            for one, into in ((first, rates[0]), (cut, rates[1])):
                rate = one.batch_rate(one.apply(part.lists), truth, users=part.lists.users.values)
                into.append(1.0 if rate is None else rate)
            cut = cut.update(cut.apply(part.lists), truth, users=part.lists.users.values)
        means = np.cumsum(rates[1]) / np.arange(1, n_updates + 1)
        bounds = np.array([first.bound(t) for t in range(1, n_updates + 1)])
        slack.append(float((means - (level - bounds)).min()))
        fixed.append(float(np.mean(rates[0])))
        adapted.append(float(means[-1]))
    return {
        "level": level,
        "runs": n_runs,
        "updates": n_updates,
        "lists_per_update": size,
        "step": first.step,
        "mean_precision_fixed": float(np.mean(fixed)),
        "mean_precision_adapted": float(np.mean(adapted)),
        "lowest_mean_adapted": float(np.min(adapted)),
        "bound_at_end": float(bounds[-1]),
        "smallest_slack_at_any_time": float(np.min(slack)),
        "runs_within_bound_at_all_times": float(np.mean([one >= 0 for one in slack])),
    }


def main(names: list[str]) -> None:
    """Run everything, or some parts: the names of datasets, "monitor", "adaptive"."""
    target = RESULTS / "promises.json"
    for name in [one for one in names or MODELS if one in MODELS]:
        for model in MODELS[name]:
            started = time.process_time()
            found = splits(name, model)
            result = json.loads(target.read_text()) if target.is_file() else {}
            result.setdefault("splits", {}).setdefault(name, {})[type(model).__name__] = found
            print(name, type(model).__name__, f"{time.process_time() - started:.0f} s", found, flush=True)
            save_results("promises", result | {"machine": describe()})
    for part in ("monitor", "adaptive"):
        if not names or part in names:
            labels, values = daily_values()
            found = monitoring(values) if part == "monitor" else adaptive(labels)
            print(part, found, flush=True)
            result = json.loads(target.read_text()) if target.is_file() else {}
            save_results("promises", result | {part: found, "machine": describe()})


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1:])
