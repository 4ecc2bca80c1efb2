"""Models for a plain matrix of users and items: quality and processor seconds, ours, implicit's and cornac's.

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/matrix.py FOLDER                          # all three datasets, three seeds
    python benchmarks/matrix.py FOLDER --datasets lastfm --seeds 1
    python benchmarks/matrix.py FOLDER --models BPRMF EASE      # again; the other rows of matrix.json stay

FOLDER holds lastfm/interactions.parquet and citeulike-t/interactions.parquet, each with users in the first
column and items in the second; MovieLens-1M comes from `load_dataset`, and its times are dropped. A fifth of
the items of every user is drawn at random for the test. With the first seed, our models are tried with two
settings and the others with two or three on a part of the rest, drawn in the same way. The settings with the
best NDCG@20 are kept for all seeds, and the model is fitted again on all of the rest. The best fixed N and
the cutoff of the dynamic lists are chosen on that part, too, with every seed. Everything runs on one
thread; the seconds are those of the last fit, without compilation. Of cornac, EASE is run, which needs a
dense matrix, and BPR above 6,000 items.

`speed` compares ALS with 128 factors at equal quality: both models with their best settings, and the fewest
iterations of each that reach 99.5% of the lower of their best NDCG@20 on the part that chooses.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from cornac.data import Dataset
from cornac.models import BPR
from cornac.models import EASE as CornacEASE  # noqa: N811
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from machine import RESULTS, describe, save_results
from scipy.sparse import csr_array, csr_matrix

import shortlist as sl
from shortlist.auto.cutoff_choice import choose_cutoff, default_cutoffs
from shortlist.auto.validation import Holdout, Validation
from shortlist.cutoff import FixedN
from shortlist.data.interactions import Interactions
from shortlist.evaluation import evaluate, paired_test
from shortlist.models.base import Recommender

DATASETS = ("lastfm", "citeulike-t", "ml-1m")
N, N_CANDIDATES, EASE_ITEMS, FACTORS = 20, 50, 6_000, 128
BATCHES = (  # the quick ones first, so that an interrupted run has them on all datasets
    ("ALS", "implicit ALS", "GFCF", "MatrixBlend", "implicit BPR"),
    ("BPRMF", "EASE", "cornac"),
    ("LogMF", "DKBPRMF"),
)
EPOCHS = (1, 2, 3, 4, 6, 8, 12)
EQUAL = 0.995  # share of the lower of two best NDCG that counts as equal quality
SGD = {"n_factors": FACTORS}

Fit = Callable[[Interactions, Interactions | None], Recommender]


def ours(cls: type[Recommender], **params: Any) -> Fit:
    """How to fit one of our models; models with epochs stop on the validation part."""

    def fit(train: Interactions, valid: Interactions | None) -> Recommender:
        return cls(**params).fit(train, valid=valid)

    return fit


def theirs(cls: Any, **params: Any) -> Fit:
    """How to fit one of implicit's models."""

    def fit(train: Interactions, valid: Interactions | None) -> Recommender:
        model = cls(factors=FACTORS, num_threads=1, use_gpu=False, random_state=0, **params)
        model.fit(csr_matrix(train.to_csr() > 0, dtype=np.float32), show_progress=False)
        return sl.from_implicit(model, train)

    return fit


def cornac(cls: Any, **params: Any) -> Fit:
    """How to fit one of cornac's models."""

    def fit(train: Interactions, valid: Interactions | None) -> Recommender:
        matrix = train.to_csr().tocoo()
        names = ({number: number for number in range(size)} for size in matrix.shape)
        rows = matrix.row, matrix.col, np.ones(matrix.nnz, np.float32)
        model = cls(seed=1, **params).fit(Dataset(*matrix.shape, *names, rows, seed=1))
        if cls is BPR:
            users = np.hstack([model.u_factors, np.ones((matrix.shape[0], 1), np.float32)])
            pair = users, np.hstack([model.i_factors, model.i_biases[:, None]])
            return sl.PrecomputedScores(scores=pair).fit(train)
        return sl.PrecomputedScores(scores=np.asarray(train.to_csr() @ model.B, np.float32)).fit(train)

    return fit


