"""The outermost layer of the service: request ids, tokens, limits, security headers, errors and logs."""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
OPEN = "open"  # routes that need no token

Observe = Callable[[str, int, float], None]  # route, status, seconds


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


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServeConfig,
        tokens: Sequence[Token] | None,
        observe: Observe,
        log: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._app, self._config, self._tokens = app, config, tokens
        self._observe = observe
        self._log = log or write_log
        self._hosts = {"localhost", "127.0.0.1", "::1", config.host}
        self._origins = {origin.strip() for origin in config.cors.split(",") if origin.strip()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # web sockets are not offered
        started = time.perf_counter()
        request_id = secrets.token_hex(8)
        headers = dict(scope["headers"])
        status = 500
        begun = False

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                begun, status = True, message["status"]
                own = dict(message["headers"])
                extra = [pair for pair in SECURITY_HEADERS if pair[0] not in own]
                extra.append((b"x-request-id", request_id.encode()))
                if status in (503, 507):
                    extra.append((b"retry-after", RETRY_SECONDS))
                extra += self._cors_headers(headers)
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        problem: BaseException | None = None
        try:
            if scope["method"] == "OPTIONS" and self._is_allowed_origin(headers):
                await _send(answer, 204, b"")
            else:
                self._check(scope, headers)
                async with asyncio.timeout(self._config.timeout):
                    await self._app(scope, self._limited(receive), answer)
        except Exception as error:  # turned into the one error form
            problem = error
            if not begun:
                await _send(answer, *describe_error(error))
        seconds = time.perf_counter() - started
        route = _route_name(scope)
        self._observe(route, status, seconds)
        if status >= 500 or seconds > 1:
            self._log(
                {
                    "level": "error" if status >= 500 else "warning",
                    "request_id": request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "milliseconds": round(seconds * 1000, 1),
                    **({} if problem is None else {"problem": _problem(problem)}),
                }
            )

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path = scope["path"]
        rule = next((one for one in RULES if one.matches(method, path)), None)
        if rule is None:
            known = [one.method for one in RULES if one.matches(one.method, path)]
            if known:
                raise RequestError(
                    405, "method_not_allowed", f"this path accepts {', '.join(known)}", "see /docs"
                )
            raise RequestError(404, "not_found", "there is nothing at this path", "see /docs")
        if method == "POST":
            _check_content_type(path, headers.get(b"content-type", b""))
            _check_length(headers.get(b"content-length", b""), self._config.max_body)
        if self._tokens is None:
            self._check_host(headers)
            if rule.scope == "admin":
                raise RequestError(
                    403,
                    "token_needed",
                    "changing the service needs a token with the scope admin",
                    "start the service with --token-file; `shortlist token` creates one",
                )
        elif rule.scope != OPEN:
            self._check_token(headers.get(b"authorization", b""), rule.scope)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Without tokens only this machine is served, also if a web page points its name here."""
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.strip("[]") not in self._hosts or not is_loopback(self._config.host):
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


def _route_name(scope: Scope) -> str:
    """The rule's path instead of the real one, which may hold ids."""
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    rule = next((one for one in RULES if one.matches(method, scope["path"])), None)
    return "other" if rule is None else rule.prefix


def _problem(error: BaseException) -> str:
    """What failed, for the log: the class and, for errors of ours, the sentence."""
    if isinstance(error, ShortlistError):
        return f"{type(error).__name__}: {error}"
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" in {frame.tb_frame.f_code.co_qualname}, line {frame.tb_lineno}"
    return f"{type(error).__name__}{place}"


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def write_log(entry: dict[str, Any]) -> None:
    """One line of JSON on standard error."""
    line = orjson.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **entry})
    sys.stderr.write(line.decode() + "\n")
    sys.stderr.flush()
