"""Lists over HTTP: requests checked, computed in batches, and answered as JSON."""

import asyncio
import random
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import accumulate
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.data.ids import IdMap
from shortlist.data.lists import REASON_TEXT, REASONS, RankedLists
from shortlist.recommend.request import CutoffChoice, RequestOptions
from shortlist.serve.clock import now, timed_id
from shortlist.serve.config import ServeConfig
from shortlist.serve.deployment import ServedModel
from shortlist.serve.schemas import RecommendBody, RequestError, parse_ids
from shortlist.serve.store import ListRow

OPTIONS = tuple(option.name for option in fields(RequestOptions) if option.name != "n_threads")
SMALL_USERS = 4
MAX_TEXTS = 100_000  # items whose JSON is kept
MAX_SETTINGS = 1_000  # of requests that are kept
USUAL_ITEMS = 100  # of a list whose length nothing limits, to estimate its work
NO_KNOWN_ITEM = "the session has no item that the model knows"

Explained = dict[Any, list[Any]]  # contributions by item id


@dataclass(slots=True, eq=False, kw_only=True)
class ListSettings:
    """What a request asks for, apart from the users."""

    served: ServedModel
    options: RequestOptions
    withheld: int
    explain: bool
    notes: tuple[str, ...]
    log_share: float  # of the lists that are logged
    max_length: int | None  # where the limit of the service ends a list that nothing else limits
    arm: str | None = None  # "experiment/arm"

    is_mergeable: bool = field(init=False)  # whether requests can be computed together
    group: tuple[Any, ...] = field(init=False)  # equal for those that are
    model_name: str = field(init=False)
    cutoff_name: str = field(init=False)
    answer_end: bytes = field(init=False)  # what is the same in every answer

    def __post_init__(self) -> None:
        options, served = self.options, self.served
        is_plain = options.history is None and options.candidates is None and options.exclude is None
        self.is_mergeable = is_plain and not self.explain
        rest = (getattr(options, name) for name in OPTIONS if name not in ("cutoff", "max_per_group"))
        by_id = id(served), id(options.cutoff), str(options.max_per_group)
        self.group = (*by_id, self.withheld, self.max_length, *rest)
        self.model_name, self.cutoff_name = served.name, _cutoff_name(served, options)
        notes = {"model": self.model_name, "cutoff": self.cutoff_name, "notes": self.notes}
        self.answer_end = orjson.dumps(notes)[1:]


class ListJob(NamedTuple):
    """One request for lists, with ids in the type of the model."""

    users: tuple[Any, ...] | None  # None: those of the history in the settings
    settings: ListSettings

    @property
    def n_lists(self) -> int:
        """How many lists it asks for."""
        return len(self.settings.options.history if self.users is None else self.users)

    @property
    def is_small(self) -> bool:
        """Whether it asks for little, as most requests do."""
        return self.settings.is_mergeable and self.n_lists <= SMALL_USERS and not self.settings.withheld

    @property
    def work(self) -> int:
        """About how many items it asks for."""
        limit = _shortest(self.settings.options.limit, self.settings.max_length)
        return self.n_lists * ((USUAL_ITEMS if limit is None else limit) + self.settings.withheld)


