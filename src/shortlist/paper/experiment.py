"""Experiments: a dataset and its split, and results that are computed once."""

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.auto.validation import Holdout, Validation, build_model
from shortlist.core.files import write_text
from shortlist.core.threads import thread_count
from shortlist.data.datasets import load_dataset
from shortlist.data.interactions import Interactions
from shortlist.paper.protocol import MAX_LENGTH, PLAIN
from shortlist.split import Split, last_basket
from shortlist.types import Doubles

LAYOUT = 4  # increased when the content of a result changes, so that older files are not reused
MAX_BYTES = 1 << 30  # of one unpacked array
SUBSAMPLE_STREAM = 11  # second seed of the subsample, so that it differs from other random streams


@dataclass(frozen=True, eq=False)
class Experiment:
    """A dataset and its split."""

    name: str
    split: Split

    @classmethod
    def load(cls, name: str, users: int | None = None, seed: int = 0) -> "Experiment":
        """A dataset by name; `users` is the size of a random sample of users."""
        data = load_dataset(name)
        if users is not None and users < data.active_users.size:
            rng = np.random.Generator(np.random.PCG64([seed, SUBSAMPLE_STREAM]))
            sampled = np.zeros(data.n_users, np.bool_)
            sampled[rng.choice(data.active_users, users, replace=False)] = True
            data = data.where(sampled[data.user])
        return cls(name, last_basket(data))

    @cached_property
    def filter_seen(self) -> bool:
        """Whether items from the user's history are excluded."""
        return not self.split.train_valid.has_repeats

    def validate(
        self, model: str, params: dict[str, Any], history: Interactions, truth: Interactions
    ) -> Validation:
        """Train for exactly `n_epochs` on one thread; candidates are for the users in `truth`."""
        fresh = build_model(model, PLAIN.get(model, {}) | params)
        if fresh.uses_epochs:
            fresh.set_params(n_threads=1, tol=0.0)
        holdout = Holdout(history, truth, self.name)
        unfitted = Validation(fresh, holdout, MAX_LENGTH, filter_seen=self.filter_seen, n_threads=1)
        return unfitted.fit(early_stopping=False)

    def describe(self) -> dict[str, Any]:
        """Sizes of the dataset and its split."""
        data, split = self.split.data, self.split
        return {
            "rows": data.n_rows,
            "users": int(data.active_users.size),
            "items": data.n_items,
            "valid_users": int(split.valid.active_users.size),
            "test_users": int(split.test.active_users.size),
            "test_rows": split.test.n_rows,
            "filter_seen": self.filter_seen,
            "fingerprint": data.fingerprint,
        }


@dataclass(eq=False)
class Runner:
    """Computes results of one experiment, and keeps them in a folder."""

    experiment: Experiment
    folder: Path
    n_jobs: int = 1  # parallel runs; 0: one per core
    progress: Callable[[str], None] | None = None
    seconds: float = 0.0  # compute time of all results returned, computed now or earlier

    def path(self, kind: str, settings: Any, suffix: str = "json") -> Path:
        """The file of a result; `settings` is what it depends on beside the data and this version."""
        identity = [LAYOUT, version("shortlist"), self.experiment.split.data.fingerprint, kind, settings]
        text = json.dumps(identity, sort_keys=True, default=lambda value: value.identity)
        return self.folder / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}.{suffix}"

    def compute(self, kind: str, label: str, function: Callable[..., Any], *args: Any) -> Any:
        """function(experiment, *args), read from its file or computed and written."""
        path = self.path(kind, args)
        entry = _read(path)
        if entry is None:
            start = time.perf_counter()
            result = function(self.experiment, *args)
            entry = {"label": label, "seconds": round(time.perf_counter() - start, 2), "result": result}
            write_text(path, json.dumps(entry, allow_nan=False))
            self.report(f"{label}: {entry['seconds']:.1f} s")
        self.seconds += entry["seconds"]
        return json.loads(json.dumps(entry["result"]))  # same types, computed or read

    def map(self, job: Callable[..., Any], points: Iterable[tuple[Any, ...]]) -> list[Any]:
        """job(*point) for every point, in order; `n_jobs` at once."""
        with ThreadPoolExecutor(thread_count(self.n_jobs)) as pool:
            return list(pool.map(lambda point: job(*point), points))

    def report(self, text: str) -> None:
        """Tell the caller about a finished step."""
        if self.progress is not None:
            self.progress(f"{self.experiment.name}, {text}")


def _read(path: Path) -> dict[str, Any] | None:
    """Read a result; None if the file is missing or damaged."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError):
        return None
    valid = isinstance(entry, dict) and isinstance(entry.get("result"), dict | list)
    return entry if valid and isinstance(entry.get("seconds"), int | float) else None


def pack_values(values: Doubles) -> str:
    """(n,) numbers as compressed single-precision text, because plain JSON would be much larger."""
    return base64.b85encode(zlib.compress(np.asarray(values, "<f4").tobytes(), 6)).decode()


def unpack_values(text: str) -> Doubles:
    """The inverse of `pack_values`."""
    raw = zlib.decompressobj().decompress(base64.b85decode(text), MAX_BYTES)
    return np.frombuffer(raw, "<f4").astype(np.float64)


def harmonic_mean(precision: Any, recall: Any) -> Doubles:
    """F1 of mean precisions and mean recalls; 0 if both are 0."""
    total = np.asarray(precision + recall, np.float64)
    return np.asarray(np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0))
