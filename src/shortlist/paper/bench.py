"""One dataset laid out for the experiments: the split, what stays a candidate, and lists to be judged."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.data.datasets import load_dataset
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.models.base import Recommender
from shortlist.models.factorization.engine import JointModel
from shortlist.recommend import recommend
from shortlist.split.splits import Split, last_basket
from shortlist.tuning.validation import build_model

DEPTH = 100  # candidates per user; no list is longer
SUBSAMPLE = 11  # name of a random stream


@dataclass(frozen=True, eq=False)
class Bench:
    """A dataset and its split; test rows are looked at by `judge` functions only."""

    name: str
    split: Split

    @classmethod
    def of(cls, name: str, users: int | None = None, seed: int = 0) -> "Bench":
        """A dataset by name; `users` keeps that many of them, drawn by the seed."""
        data = load_dataset(name)
        if users is not None and users < data.active_users.size:
            rng = np.random.Generator(np.random.PCG64([seed, SUBSAMPLE]))
            kept = np.zeros(data.n_users, np.bool_)
            kept[rng.choice(data.active_users, users, replace=False)] = True
            data = data.where(kept[data.user])
        return cls(name, last_basket(data))

    @cached_property
    def keep_seen(self) -> bool:
        """Whether items taken before stay candidates."""
        return self.split.train_valid.has_repeats

    @cached_property
    def fingerprint(self) -> str:
        """Names the data in the settings of every unit."""
        return self.split.data.fingerprint

    def fitted(self, model: str, params: dict[str, Any], train: Interactions) -> Recommender:
        """A model trained for as long as its parameters say; on one thread, for units run side by side."""
        fresh = build_model(model, params)
        if isinstance(fresh, JointModel):
            return fresh.set_params(n_threads=1, tol=0.0).fit(train)
        return fresh.fit(train)  # type: ignore[attr-defined, no-any-return]

    def heads(self, model: Recommender, truth: Interactions) -> RankedLists:
        """The best candidates of every user with truth."""
        users = truth.users.to_ids(truth.active_users)
        return recommend(model, users, N=DEPTH, filter_seen=not self.keep_seen, n_threads=1)

    def about(self) -> dict[str, Any]:
        """What was worked on, in plain numbers."""
        data, split = self.split.data, self.split
        return {
            "rows": data.n_rows,
            "users": int(data.active_users.size),
            "items": data.n_items,
            "valid_users": int(split.valid.active_users.size),
            "test_users": int(split.test.active_users.size),
            "test_rows": split.test.n_rows,
            "seen_items": "kept" if self.keep_seen else "removed",
            "fingerprint": self.fingerprint,
        }
