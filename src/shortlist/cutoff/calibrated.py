"""Cutoffs that decide on probabilities carry their calibration with them."""

from dataclasses import dataclass

from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.calibration import METHODS, Calibration
from shortlist.cutoff.labels import Labels
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.types import Doubles


@dataclass(kw_only=True, eq=False)
class Calibrated(Cutoff):
    """`calibration`: a method's name, or a Calibration; `none` takes the probabilities the lists carry."""

    calibration: str | Calibration = "auto"

    def _check(self) -> None:
        super()._check()
        if isinstance(self.calibration, str) and self.calibration not in METHODS:
            raise ConfigError(
                f"calibration must be one of {', '.join(METHODS)}, got {self.calibration!r}; choose one."
            )

    def _calibrate(self, known: Labels, history: Interactions | None) -> None:
        """Fit the calibration on labelled candidates; where there are none, keep what the lists carry."""
        wanted = self.calibration
        made = Calibration(method=wanted) if isinstance(wanted, str) else wanted.clone()
        self.calibration_ = made.set_params(n_candidates=self.candidates_needed()).learn(known, history)

    def _probabilities(self, lists: RankedLists, history: Interactions | None) -> Doubles:
        """(n_candidates,) from the fitted calibration, or from the lists where it is none."""
        made = Calibration(method="none", n_candidates=self.candidates_needed())
        if self.calibration != "none":
            made = self.need("calibration_")
        return made.probabilities(lists, history=history)
