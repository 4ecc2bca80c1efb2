"""Diversity and novelty of lists: one class per metric, registered by name as those of accuracy are."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import RankedLists
from shortlist.data.rankings import read_candidates
from shortlist.errors import DataError
from shortlist.evaluation.evaluate import Lists
from shortlist.types import Bools, Doubles, Ints, Longs


@dataclass(frozen=True, eq=False)
class ListItems:
    """Lists with the history that tells which items are popular or alike, and what users did next."""

    lists: RankedLists
    history: Interactions
    truth: Interactions | None = None

    @cached_property
    def item(self) -> Ints:
        """(n_shown,) index of each shown item in the history, -1 for an item it does not contain."""
        return self.history.items.align(self.lists.item_ids)[self.lists.items]

    @cached_property
    def list_number(self) -> Longs:
        """(n_shown,) number of the list of each shown item."""
        return np.repeat(np.arange(len(self.lists)), np.diff(self.lists.indptr))

    @cached_property
    def n_users_of(self) -> Longs:
        """(n_items,) users of the history who have each item."""
        return np.bincount(self.history.item_sets.items, minlength=self.history.n_items)

    @cached_property
    def relevant(self) -> Bools:
        """(n_shown,) whether the user interacted with the item next."""
        if self.truth is None:
            raise DataError("serendipity needs truth, got None; pass what the users did next.")
        return label_lists(self.lists, self.truth).relevant

    def mean_of_lists(self, values: Doubles) -> float:
        """Mean over non-empty lists of the mean over their items; NaN without one."""
        lengths = np.diff(self.lists.indptr)
        sums = np.bincount(self.list_number, values, len(self.lists))
        shown = lengths > 0
        return float((sums[shown] / lengths[shown]).mean()) if shown.any() else float("nan")


class ListMetric:
    """A metric of lists beyond accuracy. `measure_diversity` computes every subclass that is imported."""

    name: ClassVar[str]
    needs_truth: ClassVar[bool] = False

    registry: ClassVar[dict[str, type["ListMetric"]]] = {}

    def __init_subclass__(cls) -> None:
        ListMetric.registry[cls.name] = cls

    @staticmethod
    def value(given: ListItems) -> float:
        """One value for all lists."""
        raise NotImplementedError


class IntraListDiversity(ListMetric):
    """Mean distance between two items of a list: 1 − cosine of the sets of users who have them.

    Averaged over lists with at least two items. Two items without users in common have distance 1.
    """

    name = "intra_list_diversity"

    @staticmethod
    def value(given: ListItems) -> float:
        sets = given.history.item_sets
        ones = np.ones(sets.items.size)
        users = csr_array(
            (ones, sets.items, sets.indptr), shape=(given.history.n_users, given.history.n_items)
        ).T.tocsr()
        scale = 1 / np.sqrt(np.maximum(given.n_users_of, 1))
        distances = []
        starts = given.lists.indptr
        for number in range(len(given.lists)):
            shown = given.item[starts[number] : starts[number + 1]]
            n = shown.size
            if n < 2:
                continue
            rows = shown[shown != UNKNOWN]
            users_of_shown: Any = users[rows]
            weight = scale[rows]
            alike = ((users_of_shown @ users_of_shown.T).toarray() * weight[:, None] * weight).sum() - (
                given.n_users_of[rows] > 0
            ).sum()
            distances.append(1 - alike / (n * (n - 1)))
        return float(np.mean(distances)) if distances else float("nan")


class CatalogCoverage(ListMetric):
    """Share of the items of the history that at least one list shows."""

    name = "catalog_coverage"

    @staticmethod
    def value(given: ListItems) -> float:
        return np.unique(given.item[given.item != UNKNOWN]).size / max(given.history.n_items, 1)


class Novelty(ListMetric):
    """Mean self-information of the shown items, −log2 of the share of users who have the item.

    One user is added to both counts, so that a new item has a finite value.

    References
    ----------
    Vargas and Castells, "Rank and relevance in novelty and diversity metrics for recommender systems",
    RecSys 2011.
    """

    name = "novelty"

    @staticmethod
    def value(given: ListItems) -> float:
        counts = np.append(given.n_users_of, 0)[given.item]
        return given.mean_of_lists(-np.log2((counts + 1) / (given.history.active_users.size + 1)))


class Serendipity(ListMetric):
    """Share of the shown items that are hits and not among the most popular items, as many as the list shows.

    References
    ----------
    Ge, Delgado-Battenfeld and Jannach, "Beyond accuracy: evaluating recommender systems by coverage and
    serendipity", RecSys 2010.
    """

    name = "serendipity"
    needs_truth = True

    @staticmethod
    def value(given: ListItems) -> float:
        place = np.empty(given.history.n_items + 1, np.int64)
        place[np.argsort(-given.n_users_of, kind="stable")] = np.arange(given.history.n_items)
        place[-1] = given.history.n_items  # an item without a history is never popular
        unexpected = place[given.item] >= np.diff(given.lists.indptr)[given.list_number]
        return given.mean_of_lists((given.relevant & unexpected).astype(np.float64))


def measure_diversity(
    lists: Lists, history: Interactions | Any, truth: Interactions | Any = None
) -> dict[str, float]:
    """Compute diversity, coverage, novelty and serendipity of lists.

    Parameters
    ----------
    lists
        Lists in any form that `evaluate` accepts.
    history
        Interactions known when the lists were computed.
    truth
        What the users did next; without it, serendipity is left out.

    Returns
    -------
    dict
        Each metric by name; NaN if no list counts.

    Raises
    ------
    DataError
        If the tables cannot be read.

    Examples
    --------
    >>> from shortlist_extras import measure_diversity
    >>> history = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "tea"), ("bob", "jam")])
    >>> measure_diversity({"ann": ["jam"]}, history)["catalog_coverage"]
    0.5
    """
    past = Interactions.of(history)
    given = ListItems(
        read_candidates(lists, "lists"), past, None if truth is None else Interactions.of(truth)
    )
    metrics = ListMetric.registry.items()
    return {
        name: metric.value(given) for name, metric in metrics if truth is not None or not metric.needs_truth
    }
