"""What models of a plain matrix of users and items share."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.models.base import Recommender, WeightParams, WeightTransform, decayed_counts
from shortlist.types import Ints

GIGABYTE = 1e9


def confidence_matrix(data: Interactions, transform: WeightTransform) -> csr_array:
    """(n_users, n_items) what the rows of user and item count together; entries as in data.item_sets."""
    indptr, items = data.item_sets
    values = np.ones(items.size, np.float32)
    if transform.is_used:
        values = decayed_counts(data, 1.0, transform)
    return csr_array((values, items, indptr), shape=(data.n_users, data.n_items))


@dataclass(kw_only=True, eq=False, repr=False)
class MatrixModel(WeightParams, Recommender):
    """Base class of the models that know a user by the user's items alone."""

    uses_new_items: ClassVar[bool] = False
    is_tried_by_fit: ClassVar[bool] = True

    @classmethod
    def why_unsuitable(cls, data: Interactions) -> str | None:
        return "users have several baskets, which it would not distinguish" if data.has_baskets else None

    def _add_history(self, state: Any, history: Interactions, users: Ints) -> Any:
        return replace(state, history=History.of(history))
