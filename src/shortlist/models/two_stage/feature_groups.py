"""What the features of TwoStage are about, in words, for explanations."""

from collections.abc import Sequence

import numpy as np

from shortlist.models.two_stage.content import PREFIX
from shortlist.models.two_stage.features import FEATURES, USER_FEATURES
from shortlist.recommend.explain import largest_first
from shortlist.types import Doubles

BASKETS = "the user's baskets"
BY_PREFIX = {  # the first prefix that fits
    PREFIX: "content of the item",
    "own_": "own purchases",
    "user_": BASKETS,
    "together_": "bought together",
    "after_": "bought after own items",
    "before_": "bought before own items",
    "ease": "similar items (EASE)",
    "sales_per_buyer": "repeat purchases of all buyers",
    "repeat_": "repeat purchases of all buyers",
    "sales_": "recent sales",
    "trend_": "recent sales",
    "sales": "total sales",
    "item_": "the item in general",
    "buyer_": "usual buyers",
    "experience_": "usual buyers",
}


def group_of(feature: str) -> str:
    """What a feature is about."""
    if feature in FEATURES[USER_FEATURES]:
        return BASKETS
    return next(words for prefix, words in BY_PREFIX.items() if feature.startswith(prefix))


def merge_by_group(features: Sequence[str], amounts: Doubles) -> list[list[tuple[str, float]]]:
    """(n_items, n_features) contributions as (words, sum over the features of the group), largest first."""
    groups = [group_of(one) for one in features]
    names = list(dict.fromkeys(groups))
    sums = np.zeros((amounts.shape[0], len(names)))
    for column, group in enumerate(groups):
        sums[:, names.index(group)] += amounts[:, column]
    return [largest_first(names, row) for row in sums]