def candidates(n_items: int) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    """(settings, class) of every model: two of ours, two or three of the others."""
    is_dense = n_items <= EASE_ITEMS
    cornac_bpr = {"k": FACTORS, "lambda_reg": 0.01, "num_threads": 1}
    ours: dict[str, tuple[type[Recommender], tuple[dict[str, Any], ...]]] = {
        "ALS": (sl.ALS, ({"n_factors": FACTORS}, {"n_factors": FACTORS, "reg": 0.003})),
        "GFCF": (sl.GFCF, ({}, {"n_factors": 512, "low_pass": 0.1})),
        "MatrixBlend": (sl.MatrixBlend, ({"n_factors": FACTORS}, {"n_factors": FACTORS, "reg": 0.003})),
        "EASE": (sl.EASE, ({"reg": 300.0}, {"reg": 1000.0}) if is_dense else ({"reg": 20.0}, {"reg": 100.0})),
        "BPRMF": (sl.BPRMF, (SGD, SGD | {"reg": 0.003})),
        "LogMF": (sl.LogMF, (SGD, SGD | {"lr": 0.1, "negatives": 4.0})),
        "DKBPRMF": (sl.DKBPRMF, (SGD, SGD | {"lr": 0.1})),
    }
    theirs = {
        "implicit ALS": [
            ({"alpha": alpha, "regularization": reg}, AlternatingLeastSquares)
            for alpha, reg in ((1.0, 5.0), (5.0, 5.0), (10.0, 30.0))
        ],
        "implicit BPR": [
            ({"learning_rate": lr, "regularization": reg}, BayesianPersonalizedRanking)
            for lr, reg in ((0.01, 0.01), (0.05, 0.01), (0.1, 0.03))
        ],
        "cornac": [({"lamb": reg, "posB": False}, CornacEASE) for reg in (300.0, 1000.0)]
        if is_dense
        else [(cornac_bpr | {"learning_rate": lr}, BPR) for lr in (0.02, 0.05)],
    }
    return {name: [(params, cls) for params in settings] for name, (cls, settings) in ours.items()} | theirs


def read_matrix(name: str, folder: Path) -> Interactions:
    """The distinct pairs of users and items, without times."""
    if name == "ml-1m":
        data = sl.load_dataset(name)
        frame = data.to_frame().select("user_id", "item_id")
    else:
        frame = pl.read_parquet(folder / name / "interactions.parquet")
        frame = frame.select(pl.nth(0).alias("user_id"), pl.nth(1).alias("item_id"))
    return Interactions.from_frame(frame.unique())


