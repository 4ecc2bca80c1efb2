"""New articles known only by their words: a fifth of the articles is hidden from training, five draws.

    python benchmarks/papers.py FOLDER            # interactions.parquet and items.parquet of CiteULike-t
    python benchmarks/papers.py FOLDER --draws 1
    python benchmarks/papers.py FOLDER --parts PARTS  # keeps each draw, so that it can be interrupted

Half of the users choose the fixed N and fit the cutoff; the other half is the test. The calibration of the
expected F1 is chosen on the first half by cross-validation. Popularity has nothing to say about an article
without readers. Then the hidden articles arrive in 50 daily batches.

EASE with content is the closed form of EASE on the interactions stacked over the articles' latent semantic
vectors, which a new article has too. It runs on the fifth draw alone.
"""

import argparse
import json
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

import shortlist as sl
from shortlist.content.features import FeatureSpace
from shortlist.cutoff import ExpectedF1, FixedN, Threshold, top_candidates
from shortlist.data.ids import IdMap
from shortlist.evaluation.significance import paired_test

N_CANDIDATES = 100
N_DAYS = 50
N_DRAWS = 5
PER_DAY = 10  # candidates considered per user and day


CALIBRATIONS = ("platt", "isotonic", "features")
N_DIMENSIONS, PENALTIES = 200, (1000.0, 10_000.0)  # of EASE with content


@cache
def latent_vectors(items: sl.Items) -> np.ndarray:
    """Return the articles' words in the latent semantic dimensions, in unit length."""
    _, features = FeatureSpace.fit(items)
    start = np.ones(min(features.shape))
    left, sizes, _ = svds(features.astype(np.float64), k=N_DIMENSIONS, v0=start)
    vectors = left * sizes
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


class ContentEASE:
    """EASE on [X; L]: the interactions of users, and the articles' vectors as more rows."""

    def __init__(self, reg: float) -> None:
        self.reg = reg

    def fit(self, train: sl.Interactions, items: sl.Items) -> "ContentEASE":
        """A new article's column is a ridge regression on those of the known ones, by its vector alone."""
        self.vectors = latent_vectors(items)
        self.items, self.users_ = items.ids, train.users
        sets = train.item_sets
        rows = csr_array(
            (np.ones(sets.items.size), sets.items, sets.indptr), shape=(train.n_users, train.n_items)
        )
        known, n = self.vectors[items.ids.lookup(train.items.values)], train.n_users
        gram = np.empty((n + N_DIMENSIONS, n + N_DIMENSIONS), np.float32)
        gram[:n, :n], gram[:n, n:] = (rows @ rows.T).toarray(), rows @ known
        gram[n:, :n], gram[n:, n:] = gram[:n, n:].T, known.T @ known
        right = gram[:, :n].copy()
        last = np.eye(n + N_DIMENSIONS, dtype=np.float32)[:, n:]  # only the vectors' part is needed
        gram[np.diag_indices(n + N_DIMENSIONS)] += self.reg
        inverse = cho_solve(cho_factor(gram, overwrite_a=True, check_finite=False), last)
        self.users = right.T @ inverse
        return self

    def recommend(self, users: list, candidates: list, N: int) -> sl.RankedLists:
        """The best candidates of these users."""
        scores = self.users[self.users_.lookup(users)] @ self.vectors[self.items.lookup(candidates)].T
        ids = IdMap(pl.Series(users)), IdMap(pl.Series(candidates))
        return top_candidates(scores, ids=ids, n_candidates=N)


def models(seed: int) -> dict:
    """Return the candidates for each name, of which the best on validation users is tested."""
    found = {"ContentProfile": [sl.ContentProfile()], "content alone": [sl.ContentProfile(n_neighbors=0)]}
    if seed == N_DRAWS - 1:
        found["EASE with content"] = [ContentEASE(reg) for reg in PENALTIES]
    return found


def read(folder: Path) -> tuple[pl.DataFrame, sl.Items]:
    """Return the interactions and the articles."""
    return pl.read_parquet(folder / "interactions.parquet"), sl.read_items(folder / "items.parquet")


