"""The model that is served: its file, activation, roll-back, and events that reach it through `observe`.

People put model files with names into a folder that all servers read. What is activated is kept beside them
under its checksum, so that it stays what it was when a file with a name is replaced. Servers need only read
the folder.
"""

import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.codec import read_header
from shortlist.core.files import atomic_write
from shortlist.cutoff.base import Cutoff
from shortlist.data.history import Events, History
from shortlist.data.ids import IdMap
from shortlist.errors import ConfigError, DataError, ModelFileError, ShortlistError, UnknownIdError
from shortlist.models.base import Recommender, load_model
from shortlist.recommend.options import CutoffChoice
from shortlist.serve.events import EventForm, build_events, id_column, warm_up, warm_up_events, with_events
from shortlist.serve.log import write_log
from shortlist.serve.projections import (
    Activation,
    ErasedUser,
    ModelVersion,
    add_activation,
    erased_after,
    find_activations,
)
from shortlist.serve.store import EventStore, StoreError

EVENTS_AT_ONCE = 10_000
RETRY_SECONDS = 5.0  # until an activation that failed is tried again


@dataclass(frozen=True)
class ServedModel:
    """The model in service, with the events that reached it; replaced as a whole."""

    activation: Activation
    model: Recommender
    form: EventForm
    loaded: float
    cutoff_name: str
    last_event: int  # number of the last event that it has observed
    last_erased: int  # number of the last user who was erased from it
    n_skipped: int = 0  # stored events that it cannot use

    @property
    def number(self) -> int:
        """Of the activation."""
        return self.activation.number

    @property
    def name(self) -> str:
        """Of the model."""
        return self.activation.model


