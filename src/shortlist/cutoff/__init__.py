"""Cutoffs decide how long each list is: ranked candidates of any ranker in, one length per user out.

| class                        | module       | a list ends                                               |
|------------------------------|--------------|-----------------------------------------------------------|
| `FixedN`                     | `threshold` | after N items, the same N for all users                   |
| `Threshold`                  | `threshold` | at the first score or probability not above a threshold   |
| `ExpectedF1`, `ExpectedNDCG` | `expected`  | where the expected F1 or NDCG of the list is highest      |
| `ExpectedValue`              | `expected`  | at the first item whose expected value is not positive    |
| `Budget`                     | `expected`  | at the first item below the price that makes a budget last |
| `UtilityRegression`          | `regression`| where the shape of the scores predicts the best utility   |
| `Boundary`                   | `boundary`  | at the first score not above the user's own boundary      |
| `Guarantee`                  | `guarantee` | where a guarantee on precision or empty lists still holds |
| `PromptCutoff`               | `prompt`    | as another cutoff says, and within a limit of size        |

`Calibration` turns scores into probabilities, and `top_candidates` ranks whatever a ranker returns. No cutoff
depends on a model.
"""

from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.boundary import Boundary
from shortlist.cutoff.calibration import Calibration
from shortlist.cutoff.candidates import top_candidates
from shortlist.cutoff.expected import Budget, ExpectedF1, ExpectedNDCG, ExpectedValue
from shortlist.cutoff.guarantee import Guarantee
from shortlist.cutoff.prompt import PromptCutoff
from shortlist.cutoff.regression import UtilityRegression
from shortlist.cutoff.threshold import FixedN, Threshold

__all__ = [
    "Boundary",
    "Budget",
    "Calibration",
    "Cutoff",
    "ExpectedF1",
    "ExpectedNDCG",
    "ExpectedValue",
    "FixedN",
    "Guarantee",
    "PromptCutoff",
    "Threshold",
    "UtilityRegression",
    "top_candidates",
]
