"""One ranking, all its prefixes: every fixed length at once, and the best length in hindsight."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from shortlist.core.metrics import AT_N, sums_at_n
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError
from shortlist.evaluation.evaluator import evaluate
from shortlist.evaluation.ground_truth import GroundTruth, Lists, as_lists
from shortlist.evaluation.report import METRICS, Report
from shortlist.kernels.metrics import prefixes_best


def fixed_n_curve(
    heads: Lists, truth: Interactions, N: Iterable[int] = range(1, 21), *, max_items: int = 20
) -> pl.DataFrame:
    """Means over all users when everybody is shown the top N; exact, in one pass over the heads.

    Columns: N, f1, precision, recall, ndcg, ndcg_paper, length. Divide by the share of non-empty heads for
    covered users. A head shorter than N shows what it has.
    """
    wanted = np.array(sorted(set(N)), np.int64)
    if not wanted.size or wanted[0] < 1:
        raise ConfigError(
            f"N must be one or more lengths of at least 1, got {wanted.tolist()}; pass range(1, 21)."
        )
    if max_items < 1:
        raise ConfigError(f"max_items must be at least 1, got {max_items}; pass the longest list allowed.")
    bench = GroundTruth(truth)
    chunk = bench.chunk(as_lists(heads))
    sums = sums_at_n(
        chunk.indptr,
        bench.relevant(chunk),
        bench.n_relevant(chunk),
        int(wanted[-1]),
        max_items=max_items,
        numbers=chunk.order[chunk.row[chunk.order] >= 0],
    )
    means = sums[wanted - 1] / bench.n_rows
    return pl.DataFrame({"N": wanted, **{name: means[:, k] for k, name in enumerate(AT_N)}})


def best_fixed_n(curve: pl.DataFrame, metric: str = "f1") -> int:
    """The length of the highest mean; the shorter one of equals."""
    if metric not in AT_N:
        raise ConfigError(f"metric must be one of {', '.join(AT_N)}, got {metric!r}; choose one.")
    return int(curve.sort("N")["N"][int(np.argmax(curve.sort("N")[metric]))])


def oracle(heads: Lists, truth: Interactions, *, max_items: int = 20) -> Report:
    """The ceiling of any stopping rule on this ranking: each user's prefix of best F1, in hindsight."""
    lists, bench = as_lists(heads), GroundTruth(truth)
    best = np.zeros(len(lists), np.int64)
    chunk = bench.chunk(lists)
    prefixes_best(chunk.indptr, bench.relevant(chunk), bench.n_relevant(chunk), best)
    return evaluate(lists.head(best), truth, max_items=max_items)


def gap_recovered(dynamic: Report, fixed: Report, ceiling: Report, metric: str = "f1") -> float:
    """Share of the way from the best fixed N to the oracle; below 0 where the dynamic lists lose."""
    if metric not in METRICS:
        raise ConfigError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}; choose one.")
    gap = ceiling.mean(metric) - fixed.mean(metric)
    return (dynamic.mean(metric) - fixed.mean(metric)) / gap if gap > 0 else float("nan")
