"""What does the content of items bring to TwoStage? Complete Journey and Online Retail, with and without.

    python benchmarks/content.py                         # both datasets
    python benchmarks/content.py --data online-retail    # one of them

Complete Journey has departments, categories, types and brands; Online Retail has descriptions. The model is
fitted on the training baskets. N is chosen on the basket before the last of each user; the model then
observes these baskets and is tested on the last ones, each for the time of the true basket. An item is new
for a user if its first sale was at most 30 days before that time, or did not happen yet. F1 of new items
counts them alone, over all lists together: most baskets have none.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.data.datasets import fetch_originals
from shortlist.evaluation import best_fixed_n, evaluate, fixed_n_curve, paired_test

N_USERS, N_CANDIDATES, NEW_DAYS = 1500, 50, 30
DAY = 86_400_000_000


def read_items(name: str, data: sl.Interactions) -> sl.Items:
    """Return the content of the items of a dataset."""
    if name == "online-retail":
        table = pl.DataFrame({"item_id": data.items.values, "description": data.item_names})
        return sl.Items.from_frame(table, text=["description"])
    with tempfile.TemporaryDirectory() as folder:
        table = pl.read_parquet(fetch_originals(name, Path(folder)) / "products")
    columns = ["department", "brand", "product_category"]
    table = table.rename({"product_id": "item_id"}).select("item_id", *columns, "product_type")
    table = table.filter(pl.col("item_id").is_in(data.items.values.to_list()))
    return sl.Items.from_frame(table, item_name="", categories=columns, text=["product_type"])


def first_sales(data: sl.Interactions) -> np.ndarray:
    """Return the time of the first sale of every item."""
    found = np.full(data.n_items, np.iinfo(np.int64).max)
    np.minimum.at(found, data.item, data.time)
    return found


def sample(truth: sl.Interactions) -> sl.Interactions:
    """Return the truth of a fixed sample of the users."""
    users = np.random.default_rng(0).permutation(truth.active_users)[:N_USERS]
    return truth.where(np.isin(truth.user, users))


def new_items_f1(lists: sl.RankedLists, truth: sl.Interactions, first: np.ndarray, items: pl.Series) -> dict:
    """Return the F1 of the items that are new at the time of the list, over all lists together."""
    users = truth.active_users
    at = truth.time[truth.indptr[users]]
    age = first[truth.item] - np.repeat(at, np.diff(truth.indptr)[users])
    relevant = int((age >= -NEW_DAYS * DAY).sum())
    owner = np.repeat(np.arange(len(lists)), lists.lengths)
    place = sl.data.id_map.IdMap(items).lookup(lists.item_ids.to_ids(lists.items))
    is_new = first[place] >= at[owner] - NEW_DAYS * DAY
    pairs = set(zip(truth.user.tolist(), truth.item.tolist(), strict=True))
    hits = sum((users[u], i) in pairs for u, i in zip(owner[is_new], place[is_new], strict=True))
    shown = int(is_new.sum())
    return {"shown": shown, "relevant": relevant, "hits": hits, "f1": 2 * hits / max(shown + relevant, 1)}


def run(name: str) -> dict:
    """Return F1 with and without content, of all items and of new ones."""
    data = sl.load_dataset(name)
    items, split, first = read_items(name, data), sl.split.last_basket(data), first_sales(data)
    print(f"{name}: {data}, {items}", flush=True)
    valid, test = sample(split.valid), sample(split.test)
    found, users = {}, {}
    for label, content in {"without content": None, "with content": items}.items():
        began = time.process_time()
        model = sl.TwoStage(n_bags=1, n_snapshots=8000).fit(split.train, items=content)
        seconds = time.process_time() - began
        ids = valid.users.to_ids(valid.active_users)
        lists = model.recommend(ids, N=N_CANDIDATES, at=valid)
        best = best_fixed_n(fixed_n_curve(lists, valid, range(1, N_CANDIDATES + 1)))
        model.observe(split.valid)
        ids = test.users.to_ids(test.active_users)
        lists = model.recommend(ids, N=best, at=test)
        users[label] = evaluate(lists, test).users["f1"].to_numpy()
        found[label] = {
            "N": best,
            "f1": float(users[label].mean()),
            "new items": new_items_f1(lists, test, first, data.items.values),
            "fit seconds": seconds,
        }
        print(label, json.dumps(found[label]), flush=True)
    old, new = (found[label] for label in found)
    result = paired_test(users["with content"], users["without content"])
    return found | {
        "total ratio": new["f1"] / old["f1"],
        "p": float(result.p_bootstrap),
        "new items ratio": new["new items"]["f1"] / max(old["new items"]["f1"], 1e-9),
    }


def main() -> None:
    """Run the datasets and store the results beside those of the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["complete-journey", "online-retail"]
    parser.add_argument("--data", action="append", choices=names)
    options = parser.parse_args()
    path = RESULTS / "content.json"
    found = json.loads(path.read_text())["datasets"] if path.is_file() else {}
    for name in options.data or names:
        found[name] = run(name)
        print(name, {key: value for key, value in found[name].items() if isinstance(value, float)})
        save_results("content", {"machine": describe("lightgbm"), "datasets": found})


if __name__ == "__main__":
    main()
