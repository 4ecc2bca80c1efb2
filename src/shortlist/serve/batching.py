"""Micro-batches: requests that arrive while a batch is computed form the next batch.

A batch of users costs little more than one user, so the service answers more requests per second the more
of them wait. A request waits for others only if the batch before it was more than twice as large, and only
for a fraction of a millisecond. Batches that take long are computed in
a thread. Quick ones are computed in the event loop: two threads that need the interpreter at the same time
wait for each other for longer than a quick batch takes.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

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
