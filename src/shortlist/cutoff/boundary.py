"""Boundary: one threshold per user, learned with the ranking by a joint model."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shortlist.cutoff.base import CutLists, Cutoff
from shortlist.cutoff.threshold import count_above, running_minimum
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import LabeledLists
from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.types import Floats


@dataclass(kw_only=True, eq=False, repr=False)
class Boundary(Cutoff):
    """Show the items that score above the user's own boundary t_u.

    The lists carry the boundaries: they come from a joint model, such as `DKBPRMF`, which learned them with
    the ranking. There is nothing left to fit.

    Parameters
    ----------
    n_candidates
        Number of top candidates considered per user.
    t
        Boundary of users without one; None: they get an empty list.

    References
    ----------
    Gao, Guo, Lan and Liao, "Dynamic-K Recommendation with Personalized Decision Boundary", CCIR 2017.

    Examples
    --------
    >>> model = sl.DKHRM(n_epochs=2).fit(sl.load_dataset("sample"))
    >>> candidates = model.recommend(N=20)
    >>> lists = sl.cutoff.Boundary().apply(candidates)
    >>> lists.boundary.shape == lists.lengths.shape
    True
    """

    t: float | None = None

    rule = "The list stops at the first item below the user's own boundary."
    reason = "boundary"
    empty_reason = "no_candidate_above_boundary"
    warmup_params: ClassVar[dict[str, Any]] = {"t": 0.0}  # for lists without boundaries

    def _fit_labels(self, labels: LabeledLists, history: Interactions | None) -> None:
        self._boundary(labels.lists)

    def _cut(self, lists: RankedLists, history: Interactions | None) -> CutLists:
        boundary = self._boundary(lists)
        unknown = np.flatnonzero(np.isnan(boundary)).astype(np.int32)
        threshold = np.where(np.isnan(boundary), np.inf, boundary.astype(np.float64))
        lengths = count_above(running_minimum(lists.scores, lists), lists, threshold)
        return CutLists(lengths, boundary=boundary, unknown=unknown)

    def _boundary(self, lists: RankedLists) -> Floats:
        """(n_lists,) the boundaries that the lists carry; NaN for users without one and without t."""
        t = np.nan if self.t is None else self.t
        if lists.boundary is not None:
            return np.where(np.isnan(lists.boundary), t, lists.boundary).astype(np.float32)
        if self.t is None:
            raise ConfigError(
                "Boundary needs lists that carry boundaries, got lists without; use a model that learns "
                "them, such as DKHRM, or another cutoff, such as ExpectedF1."
            )
        return np.full(len(lists), t, np.float32)
