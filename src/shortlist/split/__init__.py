"""Cutting interactions into train, validation and test.

`last_basket` and `last_items` cut each user at the user's own end, as the paper does: other users' later
events stay in training. `by_time` cuts everybody at one moment: nothing later than the cut is in training.
"""

from shortlist.split.splits import Split, by_time, last_basket, last_items

__all__ = ["Split", "by_time", "last_basket", "last_items"]
