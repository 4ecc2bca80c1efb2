"""Load crafted files one after the other and use them; one line of JSON per file on standard output."""

import json
import resource
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np

import shortlist as sl
from shortlist.cutoff import Calibration, Cutoff, top_candidates
from shortlist.data.interactions import Interactions
from shortlist.errors import ShortlistError

MEMORY = 6 << 30


def attempt(outcome, name, call):
    """Call and note the result: refused with a sentence, done, or a raw exception."""
    try:
        found = call()
    except ShortlistError as error:
        message = str(error)
        outcome[name] = "refused"
        if len(message) > 600 or not message.isprintable():
            outcome["raw"] = f"{name}: a message of {len(message)} characters: {message[:300]!a}"
        return None
    except Exception:
        outcome["raw"] = f"{name}: {traceback.format_exc()[-1500:]}"
        return None
    outcome[name] = "done"
    return found


def check_lists(outcome, name, lists, n_items):
    """Scores of lists are numbers, and items exist."""
    if lists is None:
        return
    if lists.items.size and not 0 <= lists.items.min() <= lists.items.max() < n_items:
        outcome["raw"] = f"{name}: items out of range"
    if np.isnan(lists.scores).any():
        outcome["raw"] = f"{name}: scores are not numbers"
    lists.to_frame()


def use_model(path, outcome):
    model = attempt(outcome, "load", lambda: sl.load_model(path))
    if model is None:
        return
    history = model.history_
    user, items = history.users.values[0], history.items.values[:3].to_list()
    calls = {
        "top 5": lambda: model.recommend(N=5),
        "repeat": lambda: model.recommend(N=5, filter_seen=False),
        "cutoff": lambda: model.recommend(max_items=10),
        "session": lambda: model.recommend(history={"somebody": items}, N=5),
        "candidates": lambda: model.recommend(users=[user], candidates=items, N=2),
    }
    for name, call in calls.items():
        check_lists(outcome, name, attempt(outcome, name, call), history.n_items)
    attempt(outcome, "explain", lambda: model.explain(user, N=2))
    attempt(outcome, "similar", lambda: model.similar_items(items[0], 3))
    attempt(outcome, "describe", lambda: (repr(model), str(model.selection_), repr(model.cutoff_)))
    saved = attempt(outcome, "save", lambda: model.save(path + ".again"))
    if saved is not None:
        if attempt(outcome, "load again", lambda: sl.load_model(saved)) is None:
            outcome["raw"] = outcome.get("raw", "what was loaded and saved cannot be loaded again")
        Path(saved).unlink()
    events = [(user, item, 900) if history.time is not None else (user, item) for item in items]
    observed = attempt(outcome, "observe", lambda: model.observe(events))
    if observed is not None:
        lists = attempt(outcome, "observed", lambda: observed.recommend(N=3))
        check_lists(outcome, "observed", lists, history.n_items)


def use_cutoff(path, outcome, kind):
    cut = attempt(outcome, "load", lambda: kind.load(path))
    if cut is None:
        return
    rows = [(f"u{u:02}", f"i{i:02}", u + i) for u in range(4) for i in range(5)]
    history = Interactions.from_tuples(rows)
    scores = np.random.default_rng(0).random((4, 5))
    lists = top_candidates(scores, ids=history, n_candidates=5)
    for name, given in (("lists", lists), ("matrix", scores)):
        attempt(outcome, name, lambda given=given: cut.apply(given, history=history))
    attempt(outcome, "without history", lambda: cut.apply(lists))
    attempt(outcome, "describe", lambda: repr(cut))
    attempt(outcome, "save", lambda: Path(cut.save(path + ".again")).unlink())


def answer(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    answer("ready")
    for line in sys.stdin:
        kind, path = line.rstrip("\n").split(" ", 1)
        outcome = {}
        if kind == "model":
            use_model(path, outcome)
        else:
            use_cutoff(path, outcome, Calibration if kind == "calibration" else Cutoff)
        answer(json.dumps(outcome))


if __name__ == "__main__":
    main()