def _shortest(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def build_job(
    body: RecommendBody,
    served: ServedModel,
    cutoff: CutoffChoice,
    config: ServeConfig,
    *,
    arm: str | None = None,
) -> ListJob:
    """Check a request against the model in service."""
    if (body.users is None) == (body.history is None):
        raise RequestError(
            422,
            "invalid_request",
            "pass either users or history",
            "use history for people the model does not know",
        )
    n_lists = len(body.users if body.users is not None else body.history or ())
    if body.explain and n_lists != 1:
        raise RequestError(422, "invalid_request", "explain works for one user", "send one request per user")
    check_count(n_lists, config.max_users, "users")
    model, notes = served.model, list[str]()

    def parse_items(ids: list[Any] | None, name: str) -> list[Any] | None:
        if ids is None:
            return None
        check_count(len(ids), config.max_candidates, name)
        return _keep_known(parse_ids(ids, model.items_, name), model.items_, name, notes)

    options: dict[str, Any] = {
        **{name: getattr(body, name) for name in OPTIONS},
        "cutoff": "auto" if body.N is not None else cutoff,
        "history": body.history
        and {key: parse_items(items, "history") for key, items in body.history.items()},
        "candidates": parse_items(body.candidates, "candidates"),
        "exclude": parse_items(body.exclude, "exclude"),
    }
    max_length = _bound_length(body, n_lists, config.max_items, len(model.items_))
    if max_length is not None:
        options["max_items"] = max_length + 1  # so that it shows if there are more
    settings = ListSettings(
        served=served,
        options=RequestOptions(**options, n_threads=1),
        withheld=body.withheld,
        explain=body.explain,
        notes=tuple(notes),
        log_share=config.log_share,
        max_length=max_length,
        arm=arm,
    )
    users = None if body.users is None else tuple(parse_ids(body.users, model.users_, "users"))
    return ListJob(users, settings)


def _bound_length(body: RecommendBody, n_lists: int, max_items: int, n_items: int) -> int | None:
    """Refuse a request for more items than one answer may have; the limit of one that has none itself."""
    limit = _shortest(body.N, body.max_items)
    most = max_items // max(n_lists, 1) - body.withheld
    if max(limit or 0, body.min_items) > most or most < 1:
        raise _too_many_items(max_items)
    return most if limit is None and most < n_items else None


class CheckedSettings:
    """The settings of requests for one known user, by what they ask for: most requests ask for the same."""

    def __init__(self) -> None:
        self._served: ServedModel | None = None
        self._settings: dict[bytes, ListSettings] = {}

    def find(self, content: bytes, served: ServedModel) -> ListJob | None:
        """The job of a request like one that was checked before; None if there was none."""
        if served is not self._served:
            self._served, self._settings = served, {}
        text, user = _split_user(content)
        settings, users = self._settings.get(text), served.model.users_
        is_known = type(user) is (str if users.kind == "string" else int) and user in users
        return ListJob((user,), settings) if settings is not None and is_known else None

    def keep(self, content: bytes, job: ListJob) -> None:
        """Remember the settings of a request that was checked, if it is for one user."""
        settings, is_for_one = job.settings, job.is_small and job.n_lists == 1
        can_change = settings.options.cutoff not in ("auto", "boundary")
        if is_for_one and not can_change and settings.served is self._served:
            if len(self._settings) >= MAX_SETTINGS:
                self._settings.clear()
            self._settings[_split_user(content)[0]] = settings


def _split_user(content: bytes) -> tuple[bytes, Any]:
    """What a request for lists asks for, as a text, and its only user; an empty text if it has no such."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return b"", None
    users = body.pop("users", None) if type(body) is dict else None
    return (orjson.dumps(body), users[0]) if type(users) is list and len(users) == 1 else (b"", None)


def _too_many_items(max_items: int) -> RequestError:
    return RequestError(
        422,
        "too_many",
        f"users × items per list may be {max_items:,} in one request",
        "ask for fewer users, or pass a smaller max_items",
    )


def _keep_known(ids: list[Any], items: IdMap, name: str, notes: list[str]) -> list[Any]:
    """The ids that the model knows; the others are counted in a note."""
    positions, n = items.positions, len(items)  # the positions of a longer map may be among them
    kept = [item for item in ids if positions.get(item, n) < n]
    if len(kept) < len(ids):
        notes.append(f"{name}: {len(ids) - len(kept):,} of {len(ids):,} items are unknown and were ignored")
    return kept


def check_count(count: int, limit: int, name: str) -> None:
    """Raise RequestError if a request has too many entries of one kind."""
    if count > limit:
        raise RequestError(
            422, "too_many", f"{name} may have {limit:,} entries, got {count:,}", "send several requests"
        )


@dataclass(slots=True)
class ListResult:
    """The JSON of an answer, the rows of the log, and what the counters need."""

    body: bytes
    log: list[ListRow]
    lengths: list[int]
    unknown: int


def answer_jobs(jobs: Sequence[ListJob]) -> "list[ListResult | Exception]":
    """Answer many requests; those with equal options share one call of the model."""
    groups: dict[Any, list[int]] = {}
    for number, job in enumerate(jobs):
        settings = job.settings
        groups.setdefault(settings.group if settings.is_mergeable else number, []).append(number)
    answers: dict[int, ListResult | Exception] = {}
    for numbers in groups.values():
        group = [jobs[number] for number in numbers]
        try:
            results: Iterable[ListResult | Exception] = _answer_group(group)
        except Exception as error:  # only the requests of this group fail
            results = [error] * len(group)
        answers.update(zip(numbers, results, strict=True))
    return [answers[number] for number in range(len(jobs))]


def _answer_group(jobs: Sequence[ListJob]) -> list[ListResult]:
    users, first = jobs[0].users, jobs[0].settings
    every = None if users is None else list(dict.fromkeys(user for job in jobs for user in job.users or ()))
    plan = first.served.model.plan(every, first.options)
    lists = plan.lists()
    if first.max_length is not None and lists.lengths.max(initial=0) > first.max_length:
        raise _too_many_items(first.max_length * jobs[0].n_lists)
    explained = _explain(first, lists) if first.explain else None
    rows = _Rows(lists, explained)
    more = _Rows(plan.next_candidates(lists, first.withheld), explained) if first.withheld else None
    number_of = {user: number for number, user in enumerate(lists.users.values.to_list())}
    made = now()
    return [_answer(job, rows, more, number_of, made) for job in jobs]


class ItemTexts(dict[int, tuple[bytes, bytes]]):
    """What is the same in every list with an item, as JSON; written when it is first needed.

    The first text ends where the score begins, the second one is the id as a text, for the log.
    """

    def __init__(self, ids: IdMap, names: pl.Series | None) -> None:
        self.ids, self.names = ids, names

    def __missing__(self, item: int) -> tuple[bytes, bytes]:
        if len(self) >= MAX_TEXTS:
            self.clear()
        item_id = self.ids.values[item]
        start = orjson.dumps({"item_id": item_id, "name": None if self.names is None else self.names[item]})
        # copied: what orjson returns keeps a kilobyte
        texts = b',%b,"score":' % start[:-1], b"%b" % orjson.dumps(str(item_id))
        self[item] = texts
        return texts


_LAST_TEXTS: list[ItemTexts] = []  # of the latest request; the same for almost all


def _item_texts(lists: RankedLists) -> ItemTexts:
    """The texts of the items of these lists."""
    for texts in _LAST_TEXTS:
        if texts.ids is lists.item_ids and texts.names is lists.item_names:
            return texts
    _LAST_TEXTS[:] = [ItemTexts(lists.item_ids, lists.item_names)]
    return _LAST_TEXTS[0]


def _number_texts(values: npt.NDArray[np.floating] | None, n: int) -> list[bytes]:
    """Numbers as JSON; null for NaN, and for all of the n if there are none."""
    if values is None or n == 0:
        return [b"null"] * n
    return orjson.dumps(values.tolist())[1:-1].split(b",")


class _Rows:
    """Lists as pieces of JSON, written for all of them together."""

    def __init__(self, lists: RankedLists, explained: Explained | None = None) -> None:
        texts, n = _item_texts(lists), lists.items.size
        both = [texts[item] for item in lists.items.tolist()]
        self.starts = lists.indptr.tolist()
        self.ids = [item_id for _, item_id in both]
        self.probabilities = None if lists.probabilities is None else _number_texts(lists.probabilities, n)
        columns = [
            [start for start, _ in both],
            _number_texts(lists.scores, n),
            [b',"probability":'] * n,
            self.probabilities or [b"null"] * n,
        ]
        if explained is not None:
            ids = lists.item_ids.to_ids(lists.items).to_list()
            columns += [[b',"contributions":'] * n, [orjson.dumps(explained.get(i, [])) for i in ids]]
        columns.append([b"}"] * n)
        self._width = len(columns)
        self._pieces: list[bytes] = [b""] * (self._width * n)
        for at, column in enumerate(columns):
            self._pieces[at :: self._width] = column
        self.reasons = None if lists.reason is None else [REASONS[code] for code in lists.reason.tolist()]
        self.boundaries = _number_texts(lists.boundary, len(lists))

    def between(self, start: int, end: int) -> bytes:
        """The items at positions start … end − 1 of all lists."""
        return b"".join(self._pieces[self._width * start : self._width * end])[1:]

    def log_items(self, start: int, end: int) -> tuple[str, str | None]:
        """Item ids and probabilities of a list as JSON, for the log."""
        items, probabilities = (
            None if column is None else (b"[%b]" % b",".join(column[start:end])).decode()
            for column in (self.ids, self.probabilities)
        )
        return items or "[]", "[]" if start == end else probabilities


def _answer(
    job: ListJob, lists: _Rows, withheld: _Rows | None, number_of: dict[Any, int], made: float
) -> ListResult:
    """The lists that one request needs; those that are only explained are neither logged nor counted."""
    settings = job.settings
    arm, is_session = settings.arm, job.users is None
    share = 1.0 if arm else settings.log_share
    end = b"" if arm is None else b',"arm":%b' % orjson.dumps(arm)
    answers, result = [], ListResult(b"", [], [], 0)
    for user in number_of if job.users is None else job.users:
        number, list_id = number_of[user], timed_id(made)
        first, last = lists.starts[number], lists.starts[number + 1]
        reason, more = None if lists.reasons is None else lists.reasons[number], end
        if withheld is not None:
            items = withheld.between(withheld.starts[number], withheld.starts[number + 1])
            more += b',"withheld":[%b]' % items
        answers.append(
            b'{"user_id":%b,"items":[%b],%b,"boundary":%b,"list_id":"%b"%b}'
            % (
                orjson.dumps(user),
                lists.between(first, last),
                _reason_text(reason, is_session=is_session),
                lists.boundaries[number],
                list_id.encode(),
                more,
            )
        )
        if settings.explain:
            continue
        result.unknown += reason == "unknown_user"
        result.lengths.append(last - first)
        if share == 1 or random.random() < share:
            result.log.append(
                ListRow(
                    list_id,
                    None if is_session else str(user),
                    settings.model_name,
                    settings.cutoff_name,
                    made,
                    *lists.log_items(first, last),
                    reason,
                    share,
                    False,
                    arm,
                    _count_events(settings.served, user) if arm and not is_session else None,
                )
            )
    result.body = b'{"lists":[%b],%b' % (b",".join(answers), settings.answer_end)
    return result


@cache
def _reason_text(reason: str | None, *, is_session: bool) -> bytes:
    """The reason of a list as JSON, and in words; a session has no user who could be unknown."""
    words = NO_KNOWN_ITEM if is_session and reason == "unknown_user" else REASON_TEXT.get(reason or "")
    return orjson.dumps({"reason": reason, "explanation": words})[1:-1]


def _count_events(served: ServedModel, user: Any) -> int:
    """How many events of a user the model knows."""
    history = served.model._fitted_state().history
    place = history.users.positions.get(user, len(history.users))
    if place >= len(history.users):
        return 0
    n = int(np.diff(history.base.indptr[place : place + 2]).sum())
    for run in history.runs:
        at = int(np.searchsorted(run.users, place))
        if at < run.users.size and run.users[at] == place:
            n += int(run.starts[at + 1] - run.starts[at])
    return n


def join_answers(results: "Sequence[ListResult]", users: Sequence[Any]) -> bytes:
    """One answer from those of several arms, with the lists in the order of the request."""
    bodies = [orjson.loads(result.body) for result in results]
    lists = {str(answer["user_id"]): answer for body in bodies for answer in body["lists"]}
    cutoffs = list(dict.fromkeys(body["cutoff"] for body in bodies))
    models = list(dict.fromkeys(body["model"] for body in bodies))
    notes = list(dict.fromkeys(note for body in bodies for note in body["notes"]))
    ordered = [lists[str(user)] for user in users]
    return orjson.dumps(
        {"lists": ordered, "model": ", ".join(models), "cutoff": ", ".join(cutoffs), "notes": notes}
    )


def _cutoff_name(served: ServedModel, options: RequestOptions) -> str:
    if options.N is not None:
        return "N"
    if isinstance(options.cutoff, Cutoff):
        return type(options.cutoff).__name__
    return served.cutoff_name if options.cutoff == "auto" else str(options.cutoff)


def _explain(settings: ListSettings, lists: RankedLists) -> Explained:
    """The sources of the score of each candidate, for a request with one user."""
    user, model, options = lists.users.values[0], settings.served.model, settings.options
    if lists.reason_of(0) == "unknown_user" or (options.history is None and user not in model.users_):
        return {}
    wanted: Any = {name: getattr(options, name) for name in OPTIONS}
    table = model.explain(user, **wanted, n_withheld=settings.withheld)
    return {
        item: [] if sources is None else [tuple(source.values()) for source in sources]
        for item, sources in table.select("item_id", "contributions").iter_rows()
    }


MAX_BATCH = 256  # requests
BATCH_WORK = 20_000  # items of the large requests that are computed together
MAX_WAITING = 2_000_000  # items that requests in the queue may ask for
QUICK_SECONDS = 0.02
LONG_QUEUE = MAX_BATCH  # requests; from there on, those whose callers have gone are left out
WAIT_SECONDS = 0.0005  # for the other clients of a large batch, which are about to send their next requests

Job = TypeVar("Job")
Result = TypeVar("Result")


class Receiver(Protocol):
    """What takes the result of a job, as a future does."""

    def done(self) -> bool:
        """Whether there is a result, or none is needed any more."""

    def set_result(self, result: Any, /) -> None:
        """Take the result."""

    def set_exception(self, exception: Exception, /) -> None:
        """Take the error instead of a result."""


R = TypeVar("R", bound=Receiver)


class QueuedJob(NamedTuple, Generic[Job]):
    """A job that waits, who sent it, and what takes its result."""

    job: Job
    client: Any
    receiver: Receiver


class BatchRunner(Generic[Job, Result]):
    """Runs jobs one batch at a time, as many at once as are waiting.

    With `work_of`, which tells how large a job is, the work of a batch and of all jobs that wait is bounded,
    and every batch is computed in the thread. Without it, quick batches are computed in the event loop.

    A job is refused if those before it are likely to take `max_seconds`. If more are waiting than one batch
    takes, clients take turns. `note` gets the results of a batch that somebody still waited for.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Job]], Sequence[Result | Exception]],
        work_of: Callable[[Job], int] | None = None,
        max_seconds: float = float("inf"),
        note: Callable[[Sequence[Result]], None] = lambda _: None,
    ) -> None:
        self._run, self._work_of, self._max_seconds, self._note = run, work_of, max_seconds, note
        self._waiting: list[QueuedJob[Job]] = []
        self._work_seconds = 0.0  # that a unit of work took recently; a small job is one
        self._busy = False  # a batch is being computed or about to be
        self._last_size = 0  # of the latest batch
        self._seconds: float | None = None  # that recent batches took
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recommend")

    @property
    def has_long_queue(self) -> bool:
        """Whether a job waits for more than the next batch."""
        return len(self._waiting) >= LONG_QUEUE

    def submit(self, job: Job, client: Any = None) -> "asyncio.Future[Result]":
        """The result of a job; must be called in the event loop. RequestError if too much is waiting."""
        return self.queue(job, client, asyncio.get_running_loop().create_future())

    def queue(self, job: Job, client: Any, receiver: R) -> R:
        """Let `receiver` get the result of a job, as `submit` does."""
        work = len(self._waiting)
        if self._work_of is not None:
            waiting = [queued.job for queued in self._waiting if not queued.receiver.done()]
            work = sum(map(self._work_of, waiting))
            if work + self._work_of(job) > MAX_WAITING:
                raise _overloaded()
        if work * self._work_seconds > self._max_seconds:
            raise _overloaded()
        loop = asyncio.get_running_loop()
        self._waiting.append(QueuedJob(job, client, receiver))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start, loop)  # after the other requests that have just arrived
        return receiver

    def close(self) -> None:
        """Finish the batch that is being computed."""
        self._thread.shutdown()

    def _start(self, loop: asyncio.AbstractEventLoop, *, may_wait: bool = True) -> None:
        """Compute the next batch."""
        if may_wait and 0 < 2 * len(self._waiting) < self._last_size:
            loop.call_later(WAIT_SECONDS, partial(self._start, loop, may_wait=False))
            return
        batch = self._take_batch()
        self._busy = bool(batch)
        if not batch:
            return
        self._last_size = len(batch)
        jobs = [queued.job for queued in batch]
        if self._work_of is None and self._seconds is not None and self._seconds < QUICK_SECONDS:
            loop.call_soon(self._start, loop)
            self._finish(batch, self._compute(jobs))
        else:
            computed = loop.run_in_executor(self._thread, self._compute, jobs)
            computed.add_done_callback(lambda done: self._continue(loop, batch, done.result()))

    def _take_batch(self) -> "list[QueuedJob[Job]]":
        """Take the next batch from the queue; requests that were canceled meanwhile are left out."""
        waiting = [queued for queued in self._waiting if not queued.receiver.done()]
        size = min(len(waiting), MAX_BATCH)
        if self._work_of is not None or size < len(waiting):
            waiting = _take_turns(waiting)
        if self._work_of is not None:
            work = list(accumulate(self._work_of(queued.job) for queued in waiting[:size]))
            size = min(size, max(bisect_right(work, BATCH_WORK), 1))
        self._waiting = waiting[size:]
        return waiting[:size]

    def _compute(self, jobs: list[Job]) -> "Sequence[Result | Exception]":
        started = time.perf_counter()
        try:
            return self._run(jobs)
        except Exception as error:  # the callers must be answered
            return [error] * len(jobs)
        finally:
            took = time.perf_counter() - started
            usual = took if self._seconds is None else 0.8 * self._seconds + 0.2 * took
            self._seconds = max(took, usual)
            work = len(jobs) if self._work_of is None else sum(map(self._work_of, jobs))
            slower = took / max(work, 1) - self._work_seconds
            self._work_seconds += slower if slower < 0 else 0.2 * slower  # one slow batch says little

    def _continue(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: "list[QueuedJob[Job]]",
        results: "Sequence[Result | Exception]",
    ) -> None:
        self._start(loop)  # the next batch first: answers are sent while it is computed
        self._finish(batch, results)

    def _finish(self, batch: "list[QueuedJob[Job]]", results: "Sequence[Result | Exception]") -> None:
        taken = []
        for (_, _, receiver), result in zip(batch, results, strict=True):
            if receiver.done():
                continue
            if isinstance(result, Exception):
                receiver.set_exception(result)
            else:
                receiver.set_result(result)
                taken.append(result)
        if taken:
            self._note(taken)


def _take_turns(waiting: "list[QueuedJob[Job]]") -> "list[QueuedJob[Job]]":
    """The first job of each client, then the second of each, and so on; otherwise in the order of arrival."""
    turns: Counter[Any] = Counter()
    order = []
    for place, queued in enumerate(waiting):
        order.append((turns[queued.client], place))
        turns[queued.client] += 1
    return [waiting[place] for _, place in sorted(order)]


def _overloaded() -> RequestError:
    return RequestError(503, "overloaded", "too many requests are waiting", "repeat it in a few seconds")
