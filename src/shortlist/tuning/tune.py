"""tune: search the hyper-parameters of one model on validation data."""

import itertools
import json
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.estimator import check_whole
from shortlist.core.files import atomic_write
from shortlist.core.threads import thread_count
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, TrainingError
from shortlist.models.base import Recommender
from shortlist.models.factorization.training import Progress
from shortlist.tuning.progress import show_progress
from shortlist.tuning.space import SAMPLERS, SPACES, Sampler, Space, default_space
from shortlist.tuning.study import Study, Trial
from shortlist.tuning.validation import Holdout, build_model, hold_out, last_baskets, validate

REFERENCES = 4  # the first trials are never stopped; later ones are compared with their median
GRACE = 3  # epochs before a trial can be stopped
DEPTH = 20  # largest fixed N that validation considers

TrialProgress = Callable[[Trial], None]


@dataclass(frozen=True)
class Tuned:
    """Result of `tune`: the best parameters, and all trials.

    Parameters
    ----------
    model
        Class name of the model.
    params
        The best parameters, with `n_epochs` for models that have epochs.
    score
        Validation F1 at the best fixed N, averaged over the folds.
    trials
        Every trial in order: parameters, score, best epoch, and the score after each epoch.

    Examples
    --------
    >>> tuned = sl.tune("PersonalFrequency", sl.load_dataset("sample"), n_trials=2)
    >>> model = tuned.build().fit(sl.load_dataset("sample"))
    """

    model: str
    params: dict[str, Any]
    score: float
    trials: list[Trial]

    def build(self, **others: Any) -> Recommender:
        """Build the unfitted model with the best parameters.

        Parameters
        ----------
        **others
            Parameters that replace or complete the best ones.

        Returns
        -------
        Recommender
            An unfitted model.
        """
        return build_model(self.model, {**self.params, **others})

    def write(self, path: str | Path) -> Path:
        """Write model and parameters to a TOML file for `shortlist fit --config` and `read_tuned`.

        Parameters
        ----------
        path
            The file to write; an existing file is replaced.

        Returns
        -------
        Path
            The file.
        """
        target = Path(path)
        head = {"model": self.model, "score": self.score, "n_trials": len(self.trials)}
        lines = [f"{name} = {_toml(value)}" for name, value in head.items()]
        body = [f"{name} = {_toml(value)}" for name, value in self.params.items() if value is not None]
        with atomic_write(target) as temporary:
            temporary.write_text("\n".join([*lines, "", "[params]", *body, ""]), encoding="utf-8")
        return target


def read_tuned(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Read model name and parameters from a TOML file that `Tuned.write` or a person wrote."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no parameter file at {path}; check the path.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path} is not TOML ({error}); write it again with shortlist tune.") from None
    model, params = found.get("model"), found.get("params", {})
    unknown = sorted(set(found) - {"model", "params", "score", "n_trials"})
    if unknown:
        raise DataError(f"{path} may contain model and [params], got {unknown[0]!r} too; remove it.")
    if not isinstance(model, str) or not isinstance(params, dict):
        raise DataError(f'{path} must contain model = "…" and a table [params], got {list(found)}; add them.')
    return model, params


def tune(
    model: str,
    data: Interactions | Any,
    *,
    n_trials: int = 20,
    sampler: str = "random",
    space: Space | None = None,
    fixed: dict[str, Any] | None = None,
    n_folds: int = 1,
    seed: int = 0,
    n_jobs: int = 0,
    study: str | Path | None = None,
    progress: TrialProgress | None = None,
) -> Tuned:
    """Search the hyper-parameters of one model on validation data.

    Each trial fits the model without the last basket of each user (or without a random share of the items,
    if few users return) and measures F1 at its best fixed N there. Trials whose score stays below the median
    of the first trials are stopped early. The result depends on data, arguments and seed, not on `n_jobs`.

    Parameters
    ----------
    model
        Class name of the model, such as `"BPRMF"`.
    data
        Interactions, a table with the usual column names, or a SciPy matrix (users × items).
    n_trials
        Number of parameter sets to try.
    sampler
        `"random"`, or `"tpe"` (tree-structured Parzen estimator, needs optuna).
    space
        Values to try by parameter: a tuple of values or a `Range`. The model's default space if left out.
    fixed
        Parameters that keep the given value.
    n_folds
        Number of last baskets to validate on, each predicted from the baskets before it.
    seed
        Seed of the sampler and of a random hold-out.
    n_jobs
        Number of trials to run at the same time; 0 runs one per core.
    study
        JSON Lines file for the trials. An interrupted search with the same arguments continues from it.
    progress
        Callable that receives each finished `Trial`. By default, progress is shown on a terminal and in a
        notebook, and nothing is printed elsewhere.

    Returns
    -------
    Tuned
        The best parameters, their score, and all trials.

    Raises
    ------
    ConfigError
        If an argument is invalid or the study file belongs to another search.
    DataError
        If the data is too small for validation.
    TrainingError
        If every trial diverged.

    Examples
    --------
    >>> tuned = sl.tune("PersonalFrequency", sl.load_dataset("sample"), n_trials=2, seed=1)
    >>> sorted(tuned.params)
    ['decay', 'half_life', 'popularity']
    """
    if sampler not in SAMPLERS:
        raise ConfigError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}; choose one.")
    check_whole(1, n_trials=n_trials, n_folds=n_folds)
    data, fixed = Interactions.of(data), dict(fixed or {})
    build_model(model, fixed)
    if space is None and model not in SPACES:
        raise ConfigError(f"{model} has no default search space; pass space, or tune {', '.join(SPACES)}.")
    wanted = space or default_space(model, timed=data.time is not None)
    wanted = {name: values for name, values in wanted.items() if name not in fixed}
    identity = {
        "model": model,
        "data": data.fingerprint,
        "sampler": sampler,
        "space": {name: repr(values) for name, values in wanted.items()},
        "fixed": fixed,
        "n_folds": n_folds,
        "seed": seed,
    }
    store = Study(identity, None if study is None else Path(study))
    folds = [hold_out(data, seed)] if n_folds == 1 else last_baskets(data, n_folds)
    with show_trials(n_trials, progress) as show:
        search = _Search(model, fixed, folds, store, show)
        search.run(SAMPLERS[sampler](wanted, seed), n_trials, thread_count(n_jobs))
    best = store.best(n_trials)  # the file may contain the trials of a longer search
    if best.stopped == "diverged":
        raise TrainingError(f"every trial of {model} diverged; try smaller values of lr.")
    params = {**fixed, **best.params} | ({"n_epochs": best.n_epochs} if best.n_epochs else {})
    return Tuned(model, params, best.score, [store.trials[number] for number in range(n_trials)])


