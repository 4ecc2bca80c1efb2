"""Do dynamic lists beat the best fixed N if nothing is known before it happened?

    python benchmarks/strict_time.py                       # four datasets, about an hour on two cores
    python benchmarks/strict_time.py --data online-retail  # one of them
    python benchmarks/strict_time.py --split by_time       # only under strict time

One ranker, `TwoStage` with its default settings, and two splits. In both, the fixed N and the cutoff are
chosen on validation data, the ranker is trained again, and the test set is used once.

- by_time: the test set is the first basket of each user in the last fifth of all rows, among users with
  earlier events. The trees learn from events before the cut. Counts, histories and item weights then advance
  event by event: each list is made from the events before the time of its basket, those of other users
  included. Validation is the same, one fifth earlier.
- last_basket: the test set is the last basket of each user, as in the paper. The trees may learn from baskets
  of other users that are later than the list.

`TwoStage` predicts for a time in the past from the events before it, so it observes all later events at once.
A test shows that the lists are those of a model that observes the events one by one.
"""

import argparse
import json
import time
import warnings
from copy import copy

from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.auto.validation import Holdout, hold_out_by_time, last_baskets
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve, holm, paired_test

DATASETS = ("online-retail", "ta-feng", "ml-1m", "complete-journey")
N_CANDIDATES = 50
SPLITS = {"by_time": hold_out_by_time, "last_basket": lambda data: last_baskets(data)[0]}


def candidates(model: sl.TwoStage, part: Holdout) -> RankedLists:
    """The best candidates of the held-out users, each at the time of the basket, from earlier events only."""
    history, truth = part.history, part.truth
    current = model if part.later is None else copy(model).observe(part.later.compact())
    users, exclude = truth.users.to_ids(truth.active_users), None
    if not history.has_repeats:  # seen items are those of the history: the user's later events are observed
        seen = (history.item[history.indptr[u] : history.indptr[u + 1]] for u in truth.active_users)
        exclude = dict(zip(users, (history.items.to_ids(items).to_list() for items in seen), strict=True))
    return current.recommend(users, N=N_CANDIDATES, at=truth, filter_seen=False, exclude=exclude)


def run(data: Interactions, name: str) -> dict[str, object]:
    """Choose N and the cutoff on validation, then evaluate both once on the test set."""
    began, hold_out = time.process_time(), SPLITS[name]
    test = hold_out(data)
    valid = hold_out(test.history)
    lists = candidates(sl.TwoStage().fit(valid.history), valid)
    n = best_fixed_n(fixed_n_curve(lists, valid.truth, range(1, N_CANDIDATES + 1)))
    cutoffs = default_cutoffs(N_CANDIDATES, probabilities=True)
    choice = choose_cutoff(lists, valid.truth, valid.history, cutoffs)
    print(f"  {name}: N = {n}, {choice}, {time.process_time() - began:.0f} s of processor", flush=True)
    lists = candidates(sl.TwoStage().fit(test.history), test)
    fixed = evaluate(lists.head(n), test.truth)
    dynamic = evaluate(choice.cutoff.apply(lists, history=test.history), test.truth)
    found = paired_test(dynamic.values("f1"), fixed.values("f1"))
    return {
        "validation": valid.description,
        "test": test.description,
        "users": fixed.n_users,
        "N": n,
        "cutoff": choice.name,
        "fixed": {metric: fixed.mean(metric) for metric in ("f1", "ndcg", "length")},
        "dynamic": {
            **{metric: dynamic.mean(metric) for metric in ("f1", "ndcg", "length")},
            "cover": dynamic.cover_ratio,
        },
        "difference": found.difference,
        "relative": found.difference / fixed.mean("f1"),
        "low": found.low,
        "high": found.high,
        "p": found.p_bootstrap,
        "processor_seconds": round(time.process_time() - began),
    }


def correct(result: dict[str, dict[str, dict[str, float]]]) -> None:
    """Add p-values with Holm's correction over the datasets, for each split."""
    for split in SPLITS:
        rows = [result[name][split] for name in DATASETS if split in result.get(name, {})]
        for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
            row["p_holm"] = p


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=DATASETS, action="append")
    parser.add_argument("--split", choices=tuple(SPLITS), action="append")
    parser.add_argument("--name", default="strict_time")
    options = parser.parse_args()
    # the truth is observed, but the lists are made for times before it
    warnings.filterwarnings("ignore", message=".* rows of truth are also in the data")
    file = RESULTS / f"{options.name}.json"
    for dataset in options.data or DATASETS:
        print(dataset, flush=True)
        for split in options.split or SPLITS:
            row = run(sl.load_dataset(dataset), split)
            print(f"  {split}: {json.dumps(row)}", flush=True)
            stored = json.loads(file.read_text()) if file.is_file() else {}
            stored |= {"machine": describe("lightgbm"), "candidates": N_CANDIDATES}
            stored[dataset] = {**stored.get(dataset, {}), split: row}
            correct(stored)
            save_results(options.name, stored)
