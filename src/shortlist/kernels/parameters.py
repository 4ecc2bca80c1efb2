"""The parameters that factor models learn, and the numbers that decide how."""

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from shortlist.types import Floats

Real = TypeVar("Real", np.float32, float)
LOGISTIC, HINGE, SQUARED = np.int32(0), np.int32(1), np.int32(2)
L2, L1 = np.int32(0), np.int32(1)
ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)


class Hyperparameters(NamedTuple, Generic[Real]):
    """Hyperparameters of the joint objective: float32 numbers for SGD, float64 numbers for new users."""

    lr: Real
    reg_user: Real
    reg_item: Real
    reg_negative: Real
    alpha: Real  # share of classification steps
    positive_rate: Real  # share of positive examples; 0: examples are rows drawn from all items
    positive_weight: Real
    t: Real
    lambda_t: Real
    loss: np.int32
    penalty: np.int32
    learn_boundary: bool
    negative_draws: np.int32  # unseen items drawn per pair; the one with the highest score is used


class Parameters(NamedTuple):
    """The parameters that are learned, or one block's slice of them; unused arrays have length 0."""

    user: Floats  # (n_users, n_factors)
    boundary: Floats  # (n_users,)
    item: Floats  # (n_items, n_factors)
    bias: Floats  # (n_items,) or (0,)
    user_repeat: Floats  # (n_users,) or (0,) the user's weight of the repeat signal
    item_repeat: Floats  # (n_items,) or (0,) the item's addition to that weight
    user_trend: Floats  # (n_users,) or (0,) the user's weight of the trend signal
    item_trend: Floats  # (n_items,) or (0,) the item's addition to that weight


# weights of the signals that are added to the factors: (by user, by item)
TERMS = (("user_repeat", "item_repeat"), ("user_trend", "item_trend"))
