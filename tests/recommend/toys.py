"""A model with given scores, small enough to check every list by hand."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.models.base import ModelState, Recommender
from shortlist.recommend.request import Factors, Scores
from shortlist.recommend.retrieval import ItemIndexCache


@dataclass(kw_only=True, eq=False)
class Toy(Recommender):
    """Scores as given; a boundary and a shift if given; factors if given instead of scores."""

    scores: Any = None  # (n_users, n_items)
    boundary: Any = None  # (n_users,)
    shift: Any = None  # (n_users,)
    pair: Any = None  # (user factors, item factors, bias)
    users_per_batch: int = 8192

    def _forget(self):
        """Stay fitted: tests change the parameters."""

    def _learn(self, train, options):
        self.index_cache = ItemIndexCache()
        return ModelState(history=History.of(train))

    @property
    def has_boundary(self):
        return self.boundary is not None

    def batch_size(self, state):
        return self.users_per_batch

    def score(self, request):
        users = request.users
        known = {
            "boundaries": None if self.boundary is None else np.asarray(self.boundary, np.float32)[users],
            "log_odds_shift": None if self.shift is None else np.asarray(self.shift, np.float32)[users],
        }
        if self.pair is None:
            return Scores(values=np.asarray(self.scores, np.float32)[users], **known)
        return Scores(factors=Factors(self.pair[0][users], *self.pair[1:], self.index_cache), **known)

    def _item_vectors(self, state):
        return None if self.pair is None else self.pair[1]


del Recommender.classes["Toy"]  # not a model that users can name


def history(rows, n_users=4, n_items=6):
    """Users u0…, items i0…, all of them in the tables; rows are (user, item)."""
    matrix = np.zeros((n_users, n_items))
    for user, item in rows:
        matrix[user, item] += 1
    return Interactions.from_csr(
        matrix, user_ids=[f"u{u}" for u in range(n_users)], item_ids=[f"i{i}" for i in range(n_items)]
    )


def make_toy(data, scores=None, boundary=None, shift=None, pair=None, **changed):
    """A fitted Toy."""
    return Toy(scores=scores, boundary=boundary, shift=shift, pair=pair, **changed).fit(data)


def recommend(toy, users=None, **options):
    """The lists of a toy."""
    return toy.recommend(users, **options)
