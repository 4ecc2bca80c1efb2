"""The last film of every user of MovieLens-1M, out of the whole catalogue: HR@10 and NDCG@10.

    python benchmarks/leave_one_out.py  # validation, then the test, once; ten minutes of processor time

The protocol of the published figures: films with at least five ratings (6,040 users, 3,416 films, 999,611
rows), the ratings of a user in order of time (those of the same second in the order of the file), the last
film is the test, the one before it validation; films that the user has rated are not ranked. The settings of
the network were found on validation.

Three rankers: the features of `sl.TwoStage`, a recurrent network (gru.py), and the trees of `sl.TwoStage`
with two more columns, the log-probability and the rank that the network gives the film. The trees learn from
the last films of each history; the network that describes those was trained on the histories without them.
It is then trained further on the whole histories before it describes the films to predict.
"""

import argparse
import copy
import json
import time
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from gru import GRU
from machine import describe, save_results

import shortlist as sl
from shortlist.core.trees import TreeEnsemble, TreeParams, fit_trees
from shortlist.data.datasets import fetch
from shortlist.data.history import History
from shortlist.kernels.replay import GivenCandidates, Snapshots
from shortlist.models.two_stage.features import FEATURES, compute_features
from shortlist.models.two_stage.snapshots import select_last_snapshots

Array = np.ndarray
K = 10
MIN_RATINGS = 5
N_MORE = 50  # candidates that the network adds
N_LAST = 4  # films of each history that the trees learn from
NEGATIVE_RATE = 0.2
N_BAGS = 2
PUBLISHED = {  # HR@10, NDCG@10 by Klenitskiy and Vasilev (RecSys 2023, arXiv 2309.07602)
    "SASRec": (0.2500, 0.1341),
    "BERT4Rec": (0.2843, 0.1537),
    "SASRec trained with cross-entropy": (0.3152, 0.1821),
}
PARTS = {"valid": 2, "test": 1}  # how many films are left out; the first of them is predicted


class Histories(NamedTuple):
    """Sequences of items and of times, one per user."""

    items: list[Array]
    times: list[Array]
    n_items: int

    def until(self, n_last: int) -> "Histories":
        """The same without the last items of every user."""
        end = -n_last or None
        return Histories([s[:end] for s in self.items], [t[:end] for t in self.times], self.n_items)


def load() -> Histories:
    """MovieLens-1M in the order of the published protocol."""
    rows = pl.read_parquet(fetch("ml-1m") / "interactions.parquet").with_row_index("row")
    rows = rows.filter(pl.len().over("item_id") >= MIN_RATINGS).sort("user_id", "timestamp", "row")
    _, user = np.unique(rows["user_id"].to_numpy(), return_inverse=True)
    names, item = np.unique(rows["item_id"].to_numpy(), return_inverse=True)
    edges = np.searchsorted(user, np.arange(user.max() + 2))
    seconds = rows["timestamp"].to_numpy().astype(np.int64)
    order = np.arange(user.size) - edges[user]  # one microsecond apart, so that every item is a basket
    time_us = seconds * 1_000_000 + order
    cut = edges[1:-1]
    return Histories(np.split(item, cut), np.split(time_us, cut), names.size)


def to_interactions(histories: Histories) -> sl.Interactions:
    """The histories as the library's data; ids are the numbers of users and items."""
    sizes = [s.size for s in histories.items]
    frame = {
        "user_id": np.repeat(np.arange(len(sizes)), sizes),
        "item_id": np.concatenate(histories.items),
        "timestamp": np.concatenate(histories.times),
    }
    rows = pl.DataFrame(frame).with_columns(pl.col("timestamp").cast(pl.Datetime("us")))
    return sl.Interactions.from_frame(rows)


def numbers(ids: sl.IdMap) -> Array:
    """The numbers of users or items in the histories, in the order of the library's data."""
    return np.array(ids.values.to_list()).astype(np.int64)


class Examples(NamedTuple):
    """Candidates of snapshots; `columns` holds the features of TwoStage, then the two of the network."""

    owner: Array
    items: Array
    columns: Array


def log_probabilities(network: GRU, states: Array, seen: list[Array]) -> Array:
    """(n, n_items) of items that are not seen; -inf for the others."""
    scores = network.scores(states)
    for row, items in zip(scores, seen, strict=True):
        row[items] = -np.inf
    top = scores.max(axis=1, keepdims=True)
    scores -= top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    return scores


