"""The repeat signal against plain counting."""

import numpy as np
import pytest

from shortlist.kernels.terms import SIGNAL_UNITS, RepeatSignal, count_repeats, repeat_signals
from tests import naive

F, DECAY = np.float32, 0.8
USERS = [
    [[0, 3], [5, 8], [0, 8, 1]],
    [[1, 2]],
    [],
    [[4, 9], [10, 7, 6], [4], [9, 4]],
    [[0, 1], [2, 3, 10]],
    [[5], [5]],
]


def new_counts(n_items):
    kinds = (np.int32, F, np.int32, np.int32)
    return RepeatSignal(*(np.zeros(n_items, kind) for kind in kinds))


def test_repeat_signals_before_each_basket():
    baskets = [basket for user in USERS for basket in user]
    owner = [user for user, own in enumerate(USERS) for _ in own]
    at = np.concatenate([[0], np.cumsum([len(one) for one in baskets])]).astype(np.int64)
    item = np.array([i for one in baskets for i in one], np.int32)
    first = np.concatenate([[0], np.cumsum([len(own) for own in USERS])]).astype(np.int64)
    groups, wanted = (each.ravel().astype(np.int32) for each in np.mgrid[: len(baskets), :11])
    out, log_decay = np.empty(groups.size, F), F(np.log(DECAY))
    repeat_signals(groups, wanted, first[np.array(owner)[groups]], at, item, log_decay, out)
    plain = [
        naive.repeat_signal(i, [baskets[b] for b in range(first[owner[g]], g)], DECAY)
        for g, i in zip(groups, wanted, strict=True)
    ]
    np.testing.assert_allclose(out, plain, rtol=1e-5)
    n_candidates = sum(
        len({i for b in range(first[owner[g]], g) for i in baskets[b]}) for g in range(len(baskets))
    )
    repeated = [x for g, i, x in zip(groups, wanted, plain, strict=True) if x > 0 and i in baskets[g]]
    found = count_repeats(first, at, item, 11, log_decay)
    assert found[:2] == (n_candidates, len(repeated))
    assert found[2] / SIGNAL_UNITS == pytest.approx(sum(repeated), rel=1e-5)
