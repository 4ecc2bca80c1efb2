"""GrowingArray: versions never see each other's values."""

import pickle

import numpy as np

from shortlist.models.factorization.representation import GrowingArray


def test_versions_keep_their_values():
    first = GrowingArray(np.arange(3))
    second = first.append(np.array([10, 11]))
    third = second.append(np.array([12]))
    branch = second.append(np.array([99]))
    assert first.values.tolist() == [0, 1, 2]
    assert second.values.tolist() == [0, 1, 2, 10, 11]
    assert third.values.tolist() == [0, 1, 2, 10, 11, 12]
    assert branch.values.tolist() == [0, 1, 2, 10, 11, 99]
    assert len(third) == 6


def test_appending_copies_rarely():
    one, buffers = GrowingArray(np.arange(1)), set()
    for number in range(1000):
        one = one.append(np.array([number]))
        buffers.add(one.values.__array_interface__["data"][0])
    assert len(buffers) <= 12


def test_given_values_are_not_written():
    given = np.arange(3)
    GrowingArray(given).append(np.array([5]))
    assert given.tolist() == [0, 1, 2]
    assert not GrowingArray(given).values.flags.writeable


def test_pickle_keeps_the_values():
    one = GrowingArray(np.arange(2)).append(np.array([7]))
    assert pickle.loads(pickle.dumps(one)).append(np.array([8])).values.tolist() == [0, 1, 7, 8]
