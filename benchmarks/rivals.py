"""Published methods by name on five datasets, beside the lists of `sl.TwoStage` (benchmarks/win.py --rivals).

Rankers: GP-TopFreq, TIFU-KNN and UP-CF, each at its best N of validation; the last two are tuned there with
twelve trials each; `TwoStage` has its default settings. Stopping rules on the ranking of `TwoStage`: the best
N, PerK, the expected F1 that is chosen on validation, and expected F1 after the candidates were ranked by
calibrated probability. PerK uses its default prior, because a user's own calibration cannot be checked on the
basket that it was fitted to; its F1 with other priors is stored beside it, and nothing is chosen by it.
Everything is chosen on `valid`; lists are evaluated once on `test`, over all users. Every row is compared
with the chosen lists, paired by user; Holm's correction covers all rows of all datasets.
"""

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
from earlier_snapshots import N_CANDIDATES
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.cutoff import Calibration, Cutoff, ExpectedF1, FixedN, PerK
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import Report, evaluate, gap_recovered, holm, oracle, paired_test
from shortlist.models.base import Recommender
from shortlist.split import Split

DATASETS = ("ta-feng", "ml-100k", "ml-1m", "complete-journey", "online-retail")
OURS, FIXED = "TwoStage, expected F1 as chosen on validation", "TwoStage, best fixed N"
N_TRIALS = 12
PRIORS = (0.1, 1.0, 10.0, 100.0)  # of PerK; 1 is the default


def rank_by_probability(lists: RankedLists) -> RankedLists:
    """Order each list by its calibrated probabilities, which become the scores."""
    owner = np.repeat(np.arange(len(lists)), np.diff(lists.indptr))
    order = np.lexsort((-lists.probabilities, owner))
    p = lists.probabilities[order]
    return replace(lists, items=lists.items[order], scores=p.astype(lists.scores.dtype), probabilities=p)


def candidates(model: Recommender, train: Interactions, truth: Interactions) -> RankedLists:
    """The best candidates of all users with truth, each for the time of the true basket."""
    users = truth.users.to_ids(truth.active_users)
    return model.clone().fit(train).recommend(users, N=N_CANDIDATES, at=truth)


def evaluate_rankers(split: Split, seed: int) -> tuple[dict[str, Report], dict[str, Any]]:
    """The published rankers at their best N, and their settings."""
    models = {"GP-TopFreq": sl.PersonalFrequency(decay=1.0, popularity=1.0)}
    for name, title in (("TIFUKNN", "TIFU-KNN"), ("UPCF", "UP-CF")):
        models[title] = sl.tune(name, split.train_valid, n_trials=N_TRIALS, seed=seed).build()
    reports, settings = {}, {}
    for name, model in models.items():
        valid = candidates(model, split.train, split.valid)
        test = candidates(model, split.train_valid, split.test)
        cut = FixedN(n_candidates=N_CANDIDATES).fit(valid, split.valid)
        reports[f"{name}, best fixed N"] = evaluate(cut.apply(test), split.test)
        settings[name] = model.get_params()
        print(f"  {name}: F1 {reports[f'{name}, best fixed N'].f1:.4f}", flush=True)
    return reports, settings


def evaluate_cutoffs(split: Split, seed: int) -> tuple[dict[str, Report], dict[str, Any]]:
    """The stopping rules on the ranking of TwoStage, and what to note about them."""
    valid = candidates(sl.TwoStage(seed=seed), split.train, split.valid)
    test = candidates(sl.TwoStage(seed=seed), split.train_valid, split.test)
    choice = choose_cutoff(valid, split.valid, split.train, default_cutoffs(N_CANDIDATES))
    reports = {}
    shared: dict[str, Any] = {"n_candidates": N_CANDIDATES}
    cutoffs: dict[str, Cutoff] = {
        FIXED: FixedN(**shared),
        "TwoStage, PerK": PerK(**shared),
        OURS: choice.cutoff.clone(),
    }

    def evaluate_on_test(cutoff: Cutoff) -> Report:
        fitted = cutoff.fit(valid, split.valid, history=split.train)
        return evaluate(fitted.apply(test, history=split.train_valid), split.test)

    for name, cutoff in cutoffs.items():
        reports[name] = evaluate_on_test(cutoff)
    calibration = Calibration(method="features", **shared).fit(valid, split.valid, history=split.train)
    ranked = [
        rank_by_probability(calibration.apply(lists, history=history))
        for lists, history in ((valid, split.train), (test, split.train_valid))
    ]
    rule = ExpectedF1(calibration="none", size="both", **shared).fit(
        ranked[0], split.valid, history=split.train
    )
    lists = rule.apply(ranked[1], history=split.train_valid)
    reports["TwoStage, ranked by calibrated probability, expected F1"] = evaluate(lists, split.test)
    notes = {
        "choice": choice.name,
        "gap_recovered": gap_recovered(reports[OURS], reports[FIXED], oracle(test, split.test)),
        "perk_f1_by_prior": {
            f"{prior:g}": evaluate_on_test(PerK(prior=prior, **shared)).f1 for prior in PRIORS
        },
    }
    return reports, notes


def run(dataset: str, seed: int = 0) -> dict[str, Any]:
    """All rows of one dataset."""
    print(dataset, flush=True)
    began, split = time.process_time(), sl.split.last_basket(sl.load_dataset(dataset))
    ranked, settings = evaluate_rankers(split, seed)
    cut, notes = evaluate_cutoffs(split, seed)
    reports, rows = {**ranked, **cut}, {}
    ours = reports[OURS]
    for name, report in reports.items():
        rows[name] = {
            "f1": report.f1,
            "ndcg": report.ndcg,
            "cover": report.cover_ratio,
            "length": report.mean("length"),
        }
        if name != OURS:
            test = paired_test(ours.values("f1"), report.values("f1"))
            rows[name] |= {
                "difference": test.difference,
                "relative": test.difference / report.f1,
                "low": test.low,
                "high": test.high,
                "p": test.p_bootstrap,
            }
        print(f"  {name}: {rows[name]}", flush=True)
    return {
        "users": ours.n_users,
        "seed": seed,
        **notes,
        "trials": N_TRIALS,
        "settings": settings,
        "rows": rows,
        "processor_seconds": round(time.process_time() - began),
    }


def correct(found: dict[str, Any]) -> None:
    """Add p-values with Holm's correction over all rows of all datasets."""
    tested = [row for name in DATASETS if name in found for row in found[name]["rows"].values() if "p" in row]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = float(p)


def compare(datasets: list[str]) -> None:
    """Run the datasets and store each beside the others in results/rivals.json."""
    file = RESULTS / "rivals.json"
    for dataset in datasets:
        row = run(dataset)
        found = json.loads(file.read_text()) if file.is_file() else {}
        found |= {"machine": describe("lightgbm"), "candidates": N_CANDIDATES, dataset: row}
        correct(found)
        save_results("rivals", found)
