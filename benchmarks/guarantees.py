"""Guarantees after deployment: how often they are broken on the next basket, and how many users they cover.

    python benchmarks/guarantees.py [simulation | drift | dataset ...]  # writes results/guarantees.json

`simulation`: users drawn again and again from populations whose true means are known.

`drift`: twelve generated periods whose relevance follows a season, a random walk, a trend or a step, and a
thirteenth that decides. A threshold is tested on the last period, on each of the last four, on these with
their largest fall as a margin, or it moves after every period by how much the level was missed (adaptive
conformal inference, Gibbs and Candès 2021; the steps are a fifth of the range).

Datasets: the last baskets are rolled back one by one (N_ORIGINS times). On what is left, a guarantee is made
as `sl.fit(cutoff=Guarantee(...))` does it, with three levels of each kind, and measured on the next baskets:
`one` tests the last basket of the users that are kept back, `four` also the three baskets before, `next` adds
the margin. Levels of precision are shares of the precision of top-5 lists. `max_empty` is measured over the
lists of all users: `buyers` tests it on the users with a held-out basket, as releases before 0.4 did.
"""

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from machine import RESULTS, describe, save_results

import shortlist as sl
from shortlist.auto.guaranteed import GuaranteeData, keep_back
from shortlist.auto.validation import last_baskets
from shortlist.cutoff import Guarantee, top_candidates
from shortlist.cutoff.threshold import compared_values, count_above
from shortlist.data.labeled import LabeledLists, label_lists
from shortlist.errors import DataError, InfeasibleError

N_ORIGINS, N_SIMULATIONS, N_STREAMS, N_PERIODS = 6, 300, 60, 13
N_CANDIDATES, CONFIDENCE, STEP = 50, 0.9, 0.2
MODELS = {
    "ta-feng": (sl.Popularity(), sl.PersonalFrequency(decay=0.9)),
    "complete-journey": (sl.Popularity(), sl.PersonalFrequency(decay=0.9)),
    "online-retail": (sl.Popularity(), sl.PersonalFrequency(decay=0.9)),
    "ml-100k": (sl.Popularity(), sl.EASE()),
    "ml-1m": (sl.Popularity(), sl.EASE()),
}
LEVELS = {"precision": (0.6, 0.8, 1.0), "recall": (0.5, 0.7, 0.9), "empty": (0.1, 0.2, 0.3)}


def build(kind: str, level: float, **options) -> Guarantee:
    """A guarantee of this kind."""
    name = "max_empty" if kind == "empty" else f"min_{kind}"
    return Guarantee(**{name: level}, confidence=CONFIDENCE, n_candidates=N_CANDIDATES, **options)


def test_baskets(guarantee: Guarantee, baskets: list[LabeledLists]) -> Guarantee | None:
    """A copy, fitted on these baskets, the latest one last; None if no threshold passes."""
    fresh = guarantee.clone()
    try:
        fresh._test([(labels, None) for labels in baskets])
    except (InfeasibleError, DataError):  # also without a second basket for the margin
        return None
    return fresh


class Outcomes:
    """What happened to guarantees of one kind."""

    def __init__(self) -> None:
        self.n = self.guaranteed = self.broken = 0
        self.worst = 0.0
        self.covered, self.items = [], []

    def add(self, cut: Guarantee | None, future: LabeledLists) -> None:
        """Measure one guarantee; without one, nothing is shown."""
        if cut is None:
            self.count(None, 0.0, 0.0, 1.0)
            return
        lengths = count_above(compared_values(future.lists, cut.on_), future.lists, cut.threshold_)
        lengths = np.minimum(lengths, cut.longest_).astype(np.int32)
        losses, covered = cut._losses(future, lengths), float((lengths > 0).mean())
        loss = float(np.nanmean(losses)) if np.isfinite(losses).any() else 0.0
        self.count(loss, covered, float(lengths.mean()), cut._limit(cut._level()))

    def count(self, loss: float | None, covered: float, items: float, limit: float) -> None:
        """Add a mean loss (None: nothing was guaranteed) and what was shown."""
        self.n += 1
        self.guaranteed += loss is not None
        self.broken += loss is not None and loss > limit
        self.worst = max(self.worst, (loss or 0.0) - limit)
        self.covered.append(covered)
        self.items.append(items)

    def to_dict(self) -> dict[str, object]:
        """Numbers for JSON; coverage and items count a fit without a guarantee as 0."""
        return {
            "fits": self.n,
            "guaranteed": self.guaranteed,
            "broken": self.broken,
            "largest_miss": round(self.worst, 4),
            "coverage": round(float(np.mean(self.covered)), 4),
            "items": round(float(np.mean(self.items)), 2),
        }


