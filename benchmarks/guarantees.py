"""Guarantees on real data: kept after deployment, watched by a monitor, and adapted under drift.

Run: python benchmarks/guarantees.py [simulation | monitor | adaptive | dataset ...]; writes
results/guarantees.json.

`simulation`: N_SIMULATIONS draws of users from populations whose true means are known.

`splits`: the last basket of every user is the future. On everything before it a model is deployed as
`sl.fit(cutoff=Guarantee(...))` does it: users are kept back, the model trains without their last known
basket, the guarantee is tested on that basket, and `observe` adds it. This is done N_FITS times with other
kept-back users. For each model, the calibration users (half of those kept back, at most 1,500) and the test
users (half of all) are drawn N_SPLITS / N_FITS times. A guarantee is kept if the mean over the test users
meets the level. `next_basket` measures it on the future baskets of the test users, `same_time` on the
kept-back users who did not calibrate.

In both, `hoeffding_bentkus` is the method of release 0.2 on the same users: half of them define a grid of 25
thresholds, the others test each one (Bates et al. 2021), with Bonferroni's correction for precision.
"""

import json
import sys
import warnings
from dataclasses import replace

import numpy as np
from machine import RESULTS, describe, save_results
from scipy.special import xlogy
from scipy.stats import binom

import shortlist as sl
from shortlist.auto.fit import in_history
from shortlist.cutoff import Guarantee, top_candidates
from shortlist.cutoff.threshold import count_above, running_minimum
from shortlist.data.labeled import LabeledLists, label_lists
from shortlist.errors import InfeasibleError

N_SPLITS, N_FITS, N_SIMULATIONS = 500, 2, 1_000
MAX_CALIBRATION = 1_500  # users
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


def fit_by_betting(labels: LabeledLists, guarantee: Guarantee) -> float | None:
    """The threshold of `Guarantee` on these users; None if there is none."""
    try:
        fresh = guarantee.clone()
        fresh._fit_labels(labels, None)
    except InfeasibleError:
        return None
    return fresh.threshold_


def fit_by_halves(labels: LabeledLists, guarantee: Guarantee) -> float | None:
    """The threshold of release 0.2: one half of the users defines a grid, the other half tests it."""
    shuffled = np.random.default_rng(0).permutation(len(labels.lists)).astype(np.int32)
    grid = quantile_grid(labels.take(shuffled[::2]))
    test = labels.take(shuffled[1::2])
    values, delta = running_minimum(test.lists.scores, test.lists), 1 - guarantee.confidence
    limit = guarantee._limit(guarantee._level())
    losses = [guarantee._losses(test, count_above(values, test.lists, threshold)) for threshold in grid]
    p = np.array([hoeffding_bentkus(loss[~np.isnan(loss)], limit) for loss in losses])
    if guarantee.max_empty is None:
        passed = np.flatnonzero(p <= delta / p.size)
        return float(grid[passed[-1]]) if passed.size else None
    passed = np.flatnonzero(np.logical_and.accumulate(p[::-1] <= delta)[::-1])
    return float(grid[passed[0]]) if passed.size else None


def quantile_grid(labels: LabeledLists, n_thresholds: int = 25) -> np.ndarray:
    """Thresholds between which the number of shown items grows geometrically."""
    ordered = np.sort(running_minimum(labels.lists.scores, labels.lists))[::-1]
    counts = np.geomspace(max(0.02 * len(labels.lists), 1), ordered.size, n_thresholds)
    at = np.minimum(counts.astype(int), ordered.size - 1)
    return np.append(np.unique(ordered[at])[::-1][: n_thresholds - 1], -np.inf)


def hoeffding_bentkus(losses: np.ndarray, limit: float) -> float:
    """p-value of the hypothesis that the mean loss exceeds the limit (Bates et al. 2021)."""
    n = losses.size
    if n == 0:
        return 1.0
    low = min(losses.mean(), limit)
    gap = xlogy(low, low / limit) + xlogy(1 - low, (1 - low) / (1 - limit))
    return min(1.0, np.exp(-n * gap), np.e * binom.cdf(np.ceil(losses.sum() - 1e-9), n, limit))


METHODS = {"betting": fit_by_betting, "hoeffding_bentkus": fit_by_halves}