class Deployment:
    """Keeps one model in service and follows the activations and events in the store."""

    def __init__(self, folder: Path, store: EventStore, *, keep_models: int = 3) -> None:
        self._folder = folder
        self.store = store
        self._keep_models = keep_models
        self._lock = threading.Lock()
        self._served: ServedModel | None = None
        self._wanted: frozenset[ModelVersion] = frozenset()  # of the arms of an experiment
        self._others: dict[ModelVersion, ServedModel] = {}  # those that are not in service
        self._failed: tuple[int, float] = (0, 0.0)  # an activation that could not be loaded, when to retry
        self._failed_others: dict[ModelVersion, float] = {}  # when to retry
        self._looked: float | None = None  # steady time of the last successful look into the store
        self.store_error: str | None = None
        self.activation_error: str | None = None

    @property
    def served(self) -> ServedModel:
        """The model in service."""
        if self._served is None:
            raise DataError("no model is loaded yet; repeat the request in a few seconds.")
        return self._served

    @property
    def is_ready(self) -> bool:
        """Whether a model is in service."""
        return self._served is not None

    @property
    def lacks_arm(self) -> bool:
        """Whether the model of an arm of the running experiment cannot be loaded."""
        return bool(self._failed_others)

    @property
    def seconds_since_look(self) -> float:
        """How long ago the store was last read with success."""
        return float("inf") if self._looked is None else time.monotonic() - self._looked

    def start(self, path: Path, *, prefer_given: bool = False) -> None:
        """Serve the latest activated model, or the given file if it is new, has changed or is preferred.

        The file may be missing where another server has activated a model. If the activated model cannot be
        loaded here, the file is served here, and nowhere else, until it can be.
        """
        name = path.name.removesuffix(SUFFIX)
        latest = next(iter(find_activations(self.store, 1)), None)
        given = None if latest and not path.exists() else ModelVersion(name, file_checksum(path))
        if given is not None:
            is_new = not find_activations(self.store, 1, model=name, checksum=given.checksum)
            if is_new or (prefer_given and latest is not None and latest.version != given):
                self.activate(name, "given at the start")
                return
        try:
            if latest is not None:
                self._served = self._prepare(latest)
        except StoreError:
            raise
        except (ShortlistError, OSError) as error:
            self.activation_error = self.describe_error(latest.model if latest else name, error)
            if given is None:
                raise ModelFileError(self.activation_error) from None
            self._served = self._prepare(self._latest_use(*given, "the activated model cannot be loaded"))

    def model_names(self) -> list[str]:
        """Models that people put into the folder, newest first."""
        return list_model_files(self._folder)

    def available(self) -> list[str]:
        """Models that can be activated: those with a name in the folder, and those that are kept there."""
        activations = find_activations(self.store)
        kept = [one.model for one in activations if kept_path(self._folder, one.checksum).is_file()]
        return list(dict.fromkeys([*self.model_names(), *kept]))

    def path_of(self, name: str) -> Path:
        """The file of a model in the folder; a name that is not listed there is never used as a path."""
        if name not in self.model_names():
            raise DataError(f"there is no model named {name[:80]!r} in the folder; check its name.")
        return self._folder / f"{name}{SUFFIX}"

    def find_checksum(self, name: str) -> str:
        """The checksum of the model of this name: of the file in the folder, or as it was last activated."""
        if name not in self.model_names():
            for activation in find_activations(self.store, 1, model=name):
                if kept_path(self._folder, activation.checksum).is_file():
                    return activation.checksum
        return file_checksum(self.path_of(name))

    def find_version(self, name: str | None) -> ModelVersion | None:
        """A model as it is now; without a name the one in service, None before any was activated."""
        if name is None:
            return next((activation.version for activation in find_activations(self.store, 1)), None)
        return ModelVersion(name, self.find_checksum(name))

    def latest_event(self) -> tuple[int, int]:
        """Numbers of the latest activation and of the last event."""
        latest = find_activations(self.store, 1)
        if not latest:
            raise ConfigError("an experiment needs a model in service; start the service first.")
        return latest[0].number, self.store.last_event()

    def keep_cutoff(self, name: str) -> str:
        """Keep the file of a cutoff under its checksum; the checksum."""
        path = self.path_of(name)
        checksum = file_checksum(path)
        keep_file(self._folder, path, checksum)
        return checksum

    def keep(self, name: str, checksum: str) -> None:
        """Keep a model under its checksum; if the folder cannot be written, its file must not be replaced."""
        try:
            keep_file(self._folder, find_model(self._folder, name, checksum), checksum)
        except DataError as error:
            write_log({"level": "warning", "task": "keep model", "problem": self._without_paths(str(error))})

    def activate(self, name: str, note: str, checksum: str | None = None) -> ServedModel:
        """Load and try a model, then serve it here and, through the store, in every worker.

        `checksum` names an earlier file of the model; by default it is the one in the folder.
        """
        with self._lock:
            try:
                trial = self._latest_use(name, checksum or self.find_checksum(name), note)
                served = self._prepare(trial)
                self.keep(name, trial.checksum)
            except (ModelFileError, OSError) as error:
                raise ModelFileError(self.describe_error(name, error)) from None
            number = add_activation(
                self.store, name, trial.checksum, trial.events_until, note, trial.erased_until
            )
            self._switch(replace(served, activation=trial._replace(number=number)))
        self.remove_unused()
        return self.served

    def remove_unused(self) -> None:
        """Delete kept files that only older activations and arms of this store name."""
        with suppress(StoreError):
            running, ended = set[str](), set[str]()  # checksums of the models of arms
            activations = {activation.number: activation for activation in find_activations(self.store)}
            for change in reversed(self.store.latest_changes(("experiment", "experiment end"), 1_000)):
                if change.kind == "experiment":
                    running = {arm["version"][1] for arm in change.content["arms"] if arm["version"]}
                    known = activations.get((change.content.get("history") or [0])[0])
                    running |= set() if known is None else {known.checksum}  # counts earlier events
                else:
                    running, ended = set(), ended | running
            activated = dict.fromkeys(activation.checksum for activation in activations.values())
            earlier = [checksum for checksum in activated if checksum not in running]
            unused = [*earlier[self._keep_models + 1 :], *(ended - running - set(activated))]
            remove_models(self._folder, unused)

    def model_of(self, version: ModelVersion | None) -> ServedModel | None:
        """The model of an arm, None if it cannot be served now; without a version the one in service."""
        served = self.served
        return served if version in (None, served.activation.version) else self._others.get(version)

    def _switch(self, served: ServedModel) -> None:
        """Serve another model; an arm may go on with the one that was in service."""
        earlier = self._served
        self.activation_error = None  # first: who sees the new model sees no old error
        self._served = served
        if earlier is not None and earlier.activation.version in self._wanted:
            self._others = {**self._others, earlier.activation.version: earlier}

    def follow(self, arms: Collection[ModelVersion] = ()) -> None:
        """Serve what was activated elsewhere and the models of arms, and let new events reach them."""
        with self._lock:
            self._wanted = frozenset(arms)
            latest = find_activations(self.store, 1)
            current = -1 if self._served is None else self._served.number
            failed, retry = self._failed
            is_due = bool(latest) and (latest[0].number != failed or time.monotonic() >= retry)
            if latest and latest[0].number != current and is_due:
                try:
                    self._switch(self._prepare_next(latest[0]))
                except StoreError:
                    raise
                except (ShortlistError, OSError) as error:  # the model in service stays
                    self._failed = (latest[0].number, time.monotonic() + RETRY_SECONDS)
                    self.activation_error = self.describe_error(latest[0].model, error)
            if self._served is not None:
                self._served = self._observe(self._served)
            self._follow_arms()
            self._looked = time.monotonic()

    def warm_up_events(self) -> None:
        """Compile after the start what the first event and the first session would wait for."""
        warm_up_events(self.served.model, self.served.form)

    def _prepare_next(self, activation: Activation) -> ServedModel:
        """The activated model; the one in service if it is the same file."""
        served = self._served
        if served is not None and served.activation[1:4] == activation[1:4]:
            return replace(served, activation=activation)
        return self._prepare(activation)

    def _follow_arms(self) -> None:
        """Keep the models of the arms of an experiment, and none else, in memory and up to date."""
        loaded, failed = {}, dict(self._failed_others)
        for version in self._wanted - {None if self._served is None else self._served.activation.version}:
            served = self._others.get(version)
            if served is not None:
                loaded[version] = self._observe(served)
            elif time.monotonic() >= failed.get(version, 0.0):
                failed.pop(version, None)
                try:
                    loaded[version] = self._prepare(self._latest_use(*version, "an arm"))
                except StoreError:
                    raise
                except (ShortlistError, OSError) as error:
                    failed[version] = time.monotonic() + RETRY_SECONDS
                    self.activation_error = self.describe_error(version.model, error)
        self._others = loaded
        self._failed_others = {version: retry for version, retry in failed.items() if version in self._wanted}

    def _latest_use(self, name: str, checksum: str, note: str) -> Activation:
        """An activation of this file, with the events that it is known to contain."""
        earlier = next(iter(find_activations(self.store, 1, model=name, checksum=checksum)), None)
        until, gone = (0, 0) if earlier is None else (earlier.events_until, earlier.erased_until)
        return Activation(0, name, checksum, until, gone, self.store.now(), note)

    def describe_error(self, name: str, error: BaseException) -> str:
        """Why a model cannot be served, without paths."""
        if isinstance(error, OSError):
            reason = f"{error.strerror or type(error).__name__}; check the folder and the temporary folder."
        else:
            reason = str(error)
        return f"model {name[:80]!r} could not be activated: {self._without_paths(reason)}"

    def _without_paths(self, text: str) -> str:
        for folder in (self._folder, tempfile.gettempdir()):
            text = text.replace(f"{folder}/", "").replace(str(folder), "the folder")
        return text

    def _prepare(self, activation: Activation) -> ServedModel:
        """Load a model, add the events that its file does not contain, and compute a few lists."""
        model = load_activated(self._folder, activation)
        if model.cutoff_ is None and not model.has_boundary:
            raise ModelFileError(
                f"model {activation.model!r} has no cutoff and no boundary; run shortlist fit without "
                "--quick, or call model.set_cutoff before saving it."
            )
        served = ServedModel(
            activation=activation,
            model=model,
            form=EventForm.of(model.history_),
            loaded=self.store.now(),
            cutoff_name="boundary" if model.cutoff_ is None else type(model.cutoff_).__name__,
            last_event=activation.events_until,
            last_erased=activation.erased_until,
        )
        warm_up(model)
        if self._served is not None:  # at the start, lists come first: `warm_up_events` follows
            warm_up_events(model, served.form)
        return self._observe(served)

    def _observe(self, served: ServedModel) -> ServedModel:
        """The model with all later events, and without the users who were erased since."""
        while True:
            rows = self.store.events_after(served.last_event, EVENTS_AT_ONCE)
            erased = erased_after(self.store, served.last_erased)  # after the events: see `_without_erased`
            if erased:
                model = rename_users(served.model, [user.user_id for user in erased])
                served = replace(served, model=model, last_erased=erased[-1].number)
            if rows:
                served = add_events(served, _without_erased(rows, erased))
                served = replace(served, last_event=int(rows[-1].seq))
            if len(rows) < EVENTS_AT_ONCE:
                return served