def to_dicts(outcomes: dict[str, Outcomes]) -> dict[str, object]:
    """Numbers for JSON, by variant."""
    return {name: outcome.to_dict() for name, outcome in outcomes.items()}


# ------------------------------------------------------------------ real baskets
def label(model, truth) -> LabeledLists:
    """Candidates of the users of a basket just before it, with what they bought."""
    users = truth.users.to_ids(truth.active_users)
    return label_lists(replace(model.recommend(users, N=N_CANDIDATES, at=truth), source=None), truth)


def label_everyone(model, truth) -> LabeledLists:
    """Candidates of all known users as of now; which lists are empty needs no outcome."""
    return label_lists(replace(model.recommend(N=N_CANDIDATES), source=None), truth)


class Origin:
    """A model as `sl.fit` deploys it on what is known so far, and what came next."""

    def __init__(self, model, data, future, earlier: Callable[[int], tuple]) -> None:
        kept: GuaranteeData = keep_back(data, last_baskets(data)[0], seed=0)
        history, truth = kept.tested.history, kept.tested.truth
        deployed = model.clone().fit(history)
        buyers = label(deployed, truth)
        deployed.observe(truth)
        everyone = label_everyone(deployed, truth)
        before = [earlier(number) for number, _ in reversed([*enumerate(kept.earlier, 1)])]
        self.buyers = [*(each[0] for each in before), buyers]
        self.everyone = [*(each[1] for each in before), everyone]
        self.next = label(deployed, future)
        deployed.observe(future)
        self.next_everyone = label_everyone(deployed, future)


def origins(name: str, model) -> list[Origin]:
    """The origins of one dataset, the latest first; models of earlier baskets are shared."""
    folds = last_baskets(sl.load_dataset(name), N_ORIGINS + 4)
    shared: dict[int, tuple[LabeledLists, LabeledLists]] = {}

    def earlier(number: int) -> tuple[LabeledLists, LabeledLists]:
        """Lists of a model that was trained before a fold."""
        if number not in shared:
            fitted = model.clone().fit(folds[number].history)
            shared[number] = label(fitted, folds[number].truth), label_everyone(fitted, folds[number].truth)
        return shared[number]

    return [
        Origin(model, folds[at].history, folds[at].truth, lambda number, at=at: earlier(at + 1 + number))
        for at in range(N_ORIGINS)
    ]


def typical_precision(labels: LabeledLists) -> float:
    """The mean precision of top-5 lists."""
    first = np.minimum(np.diff(labels.lists.indptr), 5)
    total = labels.prefixes.hits[labels.lists.indptr[:-1] + first - 1]
    return float((total / np.maximum(first, 1)).mean())


def next_baskets(name: str, model) -> dict[str, object]:
    """Guarantees at each origin and level, measured on the next baskets."""
    outcomes = {kind: {name: Outcomes() for name in ("one", "four", "next")} for kind in LEVELS}
    outcomes["empty"]["buyers"] = Outcomes()
    for origin in origins(name, model):
        scale = typical_precision(origin.buyers[-1])
        for kind, levels in LEVELS.items():
            is_empty = kind == "empty"
            baskets = origin.everyone if is_empty else origin.buyers
            future = origin.next_everyone if is_empty else origin.next
            for level in levels:
                guarantee = build(kind, level * scale if kind == "precision" else level)
                fits = {
                    "one": test_baskets(guarantee, baskets[-1:]),
                    "four": test_baskets(guarantee, baskets),
                    "next": test_baskets(guarantee.clone().set_params(horizon="next"), baskets),
                }
                if is_empty:
                    fits["buyers"] = test_baskets(guarantee, origin.buyers[-1:])
                for variant, cut in fits.items():
                    outcomes[kind][variant].add(cut, future)
    return {kind: to_dicts(variants) for kind, variants in outcomes.items()}


# ------------------------------------------------------------------ generated users
def simulate(rng: np.random.Generator, n_users: int, shift: float = 0.0) -> LabeledLists:
    """Candidates whose relevance grows with the score; `shift` moves the log-odds of all of them."""
    scores = rng.normal(size=(n_users, 10)) + 0.5 * rng.normal(size=(n_users, 1))
    scores = -np.sort(-scores.astype(np.float32), axis=1)
    relevant = rng.random(scores.shape) < 1 / (1 + np.exp(2.0 - 1.2 * scores - shift))
    n_relevant = relevant.sum(axis=1).astype(np.int32)
    return LabeledLists(
        top_candidates(scores), relevant.ravel(), n_relevant, np.arange(n_users, dtype=np.int32)
    )


