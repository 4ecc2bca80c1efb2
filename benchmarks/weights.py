"""What do weights bring? Quantities on Ta-Feng and Online Retail, ratings on MovieLens.

    python benchmarks/weights.py                       # all datasets and models, about 15 minutes of one core
    python benchmarks/weights.py --data ml-100k        # one of them
    python benchmarks/weights.py --model TwoStage --data online-retail

Every transform of the weights is compared with counting rows (`weighting="none"`): mean F1 over the users at
the best fixed N. N and the transform are chosen on validation data. The model is then fitted again with that
transform and without weights, and the test set is used once. Results that speak against weights are kept too.

- Ta-Feng and Online Retail: the truth is the last basket of a user, validation the basket before it.
- MovieLens: the truth are the items with 4 or 5 stars among the last 10 of a user, validation the 10 before.
  Training rows are all ratings, the liked ones only (`min_rating=4`), or the liked ones and, with a negative
  weight, the others (`negative_weights="keep"`). Items that the user rated before are left out of all lists.

Rare items are left out, so that EASE can be fitted in seconds, and 3,000 users are evaluated at most. EASE
needs a penalty that fits the size of the weights: `reg` is 300 times the mean square of the matrix entries.
BPRMF makes the same number of steps with every transform.
"""

import argparse
import json
import time

import numpy as np
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.data.interactions import Interactions
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve, paired_test
from shortlist.models.base import Recommender, decayed_counts
from shortlist.models.factorization.schedule import MAX_MEAN, count_row_visits

MIN_USERS = {"ta-feng": 60, "online-retail": 60, "ml-100k": 10}  # per item
N_USERS, N_CANDIDATES, MIN_RATING = 3000, 50, 4
WEIGHTINGS = ("none", "linear", "log", "cap")
MODELS = ("PersonalFrequency", "TIFUKNN", "EASE", "BPRMF")
PASSES = 60  # of BPRMF over the pairs; an epoch with weights makes more steps, so it has fewer epochs
# name → (min_rating, negative_weights, weighting), for ratings
RATINGS = {
    "all, none": (None, "drop", "none"),
    "all, linear": (None, "drop", "linear"),
    "all, log": (None, "drop", "log"),
    "liked, none": (MIN_RATING, "drop", "none"),
    "liked, linear": (MIN_RATING, "drop", "linear"),
    "liked and disliked, linear": (MIN_RATING, "keep", "linear"),
    "liked and disliked, cap": (MIN_RATING, "keep", "cap"),
}
QUANTITIES = {name: (None, "drop", name) for name in WEIGHTINGS}


def build_model(name: str, weighting: str, train: Interactions) -> Recommender:
    """An unfitted model; the cap is 2, above what most rows have."""
    params = {"weighting": weighting, "weight_cap": 2.0}
    if name == "EASE":
        shape = sl.EASE(**params).weight_transform
        values = decayed_counts(train, 1.0, shape) if shape.is_used else np.ones(1)
        return sl.EASE(reg=300 * float(np.mean(values.astype(np.float64) ** 2)), **params)
    if name == "BPRMF":
        shape, visits = sl.BPRMF(**params).weight_transform, 1.0
        if shape.is_used:
            amounts = decayed_counts(train, 1.0, shape).astype(np.float64)
            scale = min(1.0, MAX_MEAN / float(amounts[amounts > 0].mean()))
            visits = float(count_row_visits(amounts, scale, 0).mean())
        return sl.BPRMF(
            negative_draws=1, n_factors=32, n_epochs=round(PASSES / visits), tol=0, n_threads=1, **params
        )
    if name == "TwoStage":
        return sl.TwoStage(weighting=weighting, weight_cap=2.0, n_bags=1, n_snapshots=10_000, n_threads=1)
    return getattr(sl, name)(**params)


