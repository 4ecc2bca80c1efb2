"""Connections that send nothing, too little or too much, or that take no answer, are closed."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0  # until a request has begun and its headers have arrived
HEADER_BYTES = 64 << 10
IDLE_SECONDS = 30  # between an answer and the next request
UNREAD_SECONDS = 60.0  # in which a client must have taken all that was sent to it
UNREAD_BYTES = 256 << 20  # of answers that clients have not taken yet
LARGE_ANSWER = 1 << 20
READ_SECONDS = 0.01  # until what a new connection has sent is read, before it may have to make room


class GuardedProtocol(HttpToolsProtocol):
    """The HTTP of uvicorn, which limits neither connections nor the time and size of headers.

    It only closes connections. The application limits the time and size of bodies.
    """

    max_connections = 800

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, another one is closed."""
        super().connection_made(transport)
        self._header_bytes = 0  # since the last body or the end of the last request
        self._is_between = self._was_used = False  # between two requests; a request was answered
        self._since = self._taken = self.loop.time()  # the client's turn; when all answers had been taken
        self._look()
        if len(self.connections) > self.max_connections:
            self.loop.call_later(READ_SECONDS, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on, unless the headers are too long."""
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > HEADER_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        super().on_message_begin()
        self._since, self._is_between = self.loop.time(), False

    def on_headers_complete(self) -> None:
        """What comes later are trailers, which the application does not see."""
        super().on_headers_complete()
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """What arrived does not belong to headers."""
        super().on_body(body)
        self._header_bytes = 0

    def on_message_complete(self) -> None:
        """The request has arrived."""
        super().on_message_complete()
        self._header_bytes, self._is_between = 0, True

    def on_response_complete(self) -> None:
        """It is the client's turn."""
        self._since, self._was_used = self.loop.time(), True
        super().on_response_complete()
        if self.transport.get_write_buffer_size() > LARGE_ANSWER:
            self._make_room()

    def _make_room(self) -> None:
        """Close a waiting connection if there are too many, and those with the oldest of too many answers."""
        all_connections: Any = self.connections
        connections = sorted(all_connections, key=lambda each: (each._was_used, each._since))
        if len(connections) > self.max_connections:
            waiting = (each for each in connections if each._is_free or each.cycle.more_body)
            next(waiting, self).transport.abort()
        unread = [(each, each.transport.get_write_buffer_size()) for each in connections]
        too_many = sum(size for _, size in unread) - UNREAD_BYTES
        for each, size in unread:
            if size and too_many > 0:
                too_many -= size
                each.transport.abort()

    @property
    def _is_free(self) -> bool:
        """Whether the service owes no answer."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _look(self) -> None:
        """Close the connection if what is awaited does not arrive or is not taken in time; look again."""
        now, awaited = self.loop.time(), IDLE_SECONDS if self._is_between else HEADER_SECONDS
        if self.transport.get_write_buffer_size():
            is_late = now - self._taken > UNREAD_SECONDS
        else:
            self._taken = now
            is_late = self._is_free and now - self._since > awaited
        if is_late:
            self.transport.abort()
        self._timer = self.loop.call_later(min(HEADER_SECONDS, UNREAD_SECONDS) / 4, self._look)
