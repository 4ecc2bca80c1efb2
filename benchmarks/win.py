"""Do lists that stop by themselves beat the best fixed length? Five seeds, one look at the test.

    python benchmarks/win.py                      # the two datasets it was developed on, five seeds
    python benchmarks/win.py --data complete-journey  # one that nothing was set on
    python benchmarks/win.py --data ml-100k       # one of them
    python benchmarks/win.py --seeds 1 --no-ablation
    python benchmarks/win.py --earlier            # 15,000 earlier lists a set: small gains show there
    python benchmarks/win.py --data ta-feng --time  # how long it takes from rows to lists; wants free cores

The ranker learns from `train`, every decider (a fixed N among them) is chosen on `valid`, the ranker learns
again from `train_valid`, and the lists are judged on `test`. A list is made at the moment of the basket it is
judged by and knows only what happened before. Groups of features are judged at earlier moments, not on it.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results
from scipy.special import expit

import shortlist as sl
from shortlist.auto.cutoff_choice import CutoffChoice, choose_cutoff, cross_validate, default_cutoffs
from shortlist.cutoff import Cutoff, ExpectedF1, FixedN, Threshold
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import RankedLists
from shortlist.evaluation import (
    Report,
    best_fixed_n,
    evaluate,
    fixed_n_curve,
    gap_recovered,
    oracle,
    paired_test,
)
from shortlist.models.two_stage.features import FEATURES
from shortlist.models.two_stage.two_stage import Examples, TwoStage

M = 40  # candidates a decider looks at
COVERAGE = 0.7
GROUPS = {
    "recent sales": ("sales_1d", "sales_3d", "sales_7d", "sales_14d", "sales_30d", "trend_3d", "trend_14d"),
    "own history": tuple(name for name in FEATURES if name.startswith("own_")),
    "neighbors": tuple(name for name in FEATURES if name.startswith("together_")),
    "transitions": tuple(name for name in FEATURES if name.startswith(("after_", "before_"))),
    "what comes before": tuple(name for name in FEATURES if name.startswith("before_")),
    "EASE": ("ease",),
    "the item": ("sales", "repeat_rate", "repeat_gap", "item_age", "item_basket_size", "sales_per_buyer"),
    "experience": tuple(name for name in FEATURES if "experience" in name),
    "the user": FEATURES[FEATURES.index("n_baskets") :],
}
DECIDERS = {  # name: (cutoff, whether it is told the basket size the ranker foretells)
    "fixed N": (FixedN(n_candidates=M), False),
    "threshold on score": (Threshold(n_candidates=M), False),
    "expected F1, size from probabilities": (
        ExpectedF1(n_candidates=M, calibration="features", size="probabilities"),
        False,
    ),
    "expected F1, size from history": (
        ExpectedF1(n_candidates=M, calibration="features", size="history"),
        False,
    ),
    "expected F1, size foretold, uncalibrated": (
        ExpectedF1(n_candidates=M, calibration="none", size="history"),
        True,
    ),
    "expected F1, size from both, uncalibrated": (
        ExpectedF1(n_candidates=M, calibration="none", size="both"),
        True,
    ),
}
OURS, FEW = "chosen on validation", "chosen, 70% of users"  # added once the choice is made
Deciders = dict[str, tuple[Cutoff, bool]]


class Stage:
    """Training examples computed once for all seeds, and the users to evaluate."""

    def __init__(self, name: str, train: Interactions, truth: Interactions, clock: "Clock") -> None:
        self.name, self.train, self.truth, self.clock = name, train, truth, clock
        with clock(f"{name}: compute examples"):
            self.examples: Examples = TwoStage().compute_examples(train)
        self.users = truth.active_users

    def ranker(self, seed: int) -> TwoStage:
        """A model trained with this seed."""
        with self.clock(f"{self.name}: train"):
            return TwoStage(seed=seed).fit_from_examples(self.examples)

    def heads(self, ranker: TwoStage) -> RankedLists:
        """The best candidates of the users to evaluate, each at the time of its true basket."""
        with self.clock(f"{self.name}: rank candidates"):
            return ranker.recommend(self.truth.users.to_ids(self.users), N=M, at=self.truth)


class Clock:
    """Seconds by step, of all processors and by the clock; a step made again counts once, at its mean."""

    def __init__(self) -> None:
        self.spent: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        start, wall = time.process_time(), time.perf_counter()
        yield
        spent = time.process_time() - start, time.perf_counter() - wall
        self.spent.setdefault(step, []).append(spent)
        print(f"  {step}: {spent[0]:.0f} s of processor, {spent[1]:.0f} s", flush=True)

    def table(self, kind: int) -> dict[str, float]:
        """Mean seconds of each step (kind 0: of all processors, 1: by the clock), and their sum."""
        found = {step: round(float(np.mean(spent, axis=0)[kind]), 1) for step, spent in self.spent.items()}
        return {**found, "all": round(sum(found.values()), 1)}


def set_cutoffs(
    deciders: Deciders, before: Stage, heads: RankedLists, now: Stage, new: RankedLists
) -> tuple[dict[str, RankedLists], np.ndarray]:
    """Every decider fitted on the earlier stage and applied to the later; what our lists promise."""
    found, promise = {}, np.zeros(len(new))
    for name, (cutoff, told) in deciders.items():
        old = heads if told else replace(heads, expected_sizes=None)
        with before.clock(f"decide: {name}"):
            fitted = cutoff.clone().fit(old, before.truth, history=before.train)
            found[name] = fitted.apply(new if told else replace(new, expected_sizes=None), history=now.train)
        if name == OURS and isinstance(fitted, ExpectedF1):
            curve = fitted.expected_utility(new, history=now.train)
            filled = np.diff(new.indptr) > 0
            promise[filled] = np.maximum.reduceat(curve, new.indptr[:-1][filled])
    return found, promise


def chosen_decider(stage: Stage, heads: RankedLists) -> CutoffChoice:
    """The decider that does best on validation users it was not fitted on."""
    with stage.clock("choose the decider"):
        choice = choose_cutoff(heads, stage.truth, stage.train, default_cutoffs(M))
    print(f"  {choice}", flush=True)
    return choice


def with_choice(choice: CutoffChoice) -> Deciders:
    """The deciders of the table, the chosen one, and the chosen one allowed to stay silent."""
    few = choice.cutoff.clone()
    if isinstance(few, ExpectedF1):
        few.set_params(coverage=COVERAGE)
    return {**DECIDERS, OURS: (choice.cutoff, True), FEW: (few, True)}


def figures(report: Report) -> dict[str, float]:
    """What the table shows of one run."""
    return {
        "f1": report.mean("f1"),
        "f1_covered": report.mean("f1", "covered"),
        "ndcg": report.mean("ndcg"),
        "cover": float(report.covered.mean()),
        "length": float(report.lengths.mean()),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation over seeds."""
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