def sample_users(truth: Interactions) -> Interactions:
    """The truth of a fixed sample of the users."""
    users = np.random.default_rng(0).permutation(truth.active_users)[:N_USERS]
    return truth.where(np.isin(truth.user, users))


def rank(name: str, variant: tuple, train: Interactions, truth: Interactions, ratings: bool):
    """The top candidates of the users of the truth."""
    min_rating, negative, weighting = variant
    rows, exclude = train, None
    users = truth.users.to_ids(truth.active_users)
    if ratings:
        rows = Interactions.from_frame(train.to_frame(), min_rating=min_rating, negative_weights=negative)
        seen = (train.item[train.indptr[u] : train.indptr[u + 1]] for u in truth.active_users)
        exclude = {
            user: [item for item in train.items.to_ids(items) if item in rows.items]
            for user, items in zip(users, seen, strict=True)
        }
        known = [user in rows.users for user in users]
        users = users.filter(known)
        exclude = {user: exclude[user] for user in users}
    model = build_model(name, weighting, rows).fit(rows)
    return model.recommend(users, N=N_CANDIDATES, exclude=exclude, filter_seen=None if not ratings else False)


def run(dataset: str, name: str) -> dict[str, object]:
    """Every transform on validation data; the best one and counting rows on the test set."""
    began, ratings = time.process_time(), dataset == "ml-100k"
    data = sl.load_dataset(dataset, raw=True)
    data = data.keep_frequent(users_per_item=MIN_USERS[dataset], items_per_user=10)
    split = sl.split.last_items(data, 10) if ratings else sl.split.last_basket(data)
    valid, test = sample_users(split.valid), sample_users(split.test)
    if ratings:
        valid, test = (part.where(part.weight >= MIN_RATING) for part in (valid, test))
    variants = RATINGS if ratings else QUANTITIES
    if name == "TwoStage":  # trees are the same for monotone transforms of one quantity
        variants = {label: variants[label] for label in ("none", "log")}
    found, best_n = {}, {}
    for label, variant in variants.items():
        curve = fixed_n_curve(rank(name, variant, split.train, valid, ratings), valid, range(1, 51))
        best_n[label] = best_fixed_n(curve)
        found[label] = float(curve["f1"].max())
        print(
            f"  {dataset} {name} {label}: validation F1 {found[label]:.4f} at N = {best_n[label]}", flush=True
        )
    base = next(iter(variants))
    best = max(found, key=found.get)
    reports = {
        label: evaluate(
            rank(name, variants[label], split.train_valid, test, ratings).head(best_n[label]),
            test,
            gains="weight",
        )
        for label in dict.fromkeys((base, best))
    }
    difference = paired_test(reports[best].values("f1"), reports[base].values("f1"))
    print(
        f"    test: {base} {reports[base].f1:.4f}, {best} {reports[best].f1:.4f} (p = {difference.p_t:.3g})"
    )
    return {
        "rows": data.n_rows,
        "users": reports[base].n_users,
        "items": data.n_items,
        "validation": {label: {"f1": found[label], "N": best_n[label]} for label in found},
        "chosen": best,
        "test": {
            label: {
                metric: report.mean(metric) for metric in ("f1", "ndcg", "weighted_ndcg", "weighted_recall")
            }
            for label, report in reports.items()
        },
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p_t,
        "seconds": time.process_time() - began,
    }


def main() -> None:
    """Run the wanted combinations; results of others are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="*", default=list(MIN_USERS), choices=list(MIN_USERS))
    parser.add_argument("--model", nargs="*", default=list(MODELS), choices=[*MODELS, "TwoStage"])
    wanted = parser.parse_args()
    path = RESULTS / "weights.json"
    runs = json.loads(path.read_text())["runs"] if path.is_file() else {}
    for dataset in wanted.data:
        for name in wanted.model:
            runs[f"{dataset} {name}"] = run(dataset, name)
            save_results("weights", {"machine": describe(), "runs": runs})


if __name__ == "__main__":
    main()
