"""Does the error of `selection_.held_out` cover the next score, with and without drift?

    python benchmarks/drift.py                # 150 shops of each kind; about ten minutes on one core
    python benchmarks/drift.py --shops 20

Generated shops of 300 users with nine baskets: a share of each basket repeats earlier items of the user, the
rest is popular. In a stationary shop the share is always the same; in a drifting one its log-odds take a
random step from basket to basket, the same for all users. `sl.fit` chooses among two models and fixed lengths
without the last baskets; its lists are then scored on them, by F1 over all users. The rows say how often that
score lies within two errors of `held_out`: its standard error alone, and the error that contains drift.
"""

import argparse
import time

import numpy as np
from machine import describe, save_results

import shortlist as sl
from shortlist.evaluation import evaluate
from shortlist.split import last_basket

N_USERS, N_BASKETS, N_ITEMS = 300, 9, 200
STEPS = {"stationary": 0.0, "slow drift": 0.15, "fast drift": 0.4}  # of the log-odds of a repeat, per basket
DAY = 86_400


def generate(step: float, rng: np.random.Generator) -> sl.Interactions:
    """One shop."""
    odds = rng.normal(0, 0.3) + np.cumsum(rng.normal(0, step, N_BASKETS) if step else np.zeros(N_BASKETS))
    rates = 1 / (1 + np.exp(-odds))
    popular = (N_ITEMS * rng.random((N_USERS, N_BASKETS, 6)) ** 3).astype(int)
    sizes = 1 + np.minimum(rng.poisson(2, (N_USERS, N_BASKETS)), 5)
    rows = []
    for user in range(N_USERS):
        seen: list[int] = []
        for basket in range(N_BASKETS):
            items = popular[user, basket, : sizes[user, basket]]
            repeats = rng.random(items.size) < rates[basket]
            for position in np.flatnonzero(repeats) if seen else ():
                items[position] = seen[rng.integers(len(seen))]
            seen += items.tolist()
            when = (7 * basket + user % 7) * DAY
            rows += [(user, int(item), when) for item in set(items.tolist())]
    return sl.Interactions.from_tuples(rows)


def run(step: float, n_shops: int) -> dict[str, float]:
    """Coverage and sizes of both errors over many shops."""
    found = []
    for seed in range(n_shops):
        split = last_basket(generate(step, np.random.default_rng([seed, int(1000 * step)])))
        models = ["Popularity", "PersonalFrequency"]
        fixed = sl.cutoff.FixedN()
        model = sl.fit(split.train_valid, models=models, budget=1, cutoff=fixed, n_threads=1)
        held_out = model.selection_.held_out
        users = split.test.users.to_ids(split.test.active_users)
        actual = evaluate(model.recommend(users, at=split.test, n_threads=1), split.test).f1
        found.append([actual, held_out["score"], held_out["standard_error"], held_out["error"]])
    actual, score, standard_error, error = np.array(found).T
    miss = np.abs(actual - score)
    return {
        "shops": n_shops,
        "score": float(score.mean()),
        "miss": float(np.sqrt(np.mean(miss**2))),
        "standard_error": float(standard_error.mean()),
        "error": float(np.median(error)),
        "within_two_standard_errors": float((miss <= 2 * standard_error).mean()),
        "within_two_errors": float((miss <= 2 * error).mean()),
    }


def main() -> None:
    """Run all kinds of shops and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shops", type=int, default=150)
    given = parser.parse_args()
    began, rows = time.process_time(), {}
    for name, step in STEPS.items():
        rows[name] = run(step, given.shops) | {"step": step}
        print(name, {key: round(value, 4) for key, value in rows[name].items()}, flush=True)
    seconds = round(time.process_time() - began)
    save_results("drift", {"machine": describe(), "rows": rows, "processor_seconds": seconds})


if __name__ == "__main__":
    main()
