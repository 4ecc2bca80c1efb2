"""A mailing: models chosen by what a volume reaches, by value, and by F1, against what was bought most often.

    python benchmarks/mailing.py                       # three shops
    python benchmarks/mailing.py --data online-retail  # one of them

The last seven days are the test. A fifth of the known customers get a mail with at most three products. The
hits of each allocation are compared with the same volume spent on what each customer bought most often, the
latest first (computed with plain tables), and on the same number for everyone. Intervals: paired bootstrap
over customers.
"""

import argparse
import json
import time

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.evaluation import paired_test

SHOPS = ("online-retail", "complete-journey", "ta-feng")
MODELS = ("PersonalFrequency", "TIFUKNN", "DKHRM", "TwoStage")
MAX_ITEMS, SHARE = 3, 0.2
IDS = ["user_id", "item_id"]


def count_hits(shown: pl.DataFrame, bought: pl.DataFrame, users: pl.Series) -> np.ndarray:
    """(n_users,) how many of the shown pairs were bought."""
    hits = shown.join(bought, IDS, how="semi").group_by("user_id").len()
    return users.to_frame("user_id").join(hits, "user_id", how="left")["len"].fill_null(0).to_numpy() * 1.0


def bought_most_often(history: pl.DataFrame, contacts: int, n_items: int) -> pl.DataFrame:
    """The pairs that were bought most often, the latest first; as many customers and items as the mailing."""
    pairs = history.group_by(IDS).agg(pl.len().alias("n"), pl.col("timestamp").max())
    pairs = pairs.sort("n", "timestamp", *IDS, descending=[True, True, False, False])
    pairs = pairs.filter(pl.int_range(pl.len()).over("user_id") < MAX_ITEMS)
    first = pairs["user_id"].unique(maintain_order=True).head(contacts)
    return pairs.filter(pl.col("user_id").is_in(first.implode())).head(n_items)


def run(name: str) -> dict[str, object]:
    """The hits of each way on the last seven days of one shop."""
    split = sl.split.last_period(sl.load_dataset(name), "7d")
    history, test = split.train_valid, split.test
    users = history.users.to_ids(history.active_users)
    contacts = round(SHARE * len(users))
    volume = MAX_ITEMS * contacts / len(users)
    bought = test.to_frame().select(IDS).unique()
    cutoffs = {
        "by hits at the volume": sl.cutoff.Budget(items_per_list=volume),
        "by value": sl.cutoff.ExpectedValue(),
        "by F1": sl.cutoff.ExpectedF1(),
    }
    rows: dict[str, object] = {
        "users": len(users),
        "contacts": contacts,
        "buyers": bought["user_id"].n_unique(),
    }
    for kind, cutoff in cutoffs.items():
        start = time.process_time()
        model = sl.fit(history, models=MODELS, cutoff=cutoff, users="everyone", horizon="7d", budget="quick")
        allocation = sl.allocate(model, contacts=contacts, max_items=MAX_ITEMS)
        shown = allocation.lists.to_frame().filter(pl.col("rank") > 0)
        ours = count_hits(shown, bought, users)
        rule = count_hits(bought_most_often(history.to_frame(), contacts, shown.height), bought, users)
        test_of_rule = paired_test(ours, rule)
        everyone = model.recommend(users, N=1, filter_seen=False).to_frame()
        share = shown.height / len(users)
        same = min(share, 1.0) * count_hits(everyone, bought, users).sum()
        rows[kind] = {
            "model": type(model).__name__,
            "items": shown.height,
            "hits": ours.sum(),
            "expected": allocation.expected_hits,
            "hits of the same number for everyone": same,
            "hits of the most often bought": rule.sum(),
            "over it": [
                value * len(users) for value in (test_of_rule.difference, test_of_rule.low, test_of_rule.high)
            ],
            "processor seconds": round(time.process_time() - start),
        }
        print(name, kind, json.dumps(rows[kind]), flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=SHOPS, action="append")
    options = parser.parse_args()
    for shop in options.data or SHOPS:
        file = RESULTS / "mailing.json"
        stored = json.loads(file.read_text()) if file.is_file() else {}
        save_results("mailing", stored | {"machine": describe("lightgbm"), shop: run(shop)})
