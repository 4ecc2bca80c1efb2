"""PrecomputedScores: any ranker, ours or not, under the same contract."""

from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from scipy.sparse import csr_array, issparse

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import Recommender
from shortlist.types import Floats, Ints


@dataclass(kw_only=True, eq=False)
class PrecomputedScores(Recommender):
    """Scores from elsewhere, over the id tables of the data given to `fit`.

    `scores`: a dense (n_users, n_items) array, a SciPy matrix (entries not stored are no candidates), a pair
    of (user factors, item factors), or a callable from dense users to (n, n_items) scores.
    """

    scores: Any = None

    def fit(self, train: Interactions) -> Self:
        """Check the shapes against the data; nothing is learned."""
        self.check_data(train)
        shape = self._shape()
        if shape is not None and shape != (train.n_users, train.n_items):
            raise DataError(
                f"scores must be {train.n_users} users × {train.n_items} items like the data, got {shape}; "
                "score with the index tables of the same Interactions (users.values, items.values)."
            )
        self._prepare()
        self.remember(train)
        return self

    def _prepare(self) -> None:
        """A factor pair as kernels take it; items are copied, so that an index over them stays true."""
        if isinstance(self.scores, tuple):
            user, item = (
                np.ascontiguousarray(self.scores[0], np.float32),
                np.array(self.scores[1], np.float32),
            )
            item.flags.writeable = False
            self.pair_ = user, item

    def _shape(self) -> tuple[int, int] | None:
        scores: Any = self.scores
        if callable(scores):
            return None
        if isinstance(scores, tuple):
            if (
                len(scores) != 2
                or np.ndim(scores[0]) != 2
                or np.shape(scores[0])[1:] != np.shape(scores[1])[1:]
            ):
                raise ConfigError("a factor pair must be two 2-D arrays with the same number of columns.")
            return len(scores[0]), len(scores[1])
        if issparse(scores) or (isinstance(scores, np.ndarray) and scores.ndim == 2):
            n_users, n_items = cast(Any, scores).shape
            return n_users, n_items
        raise ConfigError(
            "scores must be a 2-D array, a SciPy matrix, a factor pair or a callable, "
            f"got {type(scores).__name__}."
        )

    def factors(self, users: Ints) -> tuple[Floats, Floats, Floats | None] | None:
        """The pair, where scores are given as one."""
        self.need("history_")
        if not isinstance(self.scores, tuple):
            return None
        user, item = self.pair_
        return user[users], item, None

    def score(self, users: Ints) -> Floats:
        """(n, n_items) scores; what a sparse matrix does not store is -inf, that is, never shown."""
        pair = self.factors(users)
        if pair is not None:
            return np.asarray(pair[0] @ pair[1].T)
        if issparse(self.scores):
            rows = csr_array(cast(Any, self.scores))[users]
            dense = np.full(rows.shape, -np.inf, np.float32)
            owner = np.repeat(np.arange(users.size), np.diff(rows.indptr))
            dense[owner, rows.indices] = rows.data
            return dense
        found = np.asarray(self.scores(users) if callable(self.scores) else self.scores[users], np.float32)
        if found.shape != (users.size, self.history.n_items):
            raise DataError(
                f"the scorer must return {users.size} × {self.history.n_items} scores, got {found.shape}; "
                "return one row per user and one column per item."
            )
        return found

    def _plain_params(self) -> dict[str, Any]:
        return {}

    def _pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if callable(self.scores):
            raise ConfigError(
                "a scorer that is a callable cannot be saved; save the scores it gives instead."
            )
        if isinstance(self.scores, tuple):
            return {"user": np.asarray(self.scores[0]), "item": np.asarray(self.scores[1])}, {
                "form": "factors"
            }
        if issparse(self.scores):
            csr = csr_array(cast(Any, self.scores))
            parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
            return parts, {"form": "csr", "shape": list(csr.shape)}
        return {"dense": np.asarray(self.scores)}, {"form": "dense"}

    def _unpack(self, arrays: dict[str, Any], notes: dict[str, Any]) -> None:
        if notes["form"] == "factors":
            self.scores = (arrays["user"], arrays["item"])
        elif notes["form"] == "csr":
            shape = tuple(notes["shape"])
            self.scores = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        else:
            self.scores = arrays["dense"]
        self._prepare()


def from_implicit(model: Any, train: Interactions) -> PrecomputedScores:
    """Wrap a fitted factor model of the implicit library that was trained on `train.to_csr().copy()`."""
    pair = []
    for name in ("user_factors", "item_factors"):
        found = getattr(model, name, None)
        if found is None:
            raise ConfigError(
                f"from_implicit needs a fitted factor model (ALS, BPR, LMF), got {type(model).__name__} "
                f"without {name}; fit it first, or pass its scores to PrecomputedScores."
            )
        found = found.to_numpy() if hasattr(found, "to_numpy") else found
        own = np.array(found, np.float32)  # a copy nobody writes to, whatever becomes of the model
        own.flags.writeable = False
        pair.append(own)
    return PrecomputedScores(scores=(pair[0], pair[1])).fit(train)
