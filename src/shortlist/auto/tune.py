"""tune: search the hyperparameters of one model on validation data."""

import itertools
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.auto.progress import show_progress
from shortlist.auto.space import SAMPLERS, SPACES, Sampler, Space, default_space
from shortlist.auto.validation import (
    Holdout,
    Validating,
    build_model,
    hold_out,
    last_baskets,
    strict_folds,
    validate,
)
from shortlist.core.checks import check_float_value, check_floats, check_text, check_whole_value
from shortlist.core.engine import Engine, ThreadEngine, check_engine, thread_count
from shortlist.core.files import atomic_write
from shortlist.core.params import MAX_WHOLE, check_whole
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, TrainingError
from shortlist.models.base import Recommender
from shortlist.split import Split

if TYPE_CHECKING:
    from shortlist.models.factorization.training import Progress

STOPPED = ("done", "median", "diverged")  # the best first


@dataclass(frozen=True)
class Trial:
    """One set of parameters and its result.

    Parameters
    ----------
    number
        Position in the search, from 0.
    params
        The parameters that were tried.
    score
        Validation F1 at the best fixed N, averaged over the folds; of a stopped trial, the best so far.
    n_epochs
        The best epoch; 0 for models without epochs.
    stopped
        `"done"`, `"median"` (stopped early) or `"diverged"`.
    curves
        Validation F1 after each epoch, one list per fold.
    """

    number: int
    params: dict[str, Any]
    score: float
    n_epochs: int
    stopped: str
    curves: list[list[float]]

    def __str__(self) -> str:
        early = {"median": " (stopped early: below the median)", "diverged": " (diverged)"}
        return f"validation F1 {self.score:.4f}{early.get(self.stopped, '')}"


def _check_trial(trial: Trial) -> Trial:
    """The trial, if its values have the types that `tune` writes."""
    values = {"number": trial.number, "n_epochs": trial.n_epochs, "score": trial.score}
    for name in ("number", "n_epochs"):
        check_whole_value(values, name, 0, MAX_WHOLE)
    check_float_value(values, "score", -1e300, 1e300)
    check_text({"stopped": trial.stopped}, "stopped", STOPPED)
    for curve in trial.curves:
        check_floats({"curves": curve}, "curves")
    dict(**trial.params)  # raises TypeError unless it has names
    return trial


class Study:
    """The trials of one search; without a path they are only held in memory."""

    def __init__(self, identity: dict[str, Any], path: Path | None = None) -> None:
        self.path = path
        self.trials: dict[int, Trial] = {}
        self._lock = Lock()
        if path is not None and path.exists():
            self._read(path, identity)
        elif path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"study": identity})

    def _read(self, path: Path, identity: dict[str, Any]) -> None:
        """Read all complete lines; a partial last line is cut off."""
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        try:
            rows = [json.loads(line) for line in whole.splitlines()]
            stored = dict(rows[0]["study"]) if rows else identity
            trials = [_check_trial(Trial(**row)) for row in rows[1:]]
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"[:150]
            raise DataError(f"{path} is not a study ({reason}); use another file or remove it.") from None
        wanted = json.loads(json.dumps(identity))
        if stored != wanted:
            changed = sorted(
                key for key in wanted.keys() | stored.keys() if wanted.get(key) != stored.get(key)
            )
            raise ConfigError(
                f"the study {path} belongs to another search (different {', '.join(changed)}); "
                "use another file or remove it."
            )
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        if not rows:
            self._append({"study": identity})
        self.trials = {trial.number: trial for trial in trials}

    def add(self, trial: Trial) -> None:
        """Store a finished trial; it is on disk when this returns."""
        with self._lock:
            if self.path is not None:
                self._append(asdict(trial))
            self.trials[trial.number] = trial

    def _append(self, row: dict[str, Any]) -> None:
        """Append a line in a single write."""
        assert self.path is not None
        line = json.dumps(row, ensure_ascii=False) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def best(self, n_trials: int) -> Trial:
        """The best of the first `n_trials`: finished before stopped, then by score, then the earliest."""
        trials = (self.trials[number] for number in range(n_trials))
        return min(trials, key=lambda trial: (STOPPED.index(trial.stopped), -trial.score, trial.number))


