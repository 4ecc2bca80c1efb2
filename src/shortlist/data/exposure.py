"""Which candidates their users saw, and with what probability."""

import numpy as np

from shortlist.data.id_map import UNKNOWN
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import DataError
from shortlist.types import Doubles


def find_propensities(lists: RankedLists, shown: RankedLists) -> Doubles:
    """(n_candidates,) probability with which each item of `lists` was shown to its user; 0 if it was not."""
    if not isinstance(shown, RankedLists):
        raise DataError(
            f"shown must be the RankedLists that users saw, got {type(shown).__name__}; pass the lists from "
            "recommend, or RankedLists.from_frame(table)."
        )
    user, item = shown.users.align(lists.users), shown.item_ids.align(lists.item_ids)
    n_items = max(len(shown.item_ids), 1)
    owner = np.repeat(np.arange(len(shown), dtype=np.int64), np.diff(shown.indptr))
    seen = owner * n_items + shown.items
    order = np.argsort(seen)
    rows = np.repeat(user.astype(np.int64), np.diff(lists.indptr))
    columns = item[lists.items].astype(np.int64)
    keys = np.where((rows == UNKNOWN) | (columns == UNKNOWN), -1, rows * n_items + columns)
    at = np.minimum(np.searchsorted(seen, keys, sorter=order), max(seen.size - 1, 0))
    propensity = np.ones(seen.size) if shown.propensities is None else shown.propensities
    if not seen.size:
        return np.zeros(keys.size)
    found = order[at]
    return np.where(seen[found] == keys, propensity[found], 0.0)
