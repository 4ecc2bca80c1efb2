"""repeat_find, against looking at every list."""

import numpy as np
import pytest

from shortlist.kernels.lists import repeat_find


@pytest.mark.parametrize(
    ("lists", "at"),
    [
        ([], -1),
        ([[]], -1),
        ([[1, 2], [2, 1]], -1),
        ([[0, 1], [2, 0, 2]], 4),
        ([[3, 3, 3]], 1),
        ([[1], [], [1, 1]], 2),
    ],
)
def test_by_hand(lists, at):
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    items = np.array([item for one in lists for item in one], np.int32)
    assert repeat_find(indptr, items, np.full(4, -1, np.int32)) == at
