"""Metric kernels on arrays, by hand and against plain loops."""

import numpy as np
import pytest

from shortlist.kernels.lists import (
    UNIT,
    Chunk,
    PerUserSums,
    Truth,
    add_at_lengths,
    count_distinct,
    count_repeated_items,
    evaluate_lists,
    fill_prefix_sums,
    find_best_prefixes,
    mark_hits,
    resample_means,
)
from shortlist.kernels.rng import next_below, stream

N_ITEMS = 9


def ragged(rows):
    flat = np.array([item for row in rows for item in row], np.int32)
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64), flat


def truth_of(rows):
    starts, flat = ragged(rows)
    stamp, nothing = np.full(N_ITEMS, -1, np.int32), (np.empty(0, np.float32), np.empty(0))
    return Truth(starts[:-1], starts[1:], flat, stamp, *nothing)


def chunk_of(lists, row, code=None):
    starts, flat = ragged(lists)
    code = np.arange(N_ITEMS, dtype=np.int32) if code is None else np.array(code, np.int32)
    row = np.array(row, np.int32)
    return Chunk(starts, flat, code, row, np.argsort(row))


def sums_for(n_rows, n_cells=4):
    return PerUserSums(
        *(np.zeros(n_rows, np.int32) for _ in range(2)),
        *(np.zeros(n_rows) for _ in range(6)),
        *(np.zeros(N_ITEMS, np.int64) for _ in range(2)),
        np.zeros((n_cells, 3)),
    )


def sizes_of(truth):
    sizes = np.zeros(truth.start.size, np.int32)
    count_distinct(truth, sizes, np.zeros(N_ITEMS, np.int64))
    return sizes


DISCOUNT = 1 / np.log2(np.arange(2, 12))


def test_distinct_items_are_counted_once_per_user():
    truth = truth_of([[1, 1, 2], [], [2]])
    sizes, relevant_items = np.zeros(3, np.int32), np.zeros(N_ITEMS, np.int64)
    count_distinct(truth, sizes, relevant_items)
    assert sizes.tolist() == [2, 0, 1]
    assert relevant_items.tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0]
    assert (truth.stamp == -1).all()


def test_the_item_with_code_0_is_counted():
    sums = sums_for(1)
    evaluate_lists(chunk_of([[0, 3]], [0]), truth_of([[3, 4]]), np.empty(0), DISCOUNT, 2, sums)
    assert sums.shown_of.tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert sums.hits_of.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_the_gain_of_a_hit_is_the_sum_of_its_weights():
    start, end, items = np.array([0, 3]), np.array([3, 5]), np.array([2, 2, 5, 2, 4], np.int32)
    weight = np.array([1, 2, 4, 8, 16], np.float32)
    truth = Truth(start, end, items, np.full(N_ITEMS, -1, np.int32), weight, np.zeros(N_ITEMS))
    sums = sums_for(2)
    evaluate_lists(chunk_of([[2, 5], [2, 3]], [0, 1]), truth, np.empty(0), DISCOUNT, 9, sums)
    assert sums.gain.tolist() == [3 + 4, 8]
    assert sums.gain_dcg.tolist() == pytest.approx([3 + 4 / np.log2(3), 8])


def test_sums_by_hand():
    # list 0 belongs to row 1 (hits at ranks 2 and 3), list 1 to no row, list 2 to row 0 and is empty
    chunk = chunk_of([[5, 1, 2, 7], [1, 2], []], [1, -1, 0])
    sums = sums_for(2)
    evaluate_lists(
        chunk, truth_of([[3], [1, 2]]), np.array([0.9, 0.6, 0.5, 1.0, 0.3, 0.3]), DISCOUNT, 2, sums
    )
    assert sums.hits.tolist() == [0, 2]
    assert sums.first.tolist() == [0, 2]
    assert sums.dcg[1] == pytest.approx(DISCOUNT[1] + DISCOUNT[2])
    assert sums.dcg_capped[1] == pytest.approx(DISCOUNT[1])
    assert sums.precision_sum[1] == pytest.approx(1 / 2)
    assert sums.expected_hits.tolist() == [0, pytest.approx(3.0)]
    assert sums.shown_of.tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 0]
    assert sums.hits_of.tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0]
    # cells of a quarter: 0.5 and 0.6 (two hits), 0.9 and 1.0 (none)
    assert sums.cells[:, [0, 2]].tolist() == [[0, 0], [0, 0], [2, 2], [2, 0]]
    np.testing.assert_allclose(sums.cells[:, 1] / UNIT, [0, 0, 1.1, 1.9], rtol=1e-9)


def test_items_are_matched_by_code_and_unknown_items_never_hit():
    chunk = chunk_of([[0, 1, 2]], [0], code=[4, -1, 3])
    sums = sums_for(1)
    evaluate_lists(chunk, truth_of([[3]]), np.empty(0), DISCOUNT, 9, sums)
    assert (sums.hits[0], sums.first[0]) == (1, 3)
    assert sums.shown_of.sum() == 2


