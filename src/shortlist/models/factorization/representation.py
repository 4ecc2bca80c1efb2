"""Representations: how a user, with or without the previous baskets, becomes a score vector."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shortlist.data.interactions import Interactions
from shortlist.kernels.hybrid import Contexts
from shortlist.kernels.new_users import AVERAGE, MAXIMUM, USER_ONLY
from shortlist.kernels.parameters import Parameters
from shortlist.models.factorization.groups import Groups, context_vectors
from shortlist.models.factorization.terms import NO_TERMS, TermStart
from shortlist.models.weighting import WeightTransform, decayed_counts
from shortlist.types import Bools, Doubles, Floats, Ints

CONTEXT_BLOCKS = 64  # short rounds, so that contexts are read from a recent snapshot


class Representation(ABC):
    """What the score vector of a user is, and which groups of rows training visits."""

    source: ClassVar[str]  # what an explanation calls the inner product

    @property
    def pooling(self) -> int:
        """How the user enters the score vector, for fold-in."""
        return USER_ONLY

    @abstractmethod
    def groups(self, train: Interactions, start: TermStart, transform: WeightTransform | None) -> Groups:
        """The groups that training visits."""

    @abstractmethod
    def vectors(self, parameters: Parameters, history: Interactions, users: Ints) -> Floats:
        """(n, n_factors) the score vectors of users after their history."""

    @abstractmethod
    def trained_users(self, history: Interactions) -> Bools:
        """(n_users,) whether training has pairs of each user."""

    @abstractmethod
    def items_per_group(self, history: Interactions, users: Ints) -> Doubles:
        """(n,) mean number of items per training group of a user: the base rate."""


@dataclass(frozen=True)
class UserFactors(Representation):
    """Matrix factorization: the score vector is the user's vector.

    A group is the user's history as a set; with terms, which compare a basket with what was before it, it is
    a basket.
    """

    source: ClassVar[str] = "user"

    by_basket: bool = False

    def groups(self, train: Interactions, start: TermStart, transform: WeightTransform | None) -> Groups:
        if self.by_basket:
            return basket_groups(train, start, transform)
        sets, amounts = train.item_sets, None
        if transform is not None:
            amounts = decayed_counts(train, 1.0, transform).astype(np.float64)
        user_starts, users = (
            np.arange(train.n_users + 1, dtype=np.int64),
            np.arange(train.n_users, dtype=np.int32),
        )
        return Groups(sets.indptr, sets.items, user_starts, users, amounts, NO_TERMS, has_repeats=False)

    def vectors(self, parameters: Parameters, history: Interactions, users: Ints) -> Floats:
        return parameters.user[users]

    def trained_users(self, history: Interactions) -> Bools:
        return history.user_counts > 0

    def items_per_group(self, history: Interactions, users: Ints) -> Doubles:
        if self.by_basket:
            return items_per_basket(history, users)
        at = history.item_sets.indptr
        return (at[users + 1] - at[users]).astype(np.float64)


@dataclass(frozen=True)
class HybridFactors(Representation):
    """HRM: the user's vector, pooled with the items of the `window` baskets before a basket (eq. 12-16)."""

    window: int
    max_pool_items: bool
    max_pool_user: bool

    source: ClassVar[str] = "user and last baskets"

    @property
    def pooling(self) -> int:
        return MAXIMUM if self.max_pool_user else AVERAGE

    def groups(self, train: Interactions, start: TermStart, transform: WeightTransform | None) -> Groups:
        groups = basket_groups(train, start, transform)
        first = np.repeat(train.user_baskets[:-1], train.basket_counts)
        begin = train.baskets[np.maximum(np.arange(train.n_baskets) - self.window, first)]
        pools = self.max_pool_items, self.max_pool_user
        groups.contexts = Contexts(groups.users, begin, train.baskets[:-1].copy(), train.item, *pools)
        groups.min_blocks = CONTEXT_BLOCKS
        return groups

    def vectors(self, parameters: Parameters, history: Interactions, users: Ints) -> Floats:
        last = history.user_baskets[users + 1]
        begin = history.baskets[np.maximum(last - self.window, history.user_baskets[users])]
        pools = self.max_pool_items, self.max_pool_user
        return context_vectors(
            parameters, Contexts(users, begin, history.baskets[last], history.item, *pools)
        )

    def trained_users(self, history: Interactions) -> Bools:
        return history.basket_counts > 1

    def items_per_group(self, history: Interactions, users: Ints) -> Doubles:
        return items_per_basket(history, users)


def items_per_basket(history: Interactions, users: Ints) -> Doubles:
    """(n,) mean number of rows per basket of a user."""
    return np.asarray(history.user_counts[users] / np.maximum(history.basket_counts[users], 1))


def basket_groups(train: Interactions, start: TermStart, transform: WeightTransform | None) -> Groups:
    """The baskets of the users."""
    users = np.repeat(np.arange(train.n_users, dtype=np.int32), train.basket_counts)
    terms = start.of_baskets(train)
    amounts = None if transform is None else transform.of_rows(train)
    has_repeats = start.repeat is not None
    return Groups(train.baskets, train.item, train.user_baskets, users, amounts, terms, has_repeats)
