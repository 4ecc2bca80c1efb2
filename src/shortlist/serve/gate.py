"""The outermost layer of the service: request ids, tokens, limits, security headers, errors and logs."""

import asyncio
import errno
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import orjson
from fastapi import Security
from fastapi.params import Security as SecurityParam
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.errors import (
    ConfigError,
    DataError,
    InfeasibleError,
    ModelFileError,
    ShortlistError,
    UnknownIdError,
)
from shortlist.serve.clock import random_id, write_log
from shortlist.serve.config import ServeConfig, is_loopback
from shortlist.serve.schemas import RequestError
from shortlist.serve.store import RowError, StoreError, StoreFullError
from shortlist.serve.tokens import Token, TokenFile, find_token

OPEN = "open"  # the scope of routes that need no token
BEARER = HTTPBearer(auto_error=False, description="A token of `shortlist service token`.")


def needs(scope: str) -> Any:
    """The dependency of a route that needs a token with this scope; the gate checks it before the body."""
    return Security(BEARER, scopes=[scope])


class RouteRule(NamedTuple):
    """What a route declares: its methods, its path and the scope that it needs."""

    route: APIRoute
    path: str  # without values, for the metrics
    scope: str
    content_types: tuple[str, ...]

    @classmethod
    def of(cls, route: APIRoute) -> "RouteRule":
        """Read the declaration of a route."""
        scopes = [
            scope
            for dependency in route.dependencies
            if isinstance(dependency, SecurityParam)
            for scope in dependency.scopes or ()
        ]
        lines = ("application/x-ndjson",) if "lines" in route.tags else ()
        return cls(route, route.path_format, scopes[0] if scopes else OPEN, ("application/json", *lines))


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
        self._open: deque[Deadline | DirectAnswer] = deque()
        self._is_watching = False

    def start(self) -> Deadline:
        """The deadline of a request that starts now."""
        return Deadline(self)

    def add(self, deadline: "Deadline | DirectAnswer") -> None:
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


SECURITY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
        b"data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
RETRY_SECONDS = b"2"
SECURITY_TEXT = b"".join(b"%b: %b\r\n" % header for header in SECURITY_HEADERS)
PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
HEAD = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n"
LATE_BODY = 408  # the status of a request that did not arrive
BODIES = 8  # of the largest size, that all requests in progress may have together
JSON_HEADER = (b"content-type", b"application/json")

Observe = Callable[[str, int, float], None]  # route, status, seconds
# from the body of a request, and who sent it, to the body of its answer and its name in the metrics, if that
# is not the path
Handler = Callable[[bytes, Receive, Any], Awaitable[tuple[bytes, str | None]]]
# takes the body of a request, who sent it, and what gets the result; False: the handler must answer it
Beginner = Callable[[bytes, Any, "DirectAnswer"], bool]


def error_body(error: str, rule: str, hint: str, rejected: list[dict[str, Any]] | None = None) -> bytes:
    """Every error has this form."""
    extra = {} if rejected is None else {"rejected": rejected}
    return orjson.dumps({"error": error, "rule": rule[:500], "hint": hint[:500], **extra})


def answer_error(error: BaseException) -> tuple[int, bytes]:
    """Status and body; details of the service are left out."""
    if isinstance(error, RequestError):
        return error.status, error_body(error.error, error.rule, error.hint, error.rejected)
    rule, _, hint = str(error).rpartition("; ") if "; " in str(error) else (str(error), "", "see /docs")
    if isinstance(error, StoreFullError):
        return 507, error_body("store_full", rule, hint)
    if isinstance(error, RowError):
        return 422, error_body("invalid_request", rule, hint)
    if isinstance(error, StoreError):
        return 503, error_body("store_unavailable", rule, hint)
    if isinstance(error, UnknownIdError):
        return 404, error_body("unknown_id", rule, hint)
    if isinstance(error, ModelFileError):
        return 409, error_body("model_refused", rule, hint)
    if isinstance(error, (DataError, ConfigError, InfeasibleError)):
        return 422, error_body("invalid_request", rule, hint)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return 507, error_body("disk_full", "a disk of the service is full", "free space and repeat it")
    if isinstance(error, TimeoutError):
        return 503, error_body("timeout", "the request took too long", "ask for fewer users or try again")
    return 500, error_body("internal_error", "the service failed", "see the log under the request id")


