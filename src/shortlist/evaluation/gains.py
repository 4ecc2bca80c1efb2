"""What a hit is worth by its rank."""

import numpy as np

from shortlist.types import Doubles, Ints


def discounts(n: int) -> Doubles:
    """(n,) what a hit at rank 1, 2, … n adds to DCG (the paper's NDCG with relevance 0 or 1)."""
    return 1 / np.log2(np.arange(2, n + 2))


def ideals(n: int) -> Doubles:
    """(n + 1,) the DCG of 0, 1, … n hits in a row."""
    return np.concatenate([[0.0], np.cumsum(discounts(n))])


def ideal_of(n_hits: Ints) -> Doubles:
    """The DCG of a list that opens with so many hits, for each of many lists."""
    return ideals(int(n_hits.max(initial=0)))[n_hits]
