"""tune: search hyper-parameters on what users took last, inside the training data."""

import itertools
import json
import os
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from shortlist import models
from shortlist.core.files import atomic_write
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, TrainingError
from shortlist.evaluation import fixed_n_curve
from shortlist.models.base import Recommender, whole
from shortlist.models.factorization.engine import JointModel
from shortlist.models.factorization.training import Progress
from shortlist.split import last_basket
from shortlist.tuning.sampler import SAMPLERS, Sampler
from shortlist.tuning.space import SPACES, Space, usual_space
from shortlist.tuning.study import Study, Trial

REFERENCES = 4  # the first trials are never stopped; later ones are held against their median
GRACE = 3  # epochs that every trial gets
DEPTH = 20  # the longest list that validation considers

Fold = tuple[Interactions, Interactions]  # what was known, what came next
Told = Callable[[Trial], None]


@dataclass(frozen=True)
class Tuned:
    """The best parameters found, with `n_epochs` where the model has epochs, and all trials."""

    model: str
    params: dict[str, Any]
    score: float
    trials: list[Trial]

    def build(self, **others: Any) -> Recommender:
        """The model, unfitted; `others` override."""
        return made(self.model, {**self.params, **others})

    def write(self, path: str | Path) -> Path:
        """A TOML file that `shortlist fit --config` and `read_tuned` take."""
        target = Path(path)
        head = {"model": self.model, "score": self.score, "n_trials": len(self.trials)}
        lines = [f"{name} = {_toml(value)}" for name, value in head.items()]
        body = [f"{name} = {_toml(value)}" for name, value in self.params.items() if value is not None]
        with atomic_write(target) as temporary:
            temporary.write_text("\n".join([*lines, "", "[params]", *body, ""]), encoding="utf-8")
        return target


