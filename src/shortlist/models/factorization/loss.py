"""The training loss on a fixed sample of (group, liked item, unseen item), drawn from the seed alone."""

from typing import Any, NamedTuple, Self

import numpy as np

from shortlist.kernels.mf import TERMS, Parameters
from shortlist.kernels.sets import find_members
from shortlist.models.factorization.objective import Objective
from shortlist.models.factorization.representation import Representation
from shortlist.models.factorization.schedule import Schedule
from shortlist.types import Bools, Doubles, Floats, Ints, Longs

LOSS_ROWS = 20_000
LOSS = 3  # id of a random stream

Signals = tuple[Floats | None, ...]  # for each of TERMS; None if the term is not used


def draw_rows(n_rows: int, n_items: int, seed: int) -> tuple[Longs, Ints]:
    """(rows, other): ascending numbers of training rows, and an item for each that may be unseen."""
    rng = np.random.Generator(np.random.PCG64([seed, LOSS]))
    rows = np.sort(rng.choice(n_rows, min(LOSS_ROWS, n_rows), replace=False))
    return rows, rng.integers(n_items, size=rows.size, dtype=np.int32)


class LossRows(NamedTuple):
    """What is fixed about the sampled rows."""

    groups: Ints  # (n,)
    users: Ints  # (n,) of the groups
    liked: Ints  # (n,) items
    other: Ints  # (n,) items
    seen: Bools  # (n,) whether the group has `other`
    liked_signals: Signals
    other_signals: Signals
    density: Doubles  # (n,) share of the items that the group has

    @classmethod
    def of(cls, schedule: Schedule, representation: Representation, rows: Longs, other: Ints) -> Self:
        """The rows of these numbers."""
        groups: Ints = (np.searchsorted(schedule.indptr, rows, side="right") - 1).astype(np.int32)
        seen, liked = np.empty(rows.size, np.bool_), schedule.item[rows]
        find_members(schedule.indptr, schedule.item, groups, other, seen)
        n_liked = schedule.indptr[groups + 1] - schedule.indptr[groups]
        return cls(
            groups,
            representation.group_users(groups),
            liked,
            other,
            seen,
            representation.signals(groups, liked),
            representation.signals(groups, other),
            n_liked / schedule.n_items,
        )

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        """All rows of the parts, in their order."""
        if len(parts) == 1:
            return parts[0]

        def stack(values: tuple[Floats | None, ...]) -> Floats | None:
            found = [value for value in values if value is not None]
            return np.concatenate(found) if found else None

        columns: list[Any] = []
        for column in zip(*parts, strict=True):
            is_signals = isinstance(column[0], tuple)
            joined = tuple(map(stack, zip(*column, strict=True))) if is_signals else np.concatenate(column)
            columns.append(joined)
        return cls(*columns)

    def user_values(self, representation: Representation, theta: Parameters) -> "UserValues":
        """What the loss needs of the users; items are in the order of the labels."""
        weights = theta._asdict()
        return UserValues(
            representation.group_vectors(theta, self.groups),
            theta.boundary[self.users],
            tuple(weights[by_user][self.users] if weights[by_user].size else None for by_user, _ in TERMS),
        )


class UserValues(NamedTuple):
    """The user side of the scores of the sampled rows."""

    vectors: Floats  # (n, n_factors)
    boundary: Floats  # (n,)
    weights: Signals  # (n,) the user's weight of each term

    @classmethod
    def join(cls, parts: list["UserValues"]) -> "UserValues":
        """All rows of the parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        vectors, boundary, weights = zip(*parts, strict=True)
        joined = (None if term[0] is None else np.concatenate(term) for term in zip(*weights, strict=True))
        return cls(np.concatenate(vectors), np.concatenate(boundary), tuple(joined))


class LossTracker:
    """The mean joint loss over the sampled rows."""

    def __init__(self, rows: LossRows, objective: Objective) -> None:
        seen = rows.seen
        self.kept = np.flatnonzero(seen if seen.all() else ~seen)  # without unseen items, use seen ones
        self.rows, self.objective = rows, objective

    def loss(self, users: UserValues, theta: Parameters, label: Ints) -> float:
        """The loss; the items of `theta` are in the order of `label`."""
        rows, kept = self.rows, self.kept
        with np.errstate(over="ignore", invalid="ignore"):  # `StepSize` handles a loss that is not finite
            scores = [
                self._score(users, theta, label[items[kept]], signals)
                for items, signals in ((rows.liked, rows.liked_signals), (rows.other, rows.other_signals))
            ]
            return self.objective.value(scores[0], scores[1], users.boundary[kept], rows.density[kept])

    def _score(self, users: UserValues, theta: Parameters, items: Ints, signals: Signals) -> Floats:
        score: Floats = np.einsum("nf,nf->n", users.vectors[self.kept], theta.item[items])
        if theta.bias.size:
            score += theta.bias[items]
        by_name = theta._asdict()
        for (_, by_item), weight, signal in zip(TERMS, users.weights, signals, strict=True):
            if weight is not None and signal is not None:
                score += (weight[self.kept] + by_name[by_item][items]) * signal[self.kept]
        return score
