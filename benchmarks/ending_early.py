"""What a model is expected to reach after twenty epochs, and what it reaches: is it safe to end its training?

    python benchmarks/ending_early.py

`sl.fit` ends the training of a model whose expected F1 (`auto.search.expected_f1`) is below 85% of the
best model's. This trains BPRMF and HRM to the end on five datasets, on validation data only, with the first
setting of `sl.fit` and on the smaller datasets also with two random ones. For each training it prints the
lowest ratio of the expected F1, after any epoch from the twentieth on, to the highest F1 of all epochs. A
training can end by mistake only if this ratio is below 0.85. results/ending_early.json keeps the figures.
"""

from machine import describe, save_results

import shortlist as sl
from shortlist.auto.search import FAR, MIN_EPOCHS, default_space, expected_f1
from shortlist.auto.validation import Validation, build_model, hold_out
from shortlist.core.params import draw
from shortlist.split import last_basket

SETTINGS = {"ml-100k": 3, "online-retail": 3, "complete-journey": 3, "ta-feng": 1, "ml-1m": 1}


def train(name: str, model: str, setting: int) -> dict[str, object]:
    """The curve of one training."""
    holdout = hold_out(last_basket(sl.load_dataset(name)).train_valid, 0, "last_basket")
    space = default_space(model, timed=holdout.history.time is not None)
    params = draw(space, 0, setting) if setting else {}
    best = []

    def follow(epoch: object) -> None:
        best.append(max(epoch.score, best[-1] if best else 0.0))

    built = build_model(model, params)
    Validation(built, holdout, n_candidates=20, metric="f1", filter_seen=None, n_threads=1).fit(
        progress=follow
    )
    expected = [expected_f1(best[:n], built.n_epochs) for n in range(MIN_EPOCHS, len(best) + 1)]
    lowest = min(expected) / best[-1] if expected else None
    return {
        "dataset": name,
        "model": model,
        "setting": setting,
        "epochs": len(best),
        "f1": best[-1],
        "lowest_ratio": lowest,
    }


def main() -> None:
    """Train, print and save."""
    rows = []
    for name, n in SETTINGS.items():
        for model in ("BPRMF", "HRM"):
            for setting in range(n):
                rows.append(train(name, model, setting))
                print(rows[-1], flush=True)
    ratios = [row["lowest_ratio"] for row in rows if row["lowest_ratio"] is not None]
    long = f"{len(ratios)} of them with at least {MIN_EPOCHS} epochs"
    print(f"{len(rows)} trainings, {long}; lowest ratio {min(ratios):.3f}")
    found = {"trainings": rows, "lowest_ratio": min(ratios), "share_of_the_best_model": FAR}
    save_results("ending_early", found | {"machine": describe()})


if __name__ == "__main__":
    main()
