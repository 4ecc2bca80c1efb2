"""Which scope each path needs."""

from dataclasses import dataclass

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
