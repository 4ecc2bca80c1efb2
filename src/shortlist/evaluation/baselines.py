"""Baselines from the same ranking: every fixed N, matched fixed-N lists, and the oracle."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.metrics import AT_N, Metric, Money, first_maximum, metrics_to_optimize, sums_at_n
from shortlist.core.options import explain_keywords
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates
from shortlist.errors import ConfigError
from shortlist.evaluation.evaluate import Lists, evaluate, evaluated_truth, label_checked
from shortlist.evaluation.report import Report
from shortlist.kernels.list_metrics import find_best_prefixes
from shortlist.types import Doubles, Longs

USUAL_LENGTH = 10  # a common length of lists for everyone


@explain_keywords
def fixed_n_curve(
    rankings: Lists,
    truth: Interactions,
    N: Iterable[int] = range(1, 21),
    *,
    max_items: int = 20,
    users: Iterable[Any] | None = None,
    gain: float | None = None,
    cost: float | None = None,
) -> pl.DataFrame:
    """Compute mean metrics over all users when every user gets the top N, for every N in one pass.

    Parameters
    ----------
    rankings
        Ranked items per user, at least as many as the largest N; shorter lists count whole.
    truth
        What the users interacted with after the rankings were made.
    N
        List lengths to evaluate.
    max_items
        Length of the longest list that would ever be shown; normalizes `ndcg`.
    users
        Ids of users who count even if they have no truth, as in `evaluate`.
    gain, cost
        What a shown item earns if the user takes it, and costs if not; adds the column `value`.

    Returns
    -------
    polars.DataFrame
        One row per N with the means of f1, precision, recall, ndcg, ndcg_paper and length over all users, and
        of value if gain and cost are given.

    Raises
    ------
    ConfigError
        If `N` is empty, or `N` or `max_items` is below 1.

    Examples
    --------
    >>> from shortlist.evaluation import fixed_n_curve
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
    >>> curve = fixed_n_curve({"ann": ["tea", "milk", "rice"], "bob": ["jam", "salt"]}, truth, [1, 2])
    >>> curve.select("N", "precision", "recall").rows()
    [(1, 1.0, 0.75), (2, 0.75, 1.0)]
    """
    wanted = np.array(sorted(set(N)), np.int64)
    if not wanted.size or wanted[0] < 1:
        raise ConfigError(
            f"N must be one or more lengths of at least 1, got {wanted[:5].tolist()}; pass range(1, 21)."
        )
    if max_items < 1:
        raise ConfigError(f"max_items must be at least 1, got {max_items}; pass the longest list allowed.")
    money, ground = Money.of(gain, cost), evaluated_truth(truth, users)
    names = tuple(
        name
        for name in dict.fromkeys([*AT_N, *metrics_to_optimize()])
        if money is not None or not Metric.registry[name].needs_money
    )
    labels = label_checked(read_candidates(rankings, "lists"), ground)
    order = np.argsort(labels.row, kind="stable")  # the sums do not depend on the order of the lists
    sums = sums_at_n(
        labels.lists.indptr,
        labels.relevant,
        labels.n_relevant,
        int(wanted[-1]),
        max_items=max_items,
        numbers=order[labels.labeled[order]],
        metrics=names,
        money=money,
    )
    means = sums[wanted - 1] / ground.n_rows
    return pl.DataFrame({"N": wanted, **dict(zip(names, means.T, strict=True))})


def best_fixed_n(curve: pl.DataFrame, metric: str = "f1") -> int:
    """Return the N with the highest mean metric; the smallest on ties; 0 if every N loses money.

    Parameters
    ----------
    curve
        Result of `fixed_n_curve`.
    metric
        Name of a column of the curve.

    Returns
    -------
    int
        The best list length.

    Raises
    ------
    ConfigError
        If the curve has no such metric.

    Examples
    --------
    >>> from shortlist.evaluation import best_fixed_n, fixed_n_curve
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
    >>> best_fixed_n(fixed_n_curve({"ann": ["tea", "milk", "rice"], "bob": ["salt", "jam"]}, truth))
    2
    """
    names = curve.columns[1:]
    if metric not in names:
        raise ConfigError(f"metric must be one of {', '.join(names)}, got {metric!r}; choose one.")
    ordered = curve.sort("N")
    means = ordered[metric].to_numpy()
    return int(ordered["N"][first_maximum(means)]) if means.max() >= 0 else 0


@explain_keywords
def oracle(
    rankings: Lists, truth: Interactions, *, max_items: int = 20, users: Iterable[Any] | None = None
) -> Report:
    """Evaluate the best lists that any cutoff could choose: each user's prefix with the highest F1.

    Parameters
    ----------
    rankings
        Ranked items per user.
    truth
        What the users interacted with; the oracle uses it to choose each length.
    max_items, users
        As in `evaluate`.

    Returns
    -------
    Report
        The evaluation of the oracle's lists.

    Examples
    --------
    >>> from shortlist.evaluation import oracle
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk"), ("bob", "jam")])
    >>> oracle({"ann": ["tea", "milk", "rice"], "bob": ["salt"]}, truth).lengths.tolist()
    [2, 0]
    """
    lists, ground = read_candidates(rankings, "lists"), evaluated_truth(truth, users)
    best, labels = np.zeros(len(lists), np.int64), label_checked(lists, ground)
    find_best_prefixes(lists.indptr, labels.relevant, labels.n_relevant, best)
    return evaluate(lists.head(best), truth, max_items=max_items, users=users)


def gap_recovered(dynamic: Report, fixed: Report, ceiling: Report, metric: str = "f1") -> float:
    """Compute the share of the gap between the best fixed N and the oracle that a cutoff recovers.

    Parameters
    ----------
    dynamic
        Report on the lists of the cutoff.
    fixed
        Report on lists of the best fixed N.
    ceiling
        Report of `oracle`.
    metric
        One of `METRICS`.

    Returns
    -------
    float
        1 for the oracle itself, 0 for the fixed N, negative below the fixed N, NaN if there is no gap.

    Raises
    ------
    ConfigError
        If the metric is unknown.

    Examples
    --------
    >>> from shortlist.evaluation import gap_recovered, oracle
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("ann", "milk")])
    >>> rankings = {"ann": ["tea", "milk", "rice"]}
    >>> fixed, dynamic = sl.evaluate({"ann": ["tea"]}, truth), sl.evaluate(rankings, truth)
    >>> round(gap_recovered(dynamic, fixed, oracle(rankings, truth)), 4)
    0.4
    """
    gap = ceiling.mean(metric) - fixed.mean(metric)
    return (dynamic.mean(metric) - fixed.mean(metric)) / gap if gap > 0 else float("nan")


@explain_keywords
def match_baselines(
    lists: Lists, rankings: Lists, truth: Interactions, N: int, *, users: Iterable[Any] | None = None
) -> dict[str, RankedLists]:
    """Build fixed-N baselines that cover the same users or show as many items as the given lists.

    Confidence is the probability of a list's first item, or its score if there are no probabilities.

    Parameters
    ----------
    lists
        The lists to match.
    rankings
        The ranking that the baselines are cut from.
    truth
        Only users with truth are matched, and those in `users`.
    N
        The fixed length, chosen on validation data.
    users
        Ids of users who count even if they have no truth, as in `evaluate`.

    Returns
    -------
    dict of str to RankedLists
        `"top N"`: every user. `"top N, same users"`: only users whose list in `lists` is not empty. `"top N,
        same abstention"`: as many users, the most confident ones. `"fixed length, same items"`: as many items
        in total, in lists of equal length; the remaining items go to the most confident users. Pass the
        result to `compare`.

    Raises
    ------
    ConfigError
        If `N` is below 1.

    Examples
    --------
    >>> from shortlist.evaluation import match_baselines
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> rankings = {"ann": ["tea", "milk"], "bob": ["jam", "rice"]}
    >>> baselines = match_baselines({"ann": ["tea"], "bob": []}, rankings, truth, N=2)
    >>> {name: one.lengths.tolist() for name, one in baselines.items()}["top 2, same users"]
    [2, 0]
    """
    if N < 1:
        raise ConfigError(f"N must be at least 1, got {N}; pass the length chosen on validation.")
    given, ranked = read_candidates(lists, "lists"), read_candidates(rankings, "lists")
    ids = IdMap(evaluated_truth(truth, users).user_ids)
    lengths, available = _lengths(given, ids.values), _lengths(ranked, ids.values)
    confidence = np.nan_to_num(top_confidence(ranked, ids.values), nan=-np.inf)
    order = np.argsort(-confidence, kind="stable")  # ties in the order of ids
    top = np.minimum(N, available)
    most_confident = np.zeros(lengths.size, np.bool_)
    most_confident[order[: int((lengths > 0).sum())]] = True
    baselines = {
        f"top {N}": top,
        f"top {N}, same users": np.where(lengths > 0, top, 0),
        f"top {N}, same abstention": np.where(most_confident, top, 0),
        "fixed length, same items": _equal_lengths(int(lengths.sum()), available, order),
    }
    return {name: _cut(ranked, ids, n_items) for name, n_items in baselines.items()}


def _lengths(lists: RankedLists, user_ids: pl.Series) -> Longs:
    """(n_users,) list length of each user, 0 without a list."""
    lengths: Longs = np.append(lists.lengths, 0)[lists.users.lookup(user_ids)].astype(np.int64)
    return lengths


def top_confidence(lists: RankedLists, user_ids: pl.Series) -> Doubles:
    """(n_users,) probability of each user's first item, or its score; -inf without an item."""
    values = lists.scores if lists.probabilities is None else lists.probabilities
    filled = _lengths(lists, user_ids) > 0
    confidence = np.full(filled.size, -np.inf)
    confidence[filled] = values[lists.indptr[lists.users.lookup(user_ids)[filled]]]
    return confidence


def _equal_lengths(total: int, available: Longs, order: Longs) -> Longs:
    """(n_ids,) lengths that differ by at most one and sum to `total`, or everything available."""
    lengths = np.zeros(available.size, np.int64)
    left = min(total, int(available.sum()))
    level = 0
    while left:
        more = order[available[order] > level][:left]
        lengths[more] += 1
        left -= more.size
        level += 1
    return lengths


def _cut(lists: RankedLists, ids: IdMap, n_items: Longs) -> RankedLists:
    """The lists of these users, each cut to its own length."""
    row = ids.lookup(lists.users.values)
    matched = np.flatnonzero(row >= 0)
    return lists.take(matched).head(n_items[row[matched]])
