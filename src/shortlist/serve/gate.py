"""The outermost layer of the service: request ids, tokens, limits, security headers, errors and logs."""

import asyncio
import secrets
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.errors import (
    ConfigError,
    DataError,
    InfeasibleError,
    ModelFileError,
    ShortlistError,
    UnknownIdError,
)
from shortlist.serve.config import ServeConfig, is_loopback
from shortlist.serve.store import StoreError, StoreFullError
from shortlist.serve.tokens import Token, find_token

OPEN = "open"  # routes that need no token


@dataclass(frozen=True)
class Rule:
    """Which scope a path needs."""

    method: str
    prefix: str
    scope: str
    exact: bool = True

    def matches(self, method: str, path: str) -> bool:
        """Whether the rule is about this request."""
        return self.method == method and (path == self.prefix if self.exact else path.startswith(self.prefix))


RULES = (
    Rule("POST", "/v1/recommend", "read"),
    Rule("POST", "/v1/cut", "read"),
    Rule("POST", "/v1/cut/fit", "admin"),
    Rule("POST", "/v1/events", "events"),
    Rule("GET", "/v1/users", "read"),
    Rule("GET", "/v1/users/", "read", exact=False),
    Rule("GET", "/v1/items/", "read", exact=False),
    Rule("GET", "/v1/model", "read"),
    Rule("POST", "/v1/model", "admin"),
    Rule("GET", "/v1/status", "read"),
    Rule("GET", "/v1/tradeoff", "read"),
    Rule("POST", "/v1/tradeoff", "admin"),
    Rule("GET", "/metrics", "read"),
    Rule("GET", "/health", OPEN),
    Rule("GET", "/ready", OPEN),
    Rule("GET", "/", OPEN),
    Rule("GET", "/page/", OPEN, exact=False),
    Rule("GET", "/docs", OPEN),
    Rule("GET", "/openapi.json", OPEN),
)
EXACT = {(rule.method, rule.prefix): rule for rule in RULES if rule.exact}
PREFIXES = tuple(rule for rule in RULES if not rule.exact)


def find_rule(method: str, path: str) -> Rule | None:
    """The rule of a request; None if there is nothing at its path."""
    method = "GET" if method == "HEAD" else method
    found = EXACT.get((method, path))
    return found or next((rule for rule in PREFIXES if rule.matches(method, path)), None)


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
JSON_HEADER = (b"content-type", b"application/json")

Observe = Callable[[str, int, float], None]  # route, status, seconds


class Answered(NamedTuple):
    """The body of an answer; `route` is its name in the metrics, if that is not the path."""

    body: bytes
    route: str | None = None


Handler = Callable[[bytes], Awaitable[Answered]]  # from the body of a request to its answer


class RequestError(ShortlistError, ValueError):
    """A request that is refused with a status, a rule and a hint."""

    def __init__(self, status: int, error: str, rule: str, hint: str) -> None:
        super().__init__(rule)
        self.status, self.error, self.rule, self.hint = status, error, rule, hint


def error_body(error: str, rule: str, hint: str) -> bytes:
    """Every error has this form."""
    return orjson.dumps({"error": error, "rule": rule[:500], "hint": hint[:500]})


def describe_error(error: BaseException) -> tuple[int, bytes]:
    """Status and body; details of the service are left out."""
    if isinstance(error, RequestError):
        return error.status, error_body(error.error, error.rule, error.hint)
    rule, _, hint = str(error).rpartition("; ") if "; " in str(error) else (str(error), "", "see /docs")
    if isinstance(error, StoreFullError):
        return 507, error_body("store_full", rule, hint)
    if isinstance(error, StoreError):
        return 503, error_body("store_unavailable", rule, hint)
    if isinstance(error, UnknownIdError):
        return 404, error_body("unknown_id", rule, hint)
    if isinstance(error, ModelFileError):
        return 409, error_body("model_refused", rule, hint)
    if isinstance(error, (DataError, ConfigError, InfeasibleError)):
        return 422, error_body("invalid_request", rule, hint)
    if isinstance(error, TimeoutError):
        return 503, error_body("timeout", "the request took too long", "ask for fewer users or try again")
    return 500, error_body("internal_error", "the service failed", "see the log under the request id")


class Answer:
    """Sends the answer to one request with the headers that every answer has; remembers the status."""

    def __init__(self, send: Send, extra: list[tuple[bytes, bytes]]) -> None:
        self._send, self._extra = send, extra
        self.request_id = secrets.token_hex(8)
        self.status = 500
        self.has_begun = False
        self.route: str | None = None

    async def __call__(self, message: Message) -> None:
        """Pass a message of the application on."""
        if message["type"] == "http.response.start":
            own = dict(message["headers"])
            headers = [*message["headers"], *(pair for pair in SECURITY_HEADERS if pair[0] not in own)]
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


