"""A study on disk: JSON Lines with a header and one line per trial, so that a killed search can continue."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from shortlist.core.checks import check_float_value, check_floats, check_text, check_whole_value
from shortlist.core.estimator import MAX_WHOLE
from shortlist.errors import ConfigError, DataError

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
            known = dict(rows[0]["study"]) if rows else identity
            trials = [_check_trial(Trial(**row)) for row in rows[1:]]
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"[:150]
            raise DataError(f"{path} is not a study ({reason}); use another file or remove it.") from None
        wanted = json.loads(json.dumps(identity))
        if known != wanted:
            changed = sorted(key for key in wanted.keys() | known.keys() if wanted.get(key) != known.get(key))
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
