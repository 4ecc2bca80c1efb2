"""The last film of every user of MovieLens-1M, out of the whole catalogue: HR@10 and NDCG@10.

    python benchmarks/leave_one_out.py --part valid   # the film before the last, as often as wanted
    python benchmarks/leave_one_out.py --part test    # once

The protocol of the published figures: films with at least five ratings (6,040 users, 3,416 films, 999,611
rows), the ratings of a user in order of time (those of the same second in the order of the file), the last
film is the test, the one before it validation; films that the user has rated are not ranked.

Three rankers: the features of `sl.TwoStage`, a recurrent network (gru.py), and the trees of `sl.TwoStage`
with two more columns, the log-probability and the rank that the network gives the film. The trees learn from
the last films of each history; the network that describes those was trained on the histories without them,
and is then trained further on the whole histories before it describes the films to predict.
"""

import argparse
import json
import time
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from gru import GRU
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.core.trees import TreeEnsemble, TreeParams, fit_trees
from shortlist.data.datasets import fetch
from shortlist.data.history import History
from shortlist.kernels.candidates import GivenCandidates
from shortlist.kernels.snapshots import Snapshots
from shortlist.models.two_stage.features import FEATURES, compute_features
from shortlist.models.two_stage.snapshots import select_last_snapshots

Array = np.ndarray
K = 10
MIN_RATINGS = 5
N_MORE = 50  # candidates that the network adds
N_LAST = 4  # films of each history that the trees learn from
NEGATIVE_RATE = 0.2
N_BAGS = 2
PUBLISHED = {  # HR@10, NDCG@10
    "BERT4Rec (Petrov and Macdonald, RecSys 2022)": (0.282, 0.152),
}


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


def describe_moments(
    model: sl.TwoStage, data: sl.Interactions, snapshots: Snapshots, network: GRU, histories: Histories
) -> Examples:
    """Candidates of users just before a moment: the proposed ones and the best ones of the network."""
    data_item, number = (np.array(m.values.to_list()).astype(int) for m in (data.items, data.users))
    to_data = np.empty(histories.n_items, np.int32)
    to_data[:] = -1
    to_data[data_item] = np.arange(data_item.size)
    at = snapshots.at
    before = []
    for user, moment in zip(number[snapshots.user], at, strict=True):
        position = int(np.searchsorted(histories.times[user], moment))
        before.append(histories.items[user][:position])
    states = network.states(before)[:, 0]
    logs, ranks, best = [], [], []
    for first in range(0, at.size, 1024):
        part = slice(first, first + 1024)
        scores = log_probabilities(network, states[part], before[part])[:, data_item]
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
        parts.append((owner, data_item[block.items], np.concatenate([block.features, own], axis=1)))
    return Examples(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def fit_ranker(found: Examples, target: Array, columns: Array) -> TreeEnsemble:
    """Trees as in TwoStage, on these columns."""
    labels = found.items == target[found.owner]
    kept = labels | (np.random.default_rng(0).random(labels.size) < NEGATIVE_RATE)
    weight = np.where(labels, 1.0, 1 / NEGATIVE_RATE).astype(np.float32)[kept]
    texts = [
        fit_trees(
            np.ascontiguousarray(found.columns[kept][:, columns]),
            labels[kept],
            weight,
            TreeParams(columns=0.5, rows=0.7, seed=bag),
        )
        for bag in range(N_BAGS)
    ]
    return TreeEnsemble(*texts)


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


def evaluate(histories: Histories, target: Array, when: Array, epochs: tuple[int, int], seed: int) -> Any:
    """The three rankers on one target per user; `histories` hold what is known before."""
    began, n = time.process_time(), target.size
    data, model = to_interactions(histories), sl.TwoStage(seed=seed)
    network, earlier = GRU(histories.n_items, seed=seed), histories.until(N_LAST)
    train_network(network, earlier.items, epochs[0])
    log = model._replay(History.of(data)).layout.log
    snapshots = select_last_snapshots(log, N_LAST * n)
    past = describe_moments(model, data, snapshots, network, histories)
    names = np.array(data.items.values.to_list()).astype(int)
    bought = names[log.users.item[log.users.baskets[snapshots.target]]]
    train_network(network, histories.items, epochs[1])
    users = np.array(data.users.values.to_list()).astype(int)
    order = np.argsort(when[users], kind="stable")
    moments = Snapshots(order.astype(np.int32), when[users][order], np.full(n, -1, np.int64))
    now = describe_moments(model, data, moments, network, histories)
    wanted, found = target[users][order], {}
    scores = network.scores(network.states(histories.items)[:, 0])
    own = scores[np.arange(n), target]
    for row, items in zip(scores, histories.items, strict=True):
        row[items] = -np.inf
    found["network"] = metrics((scores > own[:, None]).sum(axis=1))
    width = len(FEATURES)
    for name, columns in (
        ("TwoStage", np.arange(width)),
        ("TwoStage with the network", np.arange(width + 2)),
    ):
        trees = fit_ranker(past, bought, columns)
        score = trees.raw_scores(np.ascontiguousarray(now.columns[:, columns]))
        found[name] = metrics(rank_of_target(now, score, wanted))
    hit = np.bincount(now.owner, now.items == wanted[now.owner], n) > 0
    return {
        "rows": found,
        "recall_of_candidates": float(hit.mean()),
        "candidates": now.items.size / n,
        "processor_seconds": round(time.process_time() - began),
    }


def train_network(network: GRU, sequences: list[Array], n_epochs: int) -> None:
    """Train with a quarter of the step size in the last third of the epochs."""
    lr = network.lr
    for epoch in range(n_epochs):
        network.lr = lr if epoch < n_epochs * 2 / 3 else lr / 4
        loss = network.fit_epoch(sequences)
        print(f"  epoch {epoch + 1} of {n_epochs}: loss {loss:.4f}", flush=True)
    network.lr = lr


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=("valid", "test"), required=True)
    parser.add_argument("--epochs", type=int, nargs=2, default=(15, 4), help="before, after the last films")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    whole = load()
    left_out = 2 if given.part == "valid" else 1
    result = evaluate(
        whole.until(left_out),
        np.array([s[-left_out] for s in whole.items]),
        np.array([t[-left_out] for t in whole.times]),
        tuple(given.epochs),
        given.seed,
    )
    print(json.dumps(result, indent=1))
    file = RESULTS / "leave_one_out.json"
    held = json.loads(file.read_text()) if file.is_file() else {}
    published = {name: {"hr": hr, "ndcg": ndcg} for name, (hr, ndcg) in PUBLISHED.items()}
    held |= {"machine": describe("lightgbm"), "published": published, given.part: result}
    save_results("leave_one_out", held)
