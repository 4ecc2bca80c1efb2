"""Do the joint models, as they come, beat the best fixed N of their own ranking without validation data?

    python benchmarks/boundary.py FOLDER                          # all datasets, DKBPRMF and DKHRM
    python benchmarks/boundary.py FOLDER --data ml-100k --model DKHRM
    python benchmarks/boundary.py FOLDER --personal               # how much t_u depends on the seed

FOLDER holds lastfm/interactions.parquet and citeulike-t/interactions.parquet, each with users in the first
column and items in the second. A model is fitted on everything before each user's last basket, and lists are
made for the time of that basket; of a plain matrix, a fifth of the items of every user is held out at random.
Lists end where the model ends them, or after N items, where N is the best one on the basket before (or on
another random fifth), with a model fitted without it. F1 is the mean over all users. With several snapshots,
the same is repeated for earlier baskets of each user, and the tests compare the means of each user. p-values
are two-sided paired t-tests, corrected by Holm's method over all rows. The cost is that of `fit`, divided by
that of the same model with boundary="learned", which trains once.

`--personal` fits models with two seeds and correlates their boundaries t_u over the users.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results
from scipy.stats import ttest_1samp

import shortlist as sl
from shortlist.data.interactions import Interactions
from shortlist.evaluation import holm
from shortlist.split import draw_items

MAX_N = 100
MATRICES = ("lastfm", "citeulike-t")
WITHOUT_TIMES = " without times"
DATASETS = (
    *("online-retail", "ta-feng", "complete-journey", "ml-100k", "ml-1m"),
    *("ml-1m" + WITHOUT_TIMES, *MATRICES),
)
MODELS = ("DKBPRMF", "DKHRM")
SNAPSHOTS = {"ml-100k": 10}  # of other datasets one: they have thousands of users
PERSONAL = ("ml-100k", "online-retail", "ta-feng")
READINGS: tuple[dict[str, Any], ...] = (
    {"lambda_t": 1.0, "lambda_t_per": "step"},
    {"lambda_t": 0.01, "lambda_t_per": "step"},  # the default
    {"lambda_t": 1.0, "lambda_t_per": "user"},
)


class Snapshot(NamedTuple):
    """Lists of the held-out users, and what they hit."""

    users: np.ndarray
    f1: np.ndarray  # (n,) of the list that the model ends
    f1_at: np.ndarray  # (n, MAX_N) of the first 1 … MAX_N items
    length: np.ndarray


def load(name: str, folder: Path) -> Interactions:
    """A dataset; a matrix has neither times nor baskets."""
    if name in MATRICES:
        table = pl.read_parquet(folder / name / "interactions.parquet")
        return Interactions.from_frame(table.select(user_id=pl.nth(0), item_id=pl.nth(1)))
    data = sl.load_dataset(name.removesuffix(WITHOUT_TIMES))
    if name.endswith(WITHOUT_TIMES):
        data = Interactions.from_frame(data.to_frame().select("user_id", "item_id"))
    return data


def hold_out(data: Interactions, n: int) -> tuple[Interactions, Interactions]:
    """(the data without each user's last n baskets, the first of those), of users who keep a basket."""
    if data.time is None:
        for number in range(n):
            held = draw_items(data, 5, number)
            data, truth = data.where(~held), data.where(held)
        return data, truth
    number = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    end = data.user_baskets[data.user + 1]
    has_history = (end - data.user_baskets[data.user]) > n
    return data.where(end - number > n), data.where((end - number == n) & has_history)


def evaluate(model: Any, truth: Interactions) -> Snapshot:
    """Lists of all users with truth, and the first MAX_N items in the same order."""
    users = truth.active_users
    ids = truth.users.to_ids(users)
    lists, top = model.recommend(ids, at=truth), model.recommend(ids, N=MAX_N, at=truth)
    f1_at = np.zeros((users.size, MAX_N))
    for N in range(1, MAX_N + 1):
        f1_at[:, N - 1] = sl.evaluate(top.head(N), truth).values("f1")
    return Snapshot(users, sl.evaluate(lists, truth).values("f1"), f1_at, lists.lengths)


def compare(name: str, model_name: str, seed: int, folder: Path) -> dict[str, object]:
    """One row: the lists of the model against the best fixed N, over one or several snapshots."""
    data, kind = load(name, folder), getattr(sl, model_name)
    snapshots, seconds, once = [], 0.0, 0.0
    for n in range(SNAPSHOTS.get(name, 1) + 1, 0, -1):
        train, truth = hold_out(data, n)
        began = time.process_time()
        model = kind(seed=seed).fit(train)
        middle = time.process_time()
        if snapshots:  # the first fit compiles
            kind(seed=seed, boundary="learned").fit(train)
            seconds, once = seconds + middle - began, once + time.process_time() - middle
        snapshots.append(evaluate(model, truth))
        print(f"  {name} {model_name}: {n} held out, F1 {snapshots[-1].f1.mean():.4f}", flush=True)
    chosen = [int(before.f1_at.mean(axis=0).argmax()) + 1 for before in snapshots[:-1]]
    tested = snapshots[1:]
    user = np.concatenate([snapshot.users for snapshot in tested])
    f1 = np.concatenate([snapshot.f1 for snapshot in tested])
    fixed = np.concatenate([s.f1_at[:, N - 1] for s, N in zip(tested, chosen, strict=True)])
    n_lists = np.bincount(user)
    change = (np.bincount(user, f1 - fixed) / np.maximum(n_lists, 1))[n_lists > 0]
    lengths = np.concatenate([snapshot.length for snapshot in tested])
    return {
        "n_users": int(change.size),
        "n_lists": int(user.size),
        "fixed_f1": float(fixed.mean()),
        "fixed_N": chosen,
        "best_N_of_test_f1": float(np.concatenate([s.f1_at for s in tested]).mean(axis=0).max()),
        "boundary_f1": float(f1.mean()),
        "gain": float(f1.mean() / fixed.mean() - 1),
        "p": float(ttest_1samp(change, 0).pvalue),
        "mean_length": float(lengths.mean()),
        "fit_seconds": round(seconds, 1),
        "fit_cost": seconds / max(once, 1e-9),
    }


def correlate(name: str, model_name: str, reading: dict[str, Any], folder: Path) -> dict[str, object]:
    """How boundaries of two seeds agree over the users, and F1 of what scores above them."""
    train, truth = hold_out(load(name, folder), 1)
    users = truth.active_users
    found, f1 = [], []
    for seed in (0, 1):
        model = getattr(sl, model_name)(**reading, seed=seed, boundary="learned").fit(train)
        found.append(model.boundaries(truth.users.to_ids(users)))
        lists = model.recommend(truth.users.to_ids(users), at=truth, max_items=MAX_N)
        f1.append(sl.evaluate(lists, truth).f1)
    return reading | {
        "correlation": float(np.corrcoef(found)[0, 1]),
        "spread": float(np.mean([boundary.std() for boundary in found])),
        "learned_f1": float(np.mean(f1)),
    }


def main() -> None:
    """Compare, and store the rows beside those of earlier runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", choices=DATASETS, nargs="*")
    parser.add_argument("--model", choices=MODELS, nargs="*", default=list(MODELS))
    parser.add_argument("--personal", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = RESULTS / "boundary.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    rows, personal = stored.get("rows", {}), stored.get("personal", {})
    for name in options.data or (PERSONAL if options.personal else DATASETS):
        for model_name in options.model:
            if model_name == "DKHRM" and not load(name, options.folder).has_baskets:
                continue
            key = f"{name}, {model_name}"
            if options.personal:
                personal[key] = [correlate(name, model_name, r, options.folder) for r in READINGS]
                print(key, personal[key], flush=True)
            else:
                rows[key] = row = compare(name, model_name, options.seed, options.folder)
                for each, p in zip(rows.values(), holm([r["p"] for r in rows.values()]), strict=True):
                    each["p_holm"] = float(p)
                print(
                    f"{key}: fixed N {row['fixed_f1']:.4f}, as it comes {row['boundary_f1']:.4f} "
                    f"({row['gain']:+.1%}, Holm {row['p_holm']:.2g}), cost × {row['fit_cost']:.2f}",
                    flush=True,
                )
            machine = describe()
            save_results(
                "boundary", {"machine": machine, "seed": options.seed, "rows": rows, "personal": personal}
            )


if __name__ == "__main__":
    main()
