"""Would the paper's models reach its figures on Ta-Feng with more factors than its 50? On validation only.

    python benchmarks/more_factors.py  # 200 factors, every model; about five minutes of processor time
    python benchmarks/more_factors.py --factors 50 --model BPRMF HRM

One setting for all models, no search: small steps, hardly any regularization, many epochs, which lets the
vectors learn what each user has bought. The validation users are those of `shortlist
reproduce`, and so are the figures: F1 and NDCG at the best N; for a dynamic model also F1 of covered users,
with the boundary shifted so that the paper's share of users is covered.
"""

import argparse
import json
import time

from machine import RESULTS, describe, save_results

from shortlist.paper import protocol
from shortlist.paper.experiment import Experiment
from shortlist.paper.variants import ValidationUsers, evaluate_trial

DATA, VALID_USERS = "ta-feng", 4000
SETTINGS = {"lr": 0.1, "reg": 1e-4, "init": 0.1, "bias": False, "n_epochs": 60, "seed": 0}
OWN = {
    "BPRMF": {"negative_draws": 20},
    "LogMF": {"c": 1.0, "negatives": 10.0},
    "CRRMF": {"negative_draws": 20, "alpha": 0.2},
    "DKBPRMF": {"negative_draws": 20, "negatives": 30.0},
    "HRM": {"negative_draws": 20},
    "DKHRM": {"negative_draws": 20, "negatives": 30.0},
}


def run(experiment: Experiment, users: ValidationUsers, model: str, n_factors: int) -> dict[str, object]:
    """Fit one model; return its figures by reading."""
    began = time.process_time()
    params = {**protocol.SETTINGS.get(model, {}), **SETTINGS, **OWN[model], "n_factors": n_factors}
    found = evaluate_trial(experiment, users, model, params)
    figures = {}
    for reading, one in found.items():
        figures[reading] = {metric: max(one[metric]) for metric in protocol.METRICS}
        if "f1_at_target" in one:
            figures[reading]["f1_covered"] = one["f1_at_target"]
    spent = round(time.process_time() - began)
    return {"model": model, "params": params, "figures": figures, "processor_seconds": spent}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--factors", type=int, default=200)
    parser.add_argument("--model", choices=list(OWN), nargs="*", default=list(OWN))
    given = parser.parse_args()
    experiment = Experiment.load(DATA)
    users = ValidationUsers(experiment, 0, VALID_USERS)
    file = RESULTS / "more_factors.json"
    for name in given.model:
        row = run(experiment, users, name, given.factors)
        rows = json.loads(file.read_text())["rows"] if file.is_file() else {}
        rows[f"{name}, {given.factors} factors"] = row
        save_results("more_factors", {"machine": describe(), "paper": protocol.TABLE[DATA], "rows": rows})
        print(name, row["figures"], f"{row['processor_seconds']} s", flush=True)
