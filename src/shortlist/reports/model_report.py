"""What a report for people is made of: one ranking ended in several ways, and what the users took next."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.evaluation import (
    Comparison,
    Report,
    compare,
    evaluate,
    holm,
    oracle,
    paired_test,
    risk_coverage,
)
from shortlist.evaluation.significance import Test
from shortlist.evaluation.slices import BASKET, HISTORY, ranges
from shortlist.models.base import Recommender
from shortlist.types import Bools, Doubles, Longs

FEW = 20  # users; a slice with fewer proves nothing and is not tested
EXAMPLES = 10
RESAMPLES = 2_000  # of a slice
SURE = 0.05  # p, corrected over all slices


ENDS = {
    "ExpectedF1": "Every candidate has a probability of being taken next; the list ends where one more "
    "item would lower its expected F1.",
    "ExpectedNDCG": "Every candidate has a probability of being taken next; the list ends where one more "
    "item would lower its expected NDCG.",
    "ValueRule": "The list ends where one more item would cost more than it brings.",
    "Threshold": "The list ends at the first item below one threshold for all users.",
    "Boundary": "The list ends at the first item below the user's own boundary, learned on validation.",
    "FixedN": "The same number of items for everybody.",
    "Guarantee": "The list ends where the guarantee that was asked for would no longer hold.",
}
OWN = "The list ends at the first item below the user's own boundary, learned together with the ranking."


class Slice(NamedTuple):
    """Some of the users: mean F1 of K and of the fixed N, and the test of the difference."""

    group: str
    label: str
    users: int
    ours: float
    theirs: float
    test: Test | None  # None where users are too few
    verdict: str  # helps, hurts, no clear difference, too few users


@dataclass(frozen=True, eq=False)
class ModelReport:
    """Nothing in it was learned or chosen on `truth`."""

    data: str  # what people call the data
    model: Recommender  # fitted on `history`
    history: Interactions
    truth: Interactions
    lists: Mapping[str, RankedLists]  # by who ends them; the first is the fixed N that validation chose
    N: int
    main: str  # name of the lists the report is about
    cutoff: Cutoff | None  # what ends them; None: the boundary that the model learned
    heads: RankedLists  # the best candidates of every user with truth, with probabilities where there are any
    max_items: int = 20
    coverage: float = 0.7  # share of users that is marked on the curve of risk and coverage

    @cached_property
    def reports(self) -> dict[str, Report]:
        """Every way to end the lists, judged."""
        return {
            name: evaluate(one, self.truth, history=self.history, max_items=self.max_items)
            for name, one in self.lists.items()
        }

    @cached_property
    def comparison(self) -> Comparison:
        """All against the fixed N."""
        return compare(self.reports, max_items=self.max_items)

    @property
    def ours(self) -> Report:
        """The lists the report is about."""
        return self.reports[self.main]

    @property
    def fixed(self) -> Report:
        """The best fixed N of validation."""
        return self.reports[next(iter(self.lists))]

    @cached_property
    def ceiling(self) -> Report:
        """The best length of every list in hindsight."""
        return oracle(self.heads.head(self.max_items), self.truth, max_items=self.max_items)

    @cached_property
    def confidence(self) -> Doubles:
        """(n_users,) of the best candidate: its probability, or its score; -inf where a user has none."""
        number = self.heads.users.lookup(self.ours.user_ids)
        sure = self.heads.scores if self.heads.probabilities is None else self.heads.probabilities
        filled = (number >= 0) & (np.diff(self.heads.indptr)[number] > 0)
        found = np.full(number.size, -np.inf)
        found[filled] = sure[self.heads.indptr[number[filled]]]
        return found

    def served(self, report: Report) -> tuple[list[float], list[float], float]:
        """(coverage, F1 of the served, F1 at the marked coverage) when the surest users come first."""
        risk = risk_coverage(report, "f1", self.confidence)
        curve = risk.curve(60)
        at = max(round(self.coverage * risk.risk.size), 1) - 1
        return curve["coverage"].to_list(), curve["f1"].to_list(), float(1 - risk.risk[at])

    @cached_property
    def slices(self) -> list[Slice]:
        """Where K helps and where it does not; p-values are corrected over all slices that are tested."""
        parts = [(group, label, who) for group, some in self._groups() for label, who in some]
        tests = [self._tested(who) for _, _, who in parts]
        p = iter(holm([test.p_bootstrap for test in tests if test is not None]))
        ours, theirs = self.ours.values("f1"), self.fixed.values("f1")
        return [
            Slice(
                group, label, int(who.sum()), float(ours[who].mean()), float(theirs[who].mean()), test,
                "too few users" if test is None else _verdict(test, next(p)),
            )
            for (group, label, who), test in zip(parts, tests, strict=True)
        ]  # fmt: skip

    def _tested(self, who: Bools) -> Test | None:
        if who.sum() < FEW:
            return None
        ours, theirs = self.ours.values("f1")[who], self.fixed.values("f1")[who]
        return paired_test(ours, theirs, resamples=RESAMPLES)

    def _groups(self) -> list[tuple[str, list[tuple[str, Bools]]]]:
        K = self.ours.lengths
        repeats = self.ours.repeats
        lengths = [
            ("nothing shown", K == 0),
            (f"fewer than {self.N}", (K > 0) & (self.N > K)),
            (f"just {self.N}", (K > 0) & (self.N == K)),
            (f"more than {self.N}", self.N < K),
        ]
        groups = [(f"items shown (fixed N = {self.N})", [one for one in lengths if one[1].any()])]
        if repeats is not None:
            groups.append(("items the user took before", ranges(repeats.history_lengths, HISTORY)))
        groups.append(("items the user took next", ranges(self.ours.sizes, BASKET)))
        if self.heads.probabilities is not None:
            groups.append(("probability of the user's best item", _quarters(self.confidence)))
        return groups

    @cached_property
    def ten(self) -> Longs:
        """Numbers of ten lists, evenly from the shortest to the longest; equals in the order of users."""
        lengths = self.lists[self.main].lengths
        order = np.argsort(lengths, kind="stable")
        at = np.linspace(0, order.size - 1, min(EXAMPLES, order.size)).round().astype(np.int64)
        return np.asarray(order[at], np.int64)

    @property
    def decider(self) -> str:
        """What ends the lists, in words."""
        name = type(self.cutoff).__name__
        return OWN if self.cutoff is None else f"{name}. {ENDS.get(name, '')} It was fitted on validation."

    def verdict(self) -> str:
        """Whether K won over all users, in a sentence."""
        test = self.comparison.results[self.main, "f1"]
        found = self.comparison.tests.filter(model=self.main, metric="f1")
        numbers = (
            f"F1 {self.ours.f1:.4f} against {self.fixed.f1:.4f}, a difference of {test.difference:+.4f} "
            f"(95% interval {test.low:+.4f} to {test.high:+.4f})"
        )
        if found["p_bootstrap_holm"][0] > 1 - self.comparison.level:
            return f"Over all users K is as good as the best fixed N, within chance: {numbers}."
        won = "beats the best fixed N" if test.difference > 0 else "is worse than the best fixed N"
        return f"Over all users K {won}: {numbers}."


def names_of(data: Interactions) -> Any:
    """item_id → what people call it, or the id as text."""

    def name(item_id: Any) -> str:
        if data.item_names is None or item_id not in data.items:
            return str(item_id)
        return str(data.item_names[data.items.index(item_id)])

    return name


def taken_by(user_id: Any, rows: Interactions) -> list[Any]:
    """IdMap of the items in a user's rows, in the order they were taken; none for a stranger."""
    if user_id not in rows.users:
        return []
    user = rows.users.index(user_id)
    return rows.items.to_ids(rows.item[rows.indptr[user] : rows.indptr[user + 1]]).to_list()


def _verdict(test: Test, p: float) -> str:
    if p > SURE:
        return "no clear difference"
    return "helps" if test.difference > 0 else "hurts"


def _quarters(values: Doubles) -> list[tuple[str, Bools]]:
    """Four parts of about as many users each, by probability; those without a candidate are in none."""
    edges = np.unique(np.quantile(values[np.isfinite(values)], (0, 0.25, 0.5, 0.75, 1)))
    found = []
    for k, (low, high) in enumerate(pairwise(edges)):
        top = k == edges.size - 2
        who = (values >= low) & ((values <= high) if top else (values < high))
        if who.any():
            found.append((f"{low:.1%} to {high:.1%}", who))
    return found