class Rates:
    """The guaranteed mean and the coverage of any users at any threshold."""

    def __init__(self, labels: LabeledLists, guarantee: Guarantee) -> None:
        self.labels, self.guarantee, self.cache = labels, guarantee, {}
        self.values = running_minimum(labels.lists.scores, labels.lists)

    def at(self, threshold: float, numbers=slice(None)) -> tuple[float, float]:
        """(mean precision over covered users, or share of empty lists; share of users with a list)."""
        if threshold not in self.cache:
            lengths = count_above(self.values, self.labels.lists, threshold)
            self.cache = {threshold: (lengths, self.guarantee._losses(self.labels, lengths))}
        lengths, losses = (values[numbers] for values in self.cache[threshold])
        covered = float((lengths > 0).mean())
        mean = float(np.nanmean(losses)) if covered or self.guarantee.max_empty is not None else 0.0
        return (mean if self.guarantee.max_empty is not None else 1 - mean), covered


class Outcomes:
    """What happened to one guarantee in many draws of users."""

    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee, self.means, self.covered, self.broken = guarantee, [], [], 0

    def add(self, threshold: float | None, rates: Rates, numbers=slice(None)) -> None:
        """Record one draw; without a threshold nothing is guaranteed and nothing is shown."""
        if threshold is None:
            self.covered.append(0.0)
            return
        mean, covered = rates.at(threshold, numbers)
        limit = self.guarantee.min_precision
        self.means.append(mean)
        self.covered.append(covered)
        self.broken += mean > self.guarantee.max_empty if limit is None else mean < limit

    def to_dict(self) -> dict[str, object]:
        """Numbers for JSON; coverage counts a draw without a guarantee as 0."""
        return {
            "draws": len(self.covered),
            "guaranteed": len(self.means),
            "broken": int(self.broken),
            "mean": float(np.mean(self.means)) if self.means else None,
            "coverage": float(np.mean(self.covered)),
        }


def guarantees(labels: LabeledLists) -> dict[str, Guarantee]:
    """The guarantees that are tried on these lists."""
    shared = {"confidence": CONFIDENCE, "n_candidates": N_CANDIDATES}
    precision = Guarantee(min_precision=typical_precision(labels), **shared)
    return {"precision": precision, "empty": Guarantee(max_empty=MAX_EMPTY, **shared)}


