"""UserParts: a copy of the parameters of all users, in parts in the store of a cluster."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import ray

from shortlist.core.array_parts import ArrayParts
from shortlist.kernels.mf import Parameters
from shortlist.models.factorization.parameters import freeze
from shortlist.models.factorization.trainer import BY_ITEM, BY_USER
from shortlist.scale.worker import Arrays
from shortlist.types import Floats, Longs


class UserParts(NamedTuple):
    """References to the parameters of users, and the item parameters that belong to them."""

    epoch: int  # number of completed epochs
    items: Arrays  # in their original order
    parts: list[tuple[int, Any]]  # (first user, reference to the arrays)


def store_users(epoch: int, theta: Parameters, first_users: Longs) -> UserParts:
    """Put parameters into the store of the cluster, in a part per worker."""
    by_name, parts = theta._asdict(), []
    for first, last in pairwise(first_users.tolist()):
        users = {name: by_name[name][first:last] for name in BY_USER if by_name[name].size}
        parts.append((first, ray.put(users)))
    return UserParts(epoch, {name: by_name[name] for name in BY_ITEM}, parts)


def arrays_of(source: UserParts, n_users: int, one_user: Parameters) -> dict[str, Any]:
    """Arrays to be written; those of users are fetched part by part. `one_user` shows their shapes."""
    start = one_user._asdict()

    def fetch(name: str) -> Iterator[Floats]:
        for _, part in source.parts:
            yield ray.get(part)[name]

    users = {
        name: ArrayParts(np.dtype(np.float32), (n_users, *start[name].shape[1:]), partial(fetch, name))
        if start[name].size
        else start[name]
        for name in BY_USER
    }
    return users | source.items


def gather_users(source: UserParts) -> Parameters:
    """The parameters in the memory of this process."""
    parts = [ray.get(part) for _, part in source.parts]
    users = {name: np.concatenate([part[name] for part in parts]) for name in BY_USER if name in parts[0]}
    none = {name: np.empty(0, np.float32) for name in BY_USER if name not in users}
    return freeze(join_parameters(users | none, {k: np.array(array) for k, array in source.items.items()}))


def join_parameters(users: Arrays, items: Arrays) -> Parameters:
    """The parameters of some users and of all items."""
    return Parameters(**{name: (users | items)[name] for name in Parameters._fields})
