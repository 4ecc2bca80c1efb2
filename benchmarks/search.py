"""Cutting search results: documents needed for a recall, microseconds per query, and a million lists.

    python benchmarks/search.py FOLDER  # FOLDER holds bm25.parquet and judgments.parquet

Recall is the share of the relevant documents among the first 300 that a list keeps, averaged over queries
with one. A guarantee is fitted on four fifths of the queries and tested on the fifth left out; by rank, it is
the smallest fixed k that passes the same test. Speed is measured with one thread on
lists of 100 candidates.
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np
from machine import RESULTS, describe, peak_mib, save_results

import shortlist as sl
from shortlist.cutoff import Cutoff, ExpectedF1, FixedN, Guarantee, UtilityRegression
from shortlist.data.labeled import label_lists
from shortlist.data.rankings import read_candidates, read_outcomes

N_FOLDS, N_LISTS, N_ITEMS = 5, 1_000_000, 100


def guaranteed_recall(lists: sl.RankedLists, truth: sl.Interactions) -> list[dict[str, object]]:
    """Guarantees of recall by rank (a fixed k), score, probability, and as chosen, on queries left out."""
    rows = []
    fold = np.random.default_rng(0).permutation(len(lists)) % N_FOLDS
    for level, on in product((0.5, 0.7, 0.8, 0.9), ("auto", "rank", "score", "probability")):
        values, kinds = [], []
        for f in range(N_FOLDS):
            train, test = lists.take(np.flatnonzero(fold != f)), lists.take(np.flatnonzero(fold == f))
            cut = Guarantee(n_candidates=300, min_recall=level, on=on, calibration="features")
            shown, full = label_lists(cut.fit(train, truth).apply(test), truth), label_lists(test, truth)
            share = shown.n_retrieved / np.maximum(full.n_retrieved, 1)
            values.append((share[full.n_retrieved > 0].mean(), shown.lists.lengths.mean()))
            kinds.append(cut.on_)
        recall, documents = np.mean(values, axis=0)
        row = {"level": level, "on": on, "chosen": kinds, "recall": recall, "documents": documents}
        rows.append(row)
        print(row, flush=True)
    return rows


def time_one(cutoff: Cutoff, lists: sl.RankedLists) -> float:
    """Microseconds per list in a loop over prepared scores."""
    show = cutoff.prepare()
    rows = lists.scores.reshape(len(lists), -1)
    best = np.inf
    for _ in range(10):
        start = time.perf_counter()
        for row in rows:
            show(row)
        best = min(best, (time.perf_counter() - start) / len(rows))
    return best * 1e6


def time_many(cutoffs: dict[str, Cutoff]) -> dict[str, object]:
    """Processor seconds for a million lists of 100 candidates, and for ranx to evaluate a tenth of them."""
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.gamma(2, 3, (N_LISTS, N_ITEMS)).astype(np.float32), axis=1)
    items = np.tile(np.arange(N_ITEMS, dtype=np.int32), N_LISTS)
    lists = sl.RankedLists(
        users=sl.IdMap.of(np.arange(N_LISTS)),
        item_ids=sl.IdMap.of(np.arange(N_ITEMS)),
        indptr=np.arange(N_LISTS + 1, dtype=np.int64) * N_ITEMS,
        items=items,
        scores=scores.ravel(),
    )
    before = peak_mib()
    found: dict[str, object] = {
        "lists": N_LISTS,
        "candidates": N_ITEMS,
        "lists MiB": lists.items.nbytes * 2 / 2**20,
    }
    for name, cutoff in cutoffs.items():
        start = time.process_time()
        cutoff.lengths(lists)
        found[name] = time.process_time() - start
        print(name, found[name], flush=True)
    found["peak MiB above the lists"] = peak_mib() - before
    return found | {"ranx": time_ranx(scores)}


def time_ranx(scores: np.ndarray) -> dict[str, float]:
    """Processor seconds of ranx for F1 at 20 on a twentieth of the lists, and to build its run."""
    from ranx import Qrels, Run, evaluate

    n = len(scores) // 20
    names = [f"d{k}" for k in range(scores.shape[1])]
    start = time.process_time()
    run = Run({f"q{k}": dict(zip(names, row, strict=True)) for k, row in enumerate(scores[:n].tolist())})
    qrels = Qrels({f"q{k}": {"d0": 1, "d7": 1} for k in range(n)})
    built = time.process_time() - start
    evaluate(qrels, run, "f1@20")  # compiles
    start = time.process_time()
    evaluate(qrels, run, "f1@20")
    return {"lists": n, "building": built, "evaluating": time.process_time() - start}


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recall", action="store_true", help="measure the guarantees of recall alone")
    options = parser.parse_args()
    truth = read_outcomes(options.folder / "judgments.parquet")
    lists = read_candidates(options.folder / "bm25.parquet")
    if options.recall:
        stored = json.loads((RESULTS / "search.json").read_text())
        save_results("search", stored | {"recall": guaranteed_recall(lists, truth)})
        return
    hundred = lists.head(N_ITEMS)
    cutoffs: dict[str, Cutoff] = {
        "FixedN": FixedN(),
        "UtilityRegression": UtilityRegression(),
        "ExpectedF1 (Platt)": ExpectedF1(calibration="platt", size="probabilities"),
        "Guarantee of recall": Guarantee(min_recall=0.8),
    }
    for cutoff in cutoffs.values():
        cutoff.fit(hundred, truth)
    one = {name: time_one(cutoff, hundred) for name, cutoff in cutoffs.items()}
    print(one, flush=True)
    found = {
        "machine": describe("ranx"),
        "microseconds per list of 100": one,
        "many": time_many({name: cutoffs[name] for name in ("FixedN", "UtilityRegression")}),
        "recall": guaranteed_recall(lists, truth),
    }
    save_results("search", found)


if __name__ == "__main__":
    main()
