"""Micro-batches: requests that arrive while a batch is computed form the next batch.

A batch of users costs little more than one user, so the service answers more requests per second the more
of them wait, and a single request never waits for others to arrive.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

MAX_BATCH = 256  # requests

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class BatchRunner(Generic[Job, Answer]):
    """Runs jobs in one thread, as many at once as are waiting."""

    def __init__(self, run: Callable[[Sequence[Job]], Sequence[Answer | Exception]]) -> None:
        self._run = run
        self._waiting: list[tuple[Job, asyncio.Future[Answer]]] = []
        self._busy = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recommend")

    def submit(self, job: Job) -> "asyncio.Future[Answer]":
        """The answer to a job; must be called in the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((job, future))
        if not self._busy:
            self._start(loop)
        return future

    def close(self) -> None:
        """Finish the batch that is being computed."""
        self._thread.shutdown()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compute the next batch; requests that were canceled meanwhile are left out."""
        waiting = [one for one in self._waiting if not one[1].done()]
        batch, self._waiting = waiting[:MAX_BATCH], waiting[MAX_BATCH:]
        self._busy = bool(batch)
        if batch:
            computed = loop.run_in_executor(self._thread, self._compute, [job for job, _ in batch])
            computed.add_done_callback(lambda done: self._finish(loop, batch, done.result()))

    def _compute(self, jobs: list[Job]) -> "Sequence[Answer | Exception]":
        try:
            return self._run(jobs)
        except Exception as error:  # the callers must be answered
            return [error] * len(jobs)

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: "list[tuple[Job, asyncio.Future[Answer]]]",
        answers: "Sequence[Answer | Exception]",
    ) -> None:
        self._start(loop)  # the next batch first: answers are sent while it is computed
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
