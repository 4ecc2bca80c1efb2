"""Computes the lists of many requests at once and turns them into JSON."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import orjson
import polars as pl

from shortlist.cutoff.base import Cutoff
from shortlist.data.ids import IdMap
from shortlist.data.lists import REASON_TEXT, REASONS, RankedLists
from shortlist.serve.deployment import Served
from shortlist.serve.store import ListRow

SMALL_USERS = 4
NO_KNOWN_ITEM = "the session has no item that the model knows"

Reasons = dict[Any, tuple[float | None, list[Any]]]  # probability and contributions by item id


@dataclass(slots=True)
class ListJob:
    """One request for lists, with ids in the type of the model."""

    served: Served
    users: tuple[Any, ...] | None
    history: dict[str, list[Any]] | None
    candidates: list[Any] | None
    exclude: list[Any] | None
    N: int | None
    min_items: int
    max_items: int | None
    cutoff: Cutoff | Literal["auto", "boundary"]
    at: str | None
    withheld: int = 0
    explain: bool = False
    notes: tuple[str, ...] = ()
    log_share: float = 1.0  # of the lists that are logged

    @property
    def is_mergeable(self) -> bool:
        """Whether the lists can be computed together with those of other requests."""
        return self.history is None and self.candidates is None and self.exclude is None and not self.explain

    @property
    def is_small(self) -> bool:
        """Whether it asks for little, as most requests do."""
        return self.is_mergeable and len(self.users or ()) <= SMALL_USERS and not self.withheld

    @property
    def options(self) -> tuple[Any, ...]:
        """Requests with equal options can be computed together."""
        return (
            id(self.served),
            self.N,
            self.min_items,
            self.max_items,
            id(self.cutoff),
            self.at,
            self.withheld,
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
        groups.setdefault(job.options if job.is_mergeable else number, []).append(number)
    answers: dict[int, ListResult | Exception] = {}
    for numbers in groups.values():
        group = [jobs[number] for number in numbers]
        try:
            found: Sequence[ListResult | Exception] = _answer_group(group)
        except Exception as error:  # only the requests of this group fail
            found = [error] * len(group)
        answers.update(zip(numbers, found, strict=True))
    return [answers[number] for number in range(len(jobs))]


def _answer_group(jobs: Sequence[ListJob]) -> list[ListResult]:
    first = jobs[0]
    request: dict[str, Any] = {
        "candidates": first.candidates,
        "exclude": first.exclude,
        "history": first.history,
        "at": first.at,
        "n_threads": 1,
    }
    users = None if first.users is None else list(dict.fromkeys(u for job in jobs for u in job.users or ()))
    lists = first.served.model.recommend(
        users,
        **request,
        N=first.N,
        cutoff=first.cutoff,
        min_items=first.min_items,
        max_items=first.max_items,
    )
    longer = None
    if first.withheld:
        depth = int(lists.lengths.max(initial=0)) + first.withheld
        longer = first.served.model.recommend(users, **request, N=depth)
    reasons = _reasons(first, lists) if first.explain else None
    rows = _Rows(lists)
    more = None if longer is None else _Rows(longer)
    number_of = {user: number for number, user in enumerate(lists.users.values.to_list())}
    return [_answer(job, rows, more, number_of, reasons) for job in jobs]


class _Rows:
    """Lists in plain Python values, which are faster to read one by one than arrays."""

    def __init__(self, lists: RankedLists) -> None:
        self.ids, self.id_texts = _plain_ids(lists.item_ids)
        self.names = (
            None
            if lists.item_names is None
            else lists.item_names.gather(pl.Series(lists.items.astype("u4"))).to_list()
        )
        self.starts = lists.indptr.tolist()
        self.items = lists.items.tolist()
        self.scores = lists.scores.tolist()
        self.probabilities = None if lists.probabilities is None else lists.probabilities.tolist()
        self.reasons = None if lists.reason is None else [REASONS[code] for code in lists.reason.tolist()]
        self.boundaries = None if lists.boundary is None else lists.boundary.tolist()

    def between(self, start: int, end: int) -> list[dict[str, Any]]:
        """The items at positions start … end − 1 of all lists."""
        ids, names, probabilities = self.ids, self.names, self.probabilities
        return [
            {
                "item_id": ids[self.items[at]],
                "name": None if names is None else names[at],
                "score": self.scores[at],
                "probability": None if probabilities is None else probabilities[at],
            }
            for at in range(start, end)
        ]

    def log_items(self, start: int, end: int) -> tuple[str, str | None]:
        """Item ids and probabilities of a list as JSON, for the log."""
        texts = self.id_texts
        items = orjson.dumps([texts[item] for item in self.items[start:end]]).decode()
        if self.probabilities is None:
            return items, None if end > start else "[]"
        return items, orjson.dumps(self.probabilities[start:end]).decode()


_LAST_IDS: list[tuple[IdMap, list[Any], list[str]]] = []  # of the latest request; the same for almost all


def _plain_ids(ids: IdMap) -> tuple[list[Any], list[str]]:
    """The ids as a Python list, and as texts."""
    for known, plain, texts in _LAST_IDS:
        if known is ids:
            return plain, texts
    plain = ids.values.to_list()
    texts = plain if ids.kind == "string" else [str(one) for one in plain]
    _LAST_IDS[:] = [(ids, plain, texts)]
    return plain, texts


def _answer(
    job: ListJob, lists: _Rows, longer: _Rows | None, number_of: dict[Any, int], reasons: Reasons | None
) -> ListResult:
    """The part of the lists that one request needs."""
    wanted = list(number_of) if job.users is None else job.users
    made, cutoff_name = time.time(), _cutoff_name(job)
    list_ids = secrets.token_hex(12 * len(wanted))
    found, log, lengths, unknown = [], [], [], 0
    for place, user in enumerate(wanted):
        number = number_of[user]
        start, end = lists.starts[number], lists.starts[number + 1]
        rows = lists.between(start, end)
        reason = None if lists.reasons is None else lists.reasons[number]
        boundary = None if lists.boundaries is None else lists.boundaries[number]
        one: dict[str, Any] = {
            "user_id": user,
            "items": rows,
            "reason": reason,
            "explanation": _explanation(reason, None if job.history is None else job.history[user]),
            "boundary": boundary if boundary == boundary else None,  # NaN: none
            "list_id": list_ids[24 * place : 24 * place + 24],
        }
        if longer is not None:
            one["withheld"] = _withheld(longer, number, rows, job.withheld)
        if reasons is not None:
            for row in (*rows, *one.get("withheld", ())):
                probability, row["contributions"] = reasons.get(row["item_id"], (None, []))
                if row["probability"] is None:
                    row["probability"] = probability
        found.append(one)
        unknown += reason == "unknown_user"
        lengths.append(end - start)
        log.append(
            ListRow(
                one["list_id"],
                None if job.history is not None else str(user),
                job.served.name,
                cutoff_name,
                made,
                *lists.log_items(start, end),
                reason,
                job.log_share,
            )
        )
    body = orjson.dumps({"lists": found, "model": job.served.name, "cutoff": cutoff_name, "notes": job.notes})
    return ListResult(body, log, lengths, unknown)


def _explanation(reason: str | None, session: list[Any] | None) -> str | None:
    """The reason of a list in words; a session has no user who could be unknown."""
    if reason == "unknown_user" and session is not None:
        return NO_KNOWN_ITEM
    return REASON_TEXT.get(reason or "")


def _withheld(longer: _Rows, number: int, shown: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    """The next n candidates after the end of a list."""
    first = longer.starts[number]
    last = min(longer.starts[number + 1], first + len(shown) + n)
    ids = {row["item_id"] for row in shown}
    return [row for row in longer.between(first, last) if row["item_id"] not in ids][:n]


def _cutoff_name(job: ListJob) -> str:
    if job.N is not None:
        return "N"
    if isinstance(job.cutoff, Cutoff):
        return type(job.cutoff).__name__
    return job.served.cutoff_name if job.cutoff == "auto" else job.cutoff


def _reasons(job: ListJob, lists: RankedLists) -> Reasons:
    """Probability and sources of the score of each candidate, for a request with one user."""
    if lists.reason_of(0) == "unknown_user":
        return {}
    table = job.served.model.explain(
        lists.users.values[0],
        N=max(int(lists.lengths[0]) + job.withheld, 1),
        candidates=job.candidates,
        exclude=job.exclude,
        history=job.history,
        at=job.at,
    )
    return {
        item: (probability, [] if parts is None else [tuple(part.values()) for part in parts])
        for item, probability, parts in table.select("item_id", "probability", "contributions").iter_rows()
    }


MAX_BATCH = 256  # requests
QUICK_SECONDS = 0.02
WAIT_SECONDS = 0.0005  # for the other clients of a large batch, which are about to send their next requests

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class BatchRunner(Generic[Job, Answer]):
    """Runs jobs one batch at a time, as many at once as are waiting; `is_small` tells common jobs apart."""

    def __init__(
        self,
        run: Callable[[Sequence[Job]], Sequence[Answer | Exception]],
        is_small: Callable[[Job], bool],
    ) -> None:
        self._run, self._is_small = run, is_small
        self._waiting: list[tuple[Job, asyncio.Future[Answer]]] = []
        self._busy = False  # a batch is being computed or about to be
        self._last_size = 0  # of the latest batch
        self._seconds: float | None = None  # that recent batches took
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recommend")

    def submit(self, job: Job) -> "asyncio.Future[Answer]":
        """The answer to a job; must be called in the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((job, future))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start, loop)  # after the other requests that have just arrived
        return future

    def close(self) -> None:
        """Finish the batch that is being computed."""
        self._thread.shutdown()

    def _start(self, loop: asyncio.AbstractEventLoop, *, may_wait: bool = True) -> None:
        """Compute the next batch; requests that were canceled meanwhile are left out."""
        if may_wait and 0 < 2 * len(self._waiting) < self._last_size:
            loop.call_later(WAIT_SECONDS, partial(self._start, loop, may_wait=False))
            return
        waiting = [one for one in self._waiting if not one[1].done()]
        batch, self._waiting = waiting[:MAX_BATCH], waiting[MAX_BATCH:]
        self._busy = bool(batch)
        if not batch:
            return
        self._last_size = len(batch)
        jobs = [job for job, _ in batch]
        if self._seconds is not None and self._seconds < QUICK_SECONDS and all(map(self._is_small, jobs)):
            loop.call_soon(self._start, loop)
            self._finish(batch, self._compute(jobs))
        else:
            computed = loop.run_in_executor(self._thread, self._compute, jobs)
            computed.add_done_callback(lambda done: self._continue(loop, batch, done.result()))

    def _compute(self, jobs: list[Job]) -> "Sequence[Answer | Exception]":
        started = time.perf_counter()
        try:
            return self._run(jobs)
        except Exception as error:  # the callers must be answered
            return [error] * len(jobs)
        finally:
            took = time.perf_counter() - started
            usual = took if self._seconds is None else 0.8 * self._seconds + 0.2 * took
            self._seconds = max(took, usual)

    def _continue(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: "list[tuple[Job, asyncio.Future[Answer]]]",
        answers: "Sequence[Answer | Exception]",
    ) -> None:
        self._start(loop)  # the next batch first: answers are sent while it is computed
        self._finish(batch, answers)

    @staticmethod
    def _finish(
        batch: "list[tuple[Job, asyncio.Future[Answer]]]", answers: "Sequence[Answer | Exception]"
    ) -> None:
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
