"""Time limits of requests, watched by one timer: one timer for each request would cost more than a list."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self


class Deadline:
    """An asynchronous context that raises TimeoutError when its time is up."""

    __slots__ = ("_owner", "_task", "ends", "is_over", "is_reached")
    _task: asyncio.Task[object]
    ends: float  # time of the event loop

    def __init__(self, owner: "Deadlines") -> None:
        self._owner = owner
        self.is_over = self.is_reached = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._owner.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over = True
        if self.is_reached and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def reach(self) -> None:
        """Cancel what runs in the context."""
        self.is_reached = True
        self._task.cancel()


class Deadlines:
    """Deadlines with the same number of seconds, which are therefore reached in the order of their start."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: deque[Deadline] = deque()
        self._is_watching = False

    def start(self) -> Deadline:
        """The deadline of a request that starts now."""
        return Deadline(self)

    def add(self, deadline: Deadline) -> None:
        """Watch a deadline; must be called in the event loop."""
        loop = asyncio.get_running_loop()
        deadline.ends = loop.time() + self._seconds
        self._open.append(deadline)
        if not self._is_watching:
            self._is_watching = True
            self._wait(loop)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(min(self._seconds / 4, 0.5), self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drop requests that have ended, from the oldest on; end those whose time is up."""
        now = loop.time()
        while self._open and (self._open[0].is_over or self._open[0].ends <= now):
            oldest = self._open.popleft()
            if not oldest.is_over:
                oldest.reach()
        self._is_watching = bool(self._open)
        if self._is_watching:
            self._wait(loop)