def on_surest(report: Report, heads: RankedLists, promise: np.ndarray) -> float:
    """Mean F1 of the users whose lists promise most, as many as COVERAGE says."""
    surest = np.argsort(-promise, kind="stable")[: round(COVERAGE * len(heads))]
    row = sl.IdMap(report.user_ids).lookup(heads.users.values)
    return float(report.values("f1")[row[surest]].mean())


class Trial:
    """One dataset: what every decider's lists were worth, seed by seed."""

    def __init__(self, name: str) -> None:
        print(name)
        self.split, self.clock = sl.split.last_basket(sl.load_dataset(name)), Clock()
        self.before = Stage("valid", self.split.train, self.split.valid, self.clock)
        self.now = Stage("test", self.split.train_valid, self.split.test, self.clock)
        self.reports: dict[str, list[Report]] = {decider: [] for decider in (*DECIDERS, OURS, FEW)}
        self.ceilings: list[Report] = []
        self.surest: dict[str, list[float]] = {OURS: [], "fixed N": []}
        self.chosen: list[int] = []

    def add(self, seed: int) -> None:
        """One more seed; the first one chooses the decider."""
        test = self.split.test
        heads = self.before.heads(self.before.ranker(seed))
        if not self.ceilings:
            self.choice = chosen_decider(self.before, heads)
        new = self.now.heads(self.now.ranker(seed))
        lists, promise = set_cutoffs(with_choice(self.choice), self.before, heads, self.now, new)
        for decider, made in lists.items():
            self.reports[decider].append(evaluate(made, test))
        self.ceilings.append(oracle(new, test))
        for who, values in self.surest.items():
            values.append(on_surest(self.reports[who][-1], new, promise))
        self.chosen.append(best_fixed_n(fixed_n_curve(heads, self.split.valid)))
        print(f"  seed {seed}:", {d: round(r[-1].mean("f1"), 5) for d, r in self.reports.items()}, flush=True)

    def result(self) -> dict[str, object]:
        """Figures over the seeds so far."""
        runs = zip(self.reports[OURS], self.reports["fixed N"], self.ceilings, strict=True)
        return {
            "users": int(self.now.users.size),
            "seeds": len(self.ceilings),
            "N": self.chosen,
            "choice": {"name": self.choice.name, "tried_on_validation": self.choice.scores},
            "deciders": {
                decider: {key: spread([figures(r)[key] for r in found]) for key in figures(found[0])}
                for decider, found in self.reports.items()
            },
            "oracle": spread([ceiling.mean("f1") for ceiling in self.ceilings]),
            "gap_recovered": spread([gap_recovered(*run) for run in runs]),
            "surest_70%": {who: spread(values) for who, values in self.surest.items()},
            "same_users": same_users(self.reports),
            "tests": tests(self.reports),
            "processor_seconds": self.clock.table(0),
            "clock_seconds": self.clock.table(1),
        }


