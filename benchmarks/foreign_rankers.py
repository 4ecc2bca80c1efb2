"""Does a length for each user help the rankers of other libraries? Six rankers, three datasets.

    python benchmarks/foreign_rankers.py                    # all datasets
    python benchmarks/foreign_rankers.py --data ml-100k     # one of them

Each ranker is trained on all baskets but the last two of each user. A cutoff and the best fixed N are
chosen on the basket before the last. The ranker is trained again with that basket, and both are tested on
the last one. The candidates are the 100 best items of a sample of 1,000 users; items of the history are
left out if users do not buy items repeatedly. "scores" uses nothing but the scores of the ranker;
"history" also uses the history, and shows items in the order of their probabilities. p-values are
those of a paired bootstrap over users, corrected by Holm's method over all rows of the table.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from implicit.nearest_neighbours import CosineRecommender
from machine import RESULTS, describe, save_results
from scipy.sparse import csr_matrix
from sklearn.decomposition import NMF, TruncatedSVD

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.cutoff import FixedN, top_candidates
from shortlist.evaluation import evaluate, holm, paired_test

N_USERS, N_CANDIDATES = 1_000, 100
Scores = Callable[[np.ndarray], np.ndarray]  # user indices → rows of scores


def implicit_scores(model: object) -> Callable[[csr_matrix], Scores]:
    """A model of implicit: factors, or similarities of items."""

    def fit(matrix: csr_matrix) -> Scores:
        model.fit(matrix, show_progress=False)
        if hasattr(model, "user_factors"):
            return lambda users: np.asarray(model.user_factors[users] @ model.item_factors.T)
        return lambda users: np.asarray((matrix[users] @ model.similarity).todense())

    return fit


def sklearn_scores(model: object) -> Callable[[csr_matrix], Scores]:
    """A decomposition of scikit-learn."""

    def fit(matrix: csr_matrix) -> Scores:
        rows = model.fit_transform(matrix)
        return lambda users: rows[users] @ model.components_

    return fit


def cornac_scores(name: str, **params: object) -> Callable[[csr_matrix], Scores]:
    """A model of cornac."""

    def fit(matrix: csr_matrix) -> Scores:
        import cornac

        entries = matrix.tocoo()
        rows = zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True)
        data = cornac.data.Dataset.from_uir(rows)
        model = getattr(cornac.models, name)(verbose=False, **params).fit(data)
        user_of, item_of = data.uid_map, np.array(list(data.iid_map))

        def score(users: np.ndarray) -> np.ndarray:
            found = np.full((users.size, matrix.shape[1]), -np.inf)
            for row, user in enumerate(users.tolist()):
                if user in user_of:
                    found[row, item_of] = model.score(user_of[user])
            return found

        return score

    return fit


RANKERS = {
    "implicit ALS": lambda: implicit_scores(
        AlternatingLeastSquares(64, iterations=10, random_state=1, use_gpu=False)
    ),
    "implicit BPR": lambda: implicit_scores(
        BayesianPersonalizedRanking(64, iterations=50, random_state=1, use_gpu=False)
    ),
    "implicit item-KNN": lambda: implicit_scores(CosineRecommender(50)),
    "scikit-learn SVD": lambda: sklearn_scores(TruncatedSVD(64, random_state=1)),
    "scikit-learn NMF": lambda: sklearn_scores(NMF(32, init="nndsvda", max_iter=100, random_state=1)),
    "cornac BPR": lambda: cornac_scores("BPR", k=32, max_iter=50, seed=1),
}


def counts_of(data: sl.Interactions) -> csr_matrix:
    """How often each user has each item."""
    matrix = csr_matrix(data.to_csr(), dtype=np.float32, copy=True)
    matrix.data[:] = 1
    matrix.sum_duplicates()
    return matrix


def rank(make: Callable, data: sl.Interactions, users: np.ndarray, repeats: bool) -> sl.RankedLists:
    """Train on the data, and rank the candidates of these users."""
    matrix = counts_of(data)
    score = make()(matrix)

    def rows(block: np.ndarray) -> np.ndarray:
        values = np.array(score(block), np.float32)
        if not repeats:
            seen = matrix[block].tocoo()
            values[seen.row, seen.col] = -np.inf
        return values

    return top_candidates(rows, ids=data, users=users, n_candidates=N_CANDIDATES)


def run(name: str) -> list[dict[str, object]]:
    """All rankers on one dataset."""
    split = sl.split.last_basket(sl.load_dataset(name))
    some = np.intersect1d(split.valid.active_users, split.test.active_users)
    users = np.sort(np.random.default_rng(0).permutation(some)[:N_USERS]).astype(np.int32)
    repeats = split.data.has_repeats
    valid, test = (part.where(np.isin(part.user, users)) for part in (split.valid, split.test))
    found = []
    for ranker, make in RANKERS.items():
        start = time.process_time()
        before, after = (rank(make, data, users, repeats) for data in (split.train, split.train_valid))
        ranked = time.process_time() - start
        N = FixedN(n_candidates=N_CANDIDATES).fit(before, valid)
        fixed = evaluate(N.apply(after), test).values("f1")
        for kind, known in (("scores", None), ("history", split.train)):
            start = time.process_time()
            cutoffs = default_cutoffs(
                N_CANDIDATES, probabilities=False, history=known is not None, shape=True
            )
            choice = choose_cutoff(before, valid, known, cutoffs)
            later = None if known is None else split.train_valid
            ours = evaluate(choice.cutoff.apply(after, history=later), test).values("f1")
            test_of = paired_test(ours, fixed)
            found.append(
                {
                    "data": name,
                    "ranker": ranker,
                    "uses": kind,
                    "cutoff": choice.name,
                    "fixed N": N.N_,
                    "fixed f1": float(fixed.mean()),
                    "f1": float(ours.mean()),
                    "gain": float(ours.mean() / fixed.mean() - 1),
                    "low": test_of.low / float(fixed.mean()),
                    "high": test_of.high / float(fixed.mean()),
                    "p": test_of.p_bootstrap,
                    "users": int(fixed.size),
                    "seconds to rank": ranked,
                    "seconds to cut": time.process_time() - start,
                }
            )
            print({key: found[-1][key] for key in ("data", "ranker", "uses", "f1", "gain", "p")}, flush=True)
    return found


def main() -> None:
    """Run the datasets, correct the p-values over the table, and store it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["ml-100k", "online-retail", "complete-journey"]
    parser.add_argument("--data", action="append", choices=names)
    options = parser.parse_args()
    path = RESULTS / "foreign_rankers.json"
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    rows = [row for row in rows if row["ranker"] in RANKERS]
    for name in options.data or names:
        rows = [row for row in rows if row["data"] != name] + run(name)
        for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
            row["p holm"] = p
        save_results(
            "foreign_rankers", {"machine": describe("implicit", "scikit-learn", "cornac"), "rows": rows}
        )


if __name__ == "__main__":
    main()
