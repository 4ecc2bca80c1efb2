"""Splitting interactions into training, validation and test sets.

`last_basket` and `last_items` hold out the last rows of each user, as the paper does; later rows of other
users stay in training. `by_time` splits all users at one time; nothing after the cut is in training.
"""

from shortlist.split.splits import Split, by_time, last_basket, last_items

__all__ = ["Split", "by_time", "last_basket", "last_items"]