def per_user(runs: list[Report]) -> np.ndarray:
    """(n_users,) F1, mean over seeds."""
    return np.mean([run.values("f1") for run in runs], axis=0)


def same_users(reports: dict[str, list[Report]]) -> dict[str, dict[str, float]]:
    """F1 of ours and of the fixed N on the users that ours covers when it may stay silent."""
    few = reports[FEW]
    found: dict[str, list[float]] = {"ours": [], "fixed N": []}
    for k, report in enumerate(few):
        found["ours"].append(float(report.values("f1")[report.covered].mean()))
        found["fixed N"].append(float(reports["fixed N"][k].values("f1")[report.covered].mean()))
    return {who: spread(values) for who, values in found.items()}


def tests(reports: dict[str, list[Report]]) -> dict[str, dict[str, float]]:
    """Each decider against the fixed N, paired by user, means over seeds."""
    fixed = per_user(reports["fixed N"])
    found = {}
    for decider, runs in reports.items():
        if decider != "fixed N":
            test = paired_test(per_user(runs), fixed)
            found[decider] = {
                "difference": test.difference,
                "relative": test.difference / float(fixed.mean()),
                "low": test.low,
                "high": test.high,
                "p": test.p_bootstrap,
            }
    return found


def told_sizes(stage: Stage, heads: RankedLists, cutoff: Cutoff) -> dict[str, float]:
    """On validation: the share of the way from the fixed N to the best cut, and with the true sizes told."""
    sizes = np.diff(stage.truth.indptr)[stage.users].astype(np.float64)
    fixed = float(fixed_n_curve(heads, stage.truth)["f1"].max())
    gap = oracle(heads, stage.truth).mean("f1") - fixed
    told = cutoff.clone()
    if isinstance(told, ExpectedF1):
        told.set_params(size="history")  # else nobody asks for the sizes alone
    found = {}
    for name, cut, lists in (
        ("size foretold", cutoff, heads),
        ("size told", told, replace(heads, expected_sizes=sizes)),
    ):
        found[name] = float((cross_validate(cut, lists, stage.truth, stage.train).mean() - fixed) / gap)
    print(f"  share of the gap on validation: {found}", flush=True)
    return found


