"""How a user, and a moment, become a score vector; the joint engine asks for nothing else."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.mf import TERMS, Parameters, Rates, mf_round
from shortlist.kernels.simd import factor_width
from shortlist.models.factorization.schedule import Schedule
from shortlist.types import Floats, Ints, Longs


class Representation(ABC):
    """A third one means a class like `Plain` below: its groups, one round of steps, and its score vectors."""

    least_blocks = 4

    @abstractmethod
    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        """(indptr, item, group_at): rows of each group, and where each user's groups start."""

    def enter(self, schedule: Schedule) -> None:  # noqa: B027  # most have nothing to do
        """Called after every relabelling, before the first round under it."""

    @abstractmethod
    def run_round(
        self, schedule: Schedule, turn: int, theta: Parameters, rates: Rates, word: np.uint64
    ) -> None:
        """Make all steps of one round; items stand in the order of schedule.label."""

    @abstractmethod
    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        """(n, n_factors) the score vectors of training groups; items in the order of schedule.label."""

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        """For each of TERMS, (n,) what an item's weights are multiplied by; None where it does not count."""
        return (None,) * len(TERMS)

    @abstractmethod
    def group_users(self, groups: Ints) -> Ints:
        """The owner of each group."""


@dataclass(eq=False)
class Plain(Representation):
    """Matrix factorisation: the user's factors are the score vector, whatever the moment."""

    def groups(self, train: Interactions) -> tuple[Longs, Ints, Longs]:
        indptr, items = train.item_sets
        return indptr, items, np.arange(train.n_users + 1, dtype=np.int64)

    def run_round(
        self, schedule: Schedule, turn: int, theta: Parameters, rates: Rates, word: np.uint64
    ) -> None:
        schedule.spread(
            mf_round,
            schedule.n_blocks,
            turn,
            schedule.strata,
            schedule.users_at,
            schedule.size,
            theta,
            rates,
            word,
            factor_width(theta.user.shape[1]),
        )

    def group_vectors(self, theta: Parameters, groups: Ints) -> Floats:
        return theta.user[groups]

    def group_users(self, groups: Ints) -> Ints:
        return groups
