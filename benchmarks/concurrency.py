"""Many threads on one model: 8 × 1,000 calls of recommend, sessions, fold_in and partial_fit, on every model.

Every list computed while the state did not change is compared with the list that a single thread computes
from that state. At the end, every user that was added must be known. Results: results/concurrency.json.
"""

import argparse
import copy
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from machine import describe, save_results

import shortlist as sl

THREADS, CALLS = 8, 1000
CHECKED = 100  # lists per thread that are compared
MIX = (("recommend", 0.6), ("session", 0.3), ("fold_in", 0.095), ("partial_fit", 0.005))
SMALL = {"n_factors": 8, "n_epochs": 3}


def models(data):
    """Every model, small enough for thousands of calls."""
    yield from (sl.Popularity(), sl.PersonalFrequency(), sl.EASE(), sl.TIFUKNN(n_neighbors=20))
    for name in ("BPRMF", "LogMF", "CRRMF", "DKBPRMF", "HRM", "DKHRM"):
        yield getattr(sl, name)(**SMALL)
    yield sl.DKHRM(repeat_decay=0.9, trend_half_life=3.0, **SMALL)
    yield sl.TwoStage(n_rounds=10, n_bags=1, min_leaf=5, n_threads=1)
    rng = np.random.default_rng(0)
    yield sl.PrecomputedScores(scores=rng.random((data.n_users, data.n_items)))


def run_thread(model, data, number, n_calls):
    """(users added, samples of (state, call, lists)) of one thread's calls."""
    rng, items = random.Random(number), data.items.values.to_list()
    added, samples = [], []
    can_learn = not isinstance(model, sl.PrecomputedScores)
    for call in range(n_calls):
        kind = rng.choices([name for name, _ in MIX], [share for _, share in MIX])[0]
        if kind == "fold_in" and can_learn:
            user = f"thread{number}-{call}"
            model.fold_in({user: rng.sample(items, 3)})
            added.append(user)
        elif kind == "partial_fit" and can_learn:
            user = f"thread{number}-{call}"
            rows = [(user, item, 2_000_000_000 + k) for k, item in enumerate(rng.sample(items, 3))]
            model.partial_fit(sl.Interactions.from_tuples(rows), n_epochs=1)
            added.append(user)
        else:
            history = {"session": rng.sample(items, 4)} if kind == "session" else None
            users = None if history else [f"u{rng.randrange(1, 40)}", "unknown"]
            state = model._state
            lists = model.recommend(users, history=history, N=5, n_threads=1)
            if model._state is state and len(samples) < CHECKED:
                samples.append((state, users, history, lists))
    return added, samples


def same(a, b):
    """Whether two sets of lists are equal bit for bit."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("indptr", "items", "scores", "reason")
    )


def check(model, data, n_calls):
    """Counts for one model: calls, lists compared, wrong lists, users added, users lost."""
    model.fit(data)
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda n: run_thread(model, data, n, n_calls), range(THREADS)))
    added = [user for users, _ in found for user in users]
    alone, wrong, compared = copy.deepcopy(model), 0, 0
    for _, samples in found:
        for state, users, history, lists in samples:
            alone._state = state
            wrong += not same(lists, alone.recommend(users, history=history, N=5, n_threads=1))
            compared += 1
    lost = sum(user not in model.users_ for user in added)
    return {
        "calls": THREADS * n_calls,
        "lists compared": compared,
        "wrong lists": wrong,
        "users added": len(added),
        "users lost": lost,
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    """Check every model; exit with 1 if a list was wrong or a user lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls per thread")
    calls = parser.parse_args().calls
    sys.setswitchinterval(1e-4)  # switch threads often
    data = sl.load_dataset("sample")
    data = data.where(data.user < 150).compact()
    results = {}
    for model in models(data):
        name = repr(model) if not isinstance(model, sl.PrecomputedScores) else "PrecomputedScores()"
        results[name] = check(model, data, calls)
        print(name, results[name], flush=True)
    save_results("concurrency", {"machine": describe(), "threads": THREADS, "models": results})
    failed = any(r["wrong lists"] or r["users lost"] for r in results.values())
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