def describe_snapshots(
    model: sl.TwoStage, data: sl.Interactions, snapshots: Snapshots, network: GRU, histories: Histories
) -> Examples:
    """Candidates of users at snapshots: the proposed ones and the best ones of the network."""
    item_numbers, at, before = numbers(data.items), snapshots.at, []
    for user, when in zip(numbers(data.users)[snapshots.user], at, strict=True):
        position = int(np.searchsorted(histories.times[user], when))
        before.append(histories.items[user][:position])
    states = network.states(before)[:, 0]
    logs, ranks, best = [], [], []
    for first in range(0, at.size, 1024):
        part = slice(first, first + 1024)
        scores = log_probabilities(network, states[part], before[part])[:, item_numbers]
        order = np.argsort(-scores, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
        best.append(np.sort(order[:, :N_MORE], axis=1).astype(np.int32))
        logs.append(scores.astype(np.float16))
        ranks.append(rank.astype(np.int16))
    log, rank, more = (np.concatenate(each) for each in (logs, ranks, best))
    given = GivenCandidates(np.arange(at.size + 1, dtype=np.int64) * N_MORE, more.ravel(), False)
    replay = model._replay(History.of(data))
    parts = []
    for block in compute_features(replay, replay.layout.log.users, snapshots, given, 1):
        owner = np.repeat(block.first + np.arange(block.indptr.size - 1), np.diff(block.indptr))
        own = np.stack([log[owner, block.items], rank[owner, block.items]], axis=1).astype(np.float32)
        parts.append((owner, item_numbers[block.items], np.concatenate([block.features, own], axis=1)))
    return Examples(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def fit_ranker(found: Examples, target: Array, n_columns: int) -> TreeEnsemble:
    """Trees as in TwoStage, on the first columns."""
    labels = found.items == target[found.owner]
    kept = labels | (np.random.default_rng(0).random(labels.size) < NEGATIVE_RATE)
    weight = np.where(labels, 1.0, 1 / NEGATIVE_RATE).astype(np.float32)[kept]
    columns, labels = np.ascontiguousarray(found.columns[kept, :n_columns]), labels[kept]
    params = [TreeParams(columns=0.5, rows=0.7, seed=bag) for bag in range(N_BAGS)]
    return TreeEnsemble(*(fit_trees(columns, labels, weight, one) for one in params))


def metrics(rank: Array) -> dict[str, float]:
    """HR@10 and NDCG@10 from the rank of each target, counted from 0."""
    hit = rank < K
    return {"hr": float(hit.mean()), "ndcg": float((hit / np.log2(rank + 2.0)).mean())}


def rank_of_target(found: Examples, score: Array, target: Array) -> Array:
    """(n,) how many candidates score higher than the target; the worst rank if it is no candidate."""
    own = np.full(target.size, np.inf)
    is_target = found.items == target[found.owner]
    own[found.owner[is_target]] = score[is_target]
    above = np.bincount(found.owner, score > own[found.owner], target.size)
    return np.where(np.isfinite(own), above, np.iinfo(np.int32).max)


def predict(
    histories: Histories, target: Array, when: Array, earlier: GRU, network: GRU, seed: int
) -> dict[str, Any]:
    """The three rankers on one target per user; `earlier` does not know the last films of the histories."""
    n, model, data = target.size, sl.TwoStage(seed=seed), to_interactions(histories)
    log = model._replay(History.of(data)).layout.log
    snapshots = select_last_snapshots(log, N_LAST * n)
    past = describe_snapshots(model, data, snapshots, earlier, histories)
    bought = numbers(data.items)[log.users.item[log.users.baskets[snapshots.target]]]
    users = numbers(data.users)
    order = np.argsort(when[users], kind="stable")
    now_at = Snapshots(order.astype(np.int32), when[users][order], np.full(n, -1, np.int64))
    now = describe_snapshots(model, data, now_at, network, histories)
    wanted, width = target[users][order], len(FEATURES)
    rows = {"network": metrics(rank_in_catalogue(network, histories, target))}
    for name, n_columns in (("TwoStage", width), ("TwoStage with the network", width + 2)):
        trees = fit_ranker(past, bought, n_columns)
        score = trees.raw_scores(np.ascontiguousarray(now.columns[:, :n_columns]))
        rows[name] = metrics(rank_of_target(now, score, wanted))
        print(f"  {name}: {rows[name]}", flush=True)
    found = np.bincount(now.owner, now.items == wanted[now.owner], n) > 0
    return {
        "rows": rows,
        "recall_of_candidates": float(found.mean()),
        "candidates": now.items.size / n,
    }


def rank_in_catalogue(network: GRU, histories: Histories, target: Array) -> Array:
    """(n,) how many films that the user has not rated the network scores higher than the target."""
    states, rank = network.states(histories.items)[:, 0], np.empty(target.size, np.int64)
    for user, (state, items) in enumerate(zip(states, histories.items, strict=True)):
        scores = network.scores(state)
        scores[items] = -np.inf
        rank[user] = (scores > scores[target[user]]).sum()
    return rank


def train_network(network: GRU, sequences: list[Array], n_epochs: int, slow_from: int) -> None:
    """Train, with a quarter of the step size from an epoch on."""
    lr = network.lr
    for epoch in range(n_epochs):
        network.lr = lr if epoch < slow_from else lr / 4
        began = time.process_time()
        loss = network.fit_epoch(sequences)
        spent = time.process_time() - began
        print(f"  epoch {epoch + 1} of {n_epochs}: loss {loss:.4f}, {spent:.0f} s of processor", flush=True)
    network.lr = lr


def run(n_epochs: int, n_more: int, seed: int) -> dict[str, Any]:
    """Validation, then the test."""
    whole, began = load(), time.process_time()
    network = GRU(whole.n_items, seed=seed)
    train_network(network, whole.until(max(PARTS.values()) + N_LAST).items, n_epochs, n_epochs * 2 // 3)
    earlier, found = copy.deepcopy(network), {}
    for part, left_out in PARTS.items():
        histories = whole.until(left_out)
        train_network(network, histories.items, n_more, 0)
        target = np.array([items[-left_out] for items in whole.items])
        when = np.array([times[-left_out] for times in whole.times])
        print(part, flush=True)
        found[part] = predict(histories, target, when, earlier, network, seed)
    return {
        "published": {name: {"hr": hr, "ndcg": ndcg} for name, (hr, ndcg) in PUBLISHED.items()},
        "settings": {"n_epochs": n_epochs, "n_more": n_more, "seed": seed},
        "parts": found,
        "processor_seconds": round(time.process_time() - began),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=15, help="on the histories without the last films")
    parser.add_argument("--more", type=int, default=3, help="epochs on longer histories, each time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    result = run(given.epochs, given.more, given.seed)
    print(json.dumps(result["parts"], indent=1))
    save_results("leave_one_out", {"machine": describe("lightgbm"), **result})
