"""Quality of the rankers on real data, compared with implicit's BPR at the same tuning budget.

    python benchmarks/quality.py                       # both datasets, about half an hour on two cores
    python benchmarks/quality.py --dataset ml-100k --trials 4 --seeds 2
    python benchmarks/quality.py --model HRM           # only these rows; the others stay as they are

Protocol: each user's last basket is the test set, the one before it the validation set. Every model gets the
same number of random trials. The best on validation is trained again on everything before the test basket,
once per seed, and evaluated on the test set over all users at the N that was best on validation. Models that
use time predict for the day of the basket.
"""

import argparse
import json
import time

import numpy as np
from machine import RESULTS, describe, save_results
from settings import search_settings

import shortlist as sl
from shortlist.auto.search import default_space
from shortlist.auto.validation import build_model
from shortlist.evaluation import best_fixed_n, fixed_n_curve

LENGTHS = range(1, 21)  # fixed N to try
PEER = "implicit BPR"
REPEATS = {"repeat_decay": 0.9}  # for data with repeats
TRENDS = {"trend_half_life": (1.0, 3.0, 7.0, 14.0, 30.0)}


def curve(model: object, truth: object) -> object:
    """Compute F1 and NDCG at each N over all users with truth."""
    users = truth.users.to_ids(truth.active_users)
    lists = model.recommend(users, N=LENGTHS[-1], filter_seen=not model.history_.has_repeats, at=truth)
    return fixed_n_curve(lists, truth, LENGTHS)


def list_models(split: object) -> dict[str, tuple[str, dict[str, object], dict[str, object]]]:
    """Return by name: the class, the fixed parameters, and the additional search space."""
    rows = {name: (name, {}, {}) for name in ("Popularity", "PersonalFrequency", "BPRMF", PEER, "HRM")}
    fixed = REPEATS if split.train.has_repeats else {}
    base = ", ".join(["HRM", *(f"{key}={value}" for key, value in fixed.items())])
    return {**rows, base: ("HRM", fixed, {}), f"{base}, trend_half_life": ("HRM", fixed, TRENDS)}


def evaluate_model(
    name: str, split: object, trials: int, seeds: int, fixed: dict[str, object], also: dict[str, object]
) -> dict[str, object]:
    """Tune a model, choose N, train again and evaluate."""
    began = time.perf_counter()
    if name in ("Popularity", "PersonalFrequency"):
        trials, seeds = min(trials, 12), 1
    space = {**default_space(name, timed=False), **also}
    params, score = search_settings(name, split.train_valid, trials, fixed, space)
    tuning = time.perf_counter() - began
    n = best_fixed_n(curve(build_model(name, params).fit(split.train), split.valid))
    rows = []
    for seed in range(seeds):
        model = build_model(name, params)
        if "seed" in model.get_params():
            model.set_params(seed=seed)
        rows.append(row_at(curve(model.fit(split.train_valid), split.test), n))
    return {
        "params": params,
        "valid_f1": round(score, 4),
        "N": n,
        **summarize(rows),
        "seconds": round(tuning),
    }


def implicit_bpr(split: object, trials: int, seeds: int) -> dict[str, object]:
    """Tune and evaluate implicit's BPR with the same budget and its own parameters."""
    from implicit.bpr import BayesianPersonalizedRanking
    from scipy.sparse import csr_matrix

    def fitted(params: dict[str, object], data: object, seed: int) -> object:
        matrix = csr_matrix(data.to_csr(), copy=True)
        matrix.sum_duplicates()
        matrix.data[:] = 1
        peer = BayesianPersonalizedRanking(factors=50, num_threads=2, random_state=seed + 1, **params)
        peer.fit(matrix, show_progress=False)
        return sl.from_implicit(peer, data)

    rng = np.random.default_rng(0)
    best: tuple[float, dict[str, object], int] = (-1.0, {}, 1)
    began = time.perf_counter()
    for _ in range(trials):
        params = {
            "learning_rate": float(np.exp(rng.uniform(np.log(0.005), np.log(0.2)))),
            "regularization": float(np.exp(rng.uniform(np.log(1e-3), np.log(0.1)))),
            "iterations": int(np.exp(rng.uniform(np.log(5), np.log(200)))),
        }
        found = curve(fitted(params, split.train, 0), split.valid)
        score = float(found["f1"].max())
        if score > best[0]:
            best = (score, params, best_fixed_n(found))
    tuning = time.perf_counter() - began
    rows = [
        row_at(curve(fitted(best[1], split.train_valid, seed), split.test), best[2]) for seed in range(seeds)
    ]
    return {
        "params": best[1],
        "valid_f1": round(best[0], 4),
        "N": best[2],
        **summarize(rows),
        "seconds": round(tuning),
    }


def row_at(found: object, n: int) -> dict[str, float]:
    row = found.row(n - 1, named=True)
    return {"f1": float(row["f1"]), "ndcg": float(row["ndcg"])}


def summarize(rows: list[dict[str, float]]) -> dict[str, object]:
    """Compute the mean and standard deviation over seeds."""
    return {
        name: {
            "mean": round(float(np.mean([row[name] for row in rows])), 4),
            "sd": round(float(np.std([row[name] for row in rows], ddof=1)), 4) if len(rows) > 1 else 0.0,
        }
        for name in ("f1", "ndcg")
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=["ml-100k", "ta-feng"], action="append")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", action="append", help="measure only this row")
    options = parser.parse_args()
    stored = RESULTS / "quality.json"
    result = json.loads(stored.read_text()) if stored.is_file() else {}
    if not options.model:
        result |= {"machine": describe("implicit"), "trials": options.trials, "seeds": options.seeds}
    for name in options.dataset or ["ml-100k", "ta-feng"]:
        split = sl.split.last_basket(sl.load_dataset(name))
        print(f"{name}: test F1 over all {split.test.active_users.size:,} users at the validation-best N")
        rows: dict[str, object] = result.get(name, {}) if options.model else {}
        for model, (kind, fixed, also) in list_models(split).items():
            if options.model and model not in options.model:
                continue
            if model == PEER:
                rows[model] = implicit_bpr(split, options.trials, options.seeds)
            else:
                rows[model] = evaluate_model(kind, split, options.trials, options.seeds, fixed, also)
            f1 = rows[model]["f1"]
            print(
                f"  {model:24} F1 {f1['mean']:.4f} ± {f1['sd']:.4f}  N={rows[model]['N']:<3} "
                f"valid {rows[model]['valid_f1']:.4f}  tuned in {rows[model]['seconds']} s",
                flush=True,
            )
        result[name] = rows
        save_results("quality", result)


if __name__ == "__main__":
    main()
