"""rows_head and rows_fall, judged by sorting everything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shortlist.kernels.head import rows_fall, rows_head, rows_rank

values = st.one_of(st.floats(-3, 3, width=32), st.sampled_from([-np.inf, np.inf, np.nan, 0.0, 1.0]))
matrices = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=values)


def naive(row, items, M):
    """Sort what can be sorted, by score down and item up."""
    pairs = [(-score, item) for score, item in zip(row, items, strict=True) if score > -np.inf]
    return [(item, -score) for score, item in sorted(pairs)[:M]]


def head(indptr, items, row, M):
    out, scores = np.empty((len(indptr) - 1) * M, np.int32), np.empty((len(indptr) - 1) * M, np.float32)
    sizes = np.zeros(len(indptr) - 1, np.int64)
    rows_head(np.array(indptr), items, row, M, out, scores, sizes)
    return [
        list(zip(out[r * M : r * M + n].tolist(), scores[r * M : r * M + n].tolist(), strict=True))
        for r, n in enumerate(sizes)
    ]


@given(matrix=matrices, M=st.integers(1, 14))
def test_dense_rows(matrix, M):
    n, width = matrix.shape
    found = head(np.arange(n + 1) * width, np.empty(0, np.int32), matrix.ravel(), M)
    assert found == [naive(row, range(width), M) for row in matrix.tolist()]


@given(matrix=matrices, M=st.integers(1, 14), data=st.data())
def test_named_candidates_in_any_order(matrix, M, data):
    row = matrix[0]
    items = np.array(data.draw(st.permutations(range(row.size))), np.int32)
    assert head([0, row.size], items, row, M) == [naive(row.tolist(), items.tolist(), M)]


@given(
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.5, np.inf]), st.integers(0, 9))), max_size=4
    )
)
def test_rank_is_a_stable_order_of_every_row(rows):
    rows = [list({item: (score, item) for score, item in row}.values()) for row in rows]
    indptr = np.cumsum([0, *map(len, rows)])
    scores = np.array([score for row in rows for score, _ in row], np.float32)
    items = np.array([item for row in rows for _, item in row], np.int32)
    order = np.empty(items.size, np.int64)
    rows_rank(indptr, items, scores, order)
    expected = [item for row in rows for _, item in sorted((-score, item) for score, item in row)]
    assert items[order].tolist() == expected
    assert (
        np.searchsorted(indptr, order, side="right")
        == np.repeat(np.arange(1, len(rows) + 1), np.diff(indptr))
    ).all()


@given(matrix=arrays(np.float64, (2, 6), elements=st.floats(-3, 3)))
def test_fall_is_the_running_minimum(matrix):
    fallen = matrix.copy().ravel()
    rows_fall(np.array([0, 6, 12]), fallen)
    np.testing.assert_array_equal(fallen, np.minimum.accumulate(matrix, axis=1).ravel())
