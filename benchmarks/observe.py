"""Latency of observe (1, 1,000 and 100,000 events) and of lists afterwards, per model, on Ta-Feng.

Models are fitted on all but the last 150,000 rows, and observe the following ones in order of time. Times are
processor seconds, so that other programs on the machine have little influence; the median of several calls.

    python benchmarks/observe.py            # keeps results/observe.json
    python benchmarks/observe.py EASE HRM   # only these models; keeps nothing
"""

import sys
import time

import numpy as np
from machine import describe, save_results

import shortlist as sl

HELD = 150_000
SIZES = {1: 20, 1000: 10, 100_000: 1}  # events per call → calls
MODELS = {
    "Popularity": sl.Popularity(),
    "PersonalFrequency": sl.PersonalFrequency(),
    "TIFUKNN": sl.TIFUKNN(),
    "EASE": sl.EASE(),
    "BPRMF": sl.BPRMF(n_epochs=2, negative_draws=1),
    "DKHRM": sl.DKHRM(n_epochs=2, repeat_decay=0.9, trend_half_life=3),
    "TwoStage": sl.TwoStage(n_rounds=20, n_bags=1, n_snapshots=2000),
}


def seconds(function, *args, **given):
    """Processor seconds of one call."""
    start = time.process_time()
    function(*args, **given)
    return time.process_time() - start


def measure(model, base, events):
    """Milliseconds of observe and of lists, by number of events."""
    model.fit(base)
    rng, found, at = np.random.default_rng(0), {}, 10
    users = base.users.values
    for one in ("warm-up", "fitted"):  # the first call also compiles
        found[one] = {"list_ms": 1e3 * seconds(model.recommend, users[:1], N=10)}
    model.observe(events[:10])
    model.recommend(users[:1], N=10)
    for size, calls in SIZES.items():
        observe, first, later = [], [], []
        for _ in range(calls):
            user = [users[int(rng.integers(len(users)))]]
            piece = sl.Interactions.from_frame(events[at : at + size])
            if not model.uses_new_items:
                piece = piece.where((base.items.align(piece.items) >= 0)[piece.item])
            at = (at + size) % (len(events) - size)
            observe.append(seconds(model.observe, piece))
            first.append(seconds(model.recommend, user, N=10))
            later.append(seconds(model.recommend, user, N=10))
        found[f"{size} events"] = {
            "observe_ms": 1e3 * float(np.median(observe)),
            "events_per_second": size / float(np.median(observe)),
            "first_list_ms": 1e3 * float(np.median(first)),
            "list_ms": 1e3 * float(np.median(later)),
        }
    del found["warm-up"]
    return found


def main():
    """Measure, print and keep."""
    data = sl.load_dataset("ta-feng")
    cut = np.sort(data.time)[-HELD]
    base = data.where(data.time < cut).compact()
    events = data.where(data.time >= cut).to_frame().sort("timestamp", maintain_order=True)
    wanted, results = sys.argv[1:] or list(MODELS), {}
    for name in wanted:
        results[name] = measure(MODELS[name], base, events)
        for case, row in results[name].items():
            print(name, case, {key: round(value, 2) for key, value in row.items()}, flush=True)
    if not sys.argv[1:]:
        save_results("observe", {"machine": describe(), "rows": base.n_rows, "models": results})


if __name__ == "__main__":
    main()