def draw_fifth(data: Interactions, seed: int) -> tuple[Interactions, Interactions]:
    """(rest, held out): a fifth of the items of every user, at random."""
    rng = np.random.default_rng(seed)
    sizes = np.diff(data.indptr)
    order = np.lexsort((rng.random(data.n_rows), data.user))
    place = np.empty(data.n_rows, np.int64)
    place[order] = np.arange(data.n_rows) - data.indptr[data.user]
    held = place < (sizes // 5)[data.user]
    return data.where(~held), data.where(held)


def ndcg(found: Validation) -> float:
    """NDCG of lists of N items on the validation part."""
    return float(found.curve["ndcg"][N - 1])


def timed(fit: Fit, train: Interactions, valid: Interactions | None = None) -> tuple[Recommender, float]:
    """A fitted model and the processor seconds it took."""
    began = time.process_time()
    return fit(train, valid), time.process_time() - began


def build(cls: Any, params: dict[str, Any]) -> Fit:
    if cls in (BPR, CornacEASE):
        return cornac(cls, **params)
    is_ours = isinstance(cls, type) and issubclass(cls, Recommender)  # implicit's are functions
    return ours(cls, **params) if is_ours else theirs(cls, **params)


def tune(
    settings: Iterable[tuple[dict[str, Any], Any]], holdout: Holdout
) -> tuple[Validation, dict[str, Any], Any]:
    """The settings with the best NDCG on the validation part."""
    best: tuple[Validation, dict[str, Any], Any] | None = None
    for params, cls in settings:
        model = build(cls, params)(holdout.history, holdout.truth)
        tried = Validation(model, holdout, N_CANDIDATES, "f1", True, 1)
        if best is None or ndcg(tried) > ndcg(best[0]):
            best = tried, params, cls
    assert best is not None
    return best


def measure(
    found: Validation, params: dict[str, Any], cls: Any, train: Interactions, test: Interactions
) -> Any:
    """The row of one model in the result."""
    history, truth = found.holdout.history, found.holdout.truth
    epochs = {} if found.n_epochs is None else {"n_epochs": found.n_epochs}
    model, seconds = timed(build(cls, params | epochs), train)
    lists = model.recommend(test.users.to_ids(test.active_users), N=N_CANDIDATES, filter_seen=True)
    report = evaluate(lists.head(N), test)
    fixed = found.fit_cutoff(FixedN(n_candidates=N_CANDIDATES)).apply(lists, history=train)
    has_probabilities = found.candidates.probabilities is not None
    cutoffs = default_cutoffs(N_CANDIDATES, probabilities=has_probabilities)
    choice = choose_cutoff(found.candidates, truth, history, cutoffs)
    dynamic = choice.cutoff.apply(lists, history=train)
    reports = evaluate(fixed, test), evaluate(dynamic, test)
    gain = paired_test(reports[1].values("f1"), reports[0].values("f1"))
    return {
        "recall": report.mean("recall"),
        "ndcg": report.mean("ndcg"),
        "f1_fixed": reports[0].f1,
        "f1_dynamic": reports[1].f1,
        "gain": gain.difference,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "cutoff": choice.name,
        "seconds": round(seconds, 2),
        "params": params | epochs,
    }


def compare_speed(tuned: dict[str, Any], train: Interactions) -> dict[str, Any]:
    """Processor seconds of both ALS at equal quality on the validation part."""
    names = {"ALS": "n_epochs", "implicit ALS": "iterations"}
    curves: dict[str, list[float]] = {}
    for model, name in names.items():
        best, params, cls = tuned[model]
        fits = (build(cls, params | {name: n})(best.holdout.history, None) for n in EPOCHS)
        curves[model] = [ndcg(Validation(fit, best.holdout, N_CANDIDATES, "f1", True, 1)) for fit in fits]
    wanted = EQUAL * min(max(curve) for curve in curves.values())
    result: dict[str, Any] = {"iterations": EPOCHS, "ndcg": curves, "wanted": wanted}
    for model, name in names.items():
        _, params, cls = tuned[model]
        n = EPOCHS[int(np.argmax(np.array(curves[model]) >= wanted))]
        seconds = min(timed(build(cls, params | {name: n}), train)[1] for _ in range(2))
        result[model] = {"iterations": n, "seconds": round(seconds, 2)}
    result["ratio"] = result["implicit ALS"]["seconds"] / result["ALS"]["seconds"]
    return result


def run(
    name: str, folder: Path, seed: int, models: tuple[str, ...], kept: dict[str, Any], result: dict[str, Any]
) -> None:
    """Some models on one split of a dataset; `kept` are their settings, which the first seed chooses."""
    rest, test = draw_fifth(read_matrix(name, folder), seed)
    history, truth = draw_fifth(rest, seed + 1_000)
    holdout = Holdout(history, truth, "a fifth of every user's items")
    result |= {"seed": seed, "users": test.active_users.size, "items": rest.n_items}
    tuned: dict[str, Any] = {}
    for model in models:
        settings = [kept[model]] if model in kept else candidates(rest.n_items)[model]
        tuned[model] = tune(settings, holdout)
        result.setdefault("rows", {})[model] = measure(*tuned[model], rest, test)
        print(f"{name}, seed {seed}, {model}: {result['rows'][model]}", flush=True)
    if "ALS" in models and "ALS" not in kept:
        result["speed"] = compare_speed(tuned, rest)
        print(f"{name}, seed {seed}, speed: {result['speed']}", flush=True)
    kept |= {model: settings for model, (_, *settings) in tuned.items()}


def warm_up() -> None:
    """Compile all kernels."""
    data = Interactions.from_csr(
        csr_array(np.random.default_rng(0).random((60, 40)) < 0.3).astype(np.float32)
    )
    rest, held = draw_fifth(data, 0)
    tiny = {"n_epochs": 1}
    models = (sl.ALS(**tiny), sl.GFCF(), sl.GFCF(max_memory=0), sl.EASE(max_memory=0))
    for model in (*models, *(cls(**tiny | SGD) for cls in (sl.BPRMF, sl.LogMF, sl.DKBPRMF))):
        model.fit(rest, valid=held).recommend(N=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", help="only these; the kept rows of other models stay")
    args = parser.parse_args()
    sl.set_threads(1)
    warm_up()
    result: dict[str, Any] = {"machine": describe("implicit", "cornac"), "N": N, "factors": FACTORS}
    if args.models:
        result = json.loads((RESULTS / "matrix.json").read_text()) | {"machine again": result["machine"]}
    kept: dict[str, dict[str, Any]] = {name: {} for name in args.datasets}
    for seed in range(args.seeds):
        for models, name in product(BATCHES, args.datasets):
            splits = result.setdefault(name, [])
            splits += [{}] * (len(splits) <= seed)
            wanted = tuple(model for model in models if not args.models or model in args.models)
            run(name, args.folder, seed, wanted, kept[name], splits[seed])
            save_results("matrix", result)


if __name__ == "__main__":
    main()
