"""The model that is served: loading, activation, roll-back, and events that reach it through `observe`."""

import ctypes
import gc
import re
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist.core.serialization import read_header
from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, ModelFileError, ShortlistError
from shortlist.models.base import Recommender, load_model
from shortlist.serve.events import EventForm, build_events, warm_up, with_events
from shortlist.serve.store import Activation, EventStore

M_ARENA_MAX = -8  # of malloc.h
ARENAS = 2


def limit_arenas() -> None:
    """Let all threads share two heaps; with one for each thread, every new model leaves gaps in another one.

    It must be called before threads start. Other C libraries than that of GNU have no such setting.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def release_memory() -> None:
    """Give back the memory of a model that is no longer served, which the C library would keep."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


SUFFIX = ".shortlist"
EVENTS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Served:
    """The model in service; replaced as a whole."""

    number: int  # of the activation
    name: str
    model: Recommender
    form: EventForm
    loaded: float
    cutoff_name: str


class Deployment:
    """Keeps one model in service and follows the activations and events in the store."""

    def __init__(self, folder: Path, store: EventStore) -> None:
        self._folder = folder
        self._store = store
        self._lock = threading.Lock()
        self._served: Served | None = None
        self._last_event = 0  # number of the last event that the model has observed
        self._failed = 0  # number of an activation that could not be loaded
        self.events_skipped = 0
        self.last_look = 0.0  # time of the last successful look into the store
        self.error: str | None = None

    @property
    def served(self) -> Served:
        """The model in service."""
        if self._served is None:
            raise DataError("no model is loaded yet; repeat the request in a few seconds.")
        return self._served

    @property
    def is_ready(self) -> bool:
        """Whether a model is in service."""
        return self._served is not None

    def start(self, path: Path) -> None:
        """Serve the latest activated model; activate the given file if it is new or has changed."""
        name, checksum = path.name.removesuffix(SUFFIX), file_checksum(path)
        history = self._store.activations()
        if not any((one.model, one.checksum) == (name, checksum) for one in history):
            self.activate(name, "given at the start")
            return
        for activation in history:  # newest first; a file may have been deleted meanwhile
            try:
                self._swap(*self._prepare(activation))
            except ShortlistError as error:
                self.error = str(error)
            else:
                return
        self.activate(name, "the earlier models cannot be loaded")

    def model_names(self) -> list[str]:
        """Models in the folder, newest first."""
        found = [path for path in self._folder.glob(f"*{SUFFIX}") if path.is_file()]
        found.sort(key=lambda path: (-path.stat().st_mtime, path.name))
        return [path.name.removesuffix(SUFFIX) for path in found]

    def path_of(self, name: str) -> Path:
        """The file of a model in the folder; a name that is not listed there is never used as a path."""
        if name not in self.model_names():
            raise DataError(f"there is no model named {name[:80]!r}; GET /v1/model lists the names.")
        return self._folder / f"{name}{SUFFIX}"

    def activate(self, name: str, note: str, cutoff: Cutoff | None = None) -> Served:
        """Load and try a model, then serve it here and, through the store, in every worker."""
        path = self.path_of(name)
        with self._lock:
            checksum = file_checksum(path)
            until = next(
                (
                    one.events_until
                    for one in self._store.activations()
                    if (one.model, one.checksum) == (name, checksum)
                ),
                0,
            )
            content = None if cutoff is None else cutoff_bytes(cutoff)
            trial = Activation(0, name, checksum, until, content, time.time(), note)
            served, last = self._prepare(trial)
            number = self._store.add_activation(name, checksum, until, note, content)
            self._swap(replace(served, number=number), last)
        del served
        release_memory()
        return self.served

    def follow(self) -> None:
        """Serve what was activated elsewhere and let new events reach the model."""
        with self._lock:
            latest = self._store.activations(1)
            current = -1 if self._served is None else self._served.number
            if latest and latest[0].number not in (current, self._failed):
                try:
                    self._swap(*self._prepare(latest[0]))
                    release_memory()
                    self.error = None
                except ShortlistError as error:  # the model in service stays
                    self._failed = latest[0].number
                    self.error = f"model {latest[0].model!r} could not be activated: {error}"
            if self._served is not None:
                self._swap(*self._observe(self._served, self._last_event))
            self.last_look = time.time()

    def _swap(self, served: Served, last_event: int) -> None:
        self._served, self._last_event = served, last_event

    def _prepare(self, activation: Activation) -> tuple[Served, int]:
        """Load a model, add the events that its file does not contain, and compute a few lists."""
        path = self.path_of(activation.model)
        if file_checksum(path) != activation.checksum:
            raise ModelFileError(f"the file of model {activation.model!r} has changed; activate it again.")
        model = load_model(path)
        if activation.cutoff is not None:
            model.set_cutoff(cutoff_from_bytes(activation.cutoff), model.selection_)
        if model.cutoff_ is None and not model.has_boundary:
            raise ModelFileError(
                f"model {activation.model!r} has no cutoff and no boundary; save it with one, "
                "for example with `shortlist fit`."
            )
        served = Served(
            number=activation.number,
            name=activation.model,
            model=model,
            form=EventForm.of(model.history_),
            loaded=time.time(),
            cutoff_name="boundary" if model.cutoff_ is None else type(model.cutoff_).__name__,
        )
        warm_up(model, served.form)
        return self._observe(served, activation.events_until)

    def _observe(self, served: Served, after: int) -> tuple[Served, int]:
        """The model with all events after a number, and the number of the last one."""
        while rows := self._store.events_after(after, EVENTS_AT_ONCE):
            events, skipped = build_events(rows, served.form)
            self.events_skipped += skipped
            if events is not None:
                served = replace(served, model=with_events(served.model, events))
            after = int(rows[-1].seq)
            if len(rows) < EVENTS_AT_ONCE:
                break
        return served, after


def stored_events(store: EventStore, model: Recommender, after: int) -> tuple[Interactions | None, int]:
    """All events after a number, and the number of the last one."""
    parts, last, form = [], after, EventForm.of(model.history_)
    while rows := store.events_after(last, EVENTS_AT_ONCE):
        events, _ = build_events(rows, form)
        parts += [] if events is None else [events]
        last = int(rows[-1].seq)
    if not parts:
        return None, last
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.concat(part)
    return joined, last


def remove_old_models(store: EventStore, folder: Path, base: str, keep: int) -> list[Path]:
    """Delete refitted models except the latest `keep`; the given model and the one in service stay."""
    pattern = re.compile(re.escape(base) + r"-\d{8}-\d{6}" + re.escape(SUFFIX))
    found = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    active = {one.model for one in store.activations(1)}
    old = [path for path in found[:-keep] if path.name.removesuffix(SUFFIX) not in active]
    for path in old:
        path.unlink(missing_ok=True)
    return old


def file_checksum(path: Path) -> str:
    """The checksum in the header of a model file."""
    return str(read_header(path)["checksum"])


def cutoff_bytes(cutoff: Cutoff) -> bytes:
    """A fitted cutoff as the bytes of its file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return cutoff.save(Path(folder) / "cutoff.shortlist").read_bytes()


def cutoff_from_bytes(content: bytes) -> Cutoff:
    """A fitted cutoff from the bytes of its file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cutoff.shortlist"
        path.write_bytes(content)
        return Cutoff.load(path)
