"""Every metric written plainly, one user at a time, from its definition."""

import math


def dcg(relevant):
    return sum(1 / math.log2(rank + 1) for rank, hit in enumerate(relevant, start=1) if hit)


def metrics(shown, relevant_items, max_items=20):
    """All metrics of one list against the relevant items."""
    relevant_items = set(relevant_items)
    relevant = [item in relevant_items for item in shown]
    hits = sum(relevant)
    if not shown:
        return dict.fromkeys(NAMES, 0.0)
    precision, recall = hits / len(shown), hits / len(relevant_items)
    fixed = min(max_items, len(relevant_items))
    precisions = [sum(relevant[: k + 1]) / (k + 1) for k in range(min(len(shown), max_items)) if relevant[k]]
    return {
        "f1": 2 * precision * recall / (precision + recall) if hits else 0.0,
        "ndcg": dcg(relevant[:max_items]) / dcg([True] * fixed),
        "ndcg_paper": dcg(relevant) / dcg([True] * min(len(shown), len(relevant_items))),
        "precision": precision,
        "recall": recall,
        "average_precision": sum(precisions) / fixed,
        "reciprocal_rank": 1 / (relevant.index(True) + 1) if hits else 0.0,
        "hits": float(hits),
        "length": float(len(shown)),
    }


NAMES = (
    *("f1", "ndcg", "ndcg_paper", "precision", "recall"),
    *("average_precision", "reciprocal_rank", "hits", "length"),
)
