"""Index a million items of 50 words and search them: ours against scikit-learn's TfidfVectorizer, in one run.

    python benchmarks/text_index.py                 # 1,000,000 items
    python benchmarks/text_index.py --items 50000

The words are drawn from a vocabulary of 100,000 by Zipf's law, 1 / (rank + 2.7). Indexing turns the texts
into TF-IDF vectors and prepares the search. Queries are of two kinds: the profile of a user with ten items
(about 390 different words), and three words of one item; the ten most similar items are searched.
scikit-learn multiplies many sparse queries at once with the sparse matrix by words, its fastest form, and
selects the largest products with argpartition. Both use one thread and the same texts, each in a process of
its own, whose peak memory is measured. Both searches are exact. Seconds are processor time.
"""

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
from machine import describe, peak_mib, reset_peak, save_results
from scipy.sparse import csr_array

N_WORDS, VOCABULARY, PER_QUERY, TOP = 50, 100_000, 10, 10
N_QUERIES = {"profiles": 100, "three words": 1000}


def generate(n_items: int) -> list[str]:
    """Return the texts."""
    rng = np.random.default_rng(0)
    spelled = np.array([f"w{number:x}" for number in range(VOCABULARY)], dtype=object)
    share = 1 / (np.arange(1, VOCABULARY + 1) + 2.7)
    upper = np.cumsum(share / share.sum())
    texts = []
    for first in range(0, n_items, 100_000):
        size = min(100_000, n_items - first)
        words = np.minimum(np.searchsorted(upper, rng.random((size, N_WORDS))), VOCABULARY - 1)
        texts += [" ".join(row) for row in spelled[words]]
    return texts


def build_queries(features: csr_array) -> dict[str, csr_array]:
    """Return the profiles of users with ten items, and queries of three words of one item."""
    rng, n_items = np.random.default_rng(1), features.shape[0]
    n = N_QUERIES["profiles"]
    items = rng.integers(n_items, size=(n, PER_QUERY))
    member = np.repeat(np.arange(n), PER_QUERY), items.ravel()
    users = csr_array((np.ones(items.size, np.float32), member), shape=(n, n_items))
    profiles, n = csr_array(users @ features), N_QUERIES["three words"]
    profiles.sort_indices()
    words = []
    for item in rng.integers(n_items, size=n):
        own = features.indices[features.indptr[item] : features.indptr[item + 1]]
        words.append(np.sort(rng.permutation(np.sort(own))[:3]))
    sizes = [one.size for one in words]
    entries = np.ones(sum(sizes), np.float32), np.concatenate(words), np.cumsum([0, *sizes])
    return {"profiles": profiles, "three words": csr_array(entries, shape=(n, features.shape[1]))}


def measure(name: str, n_items: int) -> dict[str, object]:
    """Return seconds, queries per second, and peak memory beyond the texts."""
    texts = generate(n_items)
    run = run_ours if name == "shortlist" else run_sklearn
    run(texts[:2000])  # compiles and imports
    before = reset_peak()
    seconds, by_kind, best = run(texts)
    return {
        "index seconds": seconds,
        "queries per second": {kind: N_QUERIES[kind] / spent for kind, spent in by_kind.items()},
        "peak memory beyond the texts, GB": (peak_mib() - before) / 1024,
        "best items": best,
    }


def run_ours(texts: list[str]) -> tuple[float, dict[str, float], dict[str, list]]:
    """FeatureSpace and the inverted index."""
    import polars as pl

    import shortlist as sl
    from shortlist.content.features import FeatureSpace, to_rows
    from shortlist.kernels.rows import no_sets
    from shortlist.recommend.retrieval import SparseItems, SparseScores, search_sparse

    table = pl.DataFrame({"item_id": np.arange(len(texts)), "text": texts})
    start = time.process_time()
    _, features = FeatureSpace.fit(sl.Items.from_frame(table, text=["text"]))
    items = SparseItems.of(features)
    items.postings  # noqa: B018  built when it is first needed
    seconds, spent, found = time.process_time() - start, {}, {}
    for kind, queries in build_queries(features).items():
        indexed, n = time.process_time(), queries.shape[0]
        floors = np.full(n, -np.inf, np.float32)
        hits = search_sparse(SparseScores(to_rows(queries), items), None, floors, no_sets(n), None, TOP, 1)
        spent[kind] = time.process_time() - indexed
        found[kind] = np.split(hits.items, hits.indptr[1:-1])[:50]
    return seconds, spent, {kind: [one.tolist() for one in lists] for kind, lists in found.items()}


def run_sklearn(texts: list[str]) -> tuple[float, dict[str, float], dict[str, list]]:
    """TfidfVectorizer and a sparse product."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    start = time.process_time()
    features = csr_array(TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts))
    by_word = features.T.tocsr()  # the product with sparse queries reads the rows of their words
    seconds, spent, found = time.process_time() - start, {}, {}
    for kind, queries in build_queries(features).items():
        indexed, best = time.process_time(), []
        for first in range(0, queries.shape[0], 20):  # products of all queries do not fit into memory
            scores = csr_array(queries[first : first + 20] @ by_word)
            for low, high in pairwise(scores.indptr):
                value, item = scores.data[low:high], scores.indices[low:high]
                top = np.argpartition(-value, TOP)[:TOP] if value.size > TOP else np.arange(value.size)
                best.append(item[top[np.argsort(-value[top])]])
        spent[kind] = time.process_time() - indexed
        found[kind] = [one.tolist() for one in best[:50]]
    return seconds, spent, found


def share_equal(first: list, second: list) -> float:
    """Return the share of equal items; the weights of the two differ a little."""
    return float(np.mean([len(set(a) & set(b)) / TOP for a, b in zip(first, second, strict=True)]))


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
    first, second = (one.pop("best items") for one in found.values())
    memory = "peak memory beyond the texts, GB"
    ratios = {
        "index": theirs["index seconds"] / ours["index seconds"],
        "memory": theirs[memory] / ours[memory],
        "queries": {
            kind: ours["queries per second"][kind] / theirs["queries per second"][kind] for kind in N_QUERIES
        },
        "share of equal results": {kind: share_equal(first[kind], second[kind]) for kind in N_QUERIES},
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
