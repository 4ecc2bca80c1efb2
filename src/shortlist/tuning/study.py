"""A study on disk: JSON Lines with a header and one line per trial, so that a killed search can continue."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from shortlist.errors import ConfigError, DataError


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
            known = rows[0]["study"] if rows else identity
            trials = [Trial(**row) for row in rows[1:]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a study ({error}); use another file or remove it.") from None
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
        order = {"done": 0, "median": 1, "diverged": 2}
        trials = (self.trials[number] for number in range(n_trials))
        return min(trials, key=lambda trial: (order[trial.stopped], -trial.score, trial.number))
