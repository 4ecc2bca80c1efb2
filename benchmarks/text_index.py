"""Index a million items of 50 words and search them: ours against scikit-learn's TfidfVectorizer, in one run.

    python benchmarks/text_index.py                 # 1,000,000 items
    python benchmarks/text_index.py --items 50000

The words are drawn from a vocabulary of 100,000 with Zipf's law. Indexing turns the texts into TF-IDF vectors
and prepares the search. A query is the profile of a user with ten items; the ten most similar items are
searched. scikit-learn multiplies the sparse query with the sparse matrix and selects the largest products.
Both use one thread and the same texts, each in a process of its own, whose peak memory is measured. Both
searches are exact.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np
from machine import describe, peak_mib, reset_peak, save_results
from scipy.sparse import csr_array

N_WORDS, VOCABULARY, N_QUERIES, PER_QUERY, TOP = 50, 100_000, 200, 10, 10


def generate(n_items: int) -> list[str]:
    """Return the texts."""
    rng = np.random.default_rng(0)
    spelled = np.array([f"w{number:x}" for number in range(VOCABULARY)], dtype=object)
    words = np.minimum(rng.zipf(1.2, size=(n_items, N_WORDS)), VOCABULARY) - 1
    return [" ".join(row) for row in spelled[words]]


def queries(n_items: int) -> np.ndarray:
    """Return the items of each query's user."""
    return np.random.default_rng(1).integers(n_items, size=(N_QUERIES, PER_QUERY))


def measure(name: str, n_items: int) -> dict[str, float]:
    """Return seconds, queries per second, and peak memory beyond the texts."""
    texts, users = generate(n_items), queries(n_items)
    run = run_ours if name == "shortlist" else run_sklearn
    run(texts[:1000], users[:2] % 1000)  # compiles and imports
    before = reset_peak()
    index_seconds, query_seconds, best = run(texts, users)
    return {
        "index seconds": index_seconds,
        "queries per second": len(users) / query_seconds,
        "peak memory beyond the texts, GB": (peak_mib() - before) / 1024,
        "best items": best,
    }


def profiles_of(features: csr_array, users: np.ndarray) -> list[csr_array]:
    """Return the sum of the items of each user, sparse."""
    return [csr_array(features[one].sum(axis=0)[None, :], dtype=np.float32) for one in users]


def run_ours(texts: list[str], users: np.ndarray) -> tuple[float, float, list]:
    """FeatureSpace and the inverted index."""
    import polars as pl

    import shortlist as sl
    from shortlist.content.space import FeatureSpace
    from shortlist.core.ragged import no_sets
    from shortlist.recommend.sparse import SparseItems, SparseScores, search_sparse, to_rows

    table = pl.DataFrame({"item_id": np.arange(len(texts)), "text": texts})
    start = time.process_time()
    _, features = FeatureSpace.fit(sl.Items.from_frame(table, text=["text"]))
    items = SparseItems.of(features)
    items.postings  # noqa: B018  built when it is first needed
    seconds, profiles, found = time.process_time() - start, profiles_of(features, users), []
    indexed = time.process_time()
    for query in profiles:
        floors = np.full(1, -np.inf, np.float32)
        scores = SparseScores(to_rows(query), items)
        hits = search_sparse(scores, None, floors, no_sets(1), None, TOP, 1)
        found.append(hits.items.tolist())
    return seconds, time.process_time() - indexed, found[:20]


def run_sklearn(texts: list[str], users: np.ndarray) -> tuple[float, float, list]:
    """TfidfVectorizer and a sparse product."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    start = time.process_time()
    features = csr_array(TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts))
    by_word = features.T.tocsr()  # the product with a sparse query reads the rows of its words
    seconds, profiles, found = time.process_time() - start, profiles_of(features, users), []
    indexed = time.process_time()
    for query in profiles:
        scores = (query @ by_word).toarray()[0]
        best = np.argpartition(-scores, TOP)[:TOP]
        found.append(best[np.argsort(-scores[best])].tolist())
    return seconds, time.process_time() - indexed, found[:20]


def main() -> None:
    """Measure both, each in its own process, and store the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["shortlist", "scikit-learn"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        return print(json.dumps(measure(options.only, options.items)))
    found = {}
    for name in ("shortlist", "scikit-learn"):
        words = [sys.executable, __file__, "--items", str(options.items), "--only", name]
        output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        found[name] = json.loads(output.splitlines()[-1])
    ours, theirs = found.values()
    same = [
        len(set(a) & set(b)) / TOP
        for a, b in zip(*(one.pop("best items") for one in found.values()), strict=True)
    ]
    ratios = {
        "index": theirs["index seconds"] / ours["index seconds"],
        "queries": ours["queries per second"] / theirs["queries per second"],
        "memory": theirs["peak memory beyond the texts, GB"] / ours["peak memory beyond the texts, GB"],
        "share of equal results": float(np.mean(same)),  # the weights differ a little
    }
    print(json.dumps(found | {"ratios": ratios}, indent=2))
    if options.items == 1_000_000:
        save_results(
            "text_index",
            {"machine": describe("scikit-learn"), "items": options.items} | found | {"ratios": ratios},
        )
    return None


if __name__ == "__main__":
    main()