N_REFERENCES = 4  # the first trials are never stopped early; later ones are compared with their median
MIN_EPOCHS = 3  # epochs before a trial can be stopped
N_CANDIDATES = 20  # per user; also the largest fixed N that validation considers

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
        # TOML writes numbers, strings and booleans as JSON does
        lines = [f"{name} = {json.dumps(value)}" for name, value in head.items()]
        body = [f"{name} = {json.dumps(value)}" for name, value in self.params.items() if value is not None]
        with atomic_write(target) as temporary:
            temporary.write_text("\n".join([*lines, "", "[params]", *body, ""]), encoding="utf-8")
        return target


def read_tuned(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Read model name and parameters from a TOML file that `Tuned.write` or a person wrote."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no parameter file at {path}; check the path.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path} is not TOML ({error}); write it again with shortlist tune.") from None
    model, params = content.get("model"), content.get("params", {})
    unknown = sorted(set(content) - {"model", "params", "score", "n_trials"})
    if unknown:
        raise DataError(f"{path} may contain model and [params], got {unknown[0]!r} too; remove it.")
    if not isinstance(model, str) or not isinstance(params, dict):
        raise DataError(
            f'{path} must contain model = "…" and a table [params], got {list(content)}; add them.'
        )
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
    validation: Validating = "last_basket",
    seed: int = 0,
    n_jobs: int = 0,
    study: str | Path | None = None,
    progress: TrialProgress | None = None,
    engine: Engine | None = None,
) -> Tuned:
    """Search the hyperparameters of one model on validation data.

    Each trial fits the model without the last basket of each user (or without a random share of the items,
    if few users return) and measures F1 at the best fixed N on the held-out data. Trials whose score stays
    below the median of the first trials are stopped early. `n_jobs` and `engine` do not change the result.

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
        Number of last baskets to validate on, each predicted from the baskets before it. By time: number of
        periods, each predicted from the events before it. A `Split` has one fold.
    validation
        As in `fit`.
    seed
        Seed of the sampler and of a random hold-out.
    n_jobs
        Number of trials to run at the same time; 0 runs one per core. On a cluster, one runs on each CPU.
    study
        JSON Lines file for the trials. An interrupted search with the same arguments continues from it.
    progress
        Callable that receives each finished `Trial`. By default, progress is shown on a terminal and in a
        notebook, and nothing is printed elsewhere.
    engine
        Where to run the trials: None or `ThreadEngine()` in this process, `RayEngine(…)` on a cluster.

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
    searched = space or default_space(model, timed=data.time is not None)
    searched = {name: values for name, values in searched.items() if name not in fixed}
    identity = {
        "model": model,
        "data": data.fingerprint,
        "sampler": sampler,
        "space": {name: repr(values) for name, values in searched.items()},
        "fixed": fixed,
        "n_folds": n_folds,
        "seed": seed,
        **({} if validation == "last_basket" else {"validation": _identify(validation)}),
    }
    place = check_engine(engine)
    store = Study(identity, None if study is None else Path(study))
    folds = _folds(data, n_folds, validation, seed)
    with show_trials(n_trials, progress) as show:
        search = _Search(model, fixed, folds, store, show)
        search.run(SAMPLERS[sampler](searched, seed), n_trials, thread_count(n_jobs), place)
    best = store.best(n_trials)  # the file may contain the trials of a longer search
    if best.stopped == "diverged":
        raise TrainingError(f"every trial of {model} diverged; try smaller values of lr.")
    params = {**fixed, **best.params} | ({"n_epochs": best.n_epochs} if best.n_epochs else {})
    return Tuned(model, params, best.score, [store.trials[number] for number in range(n_trials)])


def _folds(data: Interactions, n_folds: int, validation: Validating, seed: int) -> list[Holdout]:
    if n_folds == 1:
        return [hold_out(data, seed, validation)]
    if isinstance(validation, Split):
        raise ConfigError(f"n_folds must be 1 if validation is a Split, got {n_folds}; leave n_folds out.")
    return strict_folds(data, n_folds) if validation == "by_time" else last_baskets(data, n_folds)


def _identify(validation: Validating) -> str:
    """The validation in the identity of a study."""
    return validation.train.fingerprint if isinstance(validation, Split) else str(validation)


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


class BelowMedianError(Exception):
    """Stops a trial whose score is below the median of the reference trials."""


@dataclass(frozen=True)
class _Search:
    """Runs the trials of one search and stores them in the study."""

    model: str
    fixed: dict[str, Any]
    folds: list[Holdout]
    study: Study
    progress: TrialProgress

    def run(self, sampler: Sampler, n_trials: int, n_jobs: int, engine: Engine) -> None:
        """Run the reference trials first, then the rest, in rounds if the sampler learns from scores."""
        bounds = [0, min(N_REFERENCES, n_trials)]
        while bounds[-1] < n_trials:
            bounds.append(n_trials if sampler.batch is None else min(bounds[-1] + sampler.batch, n_trials))
        with ThreadPoolExecutor(n_jobs) as pool:
            for low, high in itertools.pairwise(bounds):
                proposed = [(number, sampler.propose(number)) for number in range(low, high)]
                missing = [trial for trial in proposed if trial[0] not in self.study.trials]
                run = self._runner(low).run
                if isinstance(engine, ThreadEngine):
                    list(pool.map(lambda trial, run=run: self._record(run(trial)), missing))
                elif missing:
                    for trial in engine.map(run, missing):
                        self._record(trial)
                for number, _ in proposed:
                    sampler.observe(number, self.study.trials[number].score)

    def _record(self, trial: Trial) -> None:
        """Store and report a finished trial."""
        self.study.add(trial)
        self.progress(trial)

    def _runner(self, first: int) -> "_TrialRunner":
        """What runs the trials from this one on; the references have all been run before."""
        references = range(0 if first < N_REFERENCES else N_REFERENCES)
        curves = [self.study.trials[number].curves for number in references]
        return _TrialRunner(self.model, self.fixed, self.folds, curves)


@dataclass(frozen=True)
class _TrialRunner:
    """Runs trials one by one, in this process or elsewhere."""

    model: str
    fixed: dict[str, Any]
    folds: list[Holdout]
    references: list[list[list[float]]]  # the curves of the reference trials, by fold; none while they run

    def run(self, proposed: tuple[int, dict[str, Any]]) -> Trial:
        """Validate the parameters on every fold; a stopped or diverged trial skips the later folds."""
        number, params = proposed
        curves: list[list[float]] = []
        best_epochs, stopped = [], "done"
        for at, fold in enumerate(self.folds):
            curves.append([])
            model = build_model(self.model, {**self.fixed, **params})
            try:
                best_epochs.append(_validate(model, fold, curves[-1], self._median_check(at)))
            except BelowMedianError:
                stopped = "median"
            except TrainingError:
                stopped = "diverged"
            if stopped != "done":
                break
        score = 0.0 if stopped == "diverged" else float(np.mean([max(curve) for curve in curves]))
        n_epochs = round(float(np.mean(best_epochs))) if best_epochs else 0
        return Trial(number, params, score, n_epochs, stopped, curves)

    def _median_check(self, fold: int) -> Callable[[list[float]], None]:
        """Return a callback that raises if a curve is below the median of the references at its epoch."""
        references = [curves[fold] for curves in self.references if len(curves) > fold and curves[fold]]

        def check(curve: list[float]) -> None:
            epoch = len(curve)
            if not references or epoch <= MIN_EPOCHS:
                return
            if max(curve) < np.median([max(reference[:epoch]) for reference in references]):
                raise BelowMedianError

        return check


def _validate(
    model: Recommender, fold: Holdout, curve: list[float], check: Callable[[list[float]], None]
) -> int:
    """Fit and score on one fold; the curve grows by one score per epoch. Returns the best epoch or 0."""

    def on_epoch(state: "Progress") -> None:
        assert state.score is not None
        curve.append(state.score)
        check(curve)

    if "n_threads" in model.get_params():
        model.set_params(n_threads=1)  # trials run in parallel
    validated = validate(model, fold, n_candidates=N_CANDIDATES, n_threads=1, progress=on_epoch)
    if validated.n_epochs is None:
        curve.append(validated.score)
    return validated.n_epochs or 0
