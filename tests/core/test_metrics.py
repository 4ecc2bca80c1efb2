"""Metrics by hand, and against the plain definitions."""

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.core.metrics import (
    AT_N,
    Metric,
    calibration_error,
    discounts,
    f1_at_n,
    ideal_dcg,
    prefix_sums,
    sums_at_n,
)
from tests.evaluation import naive

LOG3 = 1 / math.log2(3)
# a miss and two hits of 2 relevant items; an empty list; one hit of 3 relevant items
INDPTR = np.array([0, 3, 3, 4])
RELEVANT = np.array([False, True, True, True])
N_RELEVANT = np.array([2, 5, 3], np.int32)


def of_prefixes(name, indptr, relevant, n_relevant, max_items=20):
    return Metric.registry[name].values(prefix_sums(indptr, relevant, n_relevant, max_items))


def test_discounts_and_ideal_by_hand():
    assert discounts(3).tolist() == pytest.approx([1, LOG3, 1 / 2])
    assert ideal_dcg(3).tolist() == pytest.approx([0, 1, 1 + LOG3, 1.5 + LOG3])
    assert discounts(0).size == 0
    assert ideal_dcg(0).tolist() == [0]


def test_prefix_hits_by_hand():
    assert prefix_sums(INDPTR, RELEVANT, N_RELEVANT).hits.tolist() == [0, 1, 2, 1]


def test_prefix_f1_by_hand():
    assert of_prefixes("f1", INDPTR, RELEVANT, N_RELEVANT).tolist() == pytest.approx([0, 2 / 4, 4 / 5, 2 / 4])


def test_prefix_ndcg_by_hand():
    expected = [0, LOG3 / (1 + LOG3), (LOG3 + 1 / 2) / (1 + LOG3), 1]
    assert of_prefixes("ndcg_paper", INDPTR, RELEVANT, N_RELEVANT).tolist() == pytest.approx(expected)


def test_fair_ndcg_of_prefixes_never_falls():
    """Its denominator is that of the user, not that of the length."""
    best = 1 + LOG3
    expected = [0, LOG3 / best, (LOG3 + 1 / 2) / best, 1 / (best + 1 / 2)]
    assert of_prefixes("ndcg", INDPTR, RELEVANT, N_RELEVANT).tolist() == pytest.approx(expected)
    capped = [0, LOG3 / best, LOG3 / best, 1 / best]  # at most two items would be shown
    assert of_prefixes("ndcg", INDPTR, RELEVANT, N_RELEVANT, 2).tolist() == pytest.approx(capped)


def test_sums_at_n_by_hand():
    sums = sums_at_n(INDPTR, RELEVANT, N_RELEVANT, 3, max_items=2)
    found = dict(zip(AT_N, sums.T, strict=True))
    assert found["f1"].tolist() == pytest.approx([2 / 4, 2 / 4 + 2 / 4, 4 / 5 + 2 / 4])
    assert found["precision"].tolist() == pytest.approx([0 + 1, 1 / 2 + 1, 2 / 3 + 1])
    assert found["recall"].tolist() == pytest.approx([1 / 3, 1 / 2 + 1 / 3, 1 + 1 / 3])
    capped = 1 / (1 + LOG3)  # of the second list: two of its three relevant items fit into max_items
    assert found["ndcg"].tolist() == pytest.approx([capped, capped * (1 + LOG3), capped * (1 + LOG3)])
    paper = [0, LOG3 / (1 + LOG3), (LOG3 + 1 / 2) / (1 + LOG3)]
    assert found["ndcg_paper"].tolist() == pytest.approx([1 + value for value in paper])
    assert found["length"].tolist() == [2, 3, 4]


def test_sums_over_selected_lists():
    sums = sums_at_n(INDPTR, RELEVANT, N_RELEVANT, 3, max_items=3, numbers=np.array([2]))
    assert sums[:, AT_N.index("f1")].tolist() == pytest.approx([0.5] * 3)


def test_lists_without_relevant_items_add_zero():
    found = sums_at_n(np.array([0, 2]), np.zeros(2, np.bool_), np.zeros(1, np.int32), 2, max_items=2)
    assert found[:, :-1].tolist() == [[0.0] * 5] * 2
    assert of_prefixes(
        "ndcg_paper", np.array([0, 2]), np.zeros(2, np.bool_), np.zeros(1, np.int32)
    ).tolist() == [0, 0]


def test_no_lists_at_all():
    nothing = np.zeros(1, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.int32)
    assert of_prefixes("f1", *nothing).size == 0
    assert of_prefixes("ndcg_paper", *nothing).size == 0
    assert f1_at_n(*nothing, 3).tolist() == [0, 0, 0]


@given(st.lists(st.tuples(st.lists(st.booleans(), max_size=8), st.integers(0, 3)), max_size=6))
def test_prefixes_match_the_plain_definitions(lists):
    relevant = np.array([hit for hits, _ in lists for hit in hits], np.bool_)
    indptr = np.concatenate([[0], np.cumsum([len(hits) for hits, _ in lists])]).astype(np.int64)
    n_relevant = np.array([max(sum(hits) + missed, 1) for hits, missed in lists], np.int32)
    expected = [
        naive.metrics(range(k), [*(at for at, hit in enumerate(hits) if hit), *range(-size, 0)][:size])
        for (hits, _), size in zip(lists, n_relevant.tolist(), strict=True)
        for k in range(1, len(hits) + 1)
    ]
    f1, ndcg = (
        of_prefixes("f1", indptr, relevant, n_relevant),
        of_prefixes("ndcg_paper", indptr, relevant, n_relevant),
    )
    assert f1.tolist() == pytest.approx([row["f1"] for row in expected])
    assert ndcg.tolist() == pytest.approx([row["ndcg_paper"] for row in expected])
    at_n = np.zeros(10)
    for start, end in pairwise(indptr):
        if end > start:
            at_n += f1[np.minimum(start + np.arange(10), end - 1)]
    assert f1_at_n(indptr, relevant, n_relevant, 10).tolist() == pytest.approx(at_n.tolist())


def test_f1_at_n_equals_a_dense_sum_to_the_last_bit():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 21, 300)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    relevant, n_relevant = rng.random(indptr[-1]) < 0.3, rng.integers(21, 40, 300).astype(np.int32)
    hits = np.zeros((300, 20))
    row = np.repeat(np.arange(300), lengths)
    hits[row, np.arange(row.size) - indptr[row]] = relevant
    shown = np.minimum(np.arange(1, 21), lengths[:, None])
    dense = (2 * hits.cumsum(axis=1) / (shown + n_relevant[:, None])).sum(axis=0)
    assert f1_at_n(indptr, relevant, n_relevant, 20).tolist() == dense.tolist()


def test_calibration_error_by_hand():
    error = calibration_error(np.array([3, 1]), np.array([0.5, 0.9]), np.array([0.25, 1.0]))
    assert error == pytest.approx(0.75 * 0.25 + 0.25 * 0.1)
    assert math.isnan(calibration_error(np.zeros(0, np.int64), np.zeros(0), np.zeros(0)))


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=10))
def test_calibration_error_equals_the_sum_of_a_table_to_the_last_bit(rows):
    table = pl.DataFrame(rows, schema=["n", "predicted", "observed"], orient="row")
    weighted = table["n"] / table["n"].sum() * (table["predicted"] - table["observed"]).abs()
    assert calibration_error(*(table[name].to_numpy() for name in table.columns)) == float(weighted.sum())
