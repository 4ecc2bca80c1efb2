"""Does the boundary of the joint models beat the best fixed N of the same ranking, without validation data?

    python benchmarks/boundary.py                     # four datasets, DKHRM and DKBPRMF; about half an hour
    python benchmarks/boundary.py --data ml-100k --model DKHRM

A model is fitted on everything before each user's last basket, and lists are made for the time of that
basket. Lists end at the boundary of the model (`boundary="expected_f1"`), which uses no validation data, or
after N items, where N is the best one on the basket before, with a model fitted without it. F1 is the mean
over all users; an empty list counts 0. With several snapshots, the same is repeated for earlier baskets of
each user, and the tests compare the means of each user. p-values are two-sided paired t-tests, corrected by
Holm's method over all rows. At the coverage of the paper, the users with the highest expected F1 get a list.
"""

import argparse
import json
import time
from dataclasses import dataclass

import numpy as np
from machine import RESULTS, describe, save_results
from scipy.stats import ttest_1samp

import shortlist as sl
from shortlist.core.metrics import ideal_dcg
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import holm

MAX_N = 100
LONG = 20  # items; the NDCG that is divided by the ideal list of the same length prefers long lists
# DKHRM as it comes; the settings of DKBPRMF concern the ranker alone
SHOP = {"lr": 0.05, "reg": 0.0085, "n_epochs": 30, "negatives": 100.0}
SETTINGS = {
    "ta-feng": {"DKHRM": {}, "DKBPRMF": SHOP},
    "online-retail": {"DKHRM": {}, "DKBPRMF": SHOP},
    "complete-journey": {"DKHRM": {}, "DKBPRMF": SHOP},
    "ml-100k": {"DKHRM": {}, "DKBPRMF": SHOP | {"negatives": 10.0}},
}
SNAPSHOTS = {"ml-100k": 10}  # of other datasets one: they have thousands of users
GOALS = {"ta-feng": 0.05, "online-retail": 0.05, "complete-journey": 0.05, "ml-100k": 0.0}
COVERAGE = {"ta-feng": {"DKHRM": 0.70, "DKBPRMF": 0.69}, "ml-100k": {"DKHRM": 0.68, "DKBPRMF": 0.90}}
COVERED_GOALS = {"ta-feng": (0.10, 0.13), "ml-100k": (0.065, 0.13)}


@dataclass(frozen=True)
class Snapshot:
    """Lists for one basket of each user, and the outcomes; arrays have one entry per user."""

    users: np.ndarray
    f1_at: np.ndarray  # (n, MAX_N) F1 of the first 1 … MAX_N candidates
    f1: np.ndarray  # of the list up to the boundary
    ndcg: np.ndarray  # against the ideal list of the same length
    ndcg_at: np.ndarray  # the same of the first LONG candidates
    length: np.ndarray
    expected: np.ndarray  # F1 that the model expects
    learned_lr: float


def drop_baskets(data: Interactions, n: int) -> tuple[Interactions, Interactions]:
    """(the data without each user's last n baskets, the first of those of users who keep a basket)."""
    number = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    end = data.user_baskets[data.user + 1]
    from_end = end - number  # 1: the last basket
    has_history = (end - data.user_baskets[data.user]) > n
    return data.where(from_end > n), data.where((from_end == n) & has_history)


def evaluate_snapshot(model: sl.DKHRM, truth: Interactions) -> Snapshot:
    """Lists of all users with a true basket."""
    users = truth.active_users
    ids = truth.users.to_ids(users)
    top = model.recommend(ids, N=MAX_N, at=truth)
    lists = model.recommend(ids, at=truth)
    hits = np.zeros((users.size, MAX_N + 1))
    true = [truth.item_sets.row(user) for user in users]
    for row, items in enumerate(true):
        found = np.isin(top.items[top.indptr[row] : top.indptr[row + 1]], items)
        hits[row, 1 : found.size + 1] = np.cumsum(found)
        hits[row, found.size + 1 :] = found.sum()
    n_true = truth.item_sets.lengths[users]
    n_shown = np.minimum(np.arange(1, MAX_N + 1), np.diff(top.indptr)[:, None])
    own = np.array([relevant(lists, row, items) for row, items in enumerate(true)])
    long = top.head(LONG)
    dcg = np.array([relevant(long, row, items)[1] for row, items in enumerate(true)])
    return Snapshot(
        users,
        2 * hits[:, 1:] / np.maximum(n_shown + n_true[:, None], 1),
        2 * own[:, 0] / np.maximum(lists.lengths + n_true, 1),
        own[:, 1] / ideal_dcg(MAX_N * 10)[np.clip(np.minimum(lists.lengths, n_true), 1, MAX_N * 10)],
        dcg / ideal_dcg(LONG)[np.clip(np.minimum(long.lengths, n_true), 1, LONG)],
        lists.lengths,
        expected_f1(lists),
        model.lr_,
    )


