"""Cutoffs for rankers of another library: implicit's ALS and BPR, and simple counts.

    python examples/bring_your_own_ranker.py                   # MovieLens-100K and Ta-Feng, two minutes
    python examples/bring_your_own_ranker.py --dataset sample  # no download, seconds

A ranker is any function from user indices to rows of scores; a cutoff needs nothing else. N, thresholds,
calibration and sizes are chosen on the validation part. The test is over all users, with empty lists counting
as 0. The defaults of the cutoffs were chosen on these datasets, so expect slightly smaller gains on yours.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit uses its own threads

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_matrix
from shortlist_extras import FrozenBoundary  # pip install ./benchmarks/plugins

import shortlist as sl
from shortlist.cutoff import ExpectedF1, FixedN, top_candidates

Ranker = Callable[[np.ndarray], np.ndarray]


def factors(model: Any, train: sl.Interactions) -> Ranker:
    """Train a model of implicit; its scores are inner products."""
    matrix = csr_matrix(train.to_csr(), copy=True)  # Interactions are read-only
    matrix.sum_duplicates()
    model.fit(matrix, show_progress=False)
    users, items = np.asarray(model.user_factors), np.asarray(model.item_factors)
    return lambda index: users[index] @ items.T


def als(train: sl.Interactions) -> Ranker:
    return factors(
        AlternatingLeastSquares(factors=64, regularization=0.05, alpha=10, iterations=12, random_state=1),
        train,
    )


def bpr(train: sl.Interactions) -> Ranker:
    return factors(
        BayesianPersonalizedRanking(
            factors=64, iterations=60, learning_rate=0.05, random_state=1, num_threads=1
        ),
        train,
    )


def count_items(train: sl.Interactions) -> Ranker:
    """Count the item in the user's baskets, weighted by recency, plus its overall popularity."""
    basket = np.repeat(np.arange(train.n_baskets), np.diff(train.baskets))
    recent = 0.9 ** (train.user_baskets[1:][train.user] - 1 - basket)
    own = csr_matrix((recent, (train.user, train.item)), shape=(train.n_users, train.n_items))
    popularity = np.bincount(train.item, minlength=train.n_items) / train.n_baskets
    return lambda index: own[index].toarray() + popularity


def remove_seen(rank: Ranker, train: sl.Interactions) -> Ranker:
    """Set the scores of seen items to -inf, so that they are not candidates."""
    starts, items = train.item_sets

    def score(index: np.ndarray) -> np.ndarray:
        rows = rank(index)
        for row, user in enumerate(index):
            rows[row, items[starts[user] : starts[user + 1]]] = -np.inf
        return rows

    return score


def run(dataset: str) -> None:
    split = sl.split.last_basket(sl.load_dataset(dataset))
    repeats = dataset != "ml-100k"  # customers buy items again, but users rate a film once
    rankers = {"ALS": als, "BPR": bpr} | ({"counts": count_items} if repeats else {})
    print(f"\n{dataset}: {split.test.active_users.size:,} test users")
    print("  ranker   cutoff        F1, all  covered  cover  K mean  vs. fixed N")
    for name, fit in rankers.items():
        parts = []
        for history, truth in ((split.train, split.valid), (split.train_valid, split.test)):
            rank = fit(history) if repeats else remove_seen(fit(history), history)
            parts.append(top_candidates(rank, ids=history, users=truth.active_users))
        valid, test = parts
        fixed = None
        for cut in (FixedN(), ExpectedF1(), ExpectedF1(coverage=0.7), FrozenBoundary()):
            cut.fit(valid, split.valid, history=split.train)
            report = sl.evaluate(cut.apply(test, history=split.train_valid), split.test)
            fixed = report.f1 if fixed is None else fixed
            if isinstance(cut, ExpectedF1):
                label = "expected F1" if cut.coverage is None else "… 70% cover"
            else:
                label = f"N = {cut.N_}" if isinstance(cut, FixedN) else "boundary"
            print(
                f"  {name:8} {label:12} {report.f1:8.4f} {report.mean('f1', 'covered'):8.4f} "
                f"{report.cover_ratio:6.2f} {report.mean('length'):7.2f} {report.f1 / fixed - 1:+12.1%}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=["sample", "ml-100k", "ta-feng"], action="append")
    started = time.perf_counter()
    for dataset in parser.parse_args().dataset or ["ml-100k", "ta-feng"]:
        run(dataset)
    print(f"\n{time.perf_counter() - started:.0f} s")
