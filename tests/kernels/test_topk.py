"""Selecting the best of dense rows and ragged scores, against a plain stable sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.topk import ragged_select, rows_select, words_unpack
from shortlist.recommend.index import frozen
from shortlist.recommend.retrieve import Sets, from_ragged, from_rows

SCORES = st.sampled_from(
    [0.0, -0.0, 1.0, 1.0, -1.0, 2.5, -3e38, 3e38, 1e-45, -1e-45, np.inf, -np.inf, np.nan]
)


def best(scores, items, floor, excluded, limit):
    """Strictly above the floor and not excluded, best first, smaller item first."""
    kept = [(s, i) for s, i in zip(scores, items, strict=True) if s > floor and i not in excluded]
    return sorted(kept, key=lambda hit: (-hit[0], hit[1]))[:limit]


def as_pairs(hits):
    pairs = list(zip(hits.scores.tolist(), hits.items.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(hits.indptr[:-1], hits.indptr[1:], strict=True)]


@given(
    rows=st.integers(0, 12).flatmap(
        lambda n: st.lists(st.lists(SCORES, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    floor=SCORES,
    excluded=st.sets(st.integers(0, 40)),
    limit=st.none() | st.integers(1, 15),
)
def test_dense_and_ragged_agree_with_a_plain_sort(rows, floor, excluded, limit):
    scores = np.array(rows, np.float32).reshape(len(rows), -1)
    n_users, n_items = scores.shape
    items = np.arange(n_items, dtype=np.int32) * 3 + 1
    floors = np.full(n_users, floor, np.float32)
    away = Sets(
        np.arange(n_users + 1, dtype=np.int64) * len(excluded),
        np.tile(np.array(sorted(excluded), np.int32), n_users),
    )
    expected = [best(row.tolist(), items.tolist(), floors[0], excluded, limit) for row in scores]
    assert as_pairs(from_rows(scores, items, floors, away, limit)) == expected
    everything = Sets(np.arange(n_users + 1, dtype=np.int64) * n_items, np.tile(items, n_users))
    assert as_pairs(from_ragged(everything, scores.ravel(), floors, away, limit)) == expected


def test_the_kernels_say_when_a_hit_did_not_fit():
    scores = frozen(np.array([[3.0, 1.0, 2.0], [1.0, -1.0, -2.0]], np.float32))
    items, floors = frozen(np.arange(3, dtype=np.int32)), frozen(np.zeros(2, np.float32))
    nothing = frozen(np.zeros(3, np.int64)), frozen(np.empty(0, np.int32))
    words, held = np.empty((2, 2), np.uint64), np.zeros(2, np.int64)
    rows_select(scores, items, floors, *nothing, words, held)
    assert held.tolist() == [3, 1]
    kept, values = np.empty(3, np.int32), np.empty(3, np.float32)
    words_unpack(words, np.minimum(held, 2), np.array([0, 2, 3]), kept, values)
    assert kept.tolist() == [0, 2, 0]
    assert values.tolist() == [3.0, 2.0, 1.0]
    ragged = frozen(np.array([0, 3, 6])), frozen(np.tile(items, 2)), scores.ravel()
    ragged_select(*ragged, floors, *nothing, words, held)
    assert held.tolist() == [3, 1]


def test_minus_zero_is_zero_so_the_smaller_item_wins():
    scores = np.array([[-0.0, 0.0, -0.0]], np.float32)
    floors, none = np.array([-1.0], np.float32), Sets(np.zeros(2, np.int64), np.empty(0, np.int32))
    assert from_rows(scores, np.arange(3, dtype=np.int32), floors, none, 2).items.tolist() == [0, 1]
