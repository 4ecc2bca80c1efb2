"""The best M of a row of scores: a bounded heap whose root is the worst item kept."""

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Doubles, Floats, Ints, Longs


@inlined
def _worse(score: float, item: int, other_score: float, other_item: int) -> bool:
    """Lower score, or the same score and a larger item index."""
    return score < other_score or (score == other_score and item > other_item)


@inlined
def _sift(scores: Floats, items: Ints, start: int, root: int, size: int) -> None:
    """Let the element at `root` sink until both children are better."""
    while True:
        child = 2 * root + 1
        if child >= size:
            return
        a = start + child
        if child + 1 < size and _worse(scores[a + 1], items[a + 1], scores[a], items[a]):
            child += 1
        a, b = start + root, start + child
        if not _worse(scores[b], items[b], scores[a], items[a]):
            return
        scores[a], scores[b] = scores[b], scores[a]
        items[a], items[b] = items[b], items[a]
        root = child


@kernel
def rows_head(
    indptr: Longs,  # (n_rows + 1,) where each row's candidates start
    candidates: Ints,  # (n_candidates,) item of each candidate; empty: candidate number = item, rows alike
    values: Floats,  # (n_candidates,)
    M: int,
    items: Ints,  # (n_rows * M,) filled from the front of each row's share
    scores: Floats,  # (n_rows * M,)
    sizes: Longs,  # (n_rows,) how many were kept
) -> None:
    """Keep each row's best M, best first, ties to the smaller item; NaN and -inf are no candidates."""
    for row in range(indptr.size - 1):
        start, size = row * M, 0
        for at in range(indptr[row], indptr[row + 1]):
            value = values[at]
            if not value > -float("inf"):  # NaN fails every comparison
                continue
            item = candidates[at] if candidates.size else at - indptr[row]
            if size < M:
                child = size
                size += 1
                while child:
                    parent = (child - 1) // 2
                    if not _worse(value, item, scores[start + parent], items[start + parent]):
                        break
                    scores[start + child], items[start + child] = (
                        scores[start + parent],
                        items[start + parent],
                    )
                    child = parent
                scores[start + child], items[start + child] = value, item
            elif _worse(scores[start], items[start], value, item):
                scores[start], items[start] = value, item
                _sift(scores, items, start, 0, size)
        sizes[row] = size
        for last in range(size - 1, 0, -1):  # the worst goes to the back until all are in order
            a, b = start, start + last
            scores[a], scores[b] = scores[b], scores[a]
            items[a], items[b] = items[b], items[a]
            _sift(scores, items, start, 0, last)


@inlined
def _sift_order(scores: Floats, items: Ints, order: Longs, start: int, root: int, size: int) -> None:
    """`_sift`, moving positions instead of values."""
    while True:
        child = 2 * root + 1
        if child >= size:
            return
        a, b = order[start + child], order[start + min(child + 1, size - 1)]
        if _worse(scores[b], items[b], scores[a], items[a]):
            child += 1
        a, b = order[start + root], order[start + child]
        if not _worse(scores[b], items[b], scores[a], items[a]):
            return
        order[start + root], order[start + child] = b, a
        root = child


@kernel
def rows_rank(indptr: Longs, items: Ints, scores: Floats, order: Longs) -> None:
    """order (n_candidates,): each row's candidates, best first, ties to the smaller item; no NaN."""
    for row in range(indptr.size - 1):
        start, size = indptr[row], indptr[row + 1] - indptr[row]
        ordered = True
        for at in range(start, start + size):
            order[at] = at
            if at > start and _worse(scores[at - 1], items[at - 1], scores[at], items[at]):
                ordered = False
        if ordered:
            continue
        for root in range(size // 2 - 1, -1, -1):
            _sift_order(scores, items, order, start, root, size)
        for last in range(size - 1, 0, -1):
            order[start], order[start + last] = order[start + last], order[start]
            _sift_order(scores, items, order, start, 0, last)


@kernel
def rows_fall(indptr: Longs, values: Doubles) -> None:
    """Replace each value by the smallest so far in its row."""
    for row in range(indptr.size - 1):
        for at in range(indptr[row] + 1, indptr[row + 1]):
            values[at] = min(values[at], values[at - 1])