def learning_curve(stage: Stage, cutoff: Cutoff) -> dict[str, dict[str, float]]:
    """Best fixed N and the dynamic lists on validation when the trees learn from a share of the examples."""
    whole, found = stage.examples, {}
    kept = np.random.default_rng(0).random(whole.labels.size)
    for share in (0.125, 0.25, 0.5, 1.0):
        k = kept < share
        stage.examples = whole._replace(
            features=whole.features[k], labels=whole.labels[k], weight=whole.weight[k]
        )
        found[f"{share:g}"] = both(stage, stage.heads(stage.ranker(0)), cutoff)
        print(f"  {share:g} of the examples: {found[f'{share:g}']}", flush=True)
    return found


def own_world(heads: RankedLists, cutoff: Cutoff, stage: Stage, n_worlds: int = 20) -> float:
    """The share of the gap in worlds drawn from the ranker's own probabilities, where the rule knows all.

    What is left of the gap there is luck: the best cut is told which coins fell, a decider only their bias.
    """
    fitted = cutoff.clone().fit(heads, stage.truth, history=stage.train)
    if not isinstance(fitted, ExpectedF1):
        return float("nan")
    inside = np.arange(M) < np.diff(heads.indptr)[:, None]
    lengths = np.diff(fitted.apply(heads, history=stage.train).indptr)
    p, rng, shares = np.zeros(inside.shape), np.random.default_rng(0), []
    told = fitted.calibration == "none"
    p[inside] = heads.probabilities if told else fitted.calibration_.probabilities(heads, history=stage.train)
    more, spread = fitted.next_size_.predict(heads, stage.train), max(fitted.next_size_.dispersion_, 1e-6)
    for _ in range(n_worlds):
        hits = rng.random(p.shape) < p
        sizes = 1 + rng.poisson(more * rng.gamma(1 / spread, spread, more.size))
        sizes = np.maximum(sizes, hits.sum(axis=1))
        f1 = np.column_stack(
            [np.zeros(sizes.size), 2 * hits.cumsum(axis=1) / (np.arange(1, M + 1) + sizes[:, None])]
        )
        fixed, dynamic = f1.mean(axis=0).max(), f1[np.arange(sizes.size), lengths].mean()
        shares.append((dynamic - fixed) / (f1.max(axis=1).mean() - fixed))
    return float(np.mean(shares))


def both(stage: Stage, heads: RankedLists, cutoff: Cutoff) -> dict[str, float]:
    """F1 on validation at the best fixed N and with the dynamic lists."""
    dynamic = cross_validate(cutoff, heads, stage.truth, stage.train)
    curve = fixed_n_curve(heads, stage.truth)
    return {"fixed N": float(curve["f1"].max()), "dynamic": float(dynamic.mean())}


