"""FileTask: a training task whose rows are in files; each worker reads the rows of its users."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.data.id_map import IdMap
from shortlist.data.user_ranges import UserRanges
from shortlist.data.user_slices import UserSlices
from shortlist.models.factorization.hrm import HRM
from shortlist.models.factorization.representation import HybridFactors, Representation, UserFactors
from shortlist.models.factorization.schedule import Partition, UniformExamples, choose_partition
from shortlist.models.factorization.trainer import ShareRows, TrainingTask
from shortlist.models.factorization.trend import Trend
from shortlist.types import Bools, Longs


class LoadedRows(NamedTuple):
    """The rows of some users, as training needs them."""

    groups: tuple[Any, Any, Any]  # (indptr, item, group_starts)
    representation: Representation
    trained: Bools  # (n_users,) whether training has pairs of the user


class RowReader(ABC):
    """Reads the rows of a worker's users."""

    min_blocks: int

    @abstractmethod
    def read(self, users: UserSlices) -> LoadedRows:
        """Read the rows of these users."""

    @abstractmethod
    def row_starts(self, data: UserRanges) -> Longs:
        """(n_users + 1,) where the rows of each user start."""

    @abstractmethod
    def group_starts(self, data: UserRanges) -> Longs | None:
        """(n_users + 1,) where the groups of each user start; None: a group is a user."""


class SetReader(RowReader):
    """Of matrix factorization: the rows are the distinct items of each user, and a group is a user."""

    min_blocks = UserFactors.min_blocks

    def read(self, users: UserSlices) -> LoadedRows:
        indptr, item = users.item_sets()
        groups = indptr, item, np.arange(indptr.size, dtype=np.int64)
        return LoadedRows(groups, UserFactors(), np.diff(indptr) > 0)

    def row_starts(self, data: UserRanges) -> Longs:
        return data.set_starts

    def group_starts(self, data: UserRanges) -> Longs | None:
        return None


@dataclass(frozen=True, eq=False)
class BasketReader(RowReader):
    """Of HRM and DKHRM: the groups are baskets."""

    model: HRM  # not fitted
    n_items: int
    repeat_start: float
    trend: Trend | None

    min_blocks = HybridFactors.min_blocks

    def read(self, users: UserSlices) -> LoadedRows:
        data = users.interactions(number_items(self.n_items))
        factors = self.model.hybrid_factors(data, self.repeat_start, self.trend)
        return LoadedRows(factors.groups(data), factors, self.model.trained_users(data))

    def row_starts(self, data: UserRanges) -> Longs:
        assert data.row_starts is not None
        return data.row_starts

    def group_starts(self, data: UserRanges) -> Longs | None:
        return data.basket_starts


@dataclass(frozen=True, kw_only=True, eq=False)
class FileTask(TrainingTask):
    """A task whose rows are in ranges of users in files: `data` are UserRanges, `representation` reads."""

    examples_per_group: float | None = None  # None: no examples are drawn from all items

    @property
    def row_starts(self) -> Longs:
        found: Longs = self.representation.row_starts(self.data)
        return found

    @property
    def partition(self) -> Partition:
        n_rows, blocks = int(self.row_starts[-1]), self.representation.min_blocks
        return choose_partition(n_rows, self.data.n_users, self.data.n_items, self.n_factors, blocks)

    @property
    def examples(self) -> UniformExamples | None:
        """Without the groups that are trained, which the workers find."""
        if self.examples_per_group is None:
            return None
        return UniformExamples(np.empty(0, np.bool_), self.examples_per_group)

    def share(self, first: int, last: int, examples: UniformExamples | None) -> ShareRows:
        begin, end = int(self.row_starts[first]), int(self.row_starts[last])
        groups = self.representation.group_starts(self.data)
        first_group = first if groups is None else int(groups[first])
        return ShareRows(first_group, begin, end, self.data.users(first, last), self.representation, examples)


def number_items(n_items: int) -> IdMap:
    """Ids for items whose own ids are not needed."""
    return IdMap(pl.Series(np.arange(n_items)))
