"""RowBuffer: rows that arrive in blocks of any size, also empty ones."""

import numpy as np
import pytest

from shortlist.models.two_stage.training import RowBuffer


@pytest.mark.parametrize("sizes", [[0, 3], [0, 0, 5, 0, 7], [4, 0], [1] * 50, [1000, 1, 2000]])
def test_all_rows_are_there_in_order(sizes):
    rows = np.random.default_rng(0).random((sum(sizes), 6), np.float32)
    buffer = RowBuffer()
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        buffer.append(rows[end - size : end])
    np.testing.assert_array_equal(buffer.finish(), rows)


def test_no_rows():
    buffer = RowBuffer()
    buffer.append(np.empty((0, 6), np.float32))
    assert buffer.finish().shape == (0, 6)