def draw(rows: pl.DataFrame, items: sl.Items, seed: int) -> dict:
    """Hide a fifth of the articles, and divide the users who have both kinds of articles."""
    rng = np.random.default_rng(seed)
    cold = items.ids.values.gather(np.sort(rng.choice(len(items), len(items) // 5, replace=False)))
    is_cold = rows["item_id"].is_in(cold.implode())
    train, test = rows.filter(~is_cold), rows.filter(is_cold)
    users = rng.permutation(np.intersect1d(train["user_id"], test["user_id"]))
    half = len(users) // 2
    return {
        "cold": rng.permutation(cold.to_numpy()),
        "train": sl.Interactions.from_frame(train),
        "truth": test,
        "valid": np.sort(users[:half]),
        "test": np.sort(users[half:]),
    }


def part(rows: pl.DataFrame, users: np.ndarray) -> sl.Interactions:
    """Return the rows of some users."""
    return sl.Interactions.from_frame(rows.filter(pl.col("user_id").is_in(users.tolist())))


def choose_model(candidates: list, data: dict, items: sl.Items) -> object:
    """Return the fitted model with the best fixed N on validation users."""
    truth, found = part(data["truth"], data["valid"]), []
    for model in candidates:
        model.fit(data["train"], items=items)
        if len(candidates) > 1:
            lists = model.recommend(data["valid"].tolist(), candidates=data["cold"].tolist(), N=10)
            scores = [sl.evaluate(lists.head(n), truth).f1 for n in range(1, 11)]
            found.append((max(scores), getattr(model, "reg", 0.0)))
    return candidates[int(np.argmax([score for score, _ in found])) if found else 0]


def choose_calibration(lists: sl.RankedLists, data: dict) -> str:
    """Return the calibration whose expected F1 is best on validation users, by two folds."""
    users = data["valid"]
    folds = [np.sort(users[fold::2]) for fold in range(2)]
    found = []
    for name in CALIBRATIONS:
        total = 0.0
        for fit, test in (folds, folds[::-1]):
            cut = ExpectedF1(n_candidates=N_CANDIDATES, calibration=name)
            first, second = (lists.take(lists.users.lookup(one.tolist())) for one in (fit, test))
            cut.fit(first, part(data["truth"], fit), history=data["train"])
            total += sl.evaluate(cut.apply(second, history=data["train"]), part(data["truth"], test)).f1
        found.append(total)
    return CALIBRATIONS[int(np.argmax(found))]


def evaluate_all(model: object, data: dict) -> dict:
    """Return recall@100, and F1 per user of the best fixed N, of a threshold and of the expected F1."""
    cold, train = data["cold"].tolist(), data["train"]
    lists = {
        name: model.recommend(data[name].tolist(), candidates=cold, N=N_CANDIDATES)
        for name in ("valid", "test")
    }
    truth = {name: part(data["truth"], data[name]) for name in lists}
    fixed = FixedN(n_candidates=N_CANDIDATES).fit(lists["valid"], truth["valid"])
    level = Threshold(n_candidates=N_CANDIDATES).fit(lists["valid"], truth["valid"])
    calibration = choose_calibration(lists["valid"], data)
    dynamic = ExpectedF1(n_candidates=N_CANDIDATES, calibration=calibration)
    dynamic.fit(lists["valid"], truth["valid"], history=train)
    cuts = {
        "fixed": fixed.apply(lists["test"]),
        "threshold": level.apply(lists["test"]),
        "expected": dynamic.apply(lists["test"], history=train),
    }
    reports = {name: sl.evaluate(cut, truth["test"]).users for name, cut in cuts.items()}
    f1 = {name: report["f1"].to_numpy() for name, report in reports.items()}
    f1["user"] = reports["fixed"]["user_id"].to_numpy()
    return {
        "recall": float(sl.evaluate(lists["test"], truth["test"]).users["recall"].mean()),
        "N": fixed.N_,
        "calibration": calibration,
        "mean length": float(cuts["expected"].lengths.mean()),
        "f1": f1,
    }


def by_day(model: sl.ContentProfile, data: dict, users: np.ndarray, batches: list) -> list:
    """Return (lists, truth) of each day; scores do not depend on other candidates: one request will do."""
    lists = model.recommend(users.tolist(), candidates=data["cold"].tolist(), N=len(data["cold"]))
    day_of = np.full(len(model.items_), -1)
    for day, batch in enumerate(batches):
        day_of[model.items_.lookup(batch.tolist())] = day
    owner = np.repeat(np.arange(len(lists)), lists.lengths)
    day = day_of[lists.items]
    order = np.lexsort((np.arange(day.size), owner, day))  # best first within each user and day
    key = day[order] * len(lists) + owner[order]
    first = np.searchsorted(key, np.arange(N_DAYS * len(lists) + 1))
    rank = np.arange(key.size) - first[key]
    order, key = order[rank < PER_DAY], key[rank < PER_DAY]
    truth = part(data["truth"], users)
    of_day = day_of[model.items_.lookup(truth.items.values)][truth.item]
    found = []
    for number in range(N_DAYS):
        at = order[slice(*np.searchsorted(key, [number * len(lists), (number + 1) * len(lists)]))]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(owner[at], minlength=len(lists)))])
        own = replace(
            lists,
            indptr=indptr.astype(np.int64),
            items=lists.items[at],
            scores=lists.scores[at],
            probabilities=lists.probabilities[at],
        )
        found.append((own, truth.where(of_day == number)))
    return found


