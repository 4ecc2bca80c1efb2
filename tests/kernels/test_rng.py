"""Random streams in kernels: the published generator, ranges, and independence of streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.rng import fill_uniform, index_below, next_below, next_bits, stream, unit_float
from tests import naive

SEEDS = st.integers(0, 2**64 - 1)


def test_bits_match_published_splitmix64():
    state = np.array([1234567], np.uint64)
    # first outputs for this seed as published with the reference implementation
    assert [int(next_bits(state)) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(SEEDS)
def test_bits_match_plain_generator(seed):
    state, plain = np.array([seed], np.uint64), seed
    for _ in range(5):
        plain, expected = naive.next_bits(plain)
        assert int(next_bits(state)) == expected
    assert plain == int(state[0])


@given(SEEDS, st.integers(1, 2**31 - 1))
def test_draws_stay_in_range(bits, n):
    assert 0 <= index_below(np.uint64(bits), n) < n
    assert 0 <= unit_float(np.uint64(bits)) < 1


def test_largest_bits_stay_below_one():
    assert unit_float(np.uint64(2**64 - 1)) == np.float32(1 - 2**-24)
    assert index_below(np.uint64(2**64 - 1), 7) == 6


def test_draws_are_uniform():
    state = np.array([3], np.uint64)
    counts = np.bincount([next_below(state, 5) for _ in range(20_000)], minlength=5)
    assert (abs(counts - 4000) < 5 * np.sqrt(20_000 * 0.2 * 0.8)).all()


def test_uniform_numbers_depend_on_key_and_position_alone():
    longer, shorter, other = (np.empty(n, np.float32) for n in (10_001, 501, 501))
    for key, out in ((7, longer), (7, shorter), (8, other)):
        fill_uniform(np.uint64(key), np.float32(0.3), out)
    assert (longer[:501] == shorter).all()
    assert (other != shorter).any()
    assert (longer >= -0.3).all()
    assert (longer < 0.3).all()
    assert abs(longer.mean()) < 5 * 0.3 / np.sqrt(3 * longer.size)
    assert longer.std() == pytest.approx(0.3 / np.sqrt(3), rel=0.03)
    assert abs(np.corrcoef(longer[::2][:5000], longer[1::2][:5000])[0, 1]) < 0.05


@pytest.mark.parametrize(("one", "other"), [((1, 2), (2, 1)), ((0, 0), (0, 0, 0)), ((5, 1), (5, 2))])
def test_other_paths_give_other_streams(one, other):
    assert stream(*one)[0] == stream(*one)[0]
    assert stream(*one)[0] != stream(*other)[0]
