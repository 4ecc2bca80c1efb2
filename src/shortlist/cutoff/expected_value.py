"""ExpectedValue: show items while what they are expected to earn exceeds their cost."""

from dataclasses import dataclass

import numpy as np

from shortlist.core.checks import check_names
from shortlist.cutoff.base import FITTED_IDS, CutLists, Cutoff
from shortlist.cutoff.calibration import CalibratedCutoff
from shortlist.cutoff.candidates import Labels
from shortlist.cutoff.checks import check_interval
from shortlist.cutoff.search import count_above, running_minimum
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists


@dataclass(kw_only=True, eq=False, repr=False)
class ExpectedValue(CalibratedCutoff):
    """Show items while their expected value p · gain − (1 − p) · cost is positive.

    That is while the probability p exceeds cost / (gain + cost).

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    calibration
        How scores become probabilities: a method of `Calibration` or a `Calibration`; "none" uses the
        probabilities that the lists carry.
    gain
        Value of an item that the user interacts with.
    cost
        Cost of an item that the user does not interact with, in the same unit as `gain`.

    Examples
    --------
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> candidates = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    >>> cut = sl.cutoff.ExpectedValue(gain=3.0, cost=1.0).fit(candidates, split.valid, history=split.train)
    >>> lists = cut.apply(candidates, history=split.train)
    >>> bool((lists.probabilities > 0.25).all())
    True
    """

    gain: float = 1.0
    cost: float = 0.1

    reason = "value"
    empty_reason = "value"

    def _check_params(self) -> None:
        super()._check_params()
        check_interval("gain", self.gain, low=0, high=np.inf, ends=False, advice="use the same unit as cost.")
        check_interval("cost", self.cost, low=0, high=1e300, advice="use the same unit as gain.")

    @property
    def is_ready(self) -> bool:
        """Whether `fit` has been called; not needed if the scores are probabilities."""
        return self.calibration == "none" or "calibration_" in vars(self)

    def _summary(self) -> str:
        return self._calibration_summary()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_names(self.fitted(), ("calibration_",), FITTED_IDS)

    def _fit_labels(self, labels: Labels, history: Interactions | None) -> None:
        self._calibrate(labels, history)

    def reuse_calibration(self, other: Cutoff | None, *, has_probabilities: bool) -> bool:
        """Take the calibration of another fitted cutoff, or the probabilities of the lists if they have any.

        Parameters
        ----------
        other
            A fitted cutoff.
        has_probabilities
            Whether the lists carry probabilities.

        Returns
        -------
        bool
            Whether there are probabilities.
        """
        self.calibration = "none"
        if isinstance(other, CalibratedCutoff) and "calibration_" in vars(other):
            self.calibration, self.n_candidates = other.calibration, other.n_candidates
            self.calibration_ = other.calibration_
            return other.calibration != "none" or has_probabilities
        return has_probabilities

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        p = self._probabilities(lists, history)
        threshold = self.cost / (self.gain + self.cost)
        return CutLists(count_above(running_minimum(p, lists), lists, threshold), p)
