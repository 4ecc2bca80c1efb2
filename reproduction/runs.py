"""Runs of the paper's models on one dataset: search on validation, the selected settings with every seed."""

import hashlib
import json
import time
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import numpy as np

import shortlist as sl
from reproduction import protocol
from reproduction.protocol import CAPS, FAIR, HARMONIC, MAX_ITEMS, MAX_LENGTH, MEASURES, METRICS, ORIGINAL
from shortlist.auto.guaranteed import count_strata, draw_strata
from shortlist.core.files import write_text
from shortlist.core.metrics import Metric
from shortlist.core.threads import open_pool
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import RankedLists
from shortlist.models.search_space import draw
from shortlist.types import Doubles, Ints, Longs

MEASURED = {"f1": "f1", "ndcg": "ndcg_paper", FAIR: "ndcg", "precision": "precision", "recall": "recall"}
TOLERANCE = 0.02  # distance from the paper's Cover-Ratio that Figure 1 starts from
NEGATIVES = (1 / 8, 4096.0)  # smallest and largest number that the search for the Cover-Ratio tries
KEEP_ONE_IN = 3  # trials that train for longer
FINALISTS, FINAL_SEEDS = 3, 3  # settings trained with several seeds, whose mean decides
SUBSAMPLE, VALIDATION = 11, 12  # second seeds of the sample of users and of the drawn validation users
Row = dict[str, Any]  # settings of a model, and what validation or the test set shows of them
Params = dict[str, Any]
Holdout = tuple[Interactions, Interactions, dict[str, Ints]]  # history, truth, users by reading


@dataclass(frozen=True)
class Workload:
    """The amount of work."""

    n_trials: int = 36  # per model, with and without item biases each
    epochs: tuple[int, ...] = (4, 12, 36)  # of the rounds of successive halving
    cover_steps: int = 5  # fits to reach the Cover-Ratio that Figure 1 starts from
    valid_users: int = 4000  # at most
    users: int | None = None  # size of a random sample of users; None: all
    n_factors: int = 50
    sweep_seeds: int = 2  # of each point of Figure 1
    seed: int = 0  # the first one
    n_seeds: int = 5


FULL = Workload()
QUICK = Workload(6, (3, 9), cover_steps=2, valid_users=1000, users=2000, sweep_seeds=1, n_seeds=2)


# ---------------------------------------------------------------------- lists and what they hit
class Outcomes:
    """Candidates of n users and what they hit; lists of any length are measured from it."""

    def __init__(self, lists: RankedLists, truth: Interactions, users: Ints) -> None:
        """`lists` has one list for each user of a superset, ascending."""
        lists = lists.take(np.searchsorted(truth.users.lookup(lists.users.values), users))
        self.labels = label_lists(lists, truth)
        self.has_boundary = lists.boundary is not None
        if lists.boundary is not None:  # (n, MAX_LENGTH) score minus boundary, descending
            self.margins = np.full((users.size, MAX_LENGTH), -np.inf, np.float32)
            self.margins[lists.owner, lists.positions] = lists.scores - lists.boundary[lists.owner]

    def measure(self, lengths: Longs | int) -> dict[str, Doubles]:
        """(n,) values of lists of these lengths, 0 for an empty list, by name.

        "ndcg" is against the ideal list of the same length, as in the paper, FAIR against that of 20 items.
        """
        sums = self.labels.sums(np.minimum(lengths, self.labels.lists.lengths))
        return {name: Metric.registry[metric].values(sums) for name, metric in MEASURED.items()}

    def means(self, lengths: Longs) -> dict[str, float]:
        """Every measure over users with a list; 0 if there is none."""
        covered = lengths > 0
        if not covered.any():
            return dict.fromkeys(MEASURES, 0.0)
        means = {name: float(each[covered].mean()) for name, each in self.measure(lengths).items()}
        precision, recall = means.pop("precision"), means.pop("recall")
        return means | {HARMONIC: float(harmonic_mean(precision, recall))}

    @cached_property
    def curves(self) -> dict[str, list[float]]:
        """Every measure at every N of the paper's Figure 2."""
        curves = [self.means(np.full(len(self.labels.lists), N)) for N in protocol.LENGTHS]
        return {name: [each[name] for each in curves] for name in MEASURES}

    def above(self, shift: float = 0.0, cap: int = MAX_LENGTH) -> Longs:
        """(n,) candidates above the boundary, which is moved up by `shift`."""
        return np.asarray(np.minimum((self.margins > shift).sum(axis=1), cap), np.int64)

    def shift_for(self, cover_ratio: float) -> float:
        """How far to move all boundaries so that this share of the users is covered."""
        best = np.sort(self.margins[:, 0])[::-1]
        n = int(np.clip(round(cover_ratio * best.size), 1, best.size))
        lower = best[n] if n < best.size else best[n - 1] - 1.0
        return float((best[n - 1] + lower) / 2)

    def validate(self, cover_ratio: float) -> dict[str, Any]:
        """What selects settings: the best N, or means at this Cover-Ratio and how far it is away."""
        if not self.has_boundary:
            best_N = {name: protocol.LENGTHS[int(np.argmax(curve))] for name, curve in self.curves.items()}
            return {"N": best_N, "valid": {name: max(curve) for name, curve in self.curves.items()}}
        shift = self.shift_for(cover_ratio)
        means = self.means(self.above(shift, MAX_ITEMS)).items()
        valid = {"cover_ratio": float((self.above() > 0).mean())}
        valid |= {f"{name}_at_target": value for name, value in means}
        return {"N": None, "valid": valid, "shift": shift}

    def test(self, best_N: dict[str, int] | None, cover_ratio: float) -> dict[str, Any]:
        """What the test set shows: users at the best N, or above boundaries that cover this share of them."""
        if best_N is not None:
            at = {name: self.measure(N) for name, N in best_N.items()}
            values = {**{name: at["f1"][name] for name in METRICS}, "ndcg_own": at["ndcg"]["ndcg"]}
            values |= {name: at[HARMONIC][name] for name in ("precision", "recall")}
            return values | {FAIR: at[FAIR][FAIR], "curve": self.curves["f1"]}
        lengths = self.above(self.shift_for(cover_ratio))
        values = {"covered": (lengths > 0).astype(np.float64)}
        for cap in CAPS:
            measured = self.measure(np.minimum(lengths, cap))
            values |= {f"{name}_{cap}": measured[name] for name in ("f1", "ndcg", "precision", "recall")}
        return values | {FAIR: self.measure(np.minimum(lengths, MAX_ITEMS))[FAIR]}


