"""Two F1s of the paper's models: mean of the users' F1, and harmonic mean of mean precision and mean recall.

    python benchmarks/readings.py ml-100k
    python benchmarks/readings.py ta-feng --reading "users with ≥ 3 baskets" --seeds 1

The settings are those that `shortlist reproduce` stored in results/<dataset>/variants.json, selected by the
mean of the users' F1; nothing is tuned again. N of top-N models is the best one of each measure on
validation. Dynamic models are evaluated on covered users, as their boundaries are and moved to the paper's
Cover-Ratio.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from machine import RESULTS, describe, save_results

from shortlist.paper import protocol
from shortlist.paper.experiment import Experiment
from shortlist.paper.variants import Outcomes, ValidationUsers

STORED = Path(__file__).parents[1] / "results"
MEASURES = ("f1", "harmonic", "ndcg")


def evaluate_row(experiment: Experiment, users: ValidationUsers, row: dict, seed: int) -> dict[str, object]:
    """All measures of one stored setting on the test set."""
    split, model = experiment.split, row["model"]
    reading = next(each for each in users.readings if each.name == row["reading"])
    params = row["params"] | {"seed": seed}
    lists = experiment.validate(model, params, split.train_valid, split.test).candidates
    tested = reading.users(split.train_valid, split.test)
    test = Outcomes.of(lists, reading.truth(split.test), tested)
    if model in protocol.ORIGINAL:
        shown = test.above(cap=protocol.MAX_ITEMS)
        moved = test.above(test.shift_for(row["paper"]["cover_ratio"]), protocol.MAX_ITEMS)
        return {
            "cover_ratio": float((shown > 0).mean()),
            **test.covered(shown),
            "best_fixed": {name: max(test.curves[name]) for name in MEASURES},
            "at_papers_cover_ratio": test.covered(moved),
        }
    valid = experiment.validate(model, params, split.train, users.truth).candidates
    curves = Outcomes.of(valid, reading.truth(users.truth), users.users[reading.name]).curves
    best = {name: int(np.argmax(curves[name])) for name in MEASURES}
    return {"N": {name: at + 1 for name, at in best.items()}} | {
        name: test.curves[name][best[name]] for name in MEASURES
    }


def main() -> None:
    """Evaluate, print and store all rows of a dataset."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", choices=protocol.DATASETS)
    parser.add_argument("--reading", nargs="*", help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    stored = json.loads((STORED / options.dataset / "variants.json").read_text(encoding="utf-8"))
    settings, found = stored["settings"], stored["datasets"][options.dataset]
    experiment = Experiment.load(options.dataset)
    users = ValidationUsers(experiment, settings.get("seed", 0), 4000)
    target = RESULTS / "readings.json"
    result = json.loads(target.read_text()) if target.is_file() else {}
    for row in found["rows"]:
        if row["kind"] != "" or (options.reading and row["reading"] not in options.reading):
            continue
        began = time.process_time()
        runs = [evaluate_row(experiment, users, row, seed) for seed in range(options.seeds)]
        name = f"{row['model']}, {row['reading']}, {'biases' if row['bias'] else 'no biases'}"
        figures = {measure: float(np.mean([run[measure] for run in runs])) for measure in MEASURES}
        outcome = {"paper": row["paper"], "seeds": options.seeds, **figures, "runs": runs}
        seconds = time.process_time() - began
        print(f"{options.dataset}, {name}: {figures}, paper {row['paper']}, {seconds:.0f} s", flush=True)
        result.setdefault(options.dataset, {})[name] = outcome
        save_results("readings", result | {"machine": describe()})


if __name__ == "__main__":
    main()
