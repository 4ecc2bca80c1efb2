"""The boundary with the highest expected F1, from probabilities and the predicted size of the next list.

If the next list has n items, the expected F1 of the k most probable candidates is F(k) = 2·(p_1 + … + p_k) /
(k + n). One more candidate raises it exactly if p_{k+1} > F(k) / 2. So the best list holds the candidates
with p > F* / 2, where F* is the highest F(k): its boundary is t = logit(F* / 2). The best list depends on the
candidates only through F*. If n is uncertain, F(k) = (p_1 + … + p_k)·g(k) with g(k) = E[2 / (k + n)], and ½
becomes 1 / g(k + 1) − 1 / g(k), which is a little larger.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from shortlist.kernels.expected import compute_independent_utilities
from shortlist.recommend.retrieval import Hits
from shortlist.types import Doubles, Floats, Ints, Longs

if TYPE_CHECKING:
    from shortlist.recommend.scores import Scores

FIRST_CANDIDATES, GROWTH = 32, 8  # most lists end within the first; the others get more candidates
LOWEST, HIGHEST = 1e-30, 1 - 1e-12  # of the probability at the boundary

Search = Callable[["Scores", Longs, int | None], Hits]  # the best candidates of some users


def f1_boundaries(scores: "Scores", n_items: int, search: Search) -> Floats:
    """(n,) boundaries of scores, NaN for users without candidates."""
    assert scores.log_odds_shift is not None
    assert scores.expected_sizes is not None
    boundaries = np.full(scores.log_odds_shift.size, np.nan, np.float32)
    users: Longs = np.arange(boundaries.size)
    limit = FIRST_CANDIDATES
    while users.size:
        part = scores.take(users)
        hits = search(part, users, limit if limit < n_items else None)
        probability, lengths = best_f1(part, hits)
        assert part.log_odds_shift is not None
        found = (logit(probability) - part.log_odds_shift).astype(np.float32)
        boundaries[users] = np.where(np.diff(hits.indptr) > 0, found, np.nan)
        users = users[hits.truncated & (lengths == limit)]
        limit *= GROWTH
    return boundaries


def best_f1(scores: "Scores", hits: Hits) -> tuple[Doubles, Ints]:
    """((n,) probability at the boundary, (n,) length of the best list) among these candidates."""
    counts = np.diff(hits.indptr)
    shift = np.repeat(np.asarray(scores.log_odds_shift, np.float64), counts)
    p = expit(hits.scores + shift)
    curve, lengths = np.empty(p.size), np.zeros(counts.size, np.int32)
    no_ideal = np.zeros(int(counts.max(initial=0)) + 1)
    more = np.maximum(np.asarray(scores.expected_sizes) - 1, 0.0)
    compute_independent_utilities(
        hits.indptr, p, more, float(scores.size_dispersion or 0), False, no_ideal, curve, lengths
    )
    total = np.concatenate([[0.0], np.cumsum(p)])
    first = hits.indptr[:-1]
    last = np.maximum(first + lengths - 1, 0)
    best = np.where(lengths > 0, curve[last] if curve.size else 0.0, 0.0)
    # 1 / g(k) is the sum of the probabilities over the expected F1
    following = np.minimum(last + 1, max(p.size - 1, 0))
    has_next = (lengths > 0) & (lengths < counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        now = (total[last + 1] - total[first]) / best if p.size else best
        after = (total[following + 1] - total[first]) / curve[following] if p.size else best
    share = np.where(has_next & np.isfinite(after - now), after - now, 0.5)
    return np.clip(share * best, LOWEST, HIGHEST), lengths


def with_f1_boundaries(scores: "Scores", n_items: int, search: Search) -> "Scores":
    """The scores with these boundaries instead of the learned ones."""
    return replace(scores, boundaries=f1_boundaries(scores, n_items, search))
