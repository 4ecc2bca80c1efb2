"""Budget: a price for shown items, so that requests that arrive one by one use a given number of items."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from shortlist.core.checks import check_array, check_float_value
from shortlist.cutoff.base import CutLists, Labels, check_interval, probabilities_of
from shortlist.cutoff.calibration import CalibratedCutoff
from shortlist.cutoff.threshold import count_above, running_minimum
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.types import Doubles

N_PRICES = 1001  # points of the curve of items against price


@dataclass(kw_only=True, eq=False, repr=False)
class Budget(CalibratedCutoff):
    """Show an item if its expected value p · gain − cost exceeds a price that makes the budget last.

    `allocate` decides for all users at once. This cutoff decides for each request alone, as a service must:
    the price is that of an allocation of as many items to the validation users.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities: a method of `Calibration` or a `Calibration`; "none" uses the
        probabilities that the lists carry.
    items_per_list
        The budget divided by the expected number of lists: how many items a list has on average, empty lists
        included.
    gain
        Value of an item that the user interacts with.
    cost
        Cost of each shown item, in the same unit as `gain`.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.Budget(items_per_list=2.0).fit(candidates, split.valid, history=split.train)
    >>> round(float(cut.apply(candidates, history=split.train).lengths.mean()), 1)
    2.0
    """

    items_per_list: float = 1.0
    gain: float = 1.0
    cost: float = 0.0

    rule = "The list stops at the first item that is worth less than the price at which the budget lasts."
    flags = ("items_per_list",)
    reason = "below_price"
    empty_reason = "below_price"
    learned = ("calibration_", "price_", "prices_", "demands_")

    def _check_params(self) -> None:
        super()._check_params()
        advice = "divide the budget by the expected number of lists."
        check_interval("items_per_list", self.items_per_list, low=0, high=1e9, ends=False, advice=advice)
        check_interval("gain", self.gain, low=0, high=1e300, ends=False, advice="use the same unit as cost.")
        check_interval("cost", self.cost, low=0, high=1e300, advice="use the same unit as gain.")

    def _summary(self) -> str:
        return f"{self._calibration_summary()}, price {self.price_:.4g}"

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_float_value(vars(self), "price_", low=0)
        check_array(vars(self), "prices_", np.float64, (None,), ascending=True)
        check_array(vars(self), "demands_", np.float64, (self.prices_.size,), low=0)

    def _fit_labels(self, labels: Labels, history: Interactions | None) -> None:
        self._calibrate(labels, history)
        lists = self._rank_labels(labels, history).lists
        values = np.sort(self._values(lists))[::-1]
        values = values[values > 0]
        # at the price values[k], k items are shown; 0 shows all of them
        at = np.unique(np.linspace(0, values.size, min(N_PRICES, values.size + 1)).round().astype(np.int64))
        self.prices_: Doubles = np.append(values, 0.0)[at][::-1].copy()
        self.demands_: Doubles = at[::-1] / max(len(lists), 1)
        k = round(self.items_per_list * len(lists))
        self.price_ = float(values[k]) if k < values.size else 0.0

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        return CutLists(count_above(self._values(lists), lists, self.need("price_")))

    def _values(self, lists: RankedLists) -> Doubles:
        """(n_candidates,) expected value of each item; it never rises along a list."""
        return running_minimum(probabilities_of(lists), lists) * self.gain - self.cost

    def price_at(self, items_per_list: float) -> float:
        """Return the price at which a list has so many items on average.

        Parameters
        ----------
        items_per_list
            Mean number of items, empty lists included.

        Returns
        -------
        float
            The price on validation lists; 0 if even a price of 0 gives fewer items.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.fit(data, models="PersonalFrequency", cutoff=sl.cutoff.Budget(items_per_list=2.0))
        >>> model.cutoff_.price_at(1.0) > model.cutoff_.price_at(3.0)
        True
        """
        prices = self.need("prices_")
        return float(np.interp(items_per_list, self.demands_[::-1], prices[::-1]))

    def with_price(self, price: float) -> Self:
        """Return a fitted copy with another price.

        Parameters
        ----------
        price
            Items with a lower expected value are not shown.

        Returns
        -------
        Budget
            A copy; the cutoff itself does not change.

        Raises
        ------
        ConfigError
            If the price is not a number of at least 0.
        NotFittedError
            If `fit` has not been called.

        Examples
        --------
        >>> data = sl.load_dataset("sample")
        >>> model = sl.fit(data, models="PersonalFrequency", cutoff=sl.cutoff.Budget(items_per_list=2.0))
        >>> free = model.cutoff_.with_price(0.0)
        >>> bool(model.recommend(cutoff=free).lengths.sum() > model.recommend().lengths.sum())
        True
        """
        self.need("price_")
        check_interval("price", price, low=0, high=1e300, advice="use the unit of gain.")
        changed = self.clone()
        vars(changed).update(self.fitted() | {"price_": float(price)})
        return changed
