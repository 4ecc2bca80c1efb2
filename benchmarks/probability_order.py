"""Lists in the order of their probabilities against the order of the scores: F1 of both on the test set.

A calibration by features gives candidates another order than their scores. Both columns use the same model,
calibration and rule; only the order differs. Without the flag, four models per dataset.

    python benchmarks/probability_order.py                      # sample, ml-100k, online-retail
    python benchmarks/probability_order.py sample --dry         # print only
"""

import argparse
import warnings
from dataclasses import replace

import numpy as np
from machine import describe, save_results

import shortlist as sl
from shortlist.cutoff.calibration import Calibration

MODELS = {
    "PersonalFrequency": sl.PersonalFrequency,
    "EASE": sl.EASE,
    "TIFUKNN": sl.TIFUKNN,
    "HRM": sl.HRM,
    "TwoStage": lambda: sl.TwoStage(n_bags=1),
}


def in_score_order(cutoff, top, history):
    """The lists that the same expectation gives if candidates stay in the order of their scores."""
    calibration: Calibration = cutoff.calibration_
    p = calibration.predict(top, history)
    _, lengths = cutoff._curve(top, p, history, cutoff.size_)
    return replace(top, probabilities=p).head(lengths)


def measure(dataset, name):
    """F1 in both orders, and the mean difference per user with its standard error."""
    split = sl.split.last_basket(sl.load_dataset(dataset))
    valid, test = split.valid, split.test
    model = MODELS[name]().fit(split.train)
    top = model.recommend(valid.users.to_ids(valid.active_users), N=100, at=valid)
    cutoff = sl.cutoff.ExpectedF1(calibration="features").fit(top, valid, history=split.train)
    model.observe(valid)
    top = model.recommend(test.users.to_ids(test.active_users), N=100, at=test)
    by_score = in_score_order(cutoff, top, model.history_)
    by_probability = cutoff.apply(top, history=model.history_)
    reports = [sl.evaluate(lists, test) for lists in (by_score, by_probability)]
    gain = reports[1].values("f1") - reports[0].values("f1")
    rises = [(np.diff(p) > 0).any() for p in np.split(by_score.probabilities, by_score.indptr[1:-1])]
    return {
        "dataset": dataset,
        "model": name,
        "users": len(gain),
        "lists_with_a_rise": float(np.mean(rises)),
        "f1_score_order": reports[0].f1,
        "f1_probability_order": reports[1].f1,
        "difference": float(gain.mean()),
        "standard_error": float(gain.std() / np.sqrt(gain.size)),
    }


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["sample", "ml-100k", "online-retail"])
    parser.add_argument("--dry", action="store_true", help="do not save the results")
    given = parser.parse_args()
    warnings.simplefilter("ignore", sl.errors.DataWarning)
    rows = []
    for dataset in given.datasets:
        for name in MODELS:
            rows.append(measure(dataset, name))
            print(
                {key: round(x, 4) if isinstance(x, float) else x for key, x in rows[-1].items()}, flush=True
            )
    if not given.dry:
        save_results("probability_order", {"machine": describe(), "rows": rows})


if __name__ == "__main__":
    main()