@contextmanager
def show_trials(n_trials: int, progress: TrialProgress | None) -> Iterator[TrialProgress]:
    """Pass trials on to the caller, or show them where the program runs."""
    if progress is not None:
        yield progress
        return
    done = itertools.count(1)
    with show_progress() as display:

        def show(trial: Trial) -> None:
            display.line(f"trial {trial.number + 1} of {n_trials}: {trial}")
            display.update("trials", next(done), n_trials)

        yield show


class HopelessError(Exception):
    """A trial has fallen below the median of the reference trials."""


@dataclass(frozen=True)
class _Search:
    model: str
    fixed: dict[str, Any]
    folds: list[Holdout]
    study: Study
    progress: TrialProgress

    def run(self, sampler: Sampler, n_trials: int, n_jobs: int) -> None:
        """Run the reference trials first, then the rest, in rounds if the sampler learns from scores."""
        cuts = [0, min(REFERENCES, n_trials)]
        while cuts[-1] < n_trials:
            cuts.append(n_trials if sampler.batch is None else min(cuts[-1] + sampler.batch, n_trials))
        with ThreadPoolExecutor(n_jobs) as pool:
            for low, high in itertools.pairwise(cuts):
                proposed = [(number, sampler.propose(number)) for number in range(low, high)]
                list(pool.map(self._run_once, proposed))
                for number, _ in proposed:
                    sampler.observe(number, self.study.trials[number].score)

    def _run_once(self, proposed: tuple[int, dict[str, Any]]) -> None:
        """Run a trial unless the study already contains it."""
        number, params = proposed
        if number in self.study.trials:
            return
        trial = self._trial(number, params)
        self.study.add(trial)
        self.progress(trial)

    def _trial(self, number: int, params: dict[str, Any]) -> Trial:
        curves: list[list[float]] = []
        best_epochs, stopped = [], "done"
        for at, fold in enumerate(self.folds):
            curves.append([])
            model = build_model(self.model, {**self.fixed, **params})
            try:
                best_epochs.append(_validate(model, fold, curves[-1], self._watch(number, at)))
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
        """Callback that raises HopelessError if a curve is below the references' median at the same epoch."""
        references = [] if number < REFERENCES else [self.study.trials[k].curves for k in range(REFERENCES)]
        rivals = [curves[fold] for curves in references if len(curves) > fold and curves[fold]]

        def watch(curve: list[float]) -> None:
            epoch = len(curve)
            if rivals and epoch > GRACE and max(curve) < np.median([max(rival[:epoch]) for rival in rivals]):
                raise HopelessError

        return watch


def _validate(
    model: Recommender, fold: Holdout, curve: list[float], watch: Callable[[list[float]], None]
) -> int:
    """Fit and score on one fold; the curve grows by one score per epoch. Returns the best epoch or 0."""

    def note(state: Progress) -> None:
        assert state.score is not None
        curve.append(state.score)
        watch(curve)

    if "n_threads" in model.get_params():
        model.set_params(n_threads=1)  # trials run side by side
    found = validate(model, fold, depth=DEPTH, n_threads=1, progress=note)
    if found.n_epochs is None:
        curve.append(found.score)
    return found.n_epochs or 0


def _toml(value: Any) -> str:
    """Numbers, strings and booleans are written the same way in TOML and JSON."""
    return json.dumps(value)
