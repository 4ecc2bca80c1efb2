"""New articles known only by their words: a fifth of the articles is hidden from training, five draws.

    python benchmarks/papers.py FOLDER            # interactions.parquet and items.parquet of CiteULike-t
    python benchmarks/papers.py FOLDER --draws 1
    python benchmarks/papers.py FOLDER --parts PARTS  # keeps each draw, so that it can be interrupted

Half of the users choose the fixed N and fit the cutoff; the other half is the test. Popularity has nothing to
say about an article without readers. Then the hidden articles arrive in 50 daily batches.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.cutoff import ExpectedF1, FixedN
from shortlist.evaluation.significance import paired_test
from shortlist.models.base import Recommender

N_CANDIDATES = 100
N_DAYS = 50
PER_DAY = 10  # candidates considered per user and day


def models(seed: int) -> dict:
    """Return profiles of words, with and without neighbors, and factors with words as features."""
    return {
        "ContentProfile": sl.ContentProfile(),
        "content alone": sl.ContentProfile(n_neighbors=0),
        "BPRMF with words": sl.BPRMF(n_factors=64, n_epochs=40, seed=seed, n_threads=1),
    }


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


def evaluate_all(model: Recommender, data: dict) -> dict:
    """Return recall@100, and F1 per user of the best fixed N and of the expected F1."""
    cold, train = data["cold"].tolist(), data["train"]
    lists = {
        name: model.recommend(data[name].tolist(), candidates=cold, N=N_CANDIDATES)
        for name in ("valid", "test")
    }
    truth = {name: part(data["truth"], data[name]) for name in lists}
    fixed = FixedN(n_candidates=N_CANDIDATES).fit(lists["valid"], truth["valid"])
    dynamic = ExpectedF1(n_candidates=N_CANDIDATES).fit(lists["valid"], truth["valid"], history=train)
    cuts = {"fixed": fixed.apply(lists["test"]), "expected": dynamic.apply(lists["test"], history=train)}
    reports = {name: sl.evaluate(cut, truth["test"]).users for name, cut in cuts.items()}
    f1 = {name: report["f1"].to_numpy() for name, report in reports.items()}
    f1["user"] = reports["fixed"]["user_id"].to_numpy()
    return {
        "recall": float(sl.evaluate(lists["test"], truth["test"]).users["recall"].mean()),
        "N": fixed.N_,
        "mean length": float(cuts["expected"].lengths.mean()),
        "f1": f1,
    }


def by_day(model: Recommender, data: dict, users: np.ndarray, batches: list) -> list:
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


def daily(model: Recommender, data: dict) -> dict:
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
    for name, model in models(seed).items():
        start = time.process_time()
        model.fit(data["train"], items=items)
        seconds = time.process_time() - start
        result = evaluate_all(model, data) | {"fit seconds": seconds}
        shown = {key: round(value, 4) for key, value in result.items() if key != "f1"}
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
    parser.add_argument("--draws", type=int, default=5)
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
    summary = {name: summarize([one[name] for one in draws]) for name in draws[0]}
    for name, result in summary.items():
        print(name, {key: round(value, 5) for key, value in result.items()})
    path = RESULTS / "papers.json"
    if not path.is_file() or options.draws >= json.loads(path.read_text())["draws"]:
        days = [one["ContentProfile"]["days"] for one in draws]
        result = {"machine": describe(), "draws": options.draws, "models": summary, "days": days}
        save_results("papers", result)


def summarize(results: list[dict]) -> dict[str, float]:
    """Return means over the draws, and the p-value of expected F1 against fixed N over all test users."""
    fixed, expected = (np.concatenate([one["f1"][name] for one in results]) for name in ("fixed", "expected"))
    means = {
        key: float(np.mean([one[key] for one in results]))
        for key in ("recall", "N", "mean length", "fit seconds")
    }
    users = np.unique(np.concatenate([one["f1"]["user"] for one in results]), return_inverse=True)[1]
    test = paired_test(expected, fixed, groups=users.astype(np.int32))  # a user is in several draws
    return means | {
        "fixed N": float(fixed.mean()),
        "expected F1": float(expected.mean()),
        "gain": float(expected.mean() / fixed.mean() - 1),
        "p": float(test.p_bootstrap),
    }


if __name__ == "__main__":
    main()