def splits(name: str, model) -> dict[str, object]:
    """How often guarantees were made and broken in random splits of the users, and how many they cover."""
    split = sl.split.last_basket(sl.load_dataset(name))
    deployed = [Deployed(model, split, seed) for seed in range(N_FITS)]
    result: dict[str, object] = {"users": int(split.test.active_users.size)}
    for kind, guarantee in guarantees(deployed[0].calibration).items():
        outcomes = {
            (method, when): Outcomes(guarantee) for method in METHODS for when in ("next_basket", "same_time")
        }
        for fit, lists in enumerate(deployed):
            now, later = Rates(lists.calibration, guarantee), Rates(lists.future, guarantee)
            for number in range(N_SPLITS // N_FITS):
                rng = np.random.default_rng([fit, number, 2])
                pool = rng.permutation(len(lists.calibration.lists))
                half = min(pool.size // 2, MAX_CALIBRATION)
                test = rng.permutation(len(lists.future.lists))[: len(lists.future.lists) // 2]
                sample = lists.calibration.take(np.sort(pool[:half]).astype(np.int32))
                for method, fit_threshold in METHODS.items():
                    threshold = fit_threshold(sample, guarantee)
                    outcomes[method, "same_time"].add(threshold, now, pool[half:])
                    outcomes[method, "next_basket"].add(threshold, later, test)
        result[kind] = describe_outcomes(guarantee, outcomes)
    return result


def describe_outcomes(guarantee: Guarantee, outcomes: dict[tuple[str, str], Outcomes]) -> dict[str, object]:
    """The level and the outcomes by method and by what was measured."""
    result: dict[str, object] = {"level": guarantee._level(), "confidence": CONFIDENCE}
    for (method, when), outcome in outcomes.items():
        result.setdefault(method, {})[when] = outcome.to_dict()
    return result


def simulate(rng: np.random.Generator, n_users: int, spread: float) -> LabeledLists:
    """Candidates whose relevance grows with the score; `spread`: how much users differ."""
    scores = rng.normal(size=(n_users, 10)).astype(np.float32) + spread * rng.normal(size=(n_users, 1))
    chance = 1 / (1 + np.exp(2.0 - 1.2 * scores))
    ranked = np.argsort(-scores, axis=1)
    relevant = np.take_along_axis(rng.random(scores.shape) < chance, ranked, axis=1)
    lists = top_candidates(scores.astype(np.float32))
    n_relevant = relevant.sum(axis=1).astype(np.int32)
    return LabeledLists(lists, relevant.ravel(), n_relevant, np.arange(n_users, dtype=np.int32))


def simulation() -> dict[str, object]:
    """Violations where the truth is known: new users for every fit, 100,000 other users as truth."""
    result: dict[str, object] = {}
    for n_users in (150, 500, 2_000):
        population = simulate(np.random.default_rng([n_users, 7]), 100_000, 0.5)
        for kind, guarantee in guarantees(population).items():
            rates = Rates(population, guarantee)
            outcomes = {(method, "truth"): Outcomes(guarantee) for method in METHODS}
            for number in range(N_SIMULATIONS):
                sample = simulate(np.random.default_rng([n_users, number]), n_users, 0.5)
                for method, fit_threshold in METHODS.items():
                    outcomes[method, "truth"].add(fit_threshold(sample, guarantee), rates)
            result[f"{kind}, {n_users} users"] = describe_outcomes(guarantee, outcomes)
    return result


def typical_precision(labels: LabeledLists) -> float:
    """The guaranteed level: 80% of the precision of top-5 lists, rounded to two digits."""
    first = np.minimum(np.diff(labels.lists.indptr), 5)
    total = labels.prefixes.hits[labels.lists.indptr[:-1] + first - 1]
    return float(f"{0.8 * (total / np.maximum(first, 1)).mean():.2g}")


# ------------------------------------------------------------------ drift
def daily_values(name: str = "online-retail") -> tuple[LabeledLists, np.ndarray]:
    """Labeled candidates of one model, and the precision of its top-5 lists."""
    split = sl.split.last_basket(sl.load_dataset(name))
    labels = candidates(sl.PersonalFrequency(decay=0.9).fit(split.train_valid), split.test)
    first = np.minimum(np.diff(labels.lists.indptr), 5)
    return labels, labels.prefixes.hits[labels.lists.indptr[:-1] + first - 1] / first


def monitor_runs(values: np.ndarray, level: float, guarantee: str, loss: float, seed: int, n: int) -> dict:
    """Alarms of n runs of N_DAYS days; from day CHANGE on, a value is replaced with probability `loss`."""
    alarms, early, delays, since = 0, 0, [], []
    for run in range(n):
        rng = np.random.default_rng([seed, run])
        monitor = sl.GuaranteeMonitor(
            None if guarantee == "calibration" else level,
            guarantee=guarantee,
            false_alarms=FALSE_ALARMS,
            **({"tolerance": 0.0} if guarantee == "calibration" else {}),
        )
        for day in range(N_DAYS):
            drawn = rng.choice(values, N_DAILY)
            if day >= CHANGE and loss:
                hit = rng.random(N_DAILY) < loss
                broken = {"precision": 0.0, "empty": 1.0, "calibration": -level}[guarantee]
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
    for seed, (kind, (drawn, level)) in enumerate(kinds.items()):
        found[kind] = {"level": level} | {
            label: monitor_runs(drawn, level, kind, loss, seed, n)
            for label, loss, n in (
                ("no_change", 0.0, N_RUNS),
                ("change_20%", 0.2, N_RUNS // 4),
                ("change_50%", 0.5, N_RUNS // 4),
            )
        }
    return found


def adaptive(
    labels: LabeledLists, n_runs: int = 5, n_updates: int = 200, size: int = 100
) -> dict[str, object]:
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
            user = part.lists.users.to_ids(np.repeat(np.arange(len(part.lists)), part.lists.lengths)[hits])
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


def save(keys: tuple[str, ...], outcome: dict[str, object]) -> None:
    """Write an outcome into the stored results."""
    target = RESULTS / "guarantees.json"
    result = json.loads(target.read_text()) if target.is_file() else {}
    place = result
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    place[keys[-1]] = outcome
    print(*keys, outcome, flush=True)
    save_results("guarantees", result | {"machine": describe()})


def main(names: list[str]) -> None:
    """Run everything, or some of it: the names of datasets, "simulation", "monitor", "adaptive"."""
    for name in [name for name in names or MODELS if name in MODELS]:
        for model in MODELS[name]:
            save(("splits", name, type(model).__name__), splits(name, model))
    runs = {
        "simulation": simulation,
        "monitor": lambda: monitoring(daily_values()[1]),
        "adaptive": lambda: adaptive(daily_values()[0]),
    }
    for name, run in runs.items():
        if not names or name in names:
            save((name,), run())


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1:])
