"""What the routes of one worker share: model, store, writer, batches and metrics."""

import gc
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from shortlist.errors import ShortlistError
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import CutoffFiles, Deployment
from shortlist.serve.experiments import TURN_SECONDS, Arm, Experiments, LiveExperiment
from shortlist.serve.health import ReferenceLists, compute_reference, describe_status
from shortlist.serve.lists import ListMaker
from shortlist.serve.log import write_log
from shortlist.serve.metrics import Metrics, put_counters
from shortlist.serve.projections import find_activations
from shortlist.serve.schemas import ExperimentBody, RequestError
from shortlist.serve.store import EventStore, StoreError, StoreWriter, wait_for_store
from shortlist.serve.tokens import TokenFile

DAY_SECONDS = 86_400
DELETE_AT_ONCE = 2_000  # lists, so that events wait for no long transaction


class Retention:
    """Once a day, one of the workers deletes what is too old, in small steps; events stay."""

    def __init__(self, store: EventStore, days: int) -> None:
        self._store, self._days = store, days
        self._day = -1  # the latest day on which this worker looked
        self._has_more = False

    def step(self, at: float) -> int:
        """Delete some of what is too old; return the number of lists."""
        day = int(at // DAY_SECONDS)
        if day != self._day:
            self._has_more = self._store.claim("retention turn", day, ahead=1)
            self._day = day
        if not self._has_more:
            return 0
        removed = self._store.remove_old(at - self._days * DAY_SECONDS, DELETE_AT_ONCE)
        self._has_more = removed == DELETE_AT_ONCE
        return removed


FLUSH_SECONDS = 2.0  # between two writes of the counters
PATIENCE_SECONDS = 5.0  # how long events wait for a database that restarts


class Service:
    """What the routes share: one worker's model, store, writer, batches and metrics."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.tokens = TokenFile(Path(config.token_file)) if config.token_file else None
        self.store = EventStore(config.database)
        self.deployment = Deployment(config.model_folder, self.store, keep_models=config.keep_models)
        self.experiments = Experiments(self.store)
        self.retention = Retention(self.store, config.keep_lists_days)
        self.metrics = Metrics(self.store.now, many_workers=config.workers > 1)
        self.large_bodies = ThreadPoolExecutor(1, thread_name_prefix="large-body")
        self.worker = random.randbytes(6).hex()
        self.cutoffs = CutoffFiles(config.model_folder)
        self._stop = threading.Event()
        self.is_open = self.is_draining = False
        self.lacks_history = False  # whether it is unknown who takes part in the running experiment
        self._reference = ReferenceLists(-1, [])
        self._reference_lock = threading.Lock()

    def open(self) -> None:
        """Create the tables, load the model and begin to follow the store."""
        gc.collect()
        gc.freeze()  # what is there now stays; looking through it again and again would delay answers
        wait_for_store(self._load, self._stop)
        self.writer = StoreWriter(self.store, min(PATIENCE_SECONDS, self.config.timeout / 2))
        self.lists = ListMaker(
            self.config, self.deployment, self.experiments, self.cutoffs, self.writer, self.metrics
        )
        self._follower = threading.Thread(target=self._follow, name="store-follower", daemon=True)
        self._follower.start()
        self.is_open = True

    def _load(self) -> None:
        """Load the model with all events."""
        self.store.create()
        self.store.read_time()
        self.deployment.start(self.config.model_path, prefer_given=self.config.start_with == "given")
        self._follow_models()

    def drain(self) -> float:
        """Get ready to end: new requests should go elsewhere; seconds until connections may be closed."""
        self.is_draining = True
        if not self.is_open:
            self._stop.set()
        return self.config.drain if self.is_open else 0.0

    @property
    def is_alive(self) -> bool:
        """Whether all threads run."""
        return self.writer.is_alive and self._follower.is_alive()

    def close(self) -> None:
        """Finish what has begun; acknowledged events are already stored."""
        self._stop.set()
        self._follower.join()
        self.lists.close()
        self.large_bodies.shutdown()
        self.writer.close()
        with suppress(ShortlistError):
            self._store_counters()
        self.store.close()

    def _follow(self) -> None:
        """Look for activations and events, and write the counters."""
        with suppress(Exception):  # an event or a session that fails later says why
            self.deployment.warm_up_events()
        flushed = time.monotonic() - FLUSH_SECONDS
        while not self._stop.wait(self.config.poll):
            try:
                self._follow_models()
                if time.monotonic() - flushed >= FLUSH_SECONDS:
                    flushed = time.monotonic()
                    self._do_rounds()
                if self.store.time_is_settled:
                    self.retention.step(self.store.now())
                self.deployment.store_error = None
            except ShortlistError as error:
                self.deployment.store_error = str(error)
            except Exception as error:  # the service goes on; the log names the place
                write_log({"level": "error", "problem": type(error).__name__, "task": "follow"})
            if self.deployment.is_ready:
                served = self.deployment.served
                self.metrics.model_activated.set(served.activation.activated)
                self.metrics.events_skipped.set(served.n_skipped)

    def _do_rounds(self) -> None:
        """What is due every few seconds or less often."""
        self.cutoffs.refresh()
        self.store.read_time()
        self._store_counters()
        turn = int(self.store.now() // TURN_SECONDS)
        if self.store.claim("experiment turn", turn, ahead=60) and self.store.time_is_settled:
            self.experiments.step()

    def _follow_models(self) -> None:
        """Follow the experiment, the activations and the events in the store."""
        self.experiments.follow()
        running = self.experiments.running
        self.deployment.follow(() if running is None else running.versions)
        try:
            self.experiments.follow_participants(self.config.model_folder)
            if self.lacks_history:
                self.lacks_history, self.deployment.activation_error = False, None
        except StoreError:
            raise
        except (ShortlistError, OSError) as error:
            self.lacks_history = True
            self.deployment.activation_error = self.deployment.describe_error("of the start", error)

    def _store_counters(self) -> None:
        """Write the counts of the current minute, and of earlier ones that were not written."""
        for minute, counts in sorted(self.metrics.minutes().items()):
            put_counters(self.store, self.worker, minute, counts)
            self.metrics.forget_before(minute)

    @property
    def reference(self) -> ReferenceLists:
        """Lists of the model in service as it was loaded; computed once per activation."""
        with self._reference_lock:
            served = self.deployment.served
            if self._reference.number != served.number:
                self._reference = compute_reference(served)
            return self._reference

    def status(self) -> dict[str, Any]:
        """Figures and checks of the last hour."""
        return describe_status(
            self.store,
            self.deployment,
            self.reference.lengths,
            None if self.tokens is None else self.tokens.problem,
        )

    def activate(self, name: str, number: int | None) -> None:
        """Serve another model, or the file of an earlier activation."""
        note, checksum = "by request", None
        if number is not None:
            earlier = find_activations(self.store, 1, model=name, number=number)
            if not earlier:
                raise RequestError(404, "not_found", "there is no such activation", "see GET /v1/model")
            note, checksum = f"back to activation {number}", earlier[0].checksum
        self.deployment.activate(name, note, checksum)

    def start_experiment(self, body: ExperimentBody) -> None:
        """Check what the arms name, then begin."""
        values = body.model_dump()
        arms = tuple(
            Arm(
                arm["name"],
                arm["share"],
                arm["model"],
                {name: value for name, value in arm["options"].items() if value is not None},
            )
            for arm in values.pop("arms")
        )
        for arm in arms:
            self.cutoffs.read(arm.options.get("cutoff", "auto"))
        experiment = LiveExperiment(arms=arms, **values).freeze(self.deployment)
        if experiment.window_days >= self.config.keep_lists_days:
            raise RequestError(
                422,
                "invalid_request",
                f"window_days must be below keep_lists_days, which is {self.config.keep_lists_days}",
                "use a shorter window, or keep lists longer",
            )
        self.experiments.start(experiment)

    def stop_experiment(self, name: str, ship: str | None) -> None:
        """End an experiment; with `ship`, everybody gets the lists of this arm from now on."""
        experiment = self.experiments.find(name)
        arms = {} if experiment is None else {arm.name: arm for arm in experiment.arms}
        if experiment is None or (ship is not None and ship not in arms):
            raise RequestError(
                404, "not_found", "there is no such experiment or arm", "see GET /v1/experiment"
            )
        if ship is not None:
            arm = arms[ship]
            if arm.options:
                raise RequestError(
                    422,
                    "invalid_request",
                    f"an arm with {', '.join(sorted(arm.options))} is no model that can be put into service",
                    "stop without ship, and activate a model with this cutoff",
                )
            version = arm.version or self.deployment.served.activation.version
            self.deployment.activate(version.model, f"arm {ship} of {name}", version.checksum)
        self.experiments.stop(name)

    def describe_experiment(self, name: str | None) -> dict[str, Any]:
        """An experiment with its comparison."""
        can_change = bool(self.config.token_file)
        if self.experiments.find(name) is None:
            if name is not None:
                raise RequestError(404, "not_found", "there is no such experiment", "see GET /v1/experiment")
            return {"name": None, "summary": "No experiment was started yet.", "can_change": can_change}
        return self.experiments.describe(name) | {"can_change": can_change}
