"""Published methods by name on five datasets, beside the lists of `sl.TwoStage`.

    python benchmarks/published.py                    # one seed
    python benchmarks/published.py --seeds 5 --keep FOLDER   # keeps each run, so that it can be interrupted
    python benchmarks/published.py --data ta-feng

Rankers: GP-TopFreq, TIFU-KNN and UP-CF, each at its best N of validation; the last two are tuned there with
twelve trials each; `TwoStage` has its default settings. Cutoffs on the ranking of `TwoStage`: the best
N, PerK, and the expected F1 that is chosen on validation. PerK calibrates each user on one basket, so its
prior cannot be evaluated on that basket: for each of four priors it is fitted on the basket before the
validation basket and evaluated on the validation basket; then it is fitted on the latter with the best prior.
Lists are evaluated on `test`, over all users. Every row is compared with the chosen lists, paired by user,
each user's F1 being the mean over the seeds; Holm's correction covers all rows of all datasets.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import RESULTS, describe, save_results
from settings import search_settings
from shortlist_extras import PerK

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.auto.validation import build_model
from shortlist.cutoff import Cutoff, FixedN
from shortlist.data.interactions import Interactions
from shortlist.data.lists import RankedLists
from shortlist.evaluation import Report, evaluate, holm, oracle, paired_test
from shortlist.models.base import Recommender
from shortlist.split import Split, last_basket

DATASETS = ("ml-100k", "online-retail", "complete-journey", "ml-1m", "ta-feng")
OURS, FIXED, PERK = (
    "TwoStage, expected F1 as chosen on validation",
    "TwoStage, best fixed N",
    "TwoStage, PerK",
)
N_CANDIDATES = 40  # per user, for every cutoff
N_TRIALS = 12
PRIORS = (1.0, 10.0, 100.0, 1000.0)  # of PerK
Values = dict[str, dict[str, np.ndarray]]  # by row: F1, NDCG and length of each user


def candidates(model: Recommender, train: Interactions, truth: Interactions) -> RankedLists:
    """The best candidates of all users with truth, each for the time of the true basket."""
    users = truth.users.to_ids(truth.active_users)
    return model.clone().fit(train).recommend(users, N=N_CANDIDATES, at=truth)


def values_of(report: Report) -> dict[str, np.ndarray]:
    """The values of each user that the table needs."""
    return {name: report.values(name) for name in ("f1", "ndcg", "length")}


def evaluate_rankers(split: Split) -> tuple[Values, dict[str, Any]]:
    """The published rankers at their best N, and their settings."""
    models = {"GP-TopFreq": sl.PersonalFrequency(decay=1.0, popularity=1.0)}
    for name, title in (("TIFUKNN", "TIFU-KNN"), ("UPCF", "UP-CF")):
        models[title] = build_model(name, search_settings(name, split.train_valid, N_TRIALS)[0])
    values, settings = {}, {}
    for name, model in models.items():
        valid = candidates(model, split.train, split.valid)
        test = candidates(model, split.train_valid, split.test)
        cut = FixedN(n_candidates=N_CANDIDATES).fit(valid, split.valid)
        values[f"{name}, best fixed N"] = values_of(evaluate(cut.apply(test), split.test))
        settings[name] = model.get_params()
    return values, {"settings": settings}


def choose_prior(split: Split, valid: RankedLists) -> dict[str, float]:
    """F1 of PerK on the validation baskets by prior, fitted on the baskets before."""
    before = last_basket(split.train)
    lists = candidates(sl.TwoStage(), before.train_valid, before.test)
    return {
        f"{prior:g}": evaluate(
            PerK(prior=prior, n_candidates=N_CANDIDATES).fit(lists, before.test).apply(valid), split.valid
        ).f1
        for prior in PRIORS
    }


def evaluate_cutoffs(split: Split, seed: int, prior: float | None) -> tuple[Values, dict[str, Any]]:
    """The cutoffs on the ranking of TwoStage, and what was chosen."""
    valid = candidates(sl.TwoStage(seed=seed), split.train, split.valid)
    test = candidates(sl.TwoStage(seed=seed), split.train_valid, split.test)
    choice = choose_cutoff(valid, split.valid, split.train, default_cutoffs(N_CANDIDATES))
    notes: dict[str, Any] = {"choice": choice.name}
    if prior is None:
        notes["perk_valid_f1_by_prior"] = choose_prior(split, valid)
        prior = float(max(notes["perk_valid_f1_by_prior"], key=notes["perk_valid_f1_by_prior"].__getitem__))
    cutoffs: dict[str, Cutoff] = {
        FIXED: FixedN(n_candidates=N_CANDIDATES),
        PERK: PerK(n_candidates=N_CANDIDATES, prior=prior),
        OURS: choice.cutoff.clone(),
    }
    values = {}
    for name, cutoff in cutoffs.items():
        fitted = cutoff.fit(valid, split.valid, history=split.train)
        values[name] = values_of(evaluate(fitted.apply(test, history=split.train_valid), split.test))
    return values, notes | {"perk_prior": prior, "oracle": oracle(test, split.test).f1}


def keep(file: Path | None, compute: Any) -> tuple[Values, dict[str, Any]]:
    """Compute, or read what an interrupted run has kept."""
    if file is not None and file.is_file():
        with np.load(file) as held:
            values: Values = {}
            for key in held.files:
                if key != "notes":
                    row, name = key.split("|")
                    values.setdefault(row, {})[name] = held[key]
            return values, json.loads(str(held["notes"]))
    began = time.process_time()
    values, notes = compute()
    notes["processor_seconds"] = round(time.process_time() - began)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        arrays = {f"{row}|{name}": each for row, named in values.items() for name, each in named.items()}
        np.savez(file, notes=json.dumps(notes), **arrays)
    return values, notes


def run(dataset: str, seeds: int, folder: Path | None) -> dict[str, Any]:
    """All rows of one dataset."""
    split = sl.split.last_basket(sl.load_dataset(dataset))

    def file(name: str) -> Path | None:
        return None if folder is None else folder / f"{dataset}-{name}.npz"

    by_row, notes = keep(file("rankers"), lambda: evaluate_rankers(split))
    by_seed: list[Values] = []
    every: list[dict[str, Any]] = []
    for seed in range(seeds):
        prior = every[0]["perk_prior"] if every else None
        values, chosen = keep(
            file(str(seed)), lambda seed=seed, prior=prior: evaluate_cutoffs(split, seed, prior)
        )
        by_seed.append(values)
        every.append(chosen)
        print(
            dataset,
            seed,
            {name: round(float(row["f1"].mean()), 4) for name, row in values.items()},
            flush=True,
        )
    rows = {name: [row] for name, row in by_row.items()}
    rows |= {name: [values[name] for values in by_seed] for name in by_seed[0]}
    ours = np.mean([row["f1"] for row in rows[OURS]], axis=0)
    table = {}
    for name, runs in rows.items():
        means = [float(each["f1"].mean()) for each in runs]
        table[name] = {metric: float(np.mean([each[metric].mean() for each in runs])) for metric in runs[0]}
        table[name]["f1_sd"] = float(np.std(means, ddof=1)) if len(means) > 1 else None
        if name != OURS:
            test = paired_test(ours, np.mean([each["f1"] for each in runs], axis=0))
            relative = test.difference / table[name]["f1"]
            table[name] |= {"difference": test.difference, "relative": relative, "low": test.low}
            table[name] |= {"high": test.high, "p": test.p_bootstrap, "p_is_bound": test.is_bound}
    highest = float(np.mean([chosen["oracle"] for chosen in every]))
    fixed = table[FIXED]["f1"]
    return {
        "users": ours.size,
        "seeds": seeds,
        "choices": [chosen["choice"] for chosen in every],
        "oracle": highest,
        "gap_recovered": (table[OURS]["f1"] - fixed) / (highest - fixed),
        "perk_prior": every[0]["perk_prior"],
        "perk_valid_f1_by_prior": every[0]["perk_valid_f1_by_prior"],
        "trials": N_TRIALS,
        "settings": notes["settings"],
        "rows": table,
        "processor_seconds": sum(each["processor_seconds"] for each in (notes, *every)),
    }


def correct(found: dict[str, Any]) -> None:
    """Add p-values with Holm's correction over all rows of all datasets."""
    tested = [row for name in DATASETS if name in found for row in found[name]["rows"].values() if "p" in row]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = float(p)


def main() -> None:
    """Run the datasets and store each beside the others in results/published.json."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", choices=DATASETS, action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder that keeps each run, to resume from")
    given = parser.parse_args()
    file = RESULTS / "published.json"
    for dataset in given.data or DATASETS:
        row = run(dataset, given.seeds, given.keep)
        found = json.loads(file.read_text()) if file.is_file() else {}
        found |= {"machine": describe("lightgbm"), "candidates": N_CANDIDATES, dataset: row}
        correct(found)
        save_results("published", found)


if __name__ == "__main__":
    main()
