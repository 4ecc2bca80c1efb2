"""What a model must offer to be recommended from."""

from typing import Protocol

from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.types import Floats, Ints, Longs


class Scorer(Protocol):
    """Users and items are dense indices into `users_` and `items_`."""

    @property
    def users_(self) -> IdMap:
        """IdMap of the users known."""

    @property
    def items_(self) -> IdMap:
        """IdMap of the items known."""

    @property
    def history(self) -> Interactions:
        """What the users took before, over these ids."""

    @property
    def seen_items(self) -> tuple[Longs, Ints]:
        """(indptr, items): every user's distinct past items, ascending."""

    def score(self, users: Ints) -> Floats:
        """(n, n_items); NaN and -inf are never shown."""

    def boundaries(self, users: Ints) -> Floats | None:
        """(n,) t_u, or None for a model that only ranks."""

    def log_odds_shift(self, users: Ints) -> Floats | None:
        """(n,) what to add to a score to get the log-odds of relevance; None where scores only rank."""

    def factors(self, users: Ints) -> tuple[Floats, Floats, Floats | None] | None:
        """(score vectors, item vectors, item bias) where the score is an inner product, else None.

        Read-only item vectors and bias are indexed once and not again until they are other arrays; a class
        whose `fixed_factors` is True promises as much for arrays that could be written to.
        """
