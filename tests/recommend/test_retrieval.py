"""Hits of several parts, joined."""

import numpy as np

from shortlist.recommend.retrieval import Hits, concat_hits


def hits(lengths, first):
    n = sum(lengths)
    return Hits(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.arange(first, first + n, dtype=np.int32),
        np.arange(first, first + n, dtype=np.float32) / 2,
        np.array(lengths) > 1,
    )


def test_joined_hits_keep_the_order_of_users():
    joined = concat_hits([hits([2, 0], 0), hits([1], 2), hits([3], 3)])
    assert joined.indptr.tolist() == [0, 2, 2, 3, 6]
    assert joined.items.tolist() == [0, 1, 2, 3, 4, 5]
    assert joined.scores.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert joined.truncated.tolist() == [True, False, False, True]


def test_one_part_is_returned_as_it_is():
    part = hits([2, 1], 0)
    assert concat_hits([part]) is part
    assert concat_hits([]).indptr.tolist() == [0]
