"""Grouping gives the same bits on any number of threads."""

import numpy as np
import pytest

from shortlist.core import threads
from shortlist.core.threads import run_each
from shortlist.data import interactions
from shortlist.data.interactions import build_arrays, filter_starts, group_by_user


def table(seed):
    rng = np.random.default_rng(seed)
    n, n_users = 5_000, 40
    user = np.minimum(rng.geometric(0.1, n), n_users - 5).astype(
        np.int32
    )  # the first and the last users have no rows
    item, time = rng.integers(0, 60, n).astype(np.int32), rng.integers(0, 90, n)
    return n_users, user, item, time, rng.integers(0, 3, n).astype(np.int32), rng.random(n).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_threads_change_nothing(monkeypatch, seed):
    alone = build_arrays(group_by_user(*table(seed)))
    assert alone["duplicates"] > 0
    monkeypatch.setattr(threads, "PARALLEL_ROWS", 1)
    monkeypatch.setattr(interactions, "PARALLEL_ROWS", 1)
    for cores in (2, 3, 7):
        monkeypatch.setattr(threads, "thread_count", lambda cores=cores: cores)
        together = build_arrays(group_by_user(*table(seed)))
        assert list(together) == list(alone)
        for name, array in alone.items():
            np.testing.assert_array_equal(together[name], array)


def test_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(threads, "PARALLEL_ROWS", 1)
    monkeypatch.setattr(threads, "thread_count", lambda: 2)

    def fail(piece):
        raise RuntimeError(piece)

    with pytest.raises(RuntimeError, match="1"):
        run_each(fail, [1, 2], n_rows=10)


def test_starts_after_rows_are_dropped():
    keep = np.array([True, False, True, True, False])
    assert filter_starts(np.array([0, 2, 2, 5]), keep).tolist() == [0, 1, 1, 3]
