"""Experiments looked at every day: false verdicts without a difference, days until a true lift is decided.

Run: python benchmarks/experiments.py [--runs 10000]; writes results/experiments.json.

Every run has DAYS days with USERS_PER_DAY new users in two arms. Outcomes depend on a covariate that was
known before. Four kinds are drawn: `hits` (counts), `value` (most users earn nothing, the others a skewed
amount), `f1` (between 0 and 1, most of them 0) and `empty` (yes or no). `z_test` is the usual test of a fixed
sample, looked at every day until it is significant; `z_once` looks once, after the last day. `median_days` is
the day on which half of the runs are decided; `fixed` is the sample that the usual test needs for that.
"""

import argparse

import numpy as np
from machine import describe, save_results
from scipy.stats import norm

from shortlist.evaluation.experiment import MIN_EVENTS, MIN_USERS, TIGHTEST_AT, half_width, mean_difference

DAYS, USERS_PER_DAY = 60, 100
ERROR = 0.05
AT_ONCE = 250  # runs
LIFTS = (0.05, 0.1, 0.2)
LONG_DAYS = 365


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


def decide(sums, events, usual, n_covariates):
    """Return (runs, days) whether the interval of each day excludes 0."""
    total = sums.cumsum(1)
    columns = [0, 2] if n_covariates == 0 else [0, 1, 2]
    some = total[..., columns, :][..., columns]
    estimate = mean_difference(some[:, :, 1], some[:, :, 0], n_covariates + 1, n_covariates)
    width = half_width(estimate.variance, estimate.n_users, ERROR, TIGHTEST_AT)
    unusual = np.minimum(events.cumsum(1), usual.cumsum(1)).min(-1)
    enough = (total[..., 0, 0].min(-1) >= MIN_USERS) & (unusual >= MIN_EVENTS)
    spread = np.sqrt(estimate.variance / estimate.n_users)
    z = np.abs(estimate.difference) / np.maximum(spread, 1e-300)  # on the first days all may be 0
    return enough & (np.abs(estimate.difference) > width), z


def first_day(decided):
    """Return (runs,) the first day of a verdict, from 1; days + 1 for none."""
    return np.where(decided.any(1), decided.argmax(1) + 1, decided.shape[1] + 1)


def main():
    """Measure and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(0)
    false, power = [], []
    for kind in ("hits", "value", "f1", "empty"):
        wrong = {"sequence": 0, "sequence_unadjusted": 0, "z_test": 0, "z_once": 0}
        for _ in range(runs // AT_ONCE):
            sums = daily_sums(*draw(kind, rng, 0.0, DAYS))
            for name, n_covariates in (("sequence", 1), ("sequence_unadjusted", 0)):
                decided, z = decide(*sums, n_covariates)
                wrong[name] += int(decided.any(1).sum())
            wrong["z_test"] += int((z > norm.ppf(1 - ERROR / 2)).any(1).sum())
            wrong["z_once"] += int((z[:, -1] > norm.ppf(1 - ERROR / 2)).sum())
        row = {"metric": kind, **{name: n / (runs // AT_ONCE * AT_ONCE) for name, n in wrong.items()}}
        false.append(row)
        print(row, flush=True)
    for kind in ("hits", "value"):
        for lift in LIFTS:
            sums = daily_sums(*draw(kind, rng, lift, LONG_DAYS))
            row = {"metric": kind, "lift": lift}
            for name, n_covariates in (("sequence", 1), ("sequence_unadjusted", 0)):
                decided, _ = decide(*sums, n_covariates)
                row[name] = float(np.median(first_day(decided)))
            for name, columns, n_covariates in (("fixed", [0, 1, 2], 1), ("fixed_unadjusted", [0, 2], 0)):
                total = sums[0].sum(1)[..., columns, :][..., columns]
                estimate = mean_difference(total[:, 1], total[:, 0], n_covariates + 1, n_covariates)
                needed = (norm.ppf(1 - ERROR / 2) + norm.ppf(0.5)) ** 2 * estimate.variance.mean()
                row[name] = float(needed / estimate.difference.mean() ** 2 / USERS_PER_DAY)
            power.append(row)
            print(row, flush=True)
    settings = {"runs": runs, "days": DAYS, "users_per_day": USERS_PER_DAY, "error": ERROR}
    save_results(
        "experiments",
        {
            "settings": settings,
            "false_verdicts": false,
            "median_days": power,
            "machine": describe(),
        },
    )


if __name__ == "__main__":
    main()