def test_stamps_of_one_list_do_not_affect_another():
    chunk = chunk_of([[1, 2], [1, 2]], [1, 0])
    sums = sums_for(2)
    truth = truth_of([[2], [1]])
    for _ in range(2):  # nor a second pass
        evaluate_lists(chunk, truth, np.empty(0), DISCOUNT, 9, sums)
    assert sums.hits.tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(4))
def test_prefixes_match_plain_loops(seed):
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(N_ITEMS)[: rng.integers(0, 8)].tolist() for _ in range(20)]
    relevant_items = [rng.permutation(N_ITEMS)[: rng.integers(1, 6)].tolist() for _ in range(20)]
    row = rng.permutation(20)
    row[:3] = -1
    truth, chunk = truth_of(relevant_items), chunk_of(lists, row)
    relevant = np.zeros(chunk.items.size, np.bool_)
    mark_hits(chunk, truth, relevant)
    n_relevant = np.where(chunk.row < 0, 0, sizes_of(truth)[chunk.row])
    f1 = np.zeros((20, 9))
    for number, (items, r) in enumerate(zip(lists, row, strict=True)):
        if r >= 0:
            for k in range(1, 9):
                prefix = items[:k]
                f1[number, k] = (
                    2 * len(set(prefix) & set(relevant_items[r])) / (len(prefix) + len(relevant_items[r]))
                    if prefix
                    else 0
                )
    best = np.zeros(20, np.int64)
    find_best_prefixes(chunk.indptr, relevant, n_relevant, best)
    assert best.tolist() == f1.argmax(axis=1).tolist()


def prefixes_of(indptr, relevant, max_items):
    n = relevant.size
    filled = [np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n), np.empty(n), np.empty(n)]
    fill_prefix_sums(indptr, relevant, DISCOUNT, max_items, *filled)
    return filled


def test_sums_of_prefixes_by_hand():
    """Hits at ranks 1 and 3 of the first list, at rank 2 of the second; at most two items would be shown."""
    one, two, three = DISCOUNT[:3]
    indptr, relevant = np.array([0, 3, 5]), np.array([True, False, True, False, True])
    hits, first, dcg, capped, precisions = prefixes_of(indptr, relevant, 2)
    assert hits.tolist() == [1, 1, 2, 0, 1]
    assert first.tolist() == [1, 1, 1, 0, 2]
    np.testing.assert_allclose(dcg, [one, one, one + three, 0, two])
    np.testing.assert_allclose(capped, [one, one, one, 0, two])
    np.testing.assert_allclose(precisions, [1, 1, 1, 0, 1 / 2])


def test_last_prefix_equals_the_whole_list():
    rng = np.random.default_rng(3)
    lists = [rng.permutation(N_ITEMS)[: rng.integers(1, 8)].tolist() for _ in range(20)]
    truth = truth_of([rng.permutation(N_ITEMS)[: rng.integers(1, 6)].tolist() for _ in range(20)])
    chunk, sums = chunk_of(lists, np.arange(20)), sums_for(20)
    evaluate_lists(chunk, truth, np.empty(0), DISCOUNT, 4, sums)
    relevant = np.zeros(chunk.items.size, np.bool_)
    mark_hits(chunk, truth, relevant)
    filled = prefixes_of(chunk.indptr, relevant, 4)
    whole = (sums.hits, sums.first, sums.dcg, sums.dcg_capped, sums.precision_sum)
    for prefixes, expected in zip(filled, whole, strict=True):
        assert prefixes[chunk.indptr[1:] - 1].tolist() == expected.tolist()


def test_values_at_fixed_lengths_by_hand():
    """Lists of two, no and one item: a shorter list counts whole, an empty one not at all."""
    sums = np.zeros((3, 2))
    add_at_lengths(np.array([0, 2, 2, 3]), np.array([[1.0, 10], [2, 20], [5, 50]]), sums)
    assert sums.tolist() == [[6, 60], [7, 70], [7, 70]]


def test_repeats_by_hand():
    truth, history = truth_of([[1, 2], [3]]), truth_of([[2, 5, 5], []])
    chunk = chunk_of([[5, 2, 1], [3]], [0, 1])
    shown, repeated = np.zeros(4, np.bool_), np.zeros(2, np.int32)
    mark_hits(chunk, history, shown)
    count_repeated_items(truth, history, repeated)
    assert (shown.tolist(), repeated.tolist()) == ([True, True, False, False], [1, 0])


def test_means_equal_those_of_the_samples():
    values = np.array([1.0, 10.0, 100.0, 1000.0])
    means = np.empty(50)
    resample_means(values, stream(7), means)
    state = stream(7)
    sampled = [[next_below(state, 4) for _ in range(4)] for _ in range(50)]
    np.testing.assert_allclose(means, values[np.array(sampled)].mean(axis=1))