class AnswerSender:
    """Sends the answer to one request with the headers that every answer has; remembers the status."""

    def __init__(self, send: Send, extra: list[tuple[bytes, bytes]], *, has_body: bool) -> None:
        self._send, self._extra = send, extra
        self.has_body = has_body  # whether the whole request has arrived
        self.request_id = random_id()[:16]
        self.status = 500
        self.has_begun = False
        self.received = 0  # bytes of the request's body
        self.route: str | None = None

    async def __call__(self, message: Message) -> None:
        """Pass a message of the application on."""
        if message["type"] == "http.response.start":
            given = dict(message["headers"])
            headers = [*message["headers"], *(pair for pair in SECURITY_HEADERS if pair[0] not in given)]
            await self._start(message["status"], headers)
        else:
            await self._send(message)

    async def finish(self, status: int, body: bytes) -> None:
        """Send a whole answer."""
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [JSON_HEADER, length, *SECURITY_HEADERS])
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.has_begun, self.status = True, status
        headers += [(b"x-request-id", self.request_id.encode()), *self._extra]
        if status in (503, 507):
            headers.append((b"retry-after", RETRY_SECONDS))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


class Connection(Protocol):
    """The connection of a request that is answered without ASGI."""

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed it."""

    def send(self, head: bytes, body: bytes) -> None:
        """Send an answer; `head` lacks the empty line at its end."""


class CheckedRequest(NamedTuple):
    """What the headers of a request say that is answered without ASGI."""

    begin: Beginner
    route: str
    client: Any
    length: int  # of the body
    tokens: list[Token] | None  # that were valid when it was checked


class DirectAnswer:
    """Takes the result of one request and sends it at once; it is its own deadline."""

    __slots__ = ("_connection", "_gate", "_route", "_started", "ends", "is_over")
    ends: float  # time of the event loop

    def __init__(self, gate: "Gate", connection: Connection, route: str) -> None:
        self._gate, self._connection, self._route = gate, connection, route
        self._started = time.perf_counter()
        self.is_over = False

    def done(self) -> bool:
        """Whether the answer was sent, or is not needed any more."""
        return self.is_over or self._connection.is_gone

    def set_result(self, result: Any) -> None:
        """Send the answer."""
        self._send(200, result.body, None)

    def set_exception(self, exception: Exception) -> None:
        """Send an error."""
        self._send(*answer_error(exception), exception)

    def reach(self) -> None:
        """Send an error because the time is up."""
        if not self.done():
            self.set_exception(TimeoutError())

    def _send(self, status: int, body: bytes, problem: Exception | None) -> None:
        self.is_over = True
        request_id = random_id()[:16]
        head = HEAD % (status, PHRASES[status], len(body), request_id.encode())
        if status in (503, 507):
            head += b"retry-after: %b\r\n" % RETRY_SECONDS
        self._connection.send(head + SECURITY_TEXT, body)
        self._gate.note("POST", self._route, status, self._started, request_id, problem)


class Gate:
    """ASGI middleware around the whole application.

    Requests for the paths in `direct` are answered without the layers of the web framework, which take
    longer than a list; those that are small and complete even without ASGI (`begin`). They pass the same
    checks, and their errors have the same form.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServeConfig,
        routes: Sequence[APIRoute],
        tokens: TokenFile | None,
        observe: Observe,
        direct: Mapping[tuple[str, str], tuple[Handler, Beginner]],
        log: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._app, self._config, self._tokens = app, config, tokens
        self._observe, self._direct = observe, direct
        self._rules = [RouteRule.of(route) for route in routes]
        self._plain = {(m, rule.path): rule for rule in self._rules for m in rule.route.methods or ()}
        self._log = log or write_log
        self._deadlines = Deadlines(config.timeout)
        self._closing: list[tuple[bytes, bytes]] = []  # a header, while the process is about to end
        self._held = 0  # bytes of the bodies of all requests in progress
        self._hosts = {"localhost", "127.0.0.1", "::1", config.host} if is_loopback(config.host) else set()
        self._origins = {origin.strip() for origin in config.cors.split(",") if origin.strip()}

    def close_connections(self) -> None:
        """Close each connection after its next answer, so that its client opens one to another server."""
        self._closing = [(b"connection", b"close")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # web sockets are not offered
        started = time.perf_counter()
        headers = dict(scope["headers"])
        rule = self._find_rule(scope)
        extra = [*self._cors_headers(headers), *self._closing]
        answer = AnswerSender(send, extra, has_body=scope["method"] != "POST")
        problem: BaseException | None = None
        try:
            if scope["method"] == "OPTIONS" and self._is_allowed_origin(headers):
                await answer.finish(204, b"")
            else:
                self._check(scope, rule, headers)
                async with self._deadlines.start():
                    await self._answer(scope, headers, self._limited(receive, answer), answer)
        except Exception as error:  # turned into the one error form
            problem = _late_body() if isinstance(error, TimeoutError) and not answer.has_body else error
            if not answer.has_begun:
                await answer.finish(*answer_error(problem))
        self._held -= answer.received
        route = answer.route or ("other" if rule is None else rule.path)  # the real path may hold ids
        self.note(scope["method"], route, answer.status, started, answer.request_id, problem)

    def note(
        self,
        method: str,
        route: str,
        status: int,
        started: float,
        request_id: str,
        problem: BaseException | None,
    ) -> None:
        """Count an answered request; log it if it failed or took long."""
        if (route, status) == ("/ready", 503):
            return  # no failure: a server that is about to end says so to its proxy
        seconds = time.perf_counter() - started
        self._observe(route, status, seconds)
        if status >= 500 or (seconds > 1 and status != LATE_BODY):
            self._log(
                {
                    "level": "error" if status >= 500 else "warning",
                    "request_id": request_id,
                    "method": method,
                    "route": route,
                    "status": status,
                    "milliseconds": round(seconds * 1000, 1),
                    **({} if problem is None else {"problem": _problem(problem)}),
                }
            )

    def is_direct(self, scope: Scope) -> bool:
        """Whether `begin` may take a request."""
        return (scope["method"], scope["path"]) in self._direct

    def check(self, scope: Scope) -> CheckedRequest | None:
        """Check the headers of a request for `begin`; None if the application must be called.

        So it is if anything is unusual: the application finds it again and answers.
        """
        key, headers = (scope["method"], scope["path"]), dict(scope["headers"])
        if b"origin" in headers:
            return None
        rule, (_, begin) = self._plain[key], self._direct[key]
        try:
            self._check(scope, rule, headers)
        except RequestError:
            return None
        length = headers.get(b"content-length", b"")
        tokens = None if self._tokens is None else self._tokens.read()
        return CheckedRequest(begin, rule.path, _client(scope, headers), int(length or -1), tokens)

    def begin(self, request: CheckedRequest, body: bytes, connection: Connection) -> bool:
        """Begin to answer a complete request without ASGI; False if the application must be called."""
        if self._closing or (self._tokens is not None and self._tokens.read() is not request.tokens):
            return False
        answer = DirectAnswer(self, connection, request.route)
        try:
            if not request.begin(body, request.client, answer):
                return False
        except Exception:
            return False
        self._deadlines.add(answer)
        return True

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, answer: AnswerSender
    ) -> None:
        """Let the handler of the path answer, or the application."""
        handlers = self._direct.get((scope["method"], scope["path"]))
        if handlers is None:
            await self._app(scope, receive, answer)
        else:
            body = await _read_body(receive)
            content, answer.route = await handlers[0](body, receive, _client(scope, headers))
            await answer.finish(200, content)

    def _find_rule(self, scope: Scope) -> RouteRule | None:
        """The rule of a request; None if there is nothing at its path."""
        rule = self._plain.get((scope["method"], scope["path"]))
        return rule or next((r for r in self._rules if r.route.matches(scope)[0] is Match.FULL), None)

    def _check(self, scope: Scope, rule: RouteRule | None, headers: dict[bytes, bytes]) -> None:
        if rule is None:
            other = [r for r in self._rules if r.route.matches(scope)[0] is Match.PARTIAL]
            if other:
                methods = sorted({method for r in other for method in r.route.methods or ()})
                raise RequestError(
                    405, "method_not_allowed", f"this path accepts {', '.join(methods)}", "see /docs"
                )
            raise RequestError(404, "not_found", "there is nothing at this path", "see /docs")
        if scope["method"] == "POST":
            _check_content_type(rule.content_types, headers.get(b"content-type", b""))
            _check_length(headers.get(b"content-length", b""), self._config.max_body)
        if self._tokens is None:
            self._check_host(headers)
            if rule.scope == "admin":
                raise RequestError(
                    403,
                    "token_needed",
                    "changing the service needs a token with the scope admin",
                    "start the service with --token_file; `shortlist service token` creates one",
                )
        elif rule.scope != OPEN:
            self._check_token(self._tokens, headers.get(b"authorization", b""), rule.scope)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Without tokens only this machine is served, also if a web page points its name here."""
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]") not in self._hosts:
            raise RequestError(
                403, "host_refused", "the Host header must name this machine", "use 127.0.0.1 or localhost"
            )

    @staticmethod
    def _check_token(tokens: TokenFile, header: bytes, scope: str) -> None:
        kind, _, secret = header.decode("latin-1").partition(" ")
        token = find_token(tokens.read(), secret.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise RequestError(
                401, "token_needed", "a valid bearer token is needed", "send Authorization: Bearer …"
            )
        if scope not in token.scopes:
            raise RequestError(
                403, "scope_needed", f"this request needs the scope {scope}", "use a token that has it"
            )

    def _is_allowed_origin(self, headers: dict[bytes, bytes]) -> bool:
        return headers.get(b"origin", b"").decode("latin-1") in self._origins

    def _cors_headers(self, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        if not self._is_allowed_origin(headers):
            return []
        return [
            (b"access-control-allow-origin", headers[b"origin"]),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"vary", b"origin"),
        ]

    def _limited(self, receive: Receive, answer: AnswerSender) -> Receive:
        """Count the bytes of a body while they arrive; they are held until the request is answered."""
        limit = self._config.max_body

        async def limited() -> Message:
            message = await receive()
            size = len(message.get("body", b""))
            answer.received += size
            answer.has_body = not message.get("more_body", False)
            self._held += size
            if answer.received > limit:
                raise _too_large(limit)
            if self._held > BODIES * limit:
                raise RequestError(
                    503, "overloaded", "too many large requests are in progress", "repeat it in a few seconds"
                )
            return message

        return limited


def _client(scope: Scope, headers: dict[bytes, bytes]) -> Any:
    """Who sent a request: the token or, without tokens, the address."""
    return headers.get(b"authorization") or (scope.get("client") or ("",))[0]


def _check_content_type(allowed: Sequence[str], header: bytes) -> None:
    if header.split(b";", 1)[0].strip().lower().decode("latin-1") not in allowed:
        raise RequestError(
            415, "content_type", "the body must be JSON", f"send Content-Type: {' or '.join(allowed)}"
        )


def _check_length(header: bytes, limit: int) -> None:
    if header and (not header.isdigit() or int(header) > limit):
        raise _too_large(limit)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        413, "too_large", f"a request body may have {limit:,} bytes", "send several smaller requests"
    )


def _problem(error: BaseException) -> str:
    """What failed, for the log: no sentence about the request, which may hold ids."""
    if isinstance(error, StoreError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, RequestError):
        return f"{type(error).__name__}: {error.error}"
    if isinstance(error, ShortlistError):
        return type(error).__name__
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" in {frame.tb_frame.f_code.co_qualname}, line {frame.tb_lineno}"
    return f"{type(error).__name__}{place}"


async def _read_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    message = await receive()
    parts = [message.get("body", b"")]
    while message.get("more_body", False):
        message = await receive()
        parts.append(message.get("body", b""))
    if message["type"] == "http.disconnect":
        raise disconnected()
    return b"".join(parts)


def _late_body() -> RequestError:
    """The error of a request whose body does not arrive: no failure of the service."""
    return RequestError(
        LATE_BODY, "timeout", "the body of the request did not arrive in time", "send it again"
    )


def disconnected() -> RequestError:
    """The error of a request whose caller hung up before its end."""
    return RequestError(LATE_BODY, "disconnected", "the body of the request is incomplete", "send it again")
