"""When a default list is empty: `sl.fit` with its defaults, all items or few random items as candidates.

For each case: empty lists, F1 and precision with the default floor and with floor=0, which shows every list.

    python benchmarks/empty_lists.py                  # sample, ml-100k, online-retail
    python benchmarks/empty_lists.py sample --dry     # print only
"""

import argparse
import warnings

import numpy as np
from machine import describe, save_results

import shortlist as sl


def measure(dataset):
    """Rows of one dataset: all candidates, then 3 and 10 random ones per user."""
    split = sl.split.last_basket(sl.load_dataset(dataset))
    model, test = sl.fit(split.train_valid), split.test
    users = test.users.to_ids(test.active_users)
    floors = {"default": model.cutoff_, "0": model.cutoff_.with_floor(0)}
    for n in (None, 3, 10):
        chosen = None
        if n is not None:
            items = model.items_.values
            chosen = {user: items.sample(n, seed=k).to_list() for k, user in enumerate(users.to_list())}
        for floor, cutoff in floors.items():
            lists = model.recommend(users, at=test, candidates=chosen, cutoff=cutoff)
            report = sl.evaluate(lists, test)
            yield {
                "dataset": dataset,
                "model": type(model).__name__,
                "candidates": "all" if n is None else n,
                "floor": floor,
                "empty": float((lists.lengths == 0).mean()),
                "items": int(lists.items.size),
                "f1": report.f1,
                "precision": float(report.hits.sum() / max(lists.items.size, 1)),
                "lowest_probability": float(np.min(lists.probabilities, initial=1)),
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
        for row in measure(dataset):
            rows.append(row)
            print({key: round(x, 4) if isinstance(x, float) else x for key, x in row.items()}, flush=True)
    if not given.dry:
        save_results("empty_lists", {"machine": describe(), "rows": rows})


if __name__ == "__main__":
    main()
