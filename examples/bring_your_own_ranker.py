"""A stranger's ranker, our stopping: implicit's ALS and BPR, and a plain counter, with lists that end.

    python examples/bring_your_own_ranker.py                   # MovieLens-100K and Ta-Feng, two minutes
    python examples/bring_your_own_ranker.py --dataset sample  # no download, seconds

A ranker is any function from user numbers to rows of scores; a cutoff never sees more of it than that.
N, thresholds, calibration and sizes are chosen on the validation part; the test part is judged over all
users, empty lists as 0. The defaults of the cutoffs were settled on these very datasets, so expect a little
less on yours.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit brings its own threads

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_matrix

import shortlist as sl
from shortlist.cutoff import Boundary, ExpectedF1, FixedN, heads

Ranker = Callable[[np.ndarray], np.ndarray]


def factors(model: Any, train: sl.Interactions) -> Ranker:
    """Fit one of implicit's models; its scores are inner products."""
    taken = csr_matrix(train.to_csr(), copy=True)  # Interactions are read-only
    taken.sum_duplicates()
    model.fit(taken, show_progress=False)
    users, items = np.asarray(model.user_factors), np.asarray(model.item_factors)
    return lambda who: users[who] @ items.T


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


def counter(train: sl.Interactions) -> Ranker:
    """How often the user's baskets held the item, recent ones more, plus a little of what everybody takes."""
    basket = np.repeat(np.arange(train.n_baskets), np.diff(train.baskets))
    recent = 0.9 ** (train.user_baskets[1:][train.user] - 1 - basket)
    own = csr_matrix((recent, (train.user, train.item)), shape=(train.n_users, train.n_items))
    everybody = np.bincount(train.item, minlength=train.n_items) / train.n_baskets
    return lambda who: own[who].toarray() + everybody


def without_seen(rank: Ranker, train: sl.Interactions) -> Ranker:
    """What a user has taken already is no candidate: -inf."""
    starts, items = train.item_sets

    def score(who: np.ndarray) -> np.ndarray:
        rows = rank(who)
        for row, user in enumerate(who):
            rows[row, items[starts[user] : starts[user + 1]]] = -np.inf
        return rows

    return score


def run(dataset: str) -> None:
    split = sl.split.last_basket(sl.load_dataset(dataset))
    repeats = dataset != "ml-100k"  # people buy again, but do not rate a film twice
    rankers = {"ALS": als, "BPR": bpr} | ({"counter": counter} if repeats else {})
    print(f"\n{dataset}: {split.test.active_users.size:,} test users")
    print("  ranker   stopping      F1, all  covered  cover  K mean  against N")
    for name, fit in rankers.items():
        parts = []
        for known, then in ((split.train, split.valid), (split.train_valid, split.test)):
            rank = fit(known) if repeats else without_seen(fit(known), known)
            parts.append(heads(rank, ids=known, users=then.active_users))
        valid, test = parts
        fixed = None
        for cut in (FixedN(), ExpectedF1(), ExpectedF1(coverage=0.7), Boundary()):
            cut.fit(valid, split.valid, history=split.train)
            report = sl.evaluate(cut.apply(test, history=split.train_valid), split.test)
            fixed = report.f1 if fixed is None else fixed
            stop = {"FixedN": f"N = {getattr(cut, 'N_', '')}", "Boundary": "boundary"}.get(type(cut).__name__)
            stop = stop or ("expected F1" if cut.coverage is None else "… 70% cover")
            print(
                f"  {name:8} {stop:12} {report.f1:8.4f} {report.mean('f1', 'covered'):8.4f} "
                f"{report.cover_ratio:6.2f} {report.mean('length'):7.2f} {report.f1 / fixed - 1:+10.1%}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=["sample", "ml-100k", "ta-feng"], action="append")
    started = time.perf_counter()
    for chosen in parser.parse_args().dataset or ["ml-100k", "ta-feng"]:
        run(chosen)
    print(f"\n{time.perf_counter() - started:.0f} s")