def add_events(served: ServedModel, rows: list[Any]) -> ServedModel:
    """The model with these events; one that cannot be used is set aside and counted."""
    try:
        events, n_skipped = build_events(rows, served.form)
        model = served.model if events is None else with_events(served.model, events)
    except Exception as error:
        if len(rows) > 1:
            half = len(rows) // 2
            return add_events(add_events(served, rows[:half]), rows[half:])
        write_log({"level": "error", "task": "observe", "problem": type(error).__name__})
        model, n_skipped = served.model, 1
    return replace(served, model=model, n_skipped=served.n_skipped + n_skipped)


def _without_erased(rows: list[Any], erased: Sequence[ErasedUser]) -> list[Any]:
    """The events without those that were deleted while they were read."""
    last = {user.user_id: user.events_until for user in erased}
    return [row for row in rows if row.seq > last.get(row.user_id, 0)] if last else rows


def rename_users(model: Recommender, user_ids: Iterable[str], *, drop_rows: bool = False) -> Recommender:
    """A model in which these users have random ids, which no request can name; the given one stays.

    What was learned is shared with the given model. With `drop_rows`, the history has no rows of them either.
    """
    history = model.event_history
    ids = id_column(user_ids, history.users)
    places = np.unique(history.users.lookup(ids.drop_nulls()))
    places = places[places >= 0]
    if not places.size:
        return model
    values = history.users.values.to_list()
    for place in places.tolist():
        values[place] = (
            -(2**62) - secrets.randbelow(2**62)
            if history.users.kind == "integer"
            else f"erased-{secrets.token_hex(16)}"
        )
    users = IdMap(pl.Series(values, dtype=history.users.values.dtype))
    history = history.rename_users(users, ids)
    if drop_rows:
        merged = history.merged
        history = History.of(merged.where(~np.isin(merged.user, places)))
    return model.with_event_history(history)


