"""Text that people read: without control characters, without passwords, and of bounded length.

Every error, warning, table, report and line on the screen passes through these functions. Data files (CSV,
JSON Lines, Parquet) do not: they hold the exact ids.
"""

import re
from html import escape

MAX_MESSAGE = 500  # characters of an error or a warning

# C0, DEL and C1 controls, line and paragraph separators, bidirectional marks and overrides, lone surrogates
CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

DATABASES = (
    r"(?:postgres(?:ql)?|sqlite3?|mysql|mariadb|mssql|sqlserver|oracle|redshift|snowflake|duckdb|mongodb)"
)
URI = re.compile(
    rf"({DATABASES}(?:\+[a-z0-9_]+)*(?=:)|[a-z][a-z0-9+.-]+(?=:/)):(/{{0,2}})(.*)", re.IGNORECASE | re.DOTALL
)
WELL_FORMED = re.compile(r"([^@/?#\s]*@)?([A-Za-z0-9._-]*)(?::[0-9]*)?(/[\w.-]*)?(?:\?[^@\s]*)?", re.ASCII)
SECRET_NAME = r"[\w.-]*(?:pass|pwd|secret|token|key|credential)[\w.-]*"
NO_PORT = r"(?!\d{0,5}(?:[/?'\",:;\s]|$))"
SECRETS = [  # what stays is the first group
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(\b(?:{DATABASES}(?:\+\w+)*:/*|[a-z][a-z0-9+.-]+:/+)[^\s:@]*:)[^@]*@(?:[^\s@]*@)*",
        rf"(\b{DATABASES}(?:\+\w+)*:/*[^\s/@:'\"]*:){NO_PORT}(?!…)[^\s'\"]*",
        rf"([?&;]{SECRET_NAME}=)[^&'\"]*",
        r"(\b\w*(?:password|passwd|pwd)\s*=\s*)(?:'[^']*'|[^\s'\"&]+)",
    )
]


def printable(text: object, keep: str = "") -> str:
    """The text with control characters and bidirectional overrides shown as escapes, except those to keep."""
    return CONTROL.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), str(text))


def _escape(character: str) -> str:
    code = ord(character)
    return SHORT.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def json_safe(text: str) -> str:
    """A JSON document with the same values, in which no control character is left except newlines."""
    return CONTROL.sub(lambda match: "\n" if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def escape_html(text: object) -> str:
    """Text for an HTML page: printable, and without markup."""
    return escape(printable(text))


def bounded(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text, shortened in the middle if it is longer than the limit; errors end with their advice."""
    if len(text) <= limit:
        return text
    tail = limit * 2 // 5
    return f"{text[: limit - tail - 3]} … {text[len(text) - tail :]}"


def redact(text: str) -> str:
    """The text without the passwords of database URIs; rather too much is removed than too little."""
    for pattern in SECRETS:
        text = pattern.sub(lambda match: match[1] + ("…@" if match[0].endswith("@") else "…"), text)
    return text


def redact_uri(source: object) -> str:
    """A path as it is; a URI without user, password, port and options; only the scheme of a malformed one."""
    match = URI.fullmatch(str(source))
    if match is None:  # perhaps a URI without its scheme
        return redact(re.sub(r":.*@", ":…@", str(source), flags=re.DOTALL))
    scheme, slashes, rest = match.groups()
    if scheme.lower() == "sqlite" and "@" not in rest:
        return redact(f"{scheme}:{slashes}{rest.partition('?')[0]}")
    parts = WELL_FORMED.fullmatch(rest) if slashes == "//" else None
    if parts is None:
        return f"{scheme}://…"
    user, host, path = parts.groups()
    return f"{scheme}://{'…@' if user else ''}{host}{path or ''}"


def clean_message(text: str) -> str:
    """A message that is safe to print: no passwords, no control characters, bounded length."""
    return bounded(printable(redact(text)))


def short_repr(value: object) -> str:
    """repr, cut to 60 characters; an integer of thousands of digits has no repr."""
    try:
        text = repr(value)
    except ValueError:
        text = f"{type(value).__name__} with too many digits"
    return text if len(text) <= 60 else f"{text[:59]}…"