def daily(model: sl.ContentProfile, data: dict) -> dict:
    """Return the reports of 50 days: the top article for everybody, and as many above one threshold."""
    batches = np.array_split(data["cold"], N_DAYS)
    days = {name: by_day(model, data, data[name], batches) for name in ("valid", "test")}
    everyone = [(lists.head(1), truth) for lists, truth in days["test"]]
    scores = np.concatenate([lists.probabilities for lists, _ in days["valid"]])
    volume = sum(int((lists.lengths > 0).sum()) for lists, _ in days["valid"])
    threshold = float(np.sort(scores)[-volume])  # chosen on the other users
    above = []
    for lists, truth in days["test"]:
        owner = np.repeat(np.arange(len(lists)), lists.lengths)
        n_above = np.bincount(owner, weights=lists.probabilities >= threshold, minlength=len(lists))
        above.append((lists.head(n_above.astype(np.int32)), truth))
    first, second = sl.evaluate_alerts(everyone), sl.evaluate_alerts(above)
    return {
        "top 1 per day": first._asdict() | {"useful_share": first.useful_share},
        "above one probability": second._asdict() | {"useful_share": second.useful_share},
        "ratio": second.useful_share / first.useful_share,
    }


def run_draw(rows: pl.DataFrame, items: sl.Items, seed: int) -> dict:
    """Return the results of all models on one draw."""
    data, found = draw(rows, items, seed), {}
    for name, candidates in models(seed).items():
        start = time.process_time()
        model = choose_model(candidates, data, items)
        seconds = time.process_time() - start
        result = evaluate_all(model, data) | {"fit seconds": seconds}
        rest = {key: value for key, value in result.items() if key != "f1"}
        shown = {key: value if isinstance(value, str) else round(value, 4) for key, value in rest.items()}
        means = {key: round(float(value.mean()), 4) for key, value in result["f1"].items() if key != "user"}
        print(f"draw {seed}, {name}: {shown} {means}", flush=True)
        if name == "ContentProfile":
            result["days"] = daily(model, data)
            print(f"  useful messages: {result['days']['ratio']:.2f} × top 1 at equal volume", flush=True)
        found[name] = result
    return found


def main() -> None:
    """Run the draws that have no results yet; summarize and store the results of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=N_DRAWS)
    parser.add_argument(
        "--parts", type=Path, help="folder that keeps the results of each draw, to resume from"
    )
    options = parser.parse_args()
    rows, items = read(options.folder)
    print(f"{rows.height:,} interactions, {items}")
    draws = []
    for seed in range(options.draws):
        part = None if options.parts is None else options.parts / f"draw{seed}.npy"
        if part is not None and part.is_file():
            draws.append(np.load(part, allow_pickle=True).item())
            continue
        draws.append(run_draw(rows, items, seed))
        if part is not None:
            np.save(part, np.array(draws[-1], dtype=object), allow_pickle=True)
    names = dict.fromkeys(name for one in draws for name in one)
    summary = {name: summarize([one[name] for one in draws if name in one]) for name in names}
    for name, result in summary.items():
        print(name, json.dumps(result))
    path = RESULTS / "papers.json"
    if not path.is_file() or options.draws >= json.loads(path.read_text())["draws"]:
        days = [one["ContentProfile"]["days"] for one in draws]
        result = {"machine": describe(), "draws": options.draws, "models": summary, "days": days}
        save_results("papers", result)


def summarize(results: list[dict]) -> dict[str, object]:
    """Return means over the draws, and the p-value of expected F1 against fixed N over all test users."""
    kinds = ("fixed", "threshold", "expected")
    fixed, _, expected = (np.concatenate([one["f1"][name] for one in results]) for name in kinds)
    by_draw = {name: [float(one["f1"][name].mean()) for one in results] for name in kinds}
    by_draw |= {name: [float(one[name]) for one in results] for name in ("recall", "N", "mean length")}
    by_draw["gain"] = [b / a - 1 for a, b in zip(by_draw["fixed"], by_draw["expected"], strict=True)]
    users = np.unique(np.concatenate([one["f1"]["user"] for one in results]), return_inverse=True)[1]
    test = paired_test(expected, fixed, groups=users.astype(np.int32))  # a user is in several draws
    return {
        "draws": by_draw,
        "mean": {name: float(np.mean(values)) for name, values in by_draw.items()},
        "sd": {name: float(np.std(values)) for name, values in by_draw.items()},
        "calibrations": [one["calibration"] for one in results],
        "fit seconds": float(np.mean([one["fit seconds"] for one in results])),
        "p": float(test.p_bootstrap),
    }


if __name__ == "__main__":
    main()