def harmonic_mean(precision: Any, recall: Any) -> Doubles:
    """F1 of mean precisions and mean recalls; 0 if both are 0."""
    total = np.asarray(precision + recall, np.float64)
    return np.asarray(np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0))


# ---------------------------------------------------------------------- runs
def stored(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what a method of `Runs` returns in a file that is named by what it depends on."""

    @wraps(compute)
    def read_or_compute(runs: "Runs", *settings: Any) -> Any:
        identity = [version("shortlist"), runs.split.data.fingerprint, runs.work.seed, runs.work.valid_users]
        text = json.dumps([identity, protocol.PARAMETERS, settings], sort_keys=True)
        name = f"{compute.__name__}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.json"
        if not (runs.folder / name).exists():
            write_text(runs.folder / name, json.dumps(compute(runs, *settings), default=pack))
            print(f"{time.strftime('%X')} {runs.dataset}, {compute.__name__}: {settings[0]}", flush=True)
        return json.loads((runs.folder / name).read_text(encoding="utf-8"), object_hook=unpack)

    return read_or_compute


class Runs:
    """Searches and runs of one dataset; what is finished is kept in a folder and never computed again."""

    def __init__(self, dataset: str, work: Workload, folder: Path, n_jobs: int = 1) -> None:
        data = sl.load_dataset(dataset)
        if work.users is not None and work.users < data.active_users.size:
            rng = np.random.Generator(np.random.PCG64([work.seed, SUBSAMPLE]))
            sampled = np.zeros(data.n_users, np.bool_)
            sampled[rng.choice(data.active_users, work.users, replace=False)] = True
            data = data.where(sampled[data.user])
        self.dataset, self.work, self.folder, self.n_jobs = dataset, work, folder, n_jobs
        self.readings, self.split = protocol.READINGS[dataset], sl.split.last_basket(data)
        before, test = self.split.train_valid, self.split.test
        self.filter_seen = not before.has_repeats
        tested = {reading.name: reading.users(before, test) for reading in self.readings}
        self.holdouts = {"test": (before, test, tested), "valid": self._like(tested)}

    @property
    def sizes(self) -> dict[str, Any]:
        """What the page says of the data."""
        data, test = self.split.data, self.split.test
        users = {"users": data.active_users.size, "test_users": test.active_users.size}
        rows = {"rows": data.n_rows, "items": data.n_items, "test_rows": test.n_rows}
        return users | rows | {"filter_seen": self.filter_seen}

    def _like(self, tested: dict[str, Ints]) -> Holdout:
        """For each reading, validation users with histories as long as those of the test users."""
        split, seed, drawn = self.split, [self.work.seed, VALIDATION], {}
        for reading in self.readings:
            available = reading.users(split.train, split.valid)
            strata = count_strata(np.diff(split.train_valid.user_baskets)[tested[reading.name]])
            n_baskets = np.diff(split.train.user_baskets)[available]
            at = draw_strata(strata, n_baskets, seed, self.work.valid_users, round_down=True)
            drawn[reading.name] = available[at]
        kept = np.zeros(split.valid.n_users, np.bool_)
        kept[np.concatenate(list(drawn.values()))] = True
        return split.train, split.valid.where(kept[split.valid.user]), drawn

    def map(self, job: Callable[..., Any], points: Iterable[tuple[Any, ...]]) -> list[Any]:
        """job(*point) for every point, in order."""
        with open_pool(self.n_jobs) as pool:
            return list(pool.map(lambda point: job(*point), points))

    def seeds(self, n: int) -> range:
        """The first seeds."""
        return range(self.work.seed, self.work.seed + n)

    def target(self, model: str) -> float:
        """The Cover-Ratio that the paper reports for a model."""
        printed = protocol.printed_cells(self.dataset, model)
        return printed["cover_ratio"] if printed else protocol.OTHER_COVER_RATIO

    def outcomes(self, model: str, params: Params, holdout: str) -> dict[str, Outcomes]:
        """Train for exactly `n_epochs`; by reading, what the candidates hit."""
        history, truth, users = self.holdouts[holdout]
        fitted = getattr(sl, model)(**protocol.PARAMETERS[model] | params).fit(history)
        user_ids = truth.users.to_ids(truth.active_users)
        lists = fitted.recommend(user_ids, N=MAX_LENGTH, filter_seen=self.filter_seen, at=truth)
        if lists.boundary is None and model in ORIGINAL:  # alpha = 0 learns none: t_u keeps its start
            lists = replace(lists, boundary=np.full(len(lists), params["t"], np.float32))
        readings = {reading.name: reading.truth(truth) for reading in self.readings}
        return {name: Outcomes(lists, each, users[name]) for name, each in readings.items()}

    # ------------------------------------------------------------------ search
    @stored
    def validate(self, model: str, params: Params) -> dict[str, Any]:
        """What validation finds under every reading."""
        outcomes, target = self.outcomes(model, params, "valid"), self.target(model)
        return {reading: each.validate(target) for reading, each in outcomes.items()}

    def trial(self, model: str, params: Params) -> Row:
        """One setting and what validation finds."""
        return {"model": model, "params": params, "figures": self.validate(model, params)}

    def halve(self, model: str, loss: str, bias: bool) -> list[Row]:
        """Every trial of every round of successive halving; a third of the trials reaches the next round."""
        fixed = protocol.SETTINGS.get(model, {}) | {"n_factors": self.work.n_factors, "bias": bias}
        space = protocol.SPACES[model, loss]
        proposed = [fixed | draw(space, self.work.seed, number) for number in range(self.work.n_trials)]
        longer = protocol.SAMPLED_EPOCHS if loss == protocol.NEGATIVE_SAMPLING else 1
        tried: list[Row] = []
        for n_epochs in self.work.epochs:
            rounds = {"n_epochs": n_epochs * longer, "seed": self.work.seed}
            trials = self.map(self.trial, [(model, params | rounds) for params in proposed])
            tried += trials
            scores = np.array([[score(each, reading, "f1") for each in trials] for reading in self.readings])
            ranks = np.argsort(np.argsort(-scores, kind="stable"), kind="stable").sum(axis=0)
            kept = np.argsort(ranks, kind="stable")[: -(-len(trials) // KEEP_ONE_IN)]
            proposed = [trials[at]["params"] for at in kept]
        return tried

    def select(self, tried: list[Row], reading: protocol.Reading, metric: str) -> Row:
        """The best setting under a reading; one seed may be lucky, so several decide between the best."""
        finalists = sorted(tried, key=lambda trial: -score(trial, reading, metric))[:FINALISTS]
        seeds = self.seeds(FINAL_SEEDS)
        points = [(each["model"], each["params"] | {"seed": seed}) for each in finalists for seed in seeds]
        scores = [score(trial, reading, metric) for trial in self.map(self.trial, points)]
        return finalists[int(np.reshape(scores, (-1, FINAL_SEEDS)).mean(axis=1).argmax())]

    # ------------------------------------------------------------------ Table 1 and Figure 2
    def rows(self) -> list[Row]:
        """Every model under every reading: the selected settings, and their runs with every seed."""
        rows = []
        for (model, loss), bias in product(protocol.SPACES, (True, False)):
            tried = self.halve(model, loss, bias)
            for metric, reading in product(protocol.selected_by(model), self.readings):
                best = self.select(tried, reading, metric)
                names = {"model": model, "bias": bias, "reading": reading.name, "loss": loss}
                found = {name: best["figures"][reading.name][name] for name in ("N", "valid")}
                rows.append({**names, "selected_by": metric, "params": best["params"], **found})

        def run(row: Row, seed: int) -> Any:
            return self.test(row["model"], row["params"] | {"seed": seed}, row["reading"], row["N"])

        seeds = self.seeds(self.work.n_seeds)
        runs = self.map(run, product(rows, seeds))
        return [row | {"runs": runs[at * len(seeds) :][: len(seeds)]} for at, row in enumerate(rows)]

    @stored
    def test(self, model: str, params: Params, reading: str, best_N: dict[str, int] | None) -> dict[str, Any]:
        """What the test set shows under a reading."""
        return self.outcomes(model, params, "test")[reading].test(best_N, self.target(model))

    # ------------------------------------------------------------------ Figure 1
    def reach_cover_ratio(self, trial: Row) -> Params:
        """The same setting with `negatives` that give the paper's Cover-Ratio, or come closest to it.

        s - t_u approaches log odds against the sampled negatives, so a shift of the boundary by x acts like
        e^x times as many negatives.
        """
        reading, tried = self.readings[0].name, [trial]

        def distance(trial: Row) -> Any:
            return abs(trial["figures"][reading]["valid"]["cover_ratio"] - self.target(trial["model"]))

        while distance(tried[-1]) > TOLERANCE and len(tried) <= self.work.cover_steps:
            params, shift = tried[-1]["params"], tried[-1]["figures"][reading]["shift"]
            wanted = np.clip(params["negatives"] * np.exp(np.clip(shift, -5.0, 5.0)), *NEGATIVES)
            tried.append(self.trial(trial["model"], params | {"negatives": float(f"{wanted:.4g}")}))
        return dict(min(tried, key=distance)["params"])

    def sweeps(self, rows: list[Row]) -> dict[str, Any]:
        """One parameter of DK-HRM varies at a time; means over seeds, under the first reading."""
        names = {"model": "DKHRM", "reading": self.readings[0].name, "selected_by": "f1"}
        start = {
            row["bias"]: self.reach_cover_ratio(self.trial("DKHRM", row["params"]))
            for row in rows
            if names.items() <= row.items()
        }
        sweeps, seeds = {}, self.seeds(min(self.work.sweep_seeds, self.work.n_seeds))
        for name, values in (*protocol.SWEEPS.items(), (protocol.BIASED_SWEEP, protocol.SWEEPS["t"])):
            fixed, varied = start[name == protocol.BIASED_SWEEP], name.removesuffix("_biased")
            points = [({**fixed, varied: value, "seed": seed},) for value in values for seed in seeds]
            found = self.map(self.sweep, points)
            means = {
                each: np.reshape([one[each] for one in found], (-1, len(seeds))).mean(1) for each in found[0]
            }
            sweeps[name] = {"values": list(values)} | {each: mean.tolist() for each, mean in means.items()}
        return sweeps

    @stored
    def sweep(self, params: Params) -> dict[str, float]:
        """One point: lists above the boundaries that were learned."""
        outcomes = self.outcomes("DKHRM", params, "test")[self.readings[0].name]
        lengths = outcomes.above(cap=MAX_ITEMS)
        means, f1 = outcomes.means(lengths), outcomes.measure(lengths)["f1"]
        covered = {f"{name}_covered": means[name] for name in ("f1", HARMONIC, "ndcg")}
        return {**covered, "cover_ratio": float((lengths > 0).mean()), "f1": float(f1.mean())}


def score(trial: Row, reading: protocol.Reading, metric: str) -> float:
    """The quality of a setting under a reading."""
    return quality(trial["figures"][reading.name], metric)


def quality(found: Row, metric: str) -> float:
    """The metric at the best N; for a dynamic model, of covered users at the paper's Cover-Ratio."""
    return float(found["valid"][f"{metric}_at_target" if found["N"] is None else metric])


def pack(values: Any) -> dict[str, str]:
    """(n,) numbers as compressed single-precision text, because plain JSON would be much larger."""
    return {"packed": b85encode(compress(np.asarray(values, "<f4").tobytes())).decode()}


def unpack(entry: dict[str, Any]) -> Any:
    """The inverse of `pack`; other entries stay as they are."""
    if "packed" not in entry:
        return entry
    return np.frombuffer(decompress(b85decode(entry["packed"])), "<f4").astype(np.float64)