def simulation() -> dict[str, object]:
    """Violations where the truth is known: new users for every fit, 100,000 other users as truth."""
    population = simulate(np.random.default_rng(7), 100_000)
    guarantees = {"precision": 0.3, "empty": 0.2, "recall": 0.8}
    result: dict[str, object] = {}
    for n_users in (150, 500, 2_000):
        outcomes = {kind: Outcomes() for kind in guarantees}
        for number in range(N_SIMULATIONS):
            sample = simulate(np.random.default_rng([n_users, number]), n_users)
            for kind, level in guarantees.items():
                outcomes[kind].add(test_baskets(build(kind, level), [sample]), population)
        result[f"{n_users} users"] = to_dicts(outcomes)
    return result


DRIFTS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "none": lambda rng, t: np.zeros(t.size),
    "season": lambda rng, t: 0.5 * np.sin(2 * np.pi * (t / 12 + rng.random())),
    "walk": lambda rng, t: np.cumsum(rng.normal(0, 0.15, t.size)),
    "trend": lambda rng, t: -0.05 * t,
    "step": lambda rng, t: np.where(t >= rng.integers(1, t.size), -0.6, 0.0),
}


def move_threshold(guarantee: Guarantee, periods: list[LabeledLists]) -> Guarantee | None:
    """Fit on the first period; after each one move the threshold by the shortfall of the mean."""
    cut = test_baskets(guarantee, periods[:1])
    if cut is None:
        return None
    grid = cut.grid_[np.isfinite(cut.grid_)][::-1]  # ascending; the position is a share of it
    position = float(np.searchsorted(grid, cut.threshold_)) / grid.size
    for labels in periods[1:]:
        lengths = count_above(compared_values(labels.lists, cut.on_), labels.lists, cut.threshold_)
        losses = cut._losses(labels, lengths)
        loss = float(np.nanmean(losses)) if np.isfinite(losses).any() else 0.0
        limit = cut._limit(cut._level())
        position = max(0.0, position + STEP * np.clip((loss - limit) / (1 - limit), -1, 1))
        cut.threshold_ = float(np.interp(position, np.arange(grid.size) / grid.size, grid))
        cut.threshold_ = np.inf if position >= 1 else cut.threshold_
    return cut


def drift() -> dict[str, object]:
    """Guarantees on streams that change, measured on the period after the last one that is known."""
    result: dict[str, object] = {}
    for number, (name, path) in enumerate(DRIFTS.items()):
        outcomes = {variant: Outcomes() for variant in ("one", "four", "next", "moving")}
        for stream in range(N_STREAMS):
            rng = np.random.default_rng([number, stream])
            shifts = path(rng, np.arange(N_PERIODS))
            periods = [simulate(rng, 500, shift) for shift in shifts[:-1]]
            future = simulate(rng, 10_000, shifts[-1])
            for level in (0.18, 0.24, 0.30):
                guarantee = build("precision", level)
                outcomes["one"].add(test_baskets(guarantee, periods[-1:]), future)
                outcomes["four"].add(test_baskets(guarantee, periods[-4:]), future)
                careful = guarantee.clone().set_params(horizon="next")
                outcomes["next"].add(test_baskets(careful, periods[-4:]), future)
                outcomes["moving"].add(move_threshold(guarantee, periods), future)
        result[name] = to_dicts(outcomes)
    return result


def save(keys: tuple[str, ...], outcome: dict[str, object]) -> None:
    """Write an outcome into the stored results."""
    target = RESULTS / "guarantees.json"
    result = json.loads(target.read_text()) if target.is_file() else {}
    place = result
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    place[keys[-1]] = outcome
    print(*keys, json.dumps(outcome), flush=True)
    save_results("guarantees", result | {"machine": describe()})


def main(names: list[str]) -> None:
    """Run everything, or some of it."""
    for name, run in {"simulation": simulation, "drift": drift}.items():
        if not names or name in names:
            save((name,), run())
    for name in [name for name in names or MODELS if name in MODELS]:
        for model in MODELS[name]:
            save(("next_baskets", name, type(model).__name__), next_baskets(name, model))


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1:])
