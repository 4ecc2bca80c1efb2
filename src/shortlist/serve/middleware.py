"""The outermost layer of the service: request ids, tokens, limits, security headers, errors and logs."""

import asyncio
import errno
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
from shortlist.serve.config import ServeConfig, is_loopback
from shortlist.serve.log import write_log
from shortlist.serve.schemas import RequestError
from shortlist.serve.store import RowError, StoreError, StoreFullError
from shortlist.serve.tokens import TokenFile, find_token

OPEN = "open"  # the scope of routes that need no token
BEARER = HTTPBearer(auto_error=False, description="A token of `shortlist service token`.")


def needs(scope: str) -> Any:
    """The dependency of a route that needs a token with this scope; `Middleware` checks it."""
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
LATE_BODY = 408  # the status of a request that did not arrive
LARGE_BODY = 64 << 10  # bytes; larger ones are validated in a thread of their own, one after the other
BODIES = 8  # of the largest size, that all requests in progress may have together
NEVER_FULL = ("/health", "/ready")  # a server with much to do is neither broken nor to be taken out
COUNTED_AS = "shortlist.counted_as"  # in the scope: the name of a request in the metrics, if not its route

Observe = Callable[[str, int, float], None]  # route, status, seconds


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

    def __init__(self, send: Send, extra: list[tuple[bytes, bytes]]) -> None:
        self._send, self._extra = send, extra
        self.request_id = secrets.token_hex(8)
        self.status = 500
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        """Pass a message of the application on."""
        if message["type"] == "http.response.start":
            self.has_begun, self.status = True, message["status"]
            given = {name for name, _ in message["headers"]}
            headers = [*message["headers"], *(pair for pair in SECURITY_HEADERS if pair[0] not in given)]
            headers += [(b"x-request-id", self.request_id.encode()), *self._extra]
            if self.status in (503, 507):
                headers.append((b"retry-after", RETRY_SECONDS))
            if self.status == 400:  # what follows on the connection cannot be read
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)


async def send_json(send: Send, content: bytes, status: int = 200) -> None:
    """Send a whole answer."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class RequestBody:
    """The body of a request, which is read whole before the application is called."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._parts: list[bytes] = []
        self.size = 0
        self.is_whole = False

    async def read_part(self) -> int:
        """Wait for the next part; its size."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise RequestError(
                LATE_BODY, "disconnected", "the body of the request is incomplete", "send it again"
            )
        self._parts.append(message.get("body", b""))
        self.size += len(self._parts[-1])
        self.is_whole = not message.get("more_body", False)
        return len(self._parts[-1])

    async def receive(self) -> Message:
        """What the application receives: the whole body, then what follows."""
        if not self._parts:
            return await self._receive()
        content = b"".join(self._parts)
        self._parts.clear()
        return {"type": "http.request", "body": content, "more_body": False}


class Middleware:
    """ASGI middleware around the whole application.

    A request is checked by its headers; then its body must arrive, and only then it is answered. A bounded
    number of requests for each route is in progress; more are refused at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServeConfig,
        routes: Sequence[APIRoute],
        tokens: TokenFile | None,
        observe: Observe,
        log: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._app, self._config, self._tokens, self._observe = app, config, tokens, observe
        self._rules = [RouteRule.of(route) for route in routes]
        self._plain = {(m, rule.path): rule for rule in self._rules for m in rule.route.methods or ()}
        self._log = log or write_log
        self._closing: list[tuple[bytes, bytes]] = []  # a header, while the process is about to end
        self._held = 0  # bytes of the bodies of all requests in progress
        self._in_progress: Counter[str] = Counter()  # requests by route
        self._hosts = {"localhost", "127.0.0.1", "::1", config.host} if is_loopback(config.host) else set()

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
        route = "other" if rule is None else rule.path  # the real path may hold ids
        answer = AnswerSender(send, self._closing)
        problem: BaseException | None = None
        try:
            self._check(scope, rule, headers)
            await self._answer(scope, RequestBody(receive), answer, route)
        except Exception as error:  # turned into the one error form
            problem = error
            if not answer.has_begun:
                status, content = answer_error(error)
                await send_json(answer, content, status)
        self.note(scope, scope.get(COUNTED_AS, route), answer, started, problem)

    async def _answer(self, scope: Scope, body: RequestBody, answer: AnswerSender, route: str) -> None:
        """Let the application answer, unless the body does not arrive or too much is in progress."""
        has_body = scope["method"] == "POST"
        try:
            async with asyncio.timeout(self._config.timeout):
                if has_body:
                    await self._read(body)
                if self._in_progress[route] >= self._config.max_requests and route not in NEVER_FULL:
                    raise _overloaded("too many requests are waiting")
                self._in_progress[route] += 1
                try:
                    await self._app(scope, body.receive, answer)
                finally:
                    self._in_progress[route] -= 1
        except TimeoutError:
            if has_body and not body.is_whole:  # no failure of the service
                raise RequestError(
                    LATE_BODY, "timeout", "the body of the request did not arrive in time", "send it again"
                ) from None
            raise
        finally:
            self._held -= body.size

    async def _read(self, body: RequestBody) -> None:
        """Wait for a body; the bytes of all bodies are bounded while they arrive and until the answers."""
        limit = self._config.max_body
        while not body.is_whole:
            size = await body.read_part()
            self._held += size
            if body.size > limit:
                raise _too_large(limit)
            if self._held > BODIES * limit:
                raise _overloaded("too many large requests are in progress")

    def note(
        self, scope: Scope, route: str, answer: AnswerSender, started: float, problem: BaseException | None
    ) -> None:
        """Count an answered request; log it if it failed or took long."""
        status, seconds = answer.status, time.perf_counter() - started
        if (route, status) == ("/ready", 503):
            return  # no failure: a server that is about to end says so to its proxy
        self._observe(route, status, seconds)
        if status >= 500 or (seconds > 1 and status != LATE_BODY):
            self._log(
                {
                    "level": "error" if status >= 500 else "warning",
                    "request_id": answer.request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "milliseconds": round(seconds * 1000, 1),
                    **({} if problem is None else {"problem": _problem(problem)}),
                }
            )

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
            if b"upgrade" in headers:  # the HTTP parser takes the body for the beginning of another protocol
                rule_text, hint = (
                    "the service speaks HTTP/1.1 only",
                    "send it without Upgrade (curl --http1.1)",
                )
                raise RequestError(400, "upgrade_refused", rule_text, hint)
            _check_content_type(rule.content_types, headers.get(b"content-type", b""))
            _check_length(headers.get(b"content-length", b""), self._config.max_body)
        if self._tokens is None:
            self._check_host(headers)
            if rule.scope == "admin":
                raise RequestError(
                    403,
                    "token_needed",
                    "changing the service needs a token with the scope admin",
                    "run shortlist serve with --token_file; `shortlist service token` creates one",
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


def _check_content_type(allowed: Sequence[str], header: bytes) -> None:
    if header.split(b";", 1)[0].strip().lower().decode("latin-1") not in allowed:
        raise RequestError(
            415, "content_type", "the body must be JSON", f"send Content-Type: {' or '.join(allowed)}"
        )


def _check_length(header: bytes, limit: int) -> None:
    if header and (not header.isdigit() or int(header) > limit):
        raise _too_large(limit)


def _overloaded(rule: str) -> RequestError:
    return RequestError(503, "overloaded", rule, "repeat it in a few seconds")


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
