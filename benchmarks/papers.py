"""New articles known only by their words: a fifth of the articles is hidden from training, five draws.

    python benchmarks/papers.py FOLDER            # interactions.parquet and items.parquet of CiteULike-t
    python benchmarks/papers.py FOLDER --draws 1

Half of the users choose the fixed N and fit the cutoff; the other half is the test. Popularity has nothing to
say about an article without readers. Then the hidden articles arrive in 50 daily batches.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl
from machine import describe, save_results

import shortlist as sl
from shortlist.cutoff import ExpectedF1, FixedN
from shortlist.evaluation.significance import paired_test

N_CANDIDATES = 100
N_DAYS = 50
PER_DAY = 10  # candidates considered per user and day
MODELS = {"ContentProfile": 40, "content alone": 0}  # number of neighbors


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


def evaluate_all(model: sl.ContentProfile, data: dict) -> dict:
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
    own = ExpectedF1(n_candidates=N_CANDIDATES, calibration="none", size="probabilities")
    own = own.fit(lists["valid"], truth["valid"])
    return {
        "recall": float(sl.evaluate(lists["test"], truth["test"]).users["recall"].mean()),
        "N": fixed.N_,
        "own": float(sl.evaluate(own.apply(lists["test"]), truth["test"]).users["f1"].mean()),
        "mean length": float(cuts["expected"].lengths.mean()),
        "f1": f1,
    }


def daily(model: sl.ContentProfile, data: dict) -> dict:
    """Return the reports of 50 days: the top article for everybody, and as many above one threshold."""
    batches = np.array_split(data["cold"], N_DAYS)
    days = {name: [] for name in ("valid", "test")}
    for batch in batches:
        truth = data["truth"].filter(pl.col("item_id").is_in(batch.tolist()))
        for name, found in days.items():
            users = data[name].tolist()
            found.append(
                (model.recommend(users, candidates=batch.tolist(), N=PER_DAY), part(truth, data[name]))
            )
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


def main() -> None:
    """Run all draws and store the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    rows, items = read(options.folder)
    print(f"{rows.height:,} interactions, {items}")
    found: dict = {name: [] for name in MODELS}
    days = []
    for seed in range(options.draws):
        data = draw(rows, items, seed)
        for name, n_neighbors in MODELS.items():
            start = time.process_time()
            model = sl.ContentProfile(n_neighbors=n_neighbors).fit(data["train"], items=items)
            seconds = time.process_time() - start
            result = evaluate_all(model, data) | {"fit seconds": seconds}
            found[name].append(result)
            shown = {key: round(value, 4) for key, value in result.items() if key != "f1"}
            means = {
                key: round(float(value.mean()), 4) for key, value in result["f1"].items() if key != "user"
            }
            print(f"draw {seed}, {name}: {shown} {means}", flush=True)
            if name == "ContentProfile":
                days.append(daily(model, data))
                print(f"  useful messages: {days[-1]['ratio']:.2f} × top 1 at equal volume", flush=True)
    summary = {name: summarize(results) for name, results in found.items()}
    for name, result in summary.items():
        print(name, {key: round(value, 5) for key, value in result.items()})
    if options.draws == 5:
        save_results(
            "papers", {"machine": describe(), "draws": options.draws, "models": summary, "days": days}
        )


def summarize(results: list[dict]) -> dict[str, float]:
    """Return means over the draws, and the p-value of expected F1 against fixed N over all test users."""
    fixed, expected = (np.concatenate([one["f1"][name] for one in results]) for name in ("fixed", "expected"))
    means = {
        key: float(np.mean([one[key] for one in results]))
        for key in ("recall", "N", "own", "mean length", "fit seconds")
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
