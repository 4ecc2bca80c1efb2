"""What lists earn: lengths for everyone against cutoffs, at the next basket and over a week with everyone.

    python benchmarks/money.py                        # three shops, about ten minutes
    python benchmarks/money.py --data online-retail   # one of them

An item that is taken earns 1, any other shown item costs 0.1 or 0.3. `TwoStage` (4,000 snapshots, one bag)
learns from the training set. The best N and all cutoffs are chosen on the validation set. The model observes
the validation set and makes the test lists, which are evaluated once.

basket: the last basket of each user; lists are made at the visit, and only users who visit count.
week: what happened within seven days; lists are made at the start for every user known then. Two cutoffs use
expected value: one was fitted on the users who bought something, one on everyone.

Differences from the best N are tested by the bootstrap over users, with Holm's correction over all rows.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import polars as pl
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.core.metrics import PER_USERS
from shortlist.cutoff import Cutoff, ExpectedF1, ExpectedValue, FixedN
from shortlist.data.lists import RankedLists
from shortlist.evaluation import evaluate, holm
from shortlist.split import Split, as_datetime

DATASETS = ("online-retail", "complete-journey", "ta-feng")
GAIN, COSTS = 1.0, (0.1, 0.3)
N_CANDIDATES, USUAL = 50, 10
BEST = "best N for this money"


def fit_cutoffs(
    lists: RankedLists, split: Split, cost: float, users: pl.Series | None
) -> dict[str, tuple[Cutoff, str]]:
    """Cutoffs fitted on the validation set, each with what it learned."""
    truth, history = split.valid, split.train
    fixed = FixedN(target="value", gain=GAIN, cost=cost, n_candidates=N_CANDIDATES)
    fixed.fit(lists, truth, users=users)
    value = {"gain": GAIN, "cost": cost, "n_candidates": N_CANDIDATES, "calibration": "features"}
    cutoffs: dict[str, tuple[Cutoff, str]] = {
        BEST: (fixed, f"N = {fixed.N_}"),
        f"{USUAL} for everyone": (FixedN(N=USUAL), ""),
        "expected F1": (ExpectedF1(n_candidates=N_CANDIDATES).fit(lists, truth, history=history), ""),
        "expected value": (ExpectedValue(**value).fit(lists, truth, history=history, users=users), ""),
    }
    if users is not None:
        buyers = ExpectedValue(**value).fit(lists, truth, history=history)
        cutoffs["expected value, fitted on buyers"] = (buyers, "")
    return cutoffs


def measure(data: sl.Interactions, case: str) -> Iterator[dict[str, Any]]:
    """What each cutoff earns on the test set."""
    split = sl.split.last_basket(data) if case == "basket" else sl.split.last_period(data, "7d")
    model = sl.TwoStage(n_snapshots=4_000, n_bags=1).fit(split.train)
    seen = not split.train.has_repeats
    if split.cuts is None:
        valid_ids, valid_at, users, later = (
            split.valid.users.to_ids(split.valid.active_users),
            split.valid,
            None,
            None,
        )
    else:
        valid_ids = users = split.train.users.to_ids(split.train.active_users)
        valid_at, later = as_datetime(split.cuts[0]), split.test_users
    valid = model.recommend(valid_ids, N=N_CANDIDATES, at=valid_at, filter_seen=seen)
    fitted = {cost: fit_cutoffs(valid, split, cost, users) for cost in COSTS}
    model.observe(split.valid)
    test = model.recommend(split.test_users, N=N_CANDIDATES, at=split.test_at, filter_seen=seen)
    for cost, cutoffs in fitted.items():
        reports = {
            name: evaluate(
                cutoff.apply(test, history=split.train_valid), split.test, users=later, gain=GAIN, cost=cost
            )
            for name, (cutoff, _) in cutoffs.items()
        }
        for name, report in reports.items():
            earned, test_of = report.test("value"), report.test("value", reports[BEST])
            yield {
                "case": case,
                "cost": cost,
                "cutoff": name,
                "learned": cutoffs[name][1],
                "users": report.n_users,
                "users_with_truth": int((report.n_relevant > 0).sum()),
                "earned_per_1000": PER_USERS * earned.difference,
                "low": PER_USERS * earned.low,
                "high": PER_USERS * earned.high,
                "difference": PER_USERS * test_of.difference,
                "difference_low": PER_USERS * test_of.low,
                "difference_high": PER_USERS * test_of.high,
                "p": test_of.p_bootstrap,
                "items_per_user": report.mean("length"),
                "empty_lists": 1 - report.cover_ratio,
                "hits_per_100": report.hits_per_100,
                "calibration_error": report.calibration_error,
                "f1": report.f1,
            }


def main() -> None:
    """Measure the chosen datasets and store the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="*", default=DATASETS, choices=DATASETS)
    chosen = parser.parse_args().data
    path = RESULTS / "money.json"
    stored = json.loads(path.read_text())["rows"] if path.is_file() else []
    rows = [row for row in stored if row["data"] not in chosen]
    for name in chosen:
        data, start = sl.load_dataset(name), time.process_time()
        for case in ("basket", "week"):
            for row in measure(data, case):
                rows.append({"data": name, **row})
                print(
                    f"{name:17} {case:7} cost {row['cost']:g}  {row['cutoff']:33} {row['learned']:7}"
                    f"{row['earned_per_1000']:9.0f} ({row['difference']:+8.0f} "
                    f"[{row['difference_low']:+.0f}, {row['difference_high']:+.0f}])  "
                    f"{row['items_per_user']:5.1f} items, {row['empty_lists']:4.0%} empty",
                    flush=True,
                )
        print(f"{name}: {time.process_time() - start:.0f} processor seconds", flush=True)
    tested = [row for row in rows if row["cutoff"] != BEST]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = p
    save_results("money", {"machine": describe("lightgbm"), "gain": GAIN, "rows": rows})


if __name__ == "__main__":
    main()
