"""Exploration: some lists run a few items longer, so that the log tells what lies beyond the cut."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from shortlist.core.estimator import check_whole
from shortlist.core.ragged import starts
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.types import Bools, Longs

EXTRA_ITEMS = 5


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """How many lists run longer than the cutoff allows, and by how many items.

    Parameters
    ----------
    share
        Probability that a list is explored.
    extra_items
        How many of the next best candidates are added to an explored list. `max_items` still holds.
    seed
        Together with the user id and the prediction time, it decides which lists are explored. The same
        request gives the same lists.

    Raises
    ------
    ConfigError
        If a parameter is invalid.

    Examples
    --------
    >>> model = sl.PersonalFrequency().fit(sl.load_dataset("sample"))
    >>> lists = model.recommend(N=3, explore=sl.Exploration(share=0.1, extra_items=2))
    >>> sorted(set(lists.lengths.tolist()))
    [3, 5]
    >>> sorted(set(lists.propensities.tolist()))
    [0.1, 1.0]
    """

    share: float
    extra_items: int = EXTRA_ITEMS
    seed: int = 0

    def __post_init__(self) -> None:
        share: Any = self.share
        is_number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
        if not is_number or not 0 < share <= 1:
            raise ConfigError(
                f"explore must be a share of lists above 0 and at most 1, got {share!r:.60}; "
                "pass 0.01, for example."
            )
        check_whole(1, extra_items=self.extra_items)
        check_whole(0, seed=self.seed)


def read_exploration(explore: Any) -> Exploration | None:
    """The argument `explore`: 0 for none, a share of lists, or an Exploration."""
    if isinstance(explore, Exploration):
        return explore
    is_zero = isinstance(explore, (int, float)) and not isinstance(explore, bool) and explore == 0
    return None if is_zero else Exploration(share=explore)


def draw_explored(user_ids: pl.Series, timestamps: Longs | None, exploration: Exploration) -> Bools:
    """(n,) which users get a longer list; depends on the id, the time and the seed only."""
    times = np.zeros(len(user_ids), np.int64) if timestamps is None else timestamps
    limit = int(exploration.share * 2.0**64)
    found = np.empty(len(user_ids), np.bool_)
    for row, (user_id, time) in enumerate(zip(user_ids.to_list(), times.tolist(), strict=True)):
        text = f"{exploration.seed}\0{time}\0{user_id}".encode()
        found[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) < limit
    return found


def extend_lists(lists: RankedLists, top: RankedLists, n_extra: Longs, propensity: float) -> RankedLists:
    """Each list followed by its n_extra best candidates of `top` that it does not contain yet."""
    items, scores, probabilities, propensities, sizes = [], [], [], [], []
    missing = np.full(top.items.size, np.nan) if top.probabilities is None else top.probabilities
    for row in range(len(lists)):
        own = slice(int(lists.indptr[row]), int(lists.indptr[row + 1]))
        rest = np.arange(top.indptr[row], top.indptr[row + 1])
        rest = rest[~np.isin(top.items[rest], lists.items[own])][: n_extra[row]]
        items += [lists.items[own], top.items[rest]]
        scores += [lists.scores[own], top.scores[rest]]
        if lists.probabilities is not None:
            probabilities += [lists.probabilities[own], missing[rest]]
        propensities += [np.ones(own.stop - own.start), np.full(rest.size, propensity)]
        sizes.append(own.stop - own.start + rest.size)
    return replace(
        lists,
        indptr=starts(np.array(sizes, np.int64)),
        items=np.concatenate(items),
        scores=np.concatenate(scores),
        probabilities=None if lists.probabilities is None else np.concatenate(probabilities),
        propensities=np.concatenate(propensities),
    )
