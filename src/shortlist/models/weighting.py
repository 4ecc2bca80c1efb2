"""What rows count: by their weight, and by how many baskets ago they were."""

from typing import Literal, NamedTuple

import numpy as np

from shortlist.core.options import Positive
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, warn
from shortlist.types import Doubles, Floats, Longs


class WeightTransform(NamedTuple):
    """What a row of weight w counts.

    linear: w. log: log2(1 + w). cap: w, at most `cap`. A row of weight 1 counts 1 in all of them. A row of
    negative weight -w counts as much as one of weight w, with a minus.
    """

    name: Literal["linear", "log", "cap"]
    cap: Positive = 5.0

    def values(self, weight: Floats) -> Doubles:
        """(n,) what rows of these weights count.

        Values have the precision of the weights, so that sums in double precision are exact, as long as the
        weights do not differ by more than 2^29. Rows may then be added in any order, or in pieces.
        """
        if self.name == "log":
            weight = np.sign(weight) * np.log2(1 + np.abs(weight.astype(np.float64)))
        elif self.name == "cap":
            weight = np.clip(weight, -self.cap, self.cap)
        return weight.astype(np.float32).astype(np.float64)

    def of_rows(self, data: Interactions) -> Doubles | None:
        """(n_rows,) what every row counts; None without weights: all count 1."""
        return None if data.weight is None else self.values(data.weight)

    def check_data(self, data: Interactions) -> None:
        """Raise ConfigError if the data has no weights."""
        if data.weight is None:
            raise ConfigError(
                f"weighting={self.name!r} needs weights, got data without them; name the column with "
                'weight=…, or set weighting="none".'
            )


def warn_of_negative(weight: Floats, model: str) -> None:
    """Warn of rows of negative weight, if the model counts them like any other row."""
    if n := int((weight < 0).sum()):
        warn(
            f"{n:,} of {weight.size:,} rows have a negative weight, such as a return or a dislike, and "
            f"{model} counts them like any other row; drop them, or use a model with weighting='linear', "
            "'log' or 'cap'."
        )


def baskets_since(data: Interactions) -> Longs:
    """(n_rows,) number of the user's baskets after that of each row."""
    return np.asarray(data.user_baskets[data.user + 1] - 1 - data.basket)


def set_places(data: Interactions) -> Longs:
    """(n_rows,) the entry of data.item_sets with the user and the item of each row."""
    keys = data.item_sets.owner * data.n_items + data.item_sets.items  # ascending, as the sets are
    return np.searchsorted(keys, data.user.astype(np.int64) * data.n_items + data.item)


def decayed_counts(data: Interactions, decay: float, transform: WeightTransform | None = None) -> Floats:
    """For every entry of data.item_sets, the user's baskets with the item, decayed by baskets since then."""
    amount = None if transform is None else transform.of_rows(data)
    factor = decay ** baskets_since(data)
    counts, n_entries = factor if amount is None else amount * factor, data.item_sets.items.size
    return np.bincount(set_places(data), weights=counts, minlength=n_entries).astype(np.float32)
