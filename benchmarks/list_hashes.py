"""Hash the lists of every model on three datasets, and compare them with those of an earlier run.

A refactoring must not change a list: run this before and after it. An entry is a hash of user ids, item ids,
scores, lengths, reasons and boundaries, the number of items shown, and the sum of the probabilities.

    python benchmarks/list_hashes.py                 # compare with results/list_hashes.json
    python benchmarks/list_hashes.py --keep          # and replace it
"""

import argparse
import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
from machine import RESULTS, describe, save_results

import shortlist as sl

N_USERS = 1500
TERMS = {"repeat_decay": 0.9, "trend_half_life": 3}


def models(data):
    """(name, unfitted model) for every model."""
    rng = np.random.default_rng(0)
    yield "Popularity", sl.Popularity()
    yield "PersonalFrequency", sl.PersonalFrequency()
    yield "EASE", sl.EASE(decay=0.9)
    yield "TIFUKNN", sl.TIFUKNN(n_neighbors=100)
    for name in ("ALS", "GFCF", "MatrixBlend"):
        yield name, getattr(sl, name)(n_factors=32)
    for name in ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM"):
        yield name, getattr(sl, name)(n_epochs=4, seed=3)
    yield "HRM+terms", sl.HRM(n_epochs=4, seed=3, **TERMS)
    yield "DKHRM+terms", sl.DKHRM(n_epochs=4, seed=3, negatives=100, negative_draws=2, **TERMS)
    pair = (rng.normal(size=(n, 8)).astype("f4") for n in (data.n_users, data.n_items))
    yield "Precomputed", sl.PrecomputedScores(scores=tuple(pair))
    yield "TwoStage", sl.TwoStage(n_rounds=30, n_bags=1, n_snapshots=4000, seed=1)


def digest(lists):
    """The hash of some lists."""
    found = hashlib.blake2b(digest_size=8)
    for array in (lists.indptr, lists.items, lists.scores, lists.reason, lists.boundary):
        found.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    for ids in (lists.users, lists.item_ids):
        found.update("\0".join(map(str, ids.values.to_list())).encode())
    total = "-" if lists.probabilities is None else f"{lists.probabilities.sum():.9g}"
    return f"{found.hexdigest()} n={lists.items.size} p={total}"


def hash_model(model, split, folder):
    """Hashes of one model's lists: fixed N, candidates, limits, time, boundary, cutoffs, after loading."""
    train, valid = split.train, split.valid
    users = valid.users.values.gather(valid.active_users)[:N_USERS]
    model.fit(train)
    options = {
        "top20": {"N": 20},
        "candidates": {"N": 10, "candidates": train.items.values[::3].to_list()},
        "seen": {"N": 10, "filter_seen": True, "min_items": 3, "max_items": 7},
        "at": {"N": 10, "at": valid},
    }
    if model.has_boundary:
        options["boundary"] = {"max_items": 50}
    found = {name: digest(model.recommend(users, **given)) for name, given in options.items()}
    candidates = model.recommend(users, N=100, at=valid)
    for cutoff in (sl.cutoff.ExpectedF1(), sl.cutoff.Threshold()):
        cutoff.fit(candidates, valid, history=train)
        found[type(cutoff).__name__] = digest(model.recommend(users, cutoff=cutoff))
    loaded = sl.load_model(model.save(folder / "model.shortlist"))
    return found | {"loaded": digest(loaded.recommend(users, N=20))}


def main():
    """Hash, compare, and keep if wanted; exit with 1 if a list differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["sample", "ml-100k", "ta-feng"])
    parser.add_argument("--keep", action="store_true", help="replace the kept hashes")
    wanted, now = parser.parse_args(), {}
    with tempfile.TemporaryDirectory() as folder:
        for dataset in wanted.datasets:
            split = sl.split.last_basket(sl.load_dataset(dataset))
            for name, model in models(split.train):
                for part, value in hash_model(model, split, Path(folder)).items():
                    now[f"{dataset}/{name}/{part}"] = value
                print(dataset, name, flush=True)
    kept = json.loads((RESULTS / "list_hashes.json").read_text())["hashes"]
    differ = [key for key, value in now.items() if kept.get(key) != value]
    print(f"{len(now)} hashes, {len(differ)} differ", *differ, sep="\n  ")
    if wanted.keep:
        save_results("list_hashes", {"machine": describe(), "hashes": kept | now})
    raise SystemExit(int(bool(differ)))


if __name__ == "__main__":
    main()
