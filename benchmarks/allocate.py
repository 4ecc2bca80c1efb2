"""The same number of items: N for every user against one allocation over all users.

    python benchmarks/allocate.py                       # four datasets, two splits, about ten minutes
    python benchmarks/allocate.py --data online-retail  # one of them
    python benchmarks/allocate.py --split by_time       # only under strict time

The ranker is `TwoStage` with its default settings. One calibration over all users is fitted on validation
data, the ranker is trained again, and the test set is used once. Splits and candidates are those of
strict_time.py. The intervals are bootstrapped over users, with the allocation as it is.

Online Retail also has unit prices, from the published file. They stand for margins: value is the price of
what is bought of the shown items.
"""

import argparse
import json
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results
from strict_time import DATASETS, N_CANDIDATES, SPLITS, candidates

import shortlist as sl
from shortlist.data.datasets import fetch_originals
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import RankedLists

LENGTHS = (1, 2, 5, 10, 20)
N_SAMPLES = 2000


def sum_users(lists: RankedLists, values: np.ndarray) -> np.ndarray:
    """(n_users,) sum over each user's list."""
    return np.bincount(np.repeat(np.arange(len(lists)), lists.lengths), values, len(lists))


def compare(ours: np.ndarray, same: np.ndarray) -> dict[str, float]:
    """The relative difference of two totals over users, with a bootstrapped interval and the p-value."""
    rng, n, ratios = np.random.default_rng(0), ours.size, []
    for _ in range(N_SAMPLES):
        drawn = rng.integers(0, n, n)
        ratios.append(ours[drawn].sum() / max(same[drawn].sum(), 1e-9) - 1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    p = 2 * min(np.mean(np.array(ratios) <= 0), np.mean(np.array(ratios) >= 0))
    relative = ours.sum() / same.sum() - 1
    return {"relative": relative, "low": low, "high": high, "p": max(float(p), 1 / N_SAMPLES)}


def compare_hits(lists: RankedLists, truth: Interactions) -> dict[str, dict[str, float]]:
    """Real and expected hits of both ways, for each number of items per user."""
    rows = {}
    for n in LENGTHS:
        same = lists.head(n)
        allocation = sl.allocate(lists, budget=same.items.size)
        assert allocation.n_items == same.items.size
        ours = sum_users(allocation.lists, label_lists(allocation.lists, truth).relevant)
        fixed = sum_users(same, label_lists(same, truth).relevant)
        rows[str(n)] = {
            "items": allocation.n_items,
            "users_with_items": allocation.n_users,
            "hits": float(ours.sum()),
            "hits_same_n": float(fixed.sum()),
            "expected_hits": allocation.expected_hits,
            "expected_over_real": allocation.expected_hits / ours.sum() - 1,
            **compare(ours, fixed),
        }
    return rows


def raw_over_real(lists: RankedLists, truth: Interactions) -> float:
    """How much higher the sum of the ranker's own probabilities is than the number of hits."""
    return float(lists.probabilities.sum() / label_lists(lists, truth).relevant.sum() - 1)


def read_unit_prices() -> dict[str, float]:
    """Item id → median unit price of Online Retail, from the published file."""
    with tempfile.TemporaryDirectory() as folder:
        originals = fetch_originals("online-retail", Path(folder))
        lines = pl.read_csv(originals / "lines.csv", encoding="utf8-lossy", infer_schema=False)
    prices = (
        lines.select(item="StockCode", price=pl.col("UnitPrice").cast(pl.Float64, strict=False))
        .filter(pl.col("price") > 0)
        .group_by("item")
        .agg(pl.col("price").median())
    )
    return dict(prices.iter_rows())


def compare_value(lists: RankedLists, truth: Interactions) -> dict[str, dict[str, float]]:
    """The value of what is bought: an allocation by value, the top N by probability, the top N by value."""
    prices = read_unit_prices()
    gains = np.array([prices.get(item, 0.0) for item in lists.item_ids.values.to_list()])
    by_value = reorder(lists, lists.probabilities * gains[lists.items])
    by_probability = reorder(lists, lists.probabilities)
    gain = dict(zip(lists.item_ids.values.to_list(), gains.tolist(), strict=True))
    rows = {}
    for n in LENGTHS:
        allocation = sl.allocate(lists, budget=lists.head(n).items.size, gain=gain)
        values = [
            sum_users(shown, label_lists(shown, truth).relevant * gains[shown.items])
            for shown in (allocation.lists, by_probability.head(n), by_value.head(n))
        ]
        rows[str(n)] = {
            "value": float(values[0].sum()),
            "value_same_n_by_probability": float(values[1].sum()),
            "value_same_n_by_value": float(values[2].sum()),
            "expected_value": allocation.expected_value,
            "expected_over_real": allocation.expected_value / values[0].sum() - 1,
            "over_probability": compare(values[0], values[1]),
            "over_value": compare(values[0], values[2]),
        }
    return rows


def reorder(lists: RankedLists, keys: np.ndarray) -> RankedLists:
    """The same lists, each sorted by a key, highest first."""
    order = np.lexsort((-keys, np.repeat(np.arange(len(lists)), lists.lengths)))
    return replace(
        lists,
        items=lists.items[order],
        scores=lists.scores[order],
        probabilities=None if lists.probabilities is None else lists.probabilities[order],
    )


def run(data: Interactions, name: str, dataset: str) -> dict[str, object]:
    """Calibrate on validation, then compare both ways once on the test set."""
    began, hold_out = time.process_time(), SPLITS[name]
    test = hold_out(data)
    valid = hold_out(test.history)
    lists = candidates(sl.TwoStage().fit(valid.history), valid)
    calibration = sl.cutoff.Calibration(n_candidates=N_CANDIDATES).fit(
        lists, valid.truth, history=valid.history
    )
    before = raw_over_real(lists, valid.truth)
    lists = candidates(sl.TwoStage().fit(test.history), test)
    after = raw_over_real(lists, test.truth)
    lists = calibration.apply(lists, history=test.history)
    row: dict[str, object] = {
        "validation": valid.description,
        "test": test.description,
        "users": len(lists),
        "calibration": calibration.method_,
        "raw_over_real": {"validation": before, "test": after},  # a calibration passes the first one on
        "ece": sl.evaluate(lists, test.truth).calibration_error,
        "hits": compare_hits(lists, test.truth),
    }
    if dataset == "online-retail":
        row["value"] = compare_value(lists, test.truth)
    return row | {"processor_seconds": round(time.process_time() - began)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=DATASETS, action="append")
    parser.add_argument("--split", choices=tuple(SPLITS), action="append")
    parser.add_argument("--name", default="allocate")
    options = parser.parse_args()
    # the truth is observed, but the lists are made for times before it
    warnings.filterwarnings("ignore", message=".* rows of truth are also in the data")
    file = RESULTS / f"{options.name}.json"
    for dataset in options.data or DATASETS:
        for split in options.split or SPLITS:
            row = run(sl.load_dataset(dataset), split, dataset)
            print(dataset, split, json.dumps(row), flush=True)
            stored = json.loads(file.read_text()) if file.is_file() else {}
            stored |= {"machine": describe("lightgbm"), "candidates": N_CANDIDATES}
            stored[dataset] = {**stored.get(dataset, {}), split: row}
            save_results(options.name, stored)
