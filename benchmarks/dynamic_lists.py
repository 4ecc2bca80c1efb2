"""Do dynamic lists beat the best fixed length? Five seeds, one use of the test set.

    python benchmarks/dynamic_lists.py  # three datasets, five seeds
    python benchmarks/dynamic_lists.py --data ml-100k  # one of them

The ranker is trained on `train`, every cutoff (also the fixed N) is chosen on `valid`, the ranker is trained
again on `train_valid`, and the lists are evaluated on `test`. A list is computed for the time of the true
basket, from earlier events only.
"""

import argparse
import json
from dataclasses import replace

import numpy as np
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.cutoff import Cutoff, ExpectedF1, FixedN, Threshold
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import (
    Report,
    best_fixed_n,
    evaluate,
    fixed_n_curve,
    gap_recovered,
    oracle,
    paired_test,
)
from shortlist.models.two_stage.two_stage import Examples, TwoStage

DATASETS = ("ta-feng", "ml-100k", "complete-journey")
N_CANDIDATES = 40  # per user, for every cutoff
COVERAGE = 0.7  # share of the users who count as confident
CUTOFFS = {  # name: (cutoff, whether it uses the basket size that the ranker predicts)
    "fixed N": (FixedN(n_candidates=N_CANDIDATES), False),
    "threshold on score": (Threshold(n_candidates=N_CANDIDATES), False),
    "expected F1, size from probabilities": (
        ExpectedF1(n_candidates=N_CANDIDATES, calibration="features", size="probabilities"),
        False,
    ),
    "expected F1, size from history": (
        ExpectedF1(n_candidates=N_CANDIDATES, calibration="features", size="history"),
        False,
    ),
    "expected F1, size predicted, uncalibrated": (
        ExpectedF1(n_candidates=N_CANDIDATES, calibration="none", size="history"),
        True,
    ),
    "expected F1, size from both, uncalibrated": (
        ExpectedF1(n_candidates=N_CANDIDATES, calibration="none", size="both"),
        True,
    ),
}
OURS = "chosen on validation"  # added once the choice is made
Cutoffs = dict[str, tuple[Cutoff, bool]]


class Stage:
    """Training examples computed once for all seeds, and the users to evaluate."""

    def __init__(self, train: Interactions, truth: Interactions) -> None:
        self.train, self.truth = train, truth
        self.examples: Examples = TwoStage().compute_examples(train)
        self.users = truth.active_users

    def candidates(self, seed: int) -> RankedLists:
        """The best candidates of the users to evaluate, each at the time of its true basket."""
        ranker = TwoStage(seed=seed).fit_from_examples(self.examples)
        return ranker.recommend(self.truth.users.to_ids(self.users), N=N_CANDIDATES, at=self.truth)


def set_cutoffs(
    cutoffs: Cutoffs, before: Stage, lists: RankedLists, now: Stage, new: RankedLists
) -> tuple[dict[str, RankedLists], np.ndarray]:
    """Fit every cutoff on the earlier stage and apply it to the later; also return the expected F1."""
    found, expected_f1 = {}, np.zeros(len(new))
    for name, (cutoff, uses_sizes) in cutoffs.items():
        old = lists if uses_sizes else replace(lists, expected_sizes=None)
        fitted = cutoff.clone().fit(old, before.truth, history=before.train)
        found[name] = fitted.apply(
            new if uses_sizes else replace(new, expected_sizes=None), history=now.train
        )
        if name == OURS and isinstance(fitted, ExpectedF1):
            curve = fitted.expected_utility(new, history=now.train)
            filled = np.diff(new.indptr) > 0
            expected_f1[filled] = np.maximum.reduceat(curve, new.indptr[:-1][filled])
    return found, expected_f1


