"""A study on disk: JSON Lines, a head and then a line per trial; a killed search loses nothing."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from shortlist.errors import ConfigError, DataError


@dataclass(frozen=True)
class Trial:
    """One set of parameters and what became of it."""

    number: int
    params: dict[str, Any]
    score: float  # validation F1 at its best N, mean over folds; of a stopped trial, the best it had
    n_epochs: int  # after which it was best; 0 where the model has no epochs
    stopped: str  # "done", "median" or "diverged"
    curves: list[list[float]]  # (n_folds, epochs made) validation F1 after each epoch


class Study:
    """The trials of one search; `path=None` keeps them in memory only."""

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
        """Take up the whole lines; one torn by a kill is cut off."""
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        try:
            rows = [json.loads(line) for line in whole.splitlines()]
            known = rows[0]["study"] if rows else identity
            trials = [Trial(**row) for row in rows[1:]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a study ({error}); name another file or remove it.") from None
        wanted = json.loads(json.dumps(identity))
        if known != wanted:
            changed = sorted(key for key in wanted.keys() | known.keys() if wanted.get(key) != known.get(key))
            raise ConfigError(
                f"the study {path} belongs to another search ({', '.join(changed)} differ); "
                "name another file or remove it."
            )
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        if not rows:
            self._append({"study": identity})
        self.trials = {trial.number: trial for trial in trials}

    def add(self, trial: Trial) -> None:
        """Note a finished trial, on disk before this returns."""
        with self._lock:
            if self.path is not None:
                self._append(asdict(trial))
            self.trials[trial.number] = trial

    def _append(self, row: dict[str, Any]) -> None:
        """One write of one whole line."""
        assert self.path is not None
        line = json.dumps(row, ensure_ascii=False) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    @property
    def best(self) -> Trial:
        """The highest score among trials that ran to their end; of equals the earlier one."""
        order = {"done": 0, "median": 1, "diverged": 2}
        return min(self.trials.values(), key=lambda trial: (order[trial.stopped], -trial.score, trial.number))
