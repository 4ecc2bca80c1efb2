"""The streams inside kernels: the published generator, ranges that hold, names that separate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.rng import high_below, low_unit, next_below, stream, uniform_fill, words
from tests import naive

SEEDS = st.integers(0, 2**64 - 1)


def test_words_are_those_of_splitmix64():
    state, out = np.array([1234567], np.uint64), np.empty(3, np.uint64)
    words(state, out)
    # the first outputs for this seed, as published with the reference implementation
    assert out.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(SEEDS)
def test_the_plain_generator_draws_the_same(seed):
    state, out, plain = np.array([seed], np.uint64), np.empty(5, np.uint64), seed
    words(state, out)
    for word in out.tolist():
        plain, mine = naive.next_word(plain)
        assert mine == word
    assert plain == int(state[0])


@given(SEEDS, st.integers(1, 2**31 - 1))
def test_draws_stay_in_range(word, n):
    assert 0 <= high_below(np.uint64(word), n) < n
    assert 0 <= low_unit(np.uint64(word)) < 1


def test_the_largest_word_stays_below_one():
    assert low_unit(np.uint64(2**64 - 1)) == np.float32(1 - 2**-24)
    assert high_below(np.uint64(2**64 - 1), 7) == 6


def test_draws_are_even():
    state = np.array([3], np.uint64)
    counts = np.bincount([next_below(state, 5) for _ in range(20_000)], minlength=5)
    assert (abs(counts - 4000) < 5 * np.sqrt(20_000 * 0.2 * 0.8)).all()


def test_uniform_numbers_depend_on_their_place_alone():
    longer, shorter, other = (np.empty(n, np.float32) for n in (10_001, 501, 501))
    for word, out in ((7, longer), (7, shorter), (8, other)):
        uniform_fill(np.uint64(word), np.float32(0.3), out)
    assert (longer[:501] == shorter).all()
    assert (other != shorter).any()
    assert (longer >= -0.3).all()
    assert (longer < 0.3).all()
    assert abs(longer.mean()) < 5 * 0.3 / np.sqrt(3 * longer.size)
    assert longer.std() == pytest.approx(0.3 / np.sqrt(3), rel=0.03)
    assert abs(np.corrcoef(longer[::2][:5000], longer[1::2][:5000])[0, 1]) < 0.05


@pytest.mark.parametrize(("one", "other"), [((1, 2), (2, 1)), ((0, 0), (0, 0, 0)), ((5, 1), (5, 2))])
def test_other_names_are_other_streams(one, other):
    assert stream(*one)[0] == stream(*one)[0]
    assert stream(*one)[0] != stream(*other)[0]