class RefitData(NamedTuple):
    """What a refit starts from."""

    model: Recommender  # in service, without the users who were erased
    events: Events | None  # that its file does not contain
    last_event: int
    last_erased: int


def load_refit_data(store: EventStore, folder: Path, name: str) -> RefitData:
    """The model in service, or the given one before any was activated, and the events since."""
    active = next(iter(find_activations(store, 1)), None)
    model = load_model(folder / f"{name}{SUFFIX}") if active is None else load_activated(folder, active)
    form = EventForm.of(model.history_)
    batches, last = [], 0 if active is None else active.events_until
    while rows := store.events_after(last, EVENTS_AT_ONCE):
        events, _ = build_events(rows, form)
        batches += [] if events is None else [events]
        last = int(rows[-1].seq)
    erased = erased_after(store, 0 if active is None else active.erased_until)
    gone = erased[-1].number if erased else 0 if active is None else active.erased_until
    model = rename_users(model, [user.user_id for user in erased], drop_rows=True)
    return RefitData(model, Events.join(batches), last, gone)


def load_activated(folder: Path, activation: Activation) -> Recommender:
    """The model of an activation."""
    is_new = activation.number == 0
    return load_model(find_model(folder, activation.model, activation.checksum, is_new=is_new))


class CutoffFiles:
    """Cutoffs that requests name: files of `shortlist cut --save` in the folder of the models."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.loaded: dict[str, CutoffChoice] = {"auto": "auto", "boundary": "boundary"}
        self._changed: dict[str, int | None] = {}  # name of a file → when it was changed

    def read(self, name: str) -> CutoffChoice:
        """A cutoff by its name, or by the checksum under which its file is kept."""
        if name in self.loaded:
            return self.loaded[name]
        changed = self._find_change(name)
        if changed is None:
            raise UnknownIdError(
                f'cutoff must be "auto", "boundary" or a file in the folder of models, got {name[:60]!r}; '
                "`shortlist cut --save` writes one."
            )
        try:
            cutoff = Cutoff.load(self._folder / f"{name}{SUFFIX}")
        except (ModelFileError, OSError) as error:
            reason = str(error).replace(f"{self._folder}/", "")
            raise ModelFileError(f"cutoff {name[:60]!r} cannot be read: {reason}") from None
        self._changed[name], self.loaded[name] = changed, cutoff
        return cutoff

    def refresh(self) -> None:
        """Let files that have changed be read again."""
        for name, changed in list(self._changed.items()):
            if self._find_change(name) != changed:
                del self._changed[name]
                self.loaded = {key: cutoff for key, cutoff in self.loaded.items() if key != name}

    def _find_change(self, name: str) -> int | None:
        """When the file of a cutoff was changed; None if there is none, or the name is a path."""
        path = self._folder / f"{name}{SUFFIX}"
        try:
            return path.stat().st_mtime_ns if path.parent == self._folder else None
        except (OSError, ValueError):
            return None


SUFFIX = ".shortlist"
CHECKSUM = re.compile(r"[0-9a-f]{64}")
UNUSED_SECONDS = 3_600.0  # a file that nothing names may be about to be activated


def file_checksum(path: Path) -> str:
    """The checksum in the header of a model file."""
    return str(read_header(path)["checksum"])


def kept_path(folder: Path, checksum: str) -> Path:
    """Where the file with a checksum is kept."""
    return folder / f"{checksum}{SUFFIX}"


def list_model_files(folder: Path) -> list[str]:
    """Names of the files that people put into the folder, newest first; all of them are UTF-8."""
    paths = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file() and _is_name(path)]
    paths.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    return [path.name.removesuffix(SUFFIX) for path in paths]


def _is_name(path: Path) -> bool:
    try:
        path.name.encode()
    except UnicodeEncodeError:
        return False
    return not CHECKSUM.fullmatch(path.name.removesuffix(SUFFIX))


def find_model(folder: Path, name: str, checksum: str, *, is_new: bool = False) -> Path:
    """The file with this checksum: the one that was kept, or the one with the name if it has not changed.

    The latter comes first if it is new: a damaged file may have the checksum of one that was kept.
    """
    named = folder / f"{name}{SUFFIX}"
    paths = (kept_path(folder, checksum), named)
    for path in reversed(paths) if is_new else paths:
        if path.parent == folder and path.is_file() and file_checksum(path) == checksum:
            return path
    problem = "has changed" if named in folder.glob(f"*{SUFFIX}") else "is not in the folder of models"
    raise ModelFileError(f"the file of model {name!r} {problem}; activate it again where the file is.")


def keep_file(folder: Path, path: Path, checksum: str) -> None:
    """Copy the file of a model or a cutoff into the folder, under its checksum."""
    kept = kept_path(folder, checksum)
    if kept.is_file():
        with suppress(OSError):
            os.utime(kept)  # what is about to be activated is not deleted
        return
    with atomic_write(kept) as temporary:
        shutil.copyfile(path, temporary)
        if file_checksum(temporary) != checksum:
            raise ModelFileError("the file was replaced while it was read; activate it again.")


def save_model(model: Recommender, folder: Path) -> str:
    """Save a model into the folder, under its checksum; the checksum."""
    with tempfile.TemporaryDirectory(prefix=".refit-", dir=folder) as room:
        path = model.save(Path(room) / f"model{SUFFIX}")
        checksum = file_checksum(path)
        path.replace(kept_path(folder, checksum))
    return checksum


def remove_models(folder: Path, checksums: Iterable[str]) -> None:
    """Delete kept files, but those of the last hour; a folder that cannot be written stays as it is."""
    for checksum in checksums:
        path = kept_path(folder, checksum)
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - UNUSED_SECONDS:
                path.unlink()