class Gate:
    """ASGI middleware around the whole application.

    Requests for the paths in `direct` are answered without the layers of the web framework, which take
    longer than a list. They pass the same checks, and their errors have the same form.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServeConfig,
        tokens: Sequence[Token] | None,
        observe: Observe,
        direct: Mapping[tuple[str, str], Handler],
        log: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._app, self._config, self._tokens = app, config, tokens
        self._observe, self._direct = observe, direct
        self._log = log or write_log
        self._deadlines = Deadlines(config.timeout)
        self._hosts = {"localhost", "127.0.0.1", "::1", config.host} if is_loopback(config.host) else set()
        self._origins = {origin.strip() for origin in config.cors.split(",") if origin.strip()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # web sockets are not offered
        started = time.perf_counter()
        headers = dict(scope["headers"])
        rule = find_rule(scope["method"], scope["path"])
        answer = Answer(send, self._cors_headers(headers))
        problem: BaseException | None = None
        try:
            if scope["method"] == "OPTIONS" and self._is_allowed_origin(headers):
                await answer.finish(204, b"")
            else:
                self._check(scope, rule, headers)
                async with self._deadlines.start():
                    await self._answer(scope, receive, answer)
        except Exception as error:  # turned into the one error form
            problem = error
            if not answer.has_begun:
                await answer.finish(*describe_error(error))
        seconds = time.perf_counter() - started
        route = answer.route or ("other" if rule is None else rule.prefix)  # the real path may hold ids
        self._observe(route, answer.status, seconds)
        if answer.status >= 500 or seconds > 1:
            self._log(
                {
                    "level": "error" if answer.status >= 500 else "warning",
                    "request_id": answer.request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": answer.status,
                    "milliseconds": round(seconds * 1000, 1),
                    **({} if problem is None else {"problem": _problem(problem)}),
                }
            )

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        """Let the handler of the path answer, or the application."""
        handler = self._direct.get((scope["method"], scope["path"]))
        if handler is None:
            await self._app(scope, self._limited(receive), answer)
        else:
            found = await handler(await _read_body(receive, self._config.max_body))
            answer.route = found.route
            await answer.finish(200, found.body)

    def _check(self, scope: Scope, rule: Rule | None, headers: dict[bytes, bytes]) -> None:
        path = scope["path"]
        if rule is None:
            known = [one.method for one in RULES if one.matches(one.method, path)]
            if known:
                raise RequestError(
                    405, "method_not_allowed", f"this path accepts {', '.join(known)}", "see /docs"
                )
            raise RequestError(404, "not_found", "there is nothing at this path", "see /docs")
        if rule.method == "POST":
            _check_content_type(path, headers.get(b"content-type", b""))
            _check_length(headers.get(b"content-length", b""), self._config.max_body)
        if self._tokens is None:
            self._check_host(headers)
            if rule.scope == "admin":
                raise RequestError(
                    403,
                    "token_needed",
                    "changing the service needs a token with the scope admin",
                    "start the service with --token_file; `shortlist token` creates one",
                )
        elif rule.scope != OPEN:
            self._check_token(headers.get(b"authorization", b""), rule.scope)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Without tokens only this machine is served, also if a web page points its name here."""
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]") not in self._hosts:
            raise RequestError(
                403, "host_refused", "the Host header must name this machine", "use 127.0.0.1 or localhost"
            )

    def _check_token(self, header: bytes, scope: str) -> None:
        kind, _, secret = header.decode("latin-1").partition(" ")
        token = find_token(self._tokens or (), secret.strip()) if kind.lower() == "bearer" else None
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
            (b"access-control-allow-methods", b"GET, POST"),
            (b"vary", b"origin"),
        ]

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes of the body while they arrive."""
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._config.max_body:
                raise _too_large(self._config.max_body)
            return message

        return limited


def _check_content_type(path: str, header: bytes) -> None:
    kind = header.split(b";", 1)[0].strip().lower()
    allowed = (
        (b"application/json", b"application/x-ndjson") if path == "/v1/events" else (b"application/json",)
    )
    if kind not in allowed:
        raise RequestError(
            415,
            "content_type",
            "the body must be JSON",
            f"send Content-Type: {' or '.join(one.decode() for one in allowed)}",
        )


def _check_length(header: bytes, limit: int) -> None:
    if header and (not header.isdigit() or int(header) > limit):
        raise _too_large(limit)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        413, "too_large", f"a request body may have {limit:,} bytes", "send several smaller requests"
    )


def _problem(error: BaseException) -> str:
    """What failed, for the log: the class and, for errors of ours, the sentence."""
    if isinstance(error, ShortlistError):
        return f"{type(error).__name__}: {error}"
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" in {frame.tb_frame.f_code.co_qualname}, line {frame.tb_lineno}"
    return f"{type(error).__name__}{place}"


async def _read_body(receive: Receive, limit: int) -> bytes:
    """The whole body of a request."""
    message = await receive()
    parts = [message.get("body", b"")]
    size = len(parts[0])
    while message.get("more_body", False) and size <= limit:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    if size > limit:
        raise _too_large(limit)
    if message["type"] == "http.disconnect":
        raise RequestError(400, "disconnected", "the body of the request is incomplete", "send it again")
    return b"".join(parts)


def write_log(entry: dict[str, Any]) -> None:
    """One line of JSON on standard error."""
    line = orjson.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **entry})
    sys.stderr.write(line.decode() + "\n")
    sys.stderr.flush()
