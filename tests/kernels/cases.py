"""Baskets for the tests of kernels that replay a history."""

import numpy as np

from shortlist.data.interactions import Interactions


def baskets(seed, n_users=8, n_items=9):
    """A few users with up to five days of up to three items."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        for day in np.sort(rng.permutation(12)[: rng.integers(1, 6)]):
            rows += [
                (user, int(i), int(day) * 86_400) for i in rng.permutation(n_items)[: rng.integers(1, 4)]
            ]
    return Interactions.from_tuples(rows)