class Earlier:
    """Earlier moments of the same users: many more lists than one validation or test has.

    Trees learn from half of the users and rank the others' candidates; a decider is fitted on every other
    list and judged on the rest.
    """

    def __init__(self, train: Interactions, most: int = 15_000) -> None:
        self.examples = TwoStage(negative_rate=1.0, n_snapshots=most).compute_examples(train)
        users, target = self.examples.replay.layout.log.users, self.examples.snapshots.target
        rows = [users.item[users.baskets[b] : users.baskets[b + 1]] for b in target]
        took = {"user_id": np.repeat(np.arange(target.size), self.examples.sizes.astype(int))}
        self.truth = Interactions.from_frame(pl.DataFrame({**took, "item_id": np.concatenate(rows)}))

    @cached_property
    def whole(self) -> RankedLists:
        """`heads` of trees that see everything."""
        return self.heads(())

    def heads(self, without: tuple[str, ...]) -> RankedLists:
        """Everybody's candidates as ranked by trees that learned from the other half."""
        whole, rate = self.examples, TwoStage().negative_rate
        user, owner, n = whole.snapshots.user, whole.owner, whole.sizes.size
        kept = whole.labels | (np.random.default_rng(0).random(owner.size) < rate)
        odds, sizes = np.empty(owner.size), np.empty(n)
        for half in (0, 1):
            mine = user % 2 == half
            k, others = mine[owner] & kept, ~mine[owner]
            part = whole._replace(
                features=whole.features[k],
                labels=whole.labels[k],
                weight=np.where(whole.labels[k], 1.0, 1 / rate).astype(np.float32),
                user_features=whole.user_features[mine],
                sizes=whole.sizes[mine],
            )
            model = TwoStage(exclude_features=without).fit_from_examples(part)
            log_odds, expected = model.predict_examples(whole)
            odds[others], sizes[~mine] = log_odds[others], expected[~mine]
        counts = np.bincount(owner, minlength=n)
        starts = np.cumsum(counts) - counts
        order = np.lexsort((whole.items, -odds, owner))
        order = order[np.arange(order.size) - starts[owner[order]] < M]
        return RankedLists(
            users=sl.IdMap(pl.Series(np.arange(n))),
            item_ids=sl.IdMap(pl.Series(np.arange(whole.replay.history.n_items))),
            indptr=np.concatenate([[0], np.cumsum(np.minimum(counts, M))]),
            items=whole.items[order],
            scores=odds[order].astype(np.float32),
            probabilities=expit(odds[order]),
            expected_sizes=sizes,
        )

    def judged(self) -> dict[str, object]:
        """Fixed N and expected F1; the test is paired by user, over the mean of each user's lists."""
        heads, user = self.whole, self.examples.snapshots.user
        fixed, seen = cross_validate(FixedN(n_candidates=M), heads, self.truth, None), np.bincount(user)
        found: dict[str, object] = {"lists": user.size, "users": int((seen > 0).sum())}
        found["fixed N"] = float(fixed.mean())
        for size in ("history", "both"):
            dynamic = cross_validate(
                ExpectedF1(n_candidates=M, calibration="none", size=size), heads, self.truth, None
            )
            by_user = np.bincount(user, dynamic - fixed)[seen > 0] / seen[seen > 0]
            test = paired_test(by_user, np.zeros(by_user.size))
            found[f"expected F1, size from {size}"] = {
                "f1": float(dynamic.mean()),
                "difference_by_user": test.difference,
                "low": test.low,
                "high": test.high,
                "p": test.p_bootstrap,
            }
        print(f"  earlier moments: {found}", flush=True)
        return found

    def choosing(self, n_draws: int = 40) -> dict[str, float]:
        """F1 on lists that had no say, by how a decider is chosen: as we do, or the best on validation.

        A draw takes one list of every user to choose by and another to judge by; where users have one list
        each, half of them choose.
        """
        heads, user, rng = self.whole, self.examples.snapshots.user, np.random.default_rng(0)
        deciders = {name: one for name, one in default_cutoffs(M).items() if "features" not in name}
        found: dict[str, list[float]] = {"fixed N": [], "ours": [], "the best": []}
        for _ in range(n_draws):
            order = rng.permutation(user.size)
            turn = np.argsort(np.argsort(user[order], kind="stable")) - np.searchsorted(
                np.sort(user), user[order]
            )  # 0, 1, … among the user's lists in this order
            some, others = order[turn == 0], order[turn == 1]
            if others.size < some.size / 2:
                some, others = order[::2], order[1::2]
            lists, new = heads.take(np.sort(some)), heads.take(np.sort(others))
            choice = choose_cutoff(lists, self.truth, None, deciders)
            best = max(choice.scores, key=lambda name: choice.scores[name])
            for how, name in (("fixed N", "fixed N"), ("ours", choice.name), ("the best", best)):
                made = deciders[name].clone().fit(lists, self.truth).apply(new)
                found[how].append(float(evaluate(made, self.truth).values("f1")[np.sort(others)].mean()))
        means = {how: float(np.mean(values)) for how, values in found.items()}
        print(f"  choosing: {means}", flush=True)
        return {"negative_draws": n_draws, **means}

    def ablated(self) -> dict[str, dict[str, float]]:
        """Fixed N and expected F1, n foretold, when the trees may not see a group of features."""
        found = {}
        for group, names in {"nothing": (), **GROUPS}.items():
            heads = self.heads(names) if names else self.whole
            dynamic = cross_validate(
                ExpectedF1(n_candidates=M, calibration="none", size="history"), heads, self.truth, None
            )
            fixed = cross_validate(FixedN(n_candidates=M), heads, self.truth, None)
            found[group] = {"fixed N": float(fixed.mean()), "dynamic": float(dynamic.mean())}
            print(f"  without {group}: {found[group]}", flush=True)
        return found