def read_tuned(path: str | Path) -> tuple[str, dict[str, Any]]:
    """(model, parameters) from a file that `Tuned.write` or a person wrote."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no file of parameters at {path}; check the path.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path} is not TOML ({error}); write it again with shortlist tune.") from None
    model, params = found.get("model"), found.get("params", {})
    strangers = sorted(set(found) - {"model", "params", "score", "n_trials"})
    if strangers:
        raise DataError(
            f"{path} may hold model and [params], got {strangers[0]!r} too; take it out or mend it."
        )
    if not isinstance(model, str) or not isinstance(params, dict):
        raise DataError(f'{path} must hold model = "…" and a table [params], got {list(found)}; mend it.')
    return model, params


def tune(
    model: str,
    data: Interactions,
    *,
    n_trials: int = 20,
    sampler: str = "random",
    space: Space | None = None,
    fixed: dict[str, Any] | None = None,
    n_folds: int = 1,
    seed: int = 0,
    n_jobs: int = 0,
    study: str | Path | None = None,
    progress: Told | None = None,
) -> Tuned:
    """Search on the users' last baskets (`n_folds` > 1: and on those before), each after its own past.

    `sampler` "tpe" learns from earlier trials (needs optuna). `fixed` parameters are held. A search found at
    `study` is continued. The outcome depends on the seed alone, not on `n_jobs` (0: every core).
    """
    if sampler not in SAMPLERS:
        raise ConfigError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}; choose one.")
    whole(1, n_trials=n_trials, n_folds=n_folds)
    held = dict(fixed or {})
    made(model, held)
    if space is None and model not in SPACES:
        raise ConfigError(f"{model} has no search space of its own; pass one, or tune {', '.join(SPACES)}.")
    wanted = space or usual_space(model, timed=data.time is not None)
    wanted = {name: values for name, values in wanted.items() if name not in held}
    identity = {
        "model": model,
        "data": data.fingerprint,
        "sampler": sampler,
        "space": {name: repr(values) for name, values in wanted.items()},
        "fixed": held,
        "n_folds": n_folds,
        "seed": seed,
    }
    store = Study(identity, None if study is None else Path(study))
    search = _Search(model, held, folds(data, n_folds), store, progress)
    search.run(SAMPLERS[sampler](wanted, seed), n_trials, n_jobs or os.cpu_count() or 1)
    best = store.best
    if best.stopped == "diverged":
        raise TrainingError(f"every trial of {model} diverged; look for smaller values of lr.")
    params = {**held, **best.params} | ({"n_epochs": best.n_epochs} if best.n_epochs else {})
    return Tuned(model, params, best.score, [store.trials[number] for number in range(n_trials)])


def folds(data: Interactions, n_folds: int) -> list[Fold]:
    """The last basket after everything before it; then the same one basket earlier, and so on."""
    cuts = []
    for _ in range(n_folds):
        split = last_basket(data)
        cuts.append((split.train_valid, split.test))
        data = split.train_valid
    return cuts


def made(model: str, params: dict[str, Any]) -> Recommender:
    """A model by name."""
    known = [name for name in models.__all__ if name in Recommender.classes]
    if model not in known:
        near = get_close_matches(model, known, 1)
        advice = f"did you mean {near[0]!r}?" if near else "choose one."
        raise ConfigError(f"model must be one of {', '.join(known)}, got {model!r}; {advice}")
    return Recommender.classes[model]().set_params(**params)


class HopelessError(Exception):
    """A trial that has fallen below the median of its references."""


@dataclass(frozen=True)
class _Search:
    model: str
    held: dict[str, Any]
    folds: list[Fold]
    study: Study
    progress: Told | None

    def run(self, sampler: Sampler, n_trials: int, n_jobs: int) -> None:
        """The references first, then the rest, in rounds where the sampler learns."""
        cuts = [0, min(REFERENCES, n_trials)]
        while cuts[-1] < n_trials:
            cuts.append(n_trials if sampler.batch is None else min(cuts[-1] + sampler.batch, n_trials))
        with ThreadPoolExecutor(n_jobs) as pool:
            for low, high in itertools.pairwise(cuts):
                asked = [(number, sampler.ask(number)) for number in range(low, high)]
                list(pool.map(self._once, asked))
                for number, _ in asked:
                    sampler.tell(number, self.study.trials[number].score)

    def _once(self, asked: tuple[int, dict[str, Any]]) -> None:
        """Run a trial that the study does not hold yet."""
        number, params = asked
        if number in self.study.trials:
            return
        trial = self._trial(number, params)
        self.study.add(trial)
        if self.progress is not None:
            self.progress(trial)

    def _trial(self, number: int, params: dict[str, Any]) -> Trial:
        curves: list[list[float]] = []
        best_epochs, stopped = [], "done"
        for at, fold in enumerate(self.folds):
            curves.append([])
            model = made(self.model, {**self.held, **params})
            try:
                best_epochs.append(_rehearse(model, fold, curves[-1], self._watch(number, at)))
            except HopelessError:
                stopped = "median"
            except TrainingError:
                stopped = "diverged"
            if stopped != "done":
                break
        score = 0.0 if stopped == "diverged" else float(np.mean([max(curve) for curve in curves]))
        n_epochs = round(float(np.mean(best_epochs))) if best_epochs else 0
        return Trial(number, params, score, n_epochs, stopped, curves)

    def _watch(self, number: int, fold: int) -> Callable[[list[float]], None]:
        """Raises HopelessError where a curve runs below the median of the references' at the same epoch."""
        references = [] if number < REFERENCES else [self.study.trials[k].curves for k in range(REFERENCES)]
        rivals = [curves[fold] for curves in references if len(curves) > fold and curves[fold]]

        def watch(curve: list[float]) -> None:
            epoch = len(curve)
            if rivals and epoch > GRACE and max(curve) < np.median([max(rival[:epoch]) for rival in rivals]):
                raise HopelessError

        return watch


def _rehearse(
    model: Recommender, fold: Fold, curve: list[float], watch: Callable[[list[float]], None]
) -> int:
    """Fit and judge on one fold; the curve grows epoch by epoch. Returns the best epoch, 0 without epochs."""
    history, truth = fold
    if not isinstance(model, JointModel):
        curve.append(best_f1(model.fit(history), truth))  # type: ignore[attr-defined]
        return 0

    def note(state: Progress) -> None:
        assert state.score is not None
        curve.append(state.score)
        watch(curve)

    model.set_params(n_threads=1).fit(history, valid=truth, progress=note)
    return model.n_epochs_


def best_f1(model: Recommender, truth: Interactions) -> float:
    """F1 over all users with truth at its best N; seen items stay where people return to them."""
    users = truth.users.to_ids(truth.active_users)
    heads = model.recommend(users, N=DEPTH, filter_seen=not model.history.has_repeats, n_threads=1, at=truth)
    return float(fixed_n_curve(heads, truth, range(1, DEPTH + 1))["f1"].max())  # type: ignore[arg-type]


def _toml(value: Any) -> str:
    """Numbers, words and switches as TOML writes them; JSON's strings are TOML's."""
    return json.dumps(value)
