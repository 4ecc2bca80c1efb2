"""Bearer tokens with scopes; the token file holds only their SHA-256 hashes."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from shortlist.core.files import atomic_write
from shortlist.errors import ConfigError

SCOPES = ("read", "events", "admin")
LOOK_SECONDS = 1.0  # between two looks whether the token file has changed


@dataclass(frozen=True)
class Token:
    """Who may do what; the secret itself is not known."""

    name: str
    scopes: frozenset[str]
    digest: str


def create_token(
    path: Path, name: str, scopes: Iterable[str], show: Callable[[str], None] = lambda _: None
) -> str:
    """Add a token to the file and return its secret, which is stored nowhere.

    `show` is called with the secret before the token is added: a token that was not shown is not kept.
    """
    checked = _check_scopes(scopes, "scopes")
    if not name or any(c.isspace() or not c.isprintable() for c in name):
        raise ConfigError(f"name must be a word without spaces, got {name!r}; for example `shop`.")
    tokens = read_tokens(path) if path.exists() else []
    if any(token.name == name for token in tokens):
        raise ConfigError(f"{path.name} already has a token named {name!r}; choose another name.")
    secret = secrets.token_urlsafe(32)
    lines = [_line(token) for token in (*tokens, Token(name, frozenset(checked), _digest(secret)))]
    with atomic_write(path) as temporary:
        temporary.touch()
        temporary.chmod(0o600)  # before anything is written
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        show(secret)
    return secret


def read_tokens(path: Path) -> list[Token]:
    """The tokens of a file: one line `name scopes sha256:…` each; # starts a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ConfigError(
            f"token file {path} does not exist; create it with `shortlist service token`."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"token file {path} is not a text file; create it with `shortlist service token`."
        ) from None
    tokens = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not words[2].startswith("sha256:") or len(words[2]) != 71:
            # the line may hold a secret, so it is not shown
            raise ConfigError(
                f"line {number} of token file {path} must be `name scopes sha256:…`; "
                "add tokens with `shortlist service token`."
            )
        scopes = _check_scopes(words[1].split(","), f"line {number} of token file {path}")
        tokens.append(Token(words[0], frozenset(scopes), words[2].removeprefix("sha256:")))
    return tokens


class TokenFile:
    """The tokens of a file, read again when it changes, so that a token can be revoked at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = read_tokens(path)
        self._stamp = self._read_stamp()
        self._looked = time.monotonic()
        self.problem: str | None = None  # why the changed file cannot be used; the earlier tokens stay

    def read(self) -> list[Token]:
        """The tokens; the file is looked at once a second at most."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self.refresh()
        return self._tokens

    def refresh(self) -> None:
        """Read the file if it has changed."""
        self._looked = time.monotonic()
        stamp = self._read_stamp()
        if stamp == self._stamp and stamp is not None:
            return
        try:
            self._tokens, self._stamp, self.problem = read_tokens(self._path), stamp, None
        except (ConfigError, OSError):
            self.problem = "The token file was changed and cannot be read; the earlier tokens are used."

    def _read_stamp(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def find_token(tokens: Iterable[Token], secret: str) -> Token | None:
    """The token of a secret; every token is compared in constant time."""
    digest = _digest(secret)
    match = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            match = token
    return match


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _line(token: Token) -> str:
    return f"{token.name} {','.join(sorted(token.scopes))} sha256:{token.digest}"


def _check_scopes(scopes: Iterable[str], place: str) -> list[str]:
    names = list(scopes)
    wrong = [scope for scope in names if scope not in SCOPES]
    if wrong or not names:
        raise ConfigError(
            f"{place}: a scope must be one of {', '.join(SCOPES)}, got {', '.join(wrong) or 'none'}; "
            "choose at least one."
        )
    return names
