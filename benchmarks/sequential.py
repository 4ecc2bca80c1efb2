"""What training on blocks costs: its loss against Algorithm 1 of the paper, which draws steps from all rows.

    python benchmarks/sequential.py FOLDER        # as in boundary.py; about two minutes

Both start from the same parameters and make as many steps of the same size. The loss is that over a fixed
sample of the training rows, each with an item that the user does not have.
"""

import argparse
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from boundary import load
from machine import describe, save_results

import shortlist as sl
from shortlist.data.interactions import Interactions
from shortlist.kernels.parameters import Parameters
from shortlist.models.factorization.objective import LossSample

DATASETS = ("ml-100k", "online-retail", "lastfm")
EPOCHS = 20
SETTINGS: dict[str, Any] = {
    "n_factors": 50,
    "n_epochs": EPOCHS,
    "lr": 0.05,
    "reg": 0.01,
    "negative_draws": 1,
    "tol": 0.0,
    "repeat_decay": None,
    "trend_half_life": None,
}
JOINT = {"negatives": 10.0, "t": 1.0, "lambda_t": 1.0, "boundary": "learned"}


@nb.njit
def run_epoch(  # type: ignore[no-untyped-def]
    theta, users, items, indptr, order, others, kinds, lr, reg, alpha, positive_rate, t, lambda_t
):
    """One step for each row of `order`: a classification example with probability alpha, else a pair."""
    shrink = np.float32(1 - lr * reg)
    for k in range(order.size):
        r, j, z = order[k], others[k], kinds[k]
        u, i = users[r], items[r]
        own = items[indptr[u] : indptr[u + 1]]
        place = np.searchsorted(own, j)
        is_seen = place < own.size and own[place] == j
        p = theta.user[u].copy()
        if z < alpha:
            relevant = z < alpha * positive_rate
            if is_seen and not relevant:
                continue
            item = i if relevant else j
            q = theta.item[item].copy()
            margin = (p * q).sum() + theta.bias[item] - theta.boundary[u]
            descent = 1 / (1 + np.exp(margin)) if relevant else -1 / (1 + np.exp(-margin))
            moved = theta.boundary[u] - lr * descent - t
            theta.boundary[u] = t + moved / (1 + 2 * lr * lambda_t)
            step = np.float32(lr * descent)
            theta.user[u] = shrink * p + step * q
            theta.item[item] = shrink * q + step * p
            theta.bias[item] += step
        elif not is_seen:
            q, other = theta.item[i].copy(), theta.item[j].copy()
            margin = (p * (q - other)).sum() + theta.bias[i] - theta.bias[j]
            step = np.float32(lr / (1 + np.exp(margin)))
            theta.user[u] = shrink * p + step * (q - other)
            theta.item[i] = shrink * q + step * p
            theta.item[j] = shrink * other - step * p
            theta.bias[i] += step
            theta.bias[j] -= step


def train_sequentially(model: Any, data: Interactions) -> float:
    """The loss after as many steps, each drawn from all rows."""
    start = model.terms.start(data)
    groups = model.representation.groups(data, start, None)
    sample = LossSample(groups, groups.indptr, groups.item, data.n_items, model.objective(), model.seed)
    theta = Parameters(*(part.copy() for part in model.initialize(data.n_users, data.n_items, start)))
    sets, objective = data.item_sets, model.objective()
    rng, users = np.random.default_rng(1), sets.owner.astype(np.int32)
    for _ in range(EPOCHS):
        n = sets.items.size
        steps = rng.integers(n, size=n), rng.integers(data.n_items, size=n), rng.random(n)
        rate = 1 / (1 + float(objective.negatives))
        numbers = model.lr, model.reg, objective.alpha, rate, objective.t, objective.lambda_t
        run_epoch(theta, users, sets.items, sets.indptr, *steps, *numbers)
    return sample.loss(theta, np.arange(data.n_items, dtype=np.int32))


def main() -> None:
    """Compare, and store the losses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    options, rows = parser.parse_args(), {}
    for name in DATASETS:
        data = load(name, options.folder)
        for model in (sl.BPRMF(**SETTINGS), sl.DKBPRMF(**SETTINGS, **JOINT)):
            blocks, sequential = model.fit(data).losses_[-1], train_sequentially(model, data)
            rows[f"{name}, {type(model).__name__}"] = {"blocks": blocks, "sequential": sequential}
            print(name, type(model).__name__, f"{blocks:.4f}, sequential {sequential:.4f}", flush=True)
        save_results("sequential", {"machine": describe(), "epochs": EPOCHS, "rows": rows})


if __name__ == "__main__":
    main()
