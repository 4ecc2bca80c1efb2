"""Questions and passages, of which a fifth of the questions have no answer: built from packages on the index.

    pip install numpy scipy bm25s
    python benchmarks/passages.py FOLDER

The text is the documentation of NumPy and SciPy (BSD licenses). A query is the first sentence of the
documentation of a function, a passage is another paragraph of it, and relevant are the passages of that
function. All passages of every fifth function are left out: its query has no answer. The 50 best passages of
each query by BM25, with the number of their words, and the judgments are written to FOLDER.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

import bm25s
import numpy as np
import polars as pl

MODULES = (
    "numpy numpy.linalg numpy.fft numpy.random numpy.polynomial.polynomial scipy.cluster.hierarchy "
    "scipy.cluster.vq scipy.fft scipy.integrate scipy.interpolate scipy.io scipy.linalg scipy.ndimage "
    "scipy.optimize scipy.signal scipy.sparse scipy.sparse.csgraph scipy.sparse.linalg scipy.spatial "
    "scipy.spatial.distance scipy.special scipy.stats"
)
MIN_WORDS, MAX_WORDS = 12, 120  # of a passage
MIN_PASSAGES, MAX_PASSAGES = 2, 5  # of a function
STEP = 3  # every third function; neighbors in the alphabet are often variants of each other
N_CANDIDATES = 50


def read_functions() -> dict[str, tuple[str, list[str]]]:
    """Name of each function → its first sentence and the other paragraphs of its documentation."""
    functions: dict[str, tuple[str, list[str]]] = {}
    seen: set[str] = set()
    for module in map(importlib.import_module, MODULES.split()):
        for name, member in inspect.getmembers(module, callable):
            if name.startswith("_") or not inspect.getdoc(member):
                continue
            first, *others = re.split(r"\n\s*\n", str(inspect.getdoc(member)))
            passages = [" ".join(text.split()) for text in others]
            passages = [
                text
                for text in passages
                if MIN_WORDS <= len(text.split()) <= MAX_WORDS and ">>>" not in text and text not in seen
            ]
            query = " ".join(first.split())
            if len(passages) >= MIN_PASSAGES and 4 <= len(query.split()) <= 30 and query not in seen:
                functions[f"{module.__name__}.{name}"] = query, passages[:MAX_PASSAGES]
                seen |= {query, *passages}
    return functions


def tokenize(texts: list[str]) -> object:
    """The words of texts for BM25."""
    return bm25s.tokenize(texts, stopwords="en", show_progress=False)


def main() -> None:
    """Write candidates.parquet and judgments.parquet."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    functions = dict(list(read_functions().items())[::STEP])
    answered = [number % 5 != 0 for number in range(len(functions))]
    passages = [
        (name, text)
        for (name, (_, texts)), has_answer in zip(functions.items(), answered, strict=True)
        for text in texts
        if has_answer
    ]
    index = bm25s.BM25()
    index.index(tokenize([text for _, text in passages]), show_progress=False)
    queries = tokenize([query for query, _ in functions.values()])
    best, scores = index.retrieve(queries, k=N_CANDIDATES, show_progress=False)
    n_words = np.array([len(text.split()) for _, text in passages])
    names = list(functions)
    candidates = pl.DataFrame(
        {
            "query_id": [name for name in names for _ in range(N_CANDIDATES)],
            "passage_id": best.ravel(),
            "score": scores.ravel(),
            "tokens": n_words[best.ravel()],
        }
    )
    candidates.write_parquet(folder / "candidates.parquet")
    judgments = {"query_id": [name for name, _ in passages], "passage_id": np.arange(len(passages))}
    pl.DataFrame(judgments).write_parquet(folder / "judgments.parquet")
    print(f"{len(names)} queries, {sum(answered)} with an answer; {len(passages)} passages")


if __name__ == "__main__":
    main()
