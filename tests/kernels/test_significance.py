"""Means of bootstrap samples against the samples; bets are tested with the guarantee."""

import numpy as np

from shortlist.kernels.rng import next_below, stream
from shortlist.kernels.significance import resample_means


def test_means_equal_those_of_the_samples():
    values = np.array([1.0, 10.0, 100.0, 1000.0])
    means = np.empty(50)
    resample_means(values, stream(7), means)
    state = stream(7)
    sampled = [[next_below(state, 4) for _ in range(4)] for _ in range(50)]
    np.testing.assert_allclose(means, values[np.array(sampled)].mean(axis=1))