def relevant(lists: RankedLists, row: int, true: np.ndarray) -> tuple[float, float]:
    """(hits, DCG) of one list."""
    found = np.isin(lists.items[lists.indptr[row] : lists.indptr[row + 1]], true)
    return float(found.sum()), float((found / np.log2(np.arange(found.size) + 2)).sum())


def expected_f1(lists: RankedLists) -> np.ndarray:
    """(n,) the F1 that the probabilities of each list and the predicted size give."""
    total = np.concatenate([[0.0], np.cumsum(lists.probabilities)])
    return 2 * np.diff(total[lists.indptr]) / (lists.lengths + lists.expected_sizes)


def compare(name: str, model_name: str, seed: int) -> dict[str, object]:
    """One row: the boundary against the best fixed N, over one or several snapshots."""
    data, settings = sl.load_dataset(name), SETTINGS[name][model_name]
    n_snapshots, began = SNAPSHOTS.get(name, 1), time.process_time()
    snapshots = []
    for n in range(n_snapshots + 1, 0, -1):
        train, truth = drop_baskets(data, n)
        model = getattr(sl, model_name)(**settings, seed=seed).fit(train)
        snapshots.append(evaluate_snapshot(model, truth))
        print(f"  {name} {model_name}: {n} baskets held out, F1 {snapshots[-1].f1.mean():.4f}", flush=True)
    chosen = [int(before.f1_at.mean(axis=0).argmax()) + 1 for before in snapshots[:-1]]
    tested = snapshots[1:]
    fixed = [snapshot.f1_at[:, N - 1] for snapshot, N in zip(tested, chosen, strict=True)]
    user = np.concatenate([snapshot.users for snapshot in tested])
    f1, base = np.concatenate([snapshot.f1 for snapshot in tested]), np.concatenate(fixed)
    n_lists = np.bincount(user)
    change = (np.bincount(user, f1 - base) / np.maximum(n_lists, 1))[n_lists > 0]
    best = np.concatenate([m.f1_at for m in tested]).mean(axis=0)
    return {
        "settings": settings,
        "n_users": int(change.size),
        "n_lists": int(user.size),
        "fixed_f1": float(base.mean()),
        "fixed_N": chosen,
        "best_N_of_test_f1": float(best.max()),
        "boundary_f1": float(f1.mean()),
        "gain": float(f1.mean() / base.mean() - 1),
        "goal": GOALS[name],
        "p": float(ttest_1samp(change, 0).pvalue),
        "mean_length": float(np.concatenate([m.length for m in tested]).mean()),
        "cover_ratio": float((np.concatenate([m.length for m in tested]) > 0).mean()),
        "lr_at_the_end": [m.learned_lr for m in snapshots],
        "covered": covered(name, model_name, tested[-1]),
        "cpu_seconds": round(time.process_time() - began),
    }


def covered(name: str, model_name: str, last: Snapshot) -> dict[str, object] | None:
    """F1 and NDCG of the users with the highest expected F1, as many as the paper covers."""
    share = COVERAGE.get(name, {}).get(model_name)
    if share is None:
        return None
    kept = np.argsort(-last.expected, kind="stable")[: round(share * last.expected.size)]
    goal = COVERED_GOALS[name]
    return {
        "coverage": share,
        "f1": float(last.f1[kept].mean()),
        "ndcg": float(last.ndcg[kept].mean()),
        "ndcg_of_long_lists": float(last.ndcg_at[kept].mean()),
        "goal_f1": goal[0],
        "goal_ndcg": goal[1],
    }


def main() -> None:
    """Compare, and store the rows beside those of earlier runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=list(SETTINGS), nargs="*", default=list(SETTINGS))
    parser.add_argument("--model", choices=["DKHRM", "DKBPRMF"], nargs="*", default=["DKHRM", "DKBPRMF"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = RESULTS / "boundary.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    for name in options.data:
        for model_name in options.model:
            rows[f"{name}, {model_name}"] = compare(name, model_name, options.seed)
            corrected = holm([row["p"] for row in rows.values()])
            for row, p in zip(rows.values(), corrected, strict=True):
                row["p_holm"] = float(p)
            save_results("boundary", {"machine": describe(), "seed": options.seed, "rows": rows})
            row = rows[f"{name}, {model_name}"]
            print(
                f"{name}, {model_name}: fixed N {row['fixed_f1']:.4f}, boundary {row['boundary_f1']:.4f} "
                f"({row['gain']:+.1%}, p {row['p']:.2g}, Holm {row['p_holm']:.2g}; goal {row['goal']:+.0%})",
                flush=True,
            )


if __name__ == "__main__":
    main()
