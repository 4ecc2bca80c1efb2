"""The groups of rows that training visits: histories or baskets, with their contexts and terms."""

from dataclasses import dataclass

import numpy as np

from shortlist.kernels.hybrid import (
    ContextGradients,
    ContextRound,
    Contexts,
    apply_context_gradients,
    hybrid_vectors,
)
from shortlist.kernels.parameters import Hyperparameters, Parameters
from shortlist.kernels.rows import read_only, starts
from shortlist.kernels.sgd import sgd_round
from shortlist.kernels.simd import factor_width
from shortlist.kernels.terms import Terms, repeat_signals, trend_scores
from shortlist.models.factorization.schedule import Schedule
from shortlist.models.factorization.terms import relabel_sales
from shortlist.types import Bools, Doubles, Floats, Ints, Longs


@dataclass(eq=False)
class Groups:
    """Rows in groups; the groups of a user follow each other."""

    indptr: Longs  # (n_groups + 1,) where the rows of each group start
    item: Ints  # (n_rows,)
    starts: Longs  # (n_users + 1,) where the groups of each user start
    users: Ints  # (n_groups,)
    amounts: Doubles | None  # (n_rows,) what each row counts, by its weight; None: 1
    terms: Terms  # items by their index
    has_repeats: bool  # whether there is a repeat term
    contexts: Contexts | None = None  # items by their index; None: the user alone makes the score vector
    min_blocks: int = 4

    def __post_init__(self) -> None:
        self.labeled_terms, self.labeled_contexts = self.terms, self.contexts

    def relabel(self, label: Ints) -> None:
        """Adapt to new labels of the items; called after every relabeling, before the next round."""
        self.labeled_terms = self.terms._replace(sales=relabel_sales(self.terms.sales, label))
        if self.contexts is not None:
            self.labeled_contexts = self.contexts._replace(item=label[self.contexts.item])

    def run_round(
        self,
        schedule: Schedule,
        round_index: int,
        theta: Parameters,
        hyper: Hyperparameters[np.float32],
        key: np.uint64,
    ) -> None:
        """Make the steps of one round; items are in the order of schedule.label."""
        n_blocks, (n_items, n_factors), strata = schedule.n_blocks, theta.item.shape, schedule.strata
        width, context_round = factor_width(n_factors), None
        if self.labeled_contexts is not None:
            context_round = ContextRound(
                self.labeled_contexts, collect_gradients(schedule, round_index, theta.item)
            )
        steps = round_index, strata, self.users, theta, hyper, key, width, self.labeled_terms, context_round
        schedule.run_parallel(sgd_round, n_blocks, *steps)
        if context_round is not None:  # the gradients of the contexts, in the order of the visits
            updates = round_index, strata, *context_round, theta.item, width
            schedule.run_parallel(apply_context_gradients, n_items, *updates)

    def vectors(self, theta: Parameters, groups: Ints) -> Floats:
        """(n, n_factors) the score vectors of groups; items are in the order of schedule.label."""
        if self.labeled_contexts is None:
            return theta.user[self.users[groups]]
        user, begin, end = self.users, self.labeled_contexts.begin, self.labeled_contexts.end
        contexts = self.labeled_contexts._replace(user=user[groups], begin=begin[groups], end=end[groups])
        return context_vectors(theta, contexts)

    @property
    def trained(self) -> Bools:
        """(n_groups,) whether training makes steps for a group."""
        if self.contexts is not None:
            return self.contexts.begin < self.contexts.end  # a first basket has no context
        return np.diff(self.indptr) > 0

    def signals(self, groups: Ints, items: Ints) -> tuple[Floats | None, ...]:
        """For each of TERMS, the signal (n,) of each item in its group; None if the term is not used."""
        repeat, trend, sales = None, None, self.terms.sales
        if self.has_repeats:
            first, repeat = self.starts[self.users[groups]], np.empty(groups.size, np.float32)
            repeat_signals(groups, items, first, self.indptr, self.item, self.terms.log_decay, repeat)
        if sales.begin.size:
            trend = np.empty(groups.size, np.float32)
            trend_scores(sales, items, sales.group_day[groups], sales.recent_share[groups], trend)
        return repeat, trend


def collect_gradients(schedule: Schedule, round_index: int, items: Floats) -> ContextGradients:
    """A copy of the items, and memory for the gradients of the contexts of a round."""
    n_blocks, ranges = schedule.n_blocks, schedule.partition.ranges_per_block
    blocks, cells = np.arange(n_blocks), schedule.strata.cells
    cell = blocks * schedule.n_ranges + (blocks + round_index) % n_blocks * ranges
    visit_starts = starts(cells[cell + ranges] - cells[cell])
    gradients = np.empty((int(visit_starts[-1]), items.shape[1]), np.float32)
    return ContextGradients(items.copy(), gradients, visit_starts)


def context_vectors(theta: Parameters, contexts: Contexts) -> Floats:
    """(n, n_factors) the score vectors of the groups of `contexts`, in their order."""
    out = np.empty((contexts.user.size, theta.item.shape[1]), np.float32)
    # all callers pass read-only arrays, so that the kernel is compiled once
    contexts = contexts._replace(
        user=read_only(contexts.user),
        begin=read_only(contexts.begin),
        end=read_only(contexts.end),
        item=read_only(contexts.item),
    )
    hybrid_vectors(read_only(theta.user), read_only(theta.item), contexts, out, factor_width(out.shape[1]))
    return out
