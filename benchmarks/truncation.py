"""Where to end a ranked list of a search, without a history: our cutoffs against published ones.

    python benchmarks/truncation.py FOLDER                  # FOLDER holds bm25.parquet and judgments.parquet
    python benchmarks/truncation.py FOLDER --run other.run  # another ranking of these queries
    python benchmarks/truncation.py --passages FOLDER       # passages, with queries that have no answer

The data is Robust04 (TREC 2004), on which BiCut, Choppy and AttnCut were published: 300 documents per query
with scores, and relevance judgments. Five-fold cross-validation over queries, five repeats. The value of a
query is its mean F1 over the repeats; relevant documents that were not retrieved count as missed. Intervals
are those of a paired bootstrap over queries against the best fixed N of the training folds. Every parameter
of every method is chosen on the training folds.

The passages are those of `benchmarks/passages.py`, where a fifth of the queries has no answer. There every
method maximizes, on the training folds, the mean F1 in which an empty list counts 1 for a query without an
answer and 0 for any other. Some answers are not among the 50 candidates; an empty list is right there, too,
because nothing relevant could be shown: "by candidates".
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from machine import describe, save_results
from shortlist_extras import PerK

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.cutoff import Cutoff, ExpectedF1, FixedN, Threshold, UtilityRegression
from shortlist.data.labeled import label_lists
from shortlist.data.rankings import read_candidates, read_outcomes
from shortlist.evaluation import paired_test

N_FOLDS = 5
Method = Callable[
    [np.ndarray, np.ndarray], np.ndarray
]  # numbers of training and test lists → F1 of the latter


class Rankings:
    """Lists of one length as matrices, and the F1 of every prefix."""

    def __init__(self, lists: sl.RankedLists, truth: sl.Interactions) -> None:
        width = int(lists.lengths.min())
        self.lists, self.truth = lists.head(width), truth
        self.scores = self.lists.scores.reshape(-1, width).astype(np.float64)
        pairs = set(
            zip(*truth.to_frame().select("user_id", "item_id").to_dict(as_series=False).values(), strict=True)
        )
        relevant = [[(one.user_id, item) in pairs for item in one.items] for one in self.lists]
        sizes = dict(truth.to_frame().group_by("user_id").len().iter_rows())
        n_relevant = np.array([sizes[one.user_id] for one in self.lists])
        self.f1 = 2 * np.cumsum(relevant, axis=1) / (np.arange(1, width + 1) + n_relevant[:, None])

    def best_of(self, options: dict[object, np.ndarray], train: np.ndarray) -> np.ndarray:
        """The lengths of the option with the highest F1 on the training lists."""
        values = {
            key: self.values(lengths, np.arange(len(self.f1)))[train].mean()
            for key, lengths in options.items()
        }
        return options[max(values, key=lambda key: values[key])]

    def evaluate(self, lists: sl.RankedLists) -> np.ndarray:
        """F1 of lists that a cutoff ended; it may also have reordered them."""
        report = sl.evaluate(lists, self.truth)
        return report.values("f1")[sl.IdMap(report.user_ids).lookup(lists.users.values)]

    def values(self, lengths: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """F1 of these lists, cut at these lengths."""
        return np.where(lengths > 0, self.f1[numbers, np.maximum(lengths, 1) - 1], 0.0)


def by_cutoff(data: Rankings, cutoff: Cutoff) -> Method:
    """A cutoff of this library."""

    def cut(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        fitted = cutoff.clone().fit(data.lists.take(train), data.truth)
        return data.evaluate(fitted.apply(data.lists.take(test)))

    return cut


def by_default(data: Rankings) -> Method:
    """What `sl.cut` does: choose among all default cutoffs within the training folds."""

    def cut(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        cutoffs = default_cutoffs(data.f1.shape[1], probabilities=False, history=False)
        lists = data.lists.take(np.sort(train))
        choice = choose_cutoff(lists, data.truth, None, cutoffs, n_folds=5, default="fixed N")
        return data.evaluate(choice.cutoff.apply(data.lists.take(test)))

    return cut


def largest_gap(data: Rankings) -> Method:
    """Adaptive-k: end before the largest gap between two scores, plus a number of documents."""
    gaps = data.scores[:, :-1] - data.scores[:, 1:]
    searched = int(0.9 * gaps.shape[1])  # the last tenth is never cut off alone
    ends = gaps[:, :searched].argmax(axis=1) + 1
    options = {more: np.minimum(ends + more, data.f1.shape[1]) for more in range(0, 101, 5)}
    return lambda train, test: data.values(data.best_of(options, train)[test], test)


def autocut(data: Rankings) -> Method:
    """Autocut of Weaviate: end at the n-th place where scores fall much faster than a straight line would."""
    scores, n = data.scores, data.f1.shape[1]
    fallen = (scores - scores[:, :1]) / np.minimum(scores[:, -1:] - scores[:, :1], -1e-12)
    ahead = fallen - np.linspace(0, 1, n)
    peak = np.zeros(scores.shape, bool)
    peak[:, 1:-1] = (ahead[:, 1:-1] > ahead[:, :-2]) & (ahead[:, 1:-1] > ahead[:, 2:])
    count = np.cumsum(peak, axis=1)
    options = {
        jumps: np.where(count[:, -1] >= jumps, (count >= jumps).argmax(axis=1), n) for jumps in range(1, 41)
    }
    return lambda train, test: data.values(data.best_of(options, train)[test], test)


class CutTransformer:
    """Choppy, small: scores and learned positions, self-attention, a distribution over the end of the list.

    The loss is the negative expected F1 of that distribution. One head and one layer; Adam; the epoch that is
    best on a sixth of the training lists is kept.
    """

    def __init__(self, n_positions: int, width: int = 8, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        shapes = {
            "score": (2, width),
            "position": (n_positions, width),
            "query": (width, width),
            "key": (width, width),
            "value": (width, width),
            "hidden": (width, width),
            "out": (width,),
        }
        self.weights = {name: rng.normal(0, 0.3 / np.sqrt(shape[0]), shape) for name, shape in shapes.items()}

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return the distribution over ends (n, length) and what the gradient needs; x (n, length, 2)."""
        w = self.weights
        h = x @ w["score"] + w["position"]
        q, k, v = h @ w["query"], h @ w["key"], h @ w["value"]
        a = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(h.shape[2]))
        z = h + a @ v
        r = np.maximum(z @ w["hidden"], 0)
        return softmax(r @ w["out"]), (x, h, q, k, v, a, z, r)

    def gradient(self, x: np.ndarray, f1: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
        """Return the loss and its gradient."""
        w = self.weights
        p, (x, h, q, k, v, a, z, r) = self.forward(x)
        n, root = len(x), np.sqrt(h.shape[2])
        value = (p * f1).sum(axis=1, keepdims=True)
        d_out = -p * (f1 - value) / n
        g = {"out": np.einsum("nl,nld->d", d_out, r)}
        d_r = d_out[:, :, None] * w["out"] * (r > 0)
        g["hidden"] = np.einsum("nld,nle->de", z, d_r)
        d_z = d_r @ w["hidden"].T
        d_a = d_z @ v.transpose(0, 2, 1)
        d_v = a.transpose(0, 2, 1) @ d_z
        d_s = a * (d_a - (d_a * a).sum(axis=2, keepdims=True)) / root
        d_q, d_k = d_s @ k, d_s.transpose(0, 2, 1) @ q
        d_h = d_z + d_q @ w["query"].T + d_k @ w["key"].T + d_v @ w["value"].T
        for name, d in (("query", d_q), ("key", d_k), ("value", d_v)):
            g[name] = np.einsum("nld,nle->de", h, d)
        g["score"], g["position"] = np.einsum("nlf,nld->fd", x, d_h), d_h.sum(axis=0)
        return -float(value.mean()), g

    def fit(
        self, x: np.ndarray, f1: np.ndarray, epochs: int = 30, lr: float = 0.003, batch: int = 32
    ) -> None:
        """Adam with a small L2 penalty."""
        rng = np.random.default_rng(0)
        held = np.arange(len(x)) % 6 == 0
        first = {name: np.zeros_like(value) for name, value in self.weights.items()}
        second = {name: np.zeros_like(value) for name, value in self.weights.items()}
        best, kept, step = -1.0, dict(self.weights), 0
        for _ in range(epochs):
            order = rng.permutation(np.flatnonzero(~held))
            for start in range(0, order.size, batch):
                rows = order[start : start + batch]
                step += 1
                for name, d in self.gradient(x[rows], f1[rows])[1].items():
                    d = d + 1e-4 * self.weights[name]
                    first[name] = 0.9 * first[name] + 0.1 * d
                    second[name] = 0.999 * second[name] + 0.001 * d * d
                    update = first[name] / (1 - 0.9**step)
                    update /= np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8
                    self.weights[name] = self.weights[name] - lr * update
            ends = self.forward(x[held])[0].argmax(axis=1)
            value = float(f1[held][np.arange(ends.size), ends].mean())
            if value > best:
                best, kept = value, dict(self.weights)
        self.weights = kept


def softmax(values: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    e = np.exp(values - values.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def cut_transformer(data: Rankings) -> Method:
    """Choppy on raw and standardized scores."""
    s = data.scores
    own = (s - s.mean(axis=1, keepdims=True)) / np.maximum(s.std(axis=1, keepdims=True), 1e-9)

    def cut(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        train = np.sort(train)
        x = np.stack([(s - s[train].mean()) / s[train].std(), own], axis=2)
        model = CutTransformer(s.shape[1])
        model.fit(x[train], data.f1[train])
        return data.values(model.forward(x[test])[0].argmax(axis=1) + 1, test)

    return cut


def methods(data: Rankings) -> dict[str, tuple[Method, int]]:
    """Every method with its number of repeats."""
    n = data.f1.shape[1]
    plain = {
        "best fixed N": FixedN(n_candidates=n),
        "threshold": Threshold(n_candidates=n),
        "PerK": PerK(n_candidates=n),
        "PerK, strong prior": PerK(n_candidates=n, prior=100.0),
        "ExpectedF1 (default)": ExpectedF1(n_candidates=n),
        "ExpectedF1, size both": ExpectedF1(n_candidates=n, calibration="platt", size="both"),
        "ExpectedF1, size probabilities": ExpectedF1(
            n_candidates=n, calibration="platt", size="probabilities"
        ),
        "UtilityRegression": UtilityRegression(n_candidates=n),
    }
    return {
        **{name: (by_cutoff(data, cutoff), 5) for name, cutoff in plain.items()},
        "largest gap (adaptive-k)": (largest_gap(data), 5),
        "autocut": (autocut(data), 5),
        "sl.cut (default)": (by_default(data), 5),
        "Choppy (small)": (cut_transformer(data), 1),
    }


def cross_validate(data: Rankings, method: Method, repeats: int) -> np.ndarray:
    """(repeats, n_lists) F1 of every list under a method fitted on other lists."""
    n = len(data.f1)
    values = np.zeros((repeats, n))
    for repeat in range(repeats):
        fold = np.random.default_rng(repeat).permutation(n) % N_FOLDS
        for f in range(N_FOLDS):
            test, train = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
            values[repeat, test] = method(train, test)
    return values


def run(data: Rankings, only: list[str] | None) -> dict[str, dict[str, float]]:
    """Every method against the best fixed N, and the default against PerK and the learned truncation."""
    values, found = {}, {}
    for name, (method, repeats) in methods(data).items():
        if only and name not in only and name != "best fixed N":
            continue
        start = time.process_time()
        values[name] = cross_validate(data, method, repeats)
        seconds = (time.process_time() - start) / (repeats * N_FOLDS)
        fixed = values["best fixed N"][:repeats].mean(axis=0)
        ours = values[name].mean(axis=0)
        test = paired_test(ours, fixed)
        found[name] = {
            "f1": float(ours.mean()),
            "gain": test.difference / float(fixed.mean()),
            "low": test.low / float(fixed.mean()),
            "high": test.high / float(fixed.mean()),
            "p": test.p_bootstrap,
            "repeats": repeats,
            "seconds per fold": seconds,
        }
        print(f"{name:32s} {found[name]['f1']:.4f} {found[name]['gain']:+.1%}", flush=True)
    found["oracle"] = {"f1": float(data.f1.max(axis=1).mean())}
    for other in ("PerK", "PerK, strong prior", "Choppy (small)"):
        if other in values and "sl.cut (default)" in values:
            repeats = len(values[other])
            pair = [values[name][:repeats].mean(axis=0) for name in ("sl.cut (default)", other)]
            test, base = paired_test(*pair), float(pair[1].mean())
            found[other]["sl.cut over it"] = [test.difference / base, test.low / base, test.high / base]
    return found


class Passages:
    """Lists of passages as matrices; some queries have no relevant passage."""

    def __init__(self, folder: Path) -> None:
        table = pl.read_parquet(folder / "candidates.parquet")
        self.lists = read_candidates(table.select("query_id", "passage_id", "score"))
        self.truth = read_outcomes(folder / "judgments.parquet")
        n = len(self.lists)
        labels = label_lists(self.lists, self.truth)
        self.scores = self.lists.scores.reshape(n, -1).astype(np.float64)
        self.relevant, self.n_relevant = labels.relevant.reshape(n, -1), labels.n_relevant
        sizes = table.select("passage_id", "tokens").unique()
        self.tokens = dict(sizes.iter_rows())
        lengths = np.arange(1, self.scores.shape[1] + 1)
        f1 = 2 * np.cumsum(self.relevant, axis=1) / (lengths + self.n_relevant[:, None])
        self.f1 = np.column_stack([self.n_relevant == 0, np.where(self.n_relevant[:, None] > 0, f1, 0.0)])

    def best_of(self, options: list[np.ndarray], train: np.ndarray) -> np.ndarray:
        """(n_queries,) the lengths of the option that is best on the training queries."""
        return max(options, key=lambda lengths: self.f1[train, lengths[train]].mean())

    def measure(self, lists: sl.RankedLists, numbers: np.ndarray) -> np.ndarray:
        """(n, 4) F1 with right empty lists, recall, tokens and whether a list is empty, of these queries."""
        labels = label_lists(lists, self.truth)
        n_relevant, has_answer = self.n_relevant[numbers], self.n_relevant[numbers] > 0
        f1 = np.where(has_answer, 2 * labels.n_retrieved / np.maximum(lists.lengths + n_relevant, 1), 0.0)
        f1 = np.where(has_answer, f1, lists.lengths == 0)
        recall = np.where(has_answer, labels.n_retrieved / np.maximum(n_relevant, 1), np.nan)
        sizes = np.array([self.tokens[item] for item in lists.item_ids.to_ids(lists.items)])
        tokens = np.bincount(lists.owner, sizes, len(lists))
        return np.column_stack([f1, recall, tokens, lists.lengths == 0])


def prefix_options(data: Passages) -> dict[str, list[np.ndarray]]:
    """For each published method, the lengths of all lists under each of its settings."""
    scores, n = data.scores, data.scores.shape[1]
    count = np.arange(len(scores))
    gaps = (scores[:, :-1] - scores[:, 1:]).argmax(axis=1) + 1
    fallen = (scores - scores[:, :1]) / np.minimum(scores[:, -1:] - scores[:, :1], -1e-12)
    ahead = fallen - np.linspace(0, 1, n)
    peak = np.zeros(scores.shape, bool)
    peak[:, 1:-1] = (ahead[:, 1:-1] > ahead[:, :-2]) & (ahead[:, 1:-1] > ahead[:, 2:])
    jumps = np.cumsum(peak, axis=1)
    top_p = []
    for temperature in (0.01, 0.02, 0.05, 0.1, 0.2):
        mass = np.exp((scores - scores[:, :1]) / temperature)
        mass = np.cumsum(mass / mass.sum(axis=1, keepdims=True), axis=1)
        top_p += [(mass < p).sum(axis=1) + 1 for p in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)]
    return {
        "best fixed k": [np.full(count.size, k) for k in range(1, n + 1)],
        "score threshold": [(scores > t).sum(axis=1) for t in np.quantile(scores, np.linspace(0.3, 1, 200))],
        "largest gap (adaptive-k)": [np.minimum(gaps + more, n) for more in range(21)],
        "autocut": [np.where(jumps[:, -1] >= k, (jumps >= k).argmax(axis=1), n) for k in range(1, 16)],
        "top-p": [np.minimum(lengths, n) for lengths in top_p],
    }


def conformal_lengths(data: Passages, train: np.ndarray, level: float = 0.8) -> np.ndarray:
    """(n_queries,) passages above the score that keeps this share of relevant passages (split conformal)."""
    scores = np.sort(data.scores[train][data.relevant[train]])
    k = int(np.floor((1 - level) * (scores.size + 1)))
    return (data.scores >= scores[max(k - 1, 0)]).sum(axis=1)


def cut_passages(data: Passages, train: np.ndarray, test: np.ndarray, min_relevant: float) -> sl.RankedLists:
    """What `sl.cut` does with queries of which some have no answer."""
    result = sl.cut(data.lists.take(np.sort(train)), data.truth, users="everyone", min_relevant=min_relevant)
    return result.cutoff.apply(data.lists.take(test))


def run_passages(data: Passages) -> dict[str, dict[str, object]]:
    """Every method in five folds over queries, with 95% intervals of a bootstrap over queries."""
    n = len(data.lists)
    fold = np.random.default_rng(0).permutation(n) % N_FOLDS
    options = prefix_options(data)
    names = [
        *options,
        "conformal threshold (recall 80%)",
        "sl.cut(min_relevant=0.3)",
        "sl.cut(min_relevant=0.5)",
    ]
    values = {name: np.zeros((n, 4)) for name in names}
    for f in range(N_FOLDS):
        test, train = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
        for name in names:
            if name in options:
                lists = data.lists.take(test).head(data.best_of(options[name], train)[test])
            elif name.startswith("conformal"):
                lists = data.lists.take(test).head(conformal_lengths(data, train)[test])
            else:
                lists = cut_passages(data, train, test, float(name[-4:-1]))
            values[name][test] = data.measure(lists, test)
    k_values = [data.measure(data.lists.head(k), np.arange(n)) for k in range(1, data.scores.shape[1] + 1)]
    has_answer, has_candidate = data.n_relevant > 0, data.relevant.any(axis=1)
    recall_at_k = [part[has_answer, 1].mean() for part in k_values]
    tokens_at_k = [part[:, 2].mean() for part in k_values]
    found: dict[str, dict[str, object]] = {}
    for name, rows in values.items():
        test = paired_test(rows[:, 0].copy(), values["best fixed k"][:, 0].copy())
        base, is_empty = float(values["best fixed k"][:, 0].mean()), rows[:, 3] > 0
        recall, tokens = rows[has_answer, 1].mean(), rows[:, 2].mean()
        found[name] = {
            "f1": float(rows[:, 0].mean()),
            "f1 with an answer": float(rows[has_answer, 0].mean()),
            "gain": [value / base for value in (test.difference, test.low, test.high)],
            "recall": float(recall),
            "tokens": float(tokens),
            "tokens of a fixed k at this recall": float(np.interp(recall, recall_at_k, tokens_at_k)),
            "empty without an answer": share_of(is_empty[~has_answer]),
            "empty with an answer": share_of(is_empty[has_answer]),
            "precision of empty": share_of(~has_answer[is_empty]),
            "empty without a relevant candidate": share_of(is_empty[~has_candidate]),
            "precision of empty, by candidates": share_of(~has_candidate[is_empty]),
        }
        print(f"{name:34s} F1 {rows[:, 0].mean():.3f}, recall {recall:.3f}, tokens {tokens:.0f}", flush=True)
    return found


def share_of(events: np.ndarray) -> list[float] | None:
    """The share of true values, with a 95% interval (Wilson); None without any value."""
    n, z = events.size, 1.959964
    if not n:
        return None
    p = float(events.mean())
    center, half = (p + z * z / (2 * n)), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [p, float((center - half) / (1 + z * z / n)), float((center + half) / (1 + z * z / n))]


def main() -> None:
    """Run all methods on one ranking and store the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--passages", type=Path, help="folder written by passages.py")
    parser.add_argument("--run", type=Path, help="another ranking: a TREC run or a table")
    parser.add_argument("--method", action="append", help="only this method")
    options = parser.parse_args()
    if options.passages:
        data = Passages(options.passages)
        n_without = int((data.n_relevant == 0).sum())
        about = {"machine": describe(), "queries": len(data.lists), "queries without an answer": n_without}
        save_results("passages", about | {"methods": run_passages(data)})
        return
    truth = read_outcomes(options.folder / "judgments.parquet")
    source = options.run or options.folder / "bm25.parquet"
    lists = read_candidates(source)
    query_ids = truth.users.to_ids(truth.active_users).to_list()
    keep = np.flatnonzero(pl.Series(lists.users.values).is_in(query_ids).to_numpy() & (lists.lengths > 0))
    found = run(Rankings(lists.take(keep), truth), options.method)
    if not options.method:
        save_results(
            "truncation",
            {"machine": describe(), "ranking": source.stem, "queries": int(keep.size), "methods": found},
        )


if __name__ == "__main__":
    main()
