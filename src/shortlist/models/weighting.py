"""How much a row counts, by its weight: the parameter `weighting` of the models that can use weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from shortlist.core.params import check_choice, check_number, warn
from shortlist.errors import ConfigError
from shortlist.types import Doubles, Floats

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions

Weighting = Literal["none", "linear", "log", "cap"]
WEIGHTINGS = ("none", "linear", "log", "cap")


class WeightTransform(NamedTuple):
    """What a row of weight w counts.

    none: 1. linear: w. log: log2(1 + w). cap: w, at most `cap`. A row of weight 1 counts 1 in all of them. A
    row of negative weight -w counts as much as one of weight w, with a minus.
    """

    name: Weighting = "none"
    cap: float = 5.0

    @property
    def is_used(self) -> bool:
        """Whether rows count by their weight."""
        return self.name != "none"

    def values(self, weight: Floats) -> Doubles:
        """(n,) what rows of these weights count.

        Values have the precision of the weights, so that sums in double precision are exact, as long as the
        weights do not differ by more than 2^29. Rows may then be added in any order, or in pieces.
        """
        if self.name == "none":
            return np.ones(weight.size)
        found = weight
        if self.name == "log":
            found = np.sign(weight) * np.log2(1 + np.abs(weight.astype(np.float64)))
        elif self.name == "cap":
            found = np.clip(weight, -self.cap, self.cap)
        return found.astype(np.float32).astype(np.float64)

    def of_rows(self, data: "Interactions") -> Doubles | None:
        """(n_rows,) what every row counts; None if all count 1."""
        if not self.is_used or data.weight is None:
            return None
        return self.values(data.weight)

    def check(self) -> None:
        """Raise ConfigError for an unknown name or a cap that is not above 0."""
        check_choice("weighting", self.name, WEIGHTINGS)
        check_number(0, weight_cap=self.cap)
        if self.cap == 0:
            raise ConfigError('weight_cap must be above 0, got 0; weighting="none" ignores weights.')


COUNT_ROWS = WeightTransform()


def decayed_counts(data: "Interactions", decay: float, transform: WeightTransform = COUNT_ROWS) -> Floats:
    """For every entry of data.item_sets, the user's baskets with the item, decayed by baskets since then."""
    basket = np.repeat(np.arange(data.n_baskets), np.diff(data.baskets))
    since = data.user_baskets[data.user + 1] - 1 - basket
    indptr, items = data.item_sets
    owner = np.repeat(np.arange(data.n_users), np.diff(indptr))
    keys = owner * data.n_items + items  # ascending, as the sets are
    at = np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)
    amount, factor = transform.of_rows(data), decay**since
    counts = factor if amount is None else amount * factor
    return np.bincount(at, weights=counts, minlength=items.size).astype(np.float32)


def check_weights(data: "Interactions", transform: WeightTransform, model: str) -> None:
    """Raise ConfigError if weights are wanted and there are none; warn if negative ones count as positive."""
    if transform.is_used and data.weight is None:
        raise ConfigError(
            f"weighting={transform.name!r} needs weights, got data without them; name the column with "
            'weight=…, or set weighting="none".'
        )
    if transform.is_used or data.weight is None:
        return
    n = int((data.weight < 0).sum())
    if n:
        warn(
            f"{n:,} of {data.n_rows:,} rows have a negative weight, such as a return or a dislike, and "
            f"{model} counts them like any other row; drop them, or use a model with weighting='linear', "
            "'log' or 'cap'."
        )


@dataclass(kw_only=True, eq=False, repr=False)
class WeightParams:
    """The parameters of models that can use weights; to be inherited before `Recommender`."""

    weighting: Weighting = "none"
    weight_cap: float = 5.0

    @property
    def weight_transform(self) -> WeightTransform:
        """What every row counts."""
        return WeightTransform(self.weighting, self.weight_cap)
