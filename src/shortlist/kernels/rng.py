"""Random numbers inside kernels: SplitMix64, one 64-bit word of state per stream."""

import numpy as np

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Floats, State

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S27, S30, S31, S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
ONE, TWO = np.float32(1), np.float32(2)


@inlined
def mixed(z: np.uint64) -> np.uint64:
    """64 bits that look nothing like those of z's neighbours."""
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@inlined
def next_word(state: State) -> np.uint64:
    """Advance the stream; 64 fresh bits."""
    state[0] += GOLDEN
    return mixed(state[0])


@inlined
def high_below(word: np.uint64, n: int) -> np.int64:
    """A number in [0, n) from the upper half of a word; n < 2**31."""
    return np.int64(((word >> S32) * np.uint64(n)) >> S32)


@inlined
def low_unit(word: np.uint64) -> np.float32:
    """A number in [0, 1) from the lower half of a word, on a grid of 2**24 so that it never rounds to 1."""
    return np.float32((word & LOW) >> np.uint64(8)) * np.float32(2.0**-24)


@inlined
def next_below(state: State, n: int) -> np.int64:
    """A fresh number in [0, n); n < 2**31."""
    return high_below(next_word(state), n)


@kernel
def uniform_fill(word: np.uint64, reach: np.float32, out: Floats) -> None:
    """Numbers in [-reach, reach); the one at place n depends on `word` and n alone."""
    for n in range(0, out.size, 2):
        word += GOLDEN
        z = mixed(word)
        out[n] = reach * (TWO * low_unit(z >> S32) - ONE)
        if n + 1 < out.size:
            out[n + 1] = reach * (TWO * low_unit(z) - ONE)


@kernel
def words(state: State, out: State) -> None:
    """Fill `out` from the stream."""
    for i in range(out.size):
        out[i] = next_word(state)


def stream(seed: int, *path: int) -> State:
    """A stream named by a seed and a path (epoch, round, block …); different names, unrelated streams."""
    entropy = np.random.SeedSequence(seed, spawn_key=path)
    return np.asarray(entropy.generate_state(1, np.uint64), np.uint64)
