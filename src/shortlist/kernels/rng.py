"""Random numbers in kernels: SplitMix64, whose state is one 64-bit integer per stream."""

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
def mix_bits(z: np.uint64) -> np.uint64:
    """Return 64 bits that look unrelated for neighboring values of z."""
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@inlined
def next_bits(state: State) -> np.uint64:
    """Advance the stream and return 64 random bits."""
    state[0] += GOLDEN
    return mix_bits(state[0])


@inlined
def index_below(bits: np.uint64, n: int) -> np.int64:
    """Return an integer in [0, n) from the upper half of 64 random bits; n < 2**31."""
    return np.int64(((bits >> S32) * np.uint64(n)) >> S32)


@inlined
def unit_float(bits: np.uint64) -> np.float32:
    """Return a float in [0, 1) from the lower half of 64 random bits: a multiple of 2**-24, so never 1."""
    return np.float32((bits & LOW) >> np.uint64(8)) * np.float32(2.0**-24)


@inlined
def next_below(state: State, n: int) -> np.int64:
    """Advance the stream and return an integer in [0, n); n < 2**31."""
    return index_below(next_bits(state), n)


@kernel
def fill_uniform(key: np.uint64, limit: np.float32, out: Floats) -> None:
    """Fill `out` with numbers in [-limit, limit); the number at position n depends on `key` and n alone."""
    for n in range(0, out.size, 2):
        key += GOLDEN
        z = mix_bits(key)
        out[n] = limit * (TWO * unit_float(z >> S32) - ONE)
        if n + 1 < out.size:
            out[n + 1] = limit * (TWO * unit_float(z) - ONE)


def stream(seed: int, *path: int) -> State:
    """Return the state (1,) of the stream identified by a seed and a path such as (purpose, epoch)."""
    entropy = np.random.SeedSequence(seed, spawn_key=path)
    return np.asarray(entropy.generate_state(1, np.uint64), np.uint64)
