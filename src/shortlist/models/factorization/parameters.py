"""The parameters of factor models: their shapes, their start, and their form in a file."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from shortlist.kernels.parameters import TERMS, Parameters
from shortlist.kernels.rng import fill_uniform, stream
from shortlist.types import Bools, Floats, Longs

USER_STREAM, ITEM_STREAM = 4, 5  # ids of random streams
MAX_SIZE = 1e12  # of a number in a file; inner products of larger ones could overflow


def initialize_parameters(
    n_users: int,
    *,
    n_items: int,
    n_factors: int,
    init: float,
    t: float,
    bias: bool,
    start_weights: tuple[float | None, ...],  # for each of TERMS, of a user; None where the term is off
    seed: int,
) -> Parameters:
    """Small random factors; row n depends only on the seed and n, so that rows can be appended later."""
    scale = np.float32(init * np.sqrt(3 / n_factors))  # standard deviation init / √n_factors

    def draw(stream_id: int, n: int) -> Floats:
        values = np.empty(n * n_factors, np.float32)
        fill_uniform(stream(seed, stream_id)[0], scale, values)
        return values.reshape(n, n_factors)

    terms: list[Floats] = []
    for weight in start_weights:
        is_on = weight is not None
        terms.append(np.full(n_users if is_on else 0, weight or 0, np.float32))
        terms.append(np.zeros(n_items if is_on else 0, np.float32))
    return Parameters(
        draw(USER_STREAM, n_users),
        np.full(n_users, t, np.float32),
        draw(ITEM_STREAM, n_items),
        np.zeros(n_items if bias else 0, np.float32),
        *terms,
    )


def parameter_shapes(
    n_users: int, n_items: int, n_factors: int, bias: bool, terms_on: tuple[bool, ...]
) -> dict[str, tuple[int, ...]]:
    """The shape of each array of `Parameters` by name; what the model does not have is empty."""
    shapes: dict[str, tuple[int, ...]] = {
        "user": (n_users, n_factors),
        "boundary": (n_users,),
        "item": (n_items, n_factors),
        "bias": (n_items if bias else 0,),
    }
    for (by_user, by_item), on in zip(TERMS, terms_on, strict=True):
        shapes |= {by_user: (n_users if on else 0,), by_item: (n_items if on else 0,)}
    return shapes


def user_fields(theta: Parameters) -> dict[str, Floats]:
    """The arrays with a row per user that the model has, by name; others are empty."""
    names = ("user", "boundary", *(by_user for by_user, _ in TERMS))
    return {name: array for name in names if (array := theta._asdict()[name]).size}


def mean_user(theta: Parameters, trained: Bools, cuts: Longs) -> dict[str, Any]:
    """The mean of each parameter over the users that have training pairs, or over all if none has.

    `cuts` are the first users of the blocks that training divided the users into.
    """
    rows = trained if trained.any() else np.ones(trained.size, np.bool_)
    means, n = {}, int(rows.sum())
    for name, array in user_fields(theta).items():
        sums = [
            array[low:high][rows[low:high]].sum(axis=0, dtype=np.float64)
            for low, high in pairwise(cuts.tolist())
        ]
        columns = np.array(sums).reshape(len(sums), -1).T
        mean = np.array([math.fsum(column) / n for column in columns])
        means[name] = mean.reshape(array.shape[1:]).astype(np.float32)
    return means


def set_untrained_users(theta: Parameters, trained: Bools, means: Mapping[str, Any]) -> Parameters:
    """The parameters, with those of the mean user for users without training pairs."""
    if trained.all():
        return theta
    fields = user_fields(theta)
    shaped = {name: trained.reshape(-1, *[1] * (array.ndim - 1)) for name, array in fields.items()}
    return theta._replace(
        **{name: np.where(shaped[name], array, means[name]) for name, array in fields.items()}
    )


def freeze(theta: Parameters) -> Parameters:
    """Make the arrays read-only, so that an index built on them stays valid."""
    for array in theta:
        array.flags.writeable = False
    return theta
