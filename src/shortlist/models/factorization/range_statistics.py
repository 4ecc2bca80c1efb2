"""What models need to know of all rows in files, as sums over ranges of users."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from shortlist.core.engine import Engine
from shortlist.cutoff.basket_size import N_HISTORY_COLUMNS, BasketSize
from shortlist.data.user_ranges import UserRanges
from shortlist.data.user_slices import UserSlices
from shortlist.models.factorization.dynamic_k import DynamicK, fit_sizes, size_examples
from shortlist.models.factorization.engine import FactorModel
from shortlist.models.factorization.file_task import number_items
from shortlist.models.factorization.hrm import HRM
from shortlist.models.factorization.representation import RepeatTotals
from shortlist.models.factorization.trend import Trend, add_sales, count_sales
from shortlist.types import Doubles, Ints, Longs

Sales = tuple[Longs, Longs]  # keys of items with days, and counts
Sizes = tuple[Doubles, Ints]  # what is known before the last baskets, and their sizes


class RangeStatistics(NamedTuple):
    """Of the users of one range; None: the model does not need it."""

    trained_users: int  # users with training pairs
    trained_groups: int  # groups with training pairs
    trained_rows: int  # rows of these groups
    repeats: RepeatTotals | None
    sales: Sales | None
    sizes: Sizes | None


class DataStatistics(NamedTuple):
    """Of all users."""

    trained_users: int
    trained_groups: int
    trained_rows: int
    repeat_start: float | None  # initial weight of the repeat term
    trend: Trend | None
    next_size: BasketSize | None


def collect_statistics(model: FactorModel, data: UserRanges, engine: Engine) -> DataStatistics:
    """Read all rows once more, if the model needs more than counts."""
    if not isinstance(model, HRM) and not (isinstance(model, DynamicK) and model.maximizes_f1):
        n_rows = int(data.set_starts[-1])
        return DataStatistics(data.n_users, data.n_users, n_rows, None, None, None)
    measure = partial(measure_range, model, data.n_items, data.n_users)
    parts: list[RangeStatistics] = []
    sales: Sales = np.empty(0, np.int64), np.empty(0, np.int64)
    for part in engine.map(measure, list(data.each_range())):
        if part.sales is not None:
            sales = add_sales([sales, part.sales])
        parts.append(part._replace(sales=None))
    half_life = model.trend_half_life if isinstance(model, HRM) else None
    totals = data.totals
    trend = None
    if half_life is not None:
        trend = Trend.build(*sales, data.n_items, half_life, totals.end_time)
    return DataStatistics(
        sum(part.trained_users for part in parts),
        sum(part.trained_groups for part in parts),
        sum(part.trained_rows for part in parts),
        _repeat_start([part.repeats for part in parts], data),
        trend,
        _fit_next_size(part.sizes for part in parts),
    )


def _repeat_start(parts: list[RepeatTotals | None], data: UserRanges) -> float | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    joined = RepeatTotals(*(sum(column) for column in zip(*found, strict=True)))
    return joined.initial_weight(data.totals.n_rows, data.totals.n_baskets, data.n_items)


def _fit_next_size(parts: Iterable[Sizes | None]) -> BasketSize | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    columns = np.concatenate([np.empty((0, N_HISTORY_COLUMNS)), *(part[0] for part in found)])
    return fit_sizes(columns, np.concatenate([part[1] for part in found]))


def measure_range(
    model: FactorModel, n_items: int, n_users: int, task: tuple[int, UserSlices]
) -> RangeStatistics:
    """The statistics of one range, whose first user and users are given."""
    first_user, users = task
    data = users.interactions(number_items(n_items))
    trained = model.trained_users(data)
    groups, rows, repeats, sales = int(trained.sum()), data.n_rows, None, None
    if isinstance(model, HRM):
        first = data.user_baskets[:-1][np.diff(data.user_baskets) > 0]  # a first basket has no context
        groups, rows = data.n_baskets - first.size, data.n_rows - int(np.diff(data.baskets)[first].sum())
        repeats = None if model.repeat_decay is None else RepeatTotals.of(data, model.repeat_decay)
        sales = None if model.trend_half_life is None else count_sales(data)
    else:
        rows = int(data.item_sets[0][-1])
    sizes = None
    if isinstance(model, DynamicK) and model.maximizes_f1:
        sizes = size_examples(data, first_user, n_users)
    return RangeStatistics(int(trained.sum()), groups, rows, repeats, sales, sizes)
