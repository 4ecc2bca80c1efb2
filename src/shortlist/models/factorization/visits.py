"""How often training visits a row, by its weight."""

import numpy as np

from shortlist.core.ragged import starts
from shortlist.kernels.rng import stream
from shortlist.models.factorization.schedule import random_bits
from shortlist.types import Doubles, Ints, Longs

VISITS = 9  # id of a random stream
MAX_MEAN = 4.0  # visits per row and epoch; larger weights are all divided by the same number


def count_visits(amounts: Doubles, seed: int) -> Longs:
    """(n_rows,) visits per epoch: the amount, rounded up or down at random, at least 1; 0 if it is negative.

    The numbers depend on the seed and on the row's place alone. A row of positive weight is visited at least
    once: one without any visit would be sampled as an item that the user does not have.
    """
    liked = amounts > 0
    mean = float(amounts[liked].mean()) if liked.any() else 1.0
    wanted = amounts * min(1.0, MAX_MEAN / mean)
    whole = np.floor(wanted)
    bits = random_bits(stream(seed, VISITS)[0], np.arange(amounts.size, dtype=np.uint64))
    drawn = whole + ((bits >> np.uint64(11)) * 2.0**-53 < wanted - whole)
    return np.where(liked, np.maximum(drawn, 1), 0).astype(np.int64)


def repeat_rows(groups: tuple[Longs, Ints, Longs], amounts: Doubles, seed: int) -> tuple[Longs, Ints, Longs]:
    """The groups of `Representation.groups` with every row as often as it is visited."""
    indptr, item, group_starts = groups
    visits = count_visits(amounts, seed)
    return starts(visits)[indptr], np.repeat(item, visits), group_starts
