"""Where a list ends. Ranked candidates of any ranker go in, a length for every user comes out.

cut = ExpectedF1().fit(valid_scores, split.valid, history=split.train)
lists = cut.apply(test_scores, history=split.train_valid)
"""

from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.boundary import Boundary
from shortlist.cutoff.calibration import Calibration, prior_corrected
from shortlist.cutoff.expected_utility import ExpectedF1, ExpectedNDCG
from shortlist.cutoff.expected_value import ExpectedValue
from shortlist.cutoff.fixed import FixedN
from shortlist.cutoff.guarantee import Guarantee
from shortlist.cutoff.reliability import Reliability, reliability
from shortlist.cutoff.threshold import Threshold
from shortlist.cutoff.top_candidates import heads

__all__ = [
    "Boundary",
    "Calibration",
    "Cutoff",
    "ExpectedF1",
    "ExpectedNDCG",
    "ExpectedValue",
    "FixedN",
    "Guarantee",
    "Reliability",
    "Threshold",
    "heads",
    "prior_corrected",
    "reliability",
]