def end_to_end(name: str) -> dict[str, float]:
    """Seconds from rows to decided lists: both stages, choosing the decider, deciding; compiled before."""
    small = sl.split.last_basket(sl.load_dataset("sample"))
    for split in (small, sl.split.last_basket(sl.load_dataset(name))):
        processor, clock = time.process_time(), time.perf_counter()
        found = []
        for train, truth in ((split.train, split.valid), (split.train_valid, split.test)):
            users = truth.active_users
            ids = truth.users.to_ids(users)
            found.append(TwoStage().fit(train).recommend(ids, N=M, at=truth))
        choice = choose_cutoff(found[0], split.valid, split.train, default_cutoffs(M))
        choice.cutoff.apply(found[1], history=split.train_valid)
        spent = {"clock": time.perf_counter() - clock, "processor": time.process_time() - processor}
    print(f"  end to end: {spent}", flush=True)
    return {kind: round(seconds, 1) for kind, seconds in spent.items()}


def write(name: str, dataset: str, found: dict[str, object]) -> None:
    """Put what was found of a dataset into results/<name>.json and leave the rest there."""
    file = RESULTS / f"{name}.json"
    held = json.loads(file.read_text()) if file.is_file() else {}
    found = {**held.get(dataset, {}), **found}
    save_results(name, {**held, "machine": describe("lightgbm"), "candidates": M, dataset: found})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", choices=("ta-feng", "ml-100k", "complete-journey", "sample"), action="append"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-ablation", action="store_true")
    parser.add_argument("--earlier", action="store_true", help="judge only lists of earlier moments")
    parser.add_argument("--time", action="store_true", help="measure only how long it takes from end to end")
    parser.add_argument("--name", default="win")
    given = parser.parse_args()
    for dataset in given.data or ("ml-100k", "ta-feng"):
        if given.time:
            write(given.name, dataset, {"end_to_end_seconds": end_to_end(dataset)})
            continue
        if given.earlier:
            split = sl.split.last_basket(sl.load_dataset(dataset))
            before = Earlier(split.train)
            write(given.name, dataset, {"earlier_moments": before.judged(), "choosing": before.choosing()})
            if not given.no_ablation:
                write(given.name, dataset, {"ablation_at_earlier_moments": before.ablated()})
            continue
        trial = Trial(dataset)
        for number in range(given.seeds):
            trial.add(number)
            write(given.name, dataset, trial.result())  # so that an interrupted run leaves what it found
        heads, cutoff = trial.before.heads(trial.before.ranker(0)), trial.choice.cutoff
        shares = told_sizes(trial.before, heads, cutoff)
        shares["in worlds of its own"] = own_world(heads, cutoff, trial.before)
        write(given.name, dataset, {"gap_on_validation": shares})
        if not given.no_ablation:
            curve = learning_curve(trial.before, cutoff)
            write(given.name, dataset, {"learning_curve_on_validation": curve})
