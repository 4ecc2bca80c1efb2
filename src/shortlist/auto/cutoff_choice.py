"""Which decider, and which ranker? Tried on validation, each judged on users it was not fitted on."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shortlist.cutoff import ExpectedF1, FixedN
from shortlist.cutoff.base import Cutoff
from shortlist.cutoff.sweep import clearly_best
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError, DataError
from shortlist.evaluation import Report, evaluate
from shortlist.types import Doubles

FIXED = "fixed N"
METRIC = "f1"


def default_cutoffs(n_candidates: int = 100, *, probabilities: bool = True) -> dict[str, Cutoff]:
    """A fixed N, and expected F1 under calibrations from the plainest to the richest; the usual one first.

    Without `probabilities` of the ranker's own there is always something to calibrate.
    """
    found: dict[str, Cutoff] = {FIXED: FixedN(n_candidates=n_candidates)}
    for calibration in ("none", "platt", "features") if probabilities else ("platt", "features"):
        for size in ("both", "history"):
            found[f"expected F1, {calibration}, size from {size}"] = ExpectedF1(
                n_candidates=n_candidates, calibration=calibration, size=size
            )
    return found


@dataclass(frozen=True, eq=False)
class CutoffChoice:
    """The decider of choice, fitted on all users; and what each was worth to users it had not seen."""

    name: str
    cutoff: Cutoff
    tried: dict[str, float]  # mean F1 over all users of the validation, each user judged by a stranger's fit

    def __str__(self) -> str:
        best, fixed = self.tried[self.name], self.tried.get(FIXED)
        against = f", {best / fixed - 1:+.1%} on the best fixed N" if fixed and self.name != FIXED else ""
        return f"{self.name}: F1 {best:.4f} on validation{against}"


def choose_cutoff(
    heads: RankedLists,
    truth: Interactions,
    history: Interactions | None = None,
    deciders: Mapping[str, Cutoff] | None = None,
) -> CutoffChoice:
    """Fit every decider on every other user, judge it on the rest, both ways; keep the first that is no fixed
    N, unless another is clearly better.

    Clearly means by more than a standard error of the difference: where users are few, the best of many owes
    more to luck. What does not beat the fixed N is never chosen.
    """
    if deciders is None:
        deciders = default_cutoffs(probabilities=heads.probabilities is not None)
    if not deciders:
        raise ConfigError(
            "deciders must name at least one cutoff, got none; leave it out for the usual ones."
        )
    if len(heads) < 2:
        raise DataError(
            f"choosing needs lists of at least two users, got {len(heads)}; bring more validation."
        )
    worth = {name: crossed(one, heads, truth, history) for name, one in deciders.items()}
    tried = {name: float(values.mean()) for name, values in worth.items()}
    names = sorted(worth, key=lambda one: one == FIXED)  # the first that is no fixed N leads
    name = names[clearly_best([worth[one] for one in names])]
    if tried[name] <= tried.get(FIXED, -np.inf):
        name = max(tried, key=lambda one: (tried[one], one == FIXED))
    return CutoffChoice(name, deciders[name].clone().fit(heads, truth, history=history), tried)


def crossed(cutoff: Cutoff, heads: RankedLists, truth: Interactions, history: Interactions | None) -> Doubles:
    """(n_users with truth,) F1 of every user under a decider fitted on the others' half."""
    halves = [np.arange(part, len(heads), 2) for part in (0, 1)]
    found: Doubles | None = None
    for learn, judge in (halves, halves[::-1]):
        fitted = cutoff.clone().fit(heads.take(learn), truth, history=history)
        report: Report = evaluate(fitted.apply(heads.take(judge), history=history), truth)
        found = np.zeros(report.sizes.size) if found is None else found
        row = IdMap(report.user_ids).lookup(heads.users.values.gather(judge))
        mine = row[row >= 0]
        found[mine] = report.values(METRIC)[mine]
    assert found is not None
    return found