def figures(report: Report) -> dict[str, float]:
    """Return the figures of one run."""
    return {
        "f1": report.mean("f1"),
        "f1_covered": report.mean("f1", "covered"),
        "ndcg": report.mean("ndcg"),
        "cover": float(report.covered.mean()),
        "length": float(report.lengths.mean()),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Compute the mean and standard deviation over seeds."""
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


def f1_of_confident(report: Report, lists: RankedLists, expected_f1: np.ndarray) -> float:
    """Compute the mean F1 of the most confident users, a share of COVERAGE."""
    confident = np.argsort(-expected_f1, kind="stable")[: round(COVERAGE * len(lists))]
    row = sl.IdMap(report.user_ids).lookup(lists.users.values)
    return float(report.values("f1")[row[confident]].mean())


class Trial:
    """One dataset: the evaluation of every cutoff, seed by seed."""

    def __init__(self, name: str) -> None:
        print(name)
        self.split = sl.split.last_basket(sl.load_dataset(name))
        self.before = Stage(self.split.train, self.split.valid)
        self.now = Stage(self.split.train_valid, self.split.test)
        self.reports: dict[str, list[Report]] = {name: [] for name in (*CUTOFFS, OURS)}
        self.oracles: list[Report] = []
        self.confident: dict[str, list[float]] = {OURS: [], "fixed N": []}
        self.best_n: list[int] = []

    def add(self, seed: int) -> None:
        """Add a seed; the first one chooses the cutoff."""
        test = self.split.test
        before, ranked, new = self.before, self.before.candidates(seed), self.now.candidates(seed)
        if not self.oracles:
            cutoffs = default_cutoffs(N_CANDIDATES)
            self.choice = choose_cutoff(ranked, before.truth, before.train, cutoffs)
        chosen = {**CUTOFFS, OURS: (self.choice.cutoff, True)}
        lists, expected_f1 = set_cutoffs(chosen, before, ranked, self.now, new)
        for name, shown in lists.items():
            self.reports[name].append(evaluate(shown, test))
        self.oracles.append(oracle(new, test))
        for who, values in self.confident.items():
            values.append(f1_of_confident(self.reports[who][-1], new, expected_f1))
        self.best_n.append(best_fixed_n(fixed_n_curve(ranked, self.split.valid)))
        print(f"  seed {seed}:", {d: round(r[-1].mean("f1"), 5) for d, r in self.reports.items()}, flush=True)

    def result(self) -> dict[str, object]:
        """Figures over the seeds so far."""
        runs = zip(self.reports[OURS], self.reports["fixed N"], self.oracles, strict=True)
        return {
            "users": int(self.now.users.size),
            "seeds": len(self.oracles),
            "N": self.best_n,
            "choice": {"name": self.choice.name, "tried_on_validation": self.choice.scores},
            "cutoffs": {
                name: {key: spread([figures(r)[key] for r in found]) for key in figures(found[0])}
                for name, found in self.reports.items()
            },
            "oracle": spread([one.mean("f1") for one in self.oracles]),
            "gap_recovered": spread([gap_recovered(*run) for run in runs]),
            "most_confident_70%": {who: spread(values) for who, values in self.confident.items()},
            "tests": tests(self.reports),
        }


def per_user(runs: list[Report]) -> np.ndarray:
    """(n_users,) F1, mean over seeds."""
    return np.mean([run.values("f1") for run in runs], axis=0)


def tests(reports: dict[str, list[Report]]) -> dict[str, dict[str, float]]:
    """Compare each cutoff with the fixed N, paired by user, with means over seeds."""
    fixed = per_user(reports["fixed N"])
    found = {}
    for name, runs in reports.items():
        if name != "fixed N":
            test = paired_test(per_user(runs), fixed)
            found[name] = {
                "difference": test.difference,
                "relative": test.difference / float(fixed.mean()),
                "low": test.low,
                "high": test.high,
                "p": test.p_bootstrap,
            }
    return found


def write(name: str, dataset: str, found: dict[str, object]) -> None:
    """Update the results of a dataset in results/<name>.json."""
    file = RESULTS / f"{name}.json"
    held = json.loads(file.read_text()) if file.is_file() else {}
    save_results(name, {**held, "machine": describe("lightgbm"), "candidates": N_CANDIDATES, dataset: found})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", choices=(*DATASETS, "sample"), action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name", default="dynamic_lists")
    given = parser.parse_args()
    for dataset in given.data or DATASETS:
        trial = Trial(dataset)
        for number in range(given.seeds):
            trial.add(number)
            write(given.name, dataset, trial.result())  # so that an interrupted run leaves what it found
