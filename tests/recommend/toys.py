"""Scorers small enough to know every answer by heart."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shortlist.data.interactions import Interactions


@dataclass(eq=False)
class Toy:
    """Scores as given; a boundary and a shift if given; factors if given instead of scores."""

    history: Interactions
    scores: Any = None  # (n_users, n_items)
    boundary: Any = None  # (n_users,)
    shift: Any = None  # (n_users,)
    pair: Any = None  # (user factors, item factors, bias)
    asked: list[int] = field(default_factory=list)

    @property
    def users_(self):
        return self.history.users

    @property
    def items_(self):
        return self.history.items

    @property
    def seen_items(self):
        return self.history.item_sets

    def score(self, users):
        self.asked.append(users.size)
        if self.pair is None:
            return np.asarray(self.scores, np.float32)[users]
        return self.pair[0][users] @ self.pair[1].T + (0 if self.pair[2] is None else self.pair[2])

    def boundaries(self, users):
        return None if self.boundary is None else np.asarray(self.boundary, np.float32)[users]

    def log_odds_shift(self, users):
        return None if self.shift is None else np.asarray(self.shift, np.float32)[users]

    def factors(self, users):
        return None if self.pair is None else (self.pair[0][users], *self.pair[1:])


def history(rows, n_users=4, n_items=6):
    """Users u0…, items i0…, all of them in the tables; rows are (user, item)."""
    matrix = np.zeros((n_users, n_items))
    for user, item in rows:
        matrix[user, item] += 1
    return Interactions.from_csr(
        matrix, user_ids=[f"u{u}" for u in range(n_users)], item_ids=[f"i{i}" for i in range(n_items)]
    )
