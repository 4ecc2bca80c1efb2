"""Readers on random input: a ShortlistError, or rows that agree with a slow reader; never anything else.

Seeded. SHORTLIST_FUZZ=50 runs fifty times as many cases, SHORTLIST_FUZZ_SEED=3 other ones.
"""

import gzip
import io
import json
import os
import random
import sqlite3
import warnings
from contextlib import closing

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ShortlistError
from shortlist.text import CONTROL

TIMES = int(os.environ.get("SHORTLIST_FUZZ", "1"))
SEED = int(os.environ.get("SHORTLIST_FUZZ_SEED", "0"))
CASES = 20  # per format
IDS = [
    "a",
    "b",
    "é",
    "ab c",
    "0",
    "1",
    "-1",
    "007",
    "9" * 30,
    "1.5",
    "nan",
    "null",
    "[red]",
    "\x1b[31m",
    "\u202e",
]
HEADERS = [
    "user_id",
    "item_id",
    "timestamp",
    "rating",
    "order_id",
    "title",
    "userid",
    "UserID",
    "item",
    "",
    "user_id",
]
TIMES_OF = [
    "1",
    "1700000000",
    "2024-05-01",
    "2024-05-01T10:00:00Z",
    "x",
    "",
    "1e400",
    "-5",
    "9" * 20,
    "2024-02-30",
]
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**70,
    float("inf"),
    "",
    "x",
    [],
    ["a"],
    {},
    {"a": {"b": 1}},
    "1",
    10**400,
]
PIECES = [b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"\r", b"\n\n", b",,,", b"\t", b"{", b"}", b"[" * 50,
          b"\\u0000", b"\xed\xa0\x80",
          b"1e999", b"null", b"_duplicated_0", b"\x1b[0m", b"\xe2\x80\xae"]  # fmt: skip


def rows_of(rng):
    """Rows with plausible and implausible values."""
    n = rng.choice([1, 2, 3, 8, 40])
    ids = IDS if rng.random() < 0.5 else ["u1", "u2", "u3"]
    return [
        {
            "user_id": rng.choice(ids),
            "item_id": rng.choice(ids),
            "timestamp": rng.choice(TIMES_OF[:2] if rng.random() < 0.8 else TIMES_OF),
        }
        for _ in range(n)
    ]


def text_table(rng, separator=","):
    rows = rows_of(rng)
    names = ["user_id", "item_id", "timestamp"]
    if rng.random() < 0.3:
        names[rng.randrange(3)] = rng.choice(HEADERS)
    lines = [separator.join(names)] + [separator.join(row.values()) for row in rows]
    if rng.random() < 0.1:
        lines[rng.randrange(len(lines))] += separator + "more"
    encoding = rng.choice(["utf-8"] * 8 + ["utf-16", "latin-1"])
    return rng.choice(["\n"] * 5 + ["\r\n", "\r"]).join(lines).encode(encoding, errors="replace")


def recbole_table(rng):
    return text_table(rng, "\t").replace(b"user_id", b"user_id:token").replace(b"item_id", b"item_id:token")


def json_lines(rng):
    rows = rows_of(rng)
    if rng.random() < 0.4:
        for _ in range(rng.randrange(1, 4)):
            rng.choice(rows)[rng.choice(HEADERS)] = rng.choice(VALUES)
    if rng.random() < 0.1:
        rows.insert(0, rng.choice(VALUES))
    return "\n".join(json.dumps(row) for row in rows).encode()


COLUMNS = [
    lambda n: pl.Series([None] * n),
    lambda n: pl.Series(range(n)),
    lambda n: pl.Series([0.5] * n),
    lambda n: pl.Series([True] * n),
    lambda n: pl.Series([b"\xff"] * n),
    lambda n: pl.Series([[1]] * n),
    lambda n: pl.Series([{"a": 1}] * n),
    lambda n: pl.Series(["a"] * n, dtype=pl.Categorical),
    lambda n: pl.Series(["2024-01-01"] * n).str.to_date(),
    lambda n: pl.Series([1] * n).cast(pl.Duration),
    lambda n: pl.Series([1] * n).cast(pl.Time),
    lambda n: pl.Series(["1.5"] * n).cast(pl.Decimal(10, 2)),
    lambda n: pl.Series([2**63] * n, dtype=pl.UInt64),
]


def parquet_table(rng):
    rows = rows_of(rng)
    frame = pl.DataFrame(rows)
    for _ in range(rng.choice([0, 0, 1, 2])):
        name = rng.choice(["user_id", "item_id", "timestamp", "rating", "title"])
        frame = frame.with_columns(rng.choice(COLUMNS)(len(frame)).alias(name))
    body = io.BytesIO()
    frame.write_parquet(body, compression=rng.choice(["zstd", "snappy", "uncompressed"]))
    return body.getvalue()


def compressed(rng):
    return gzip.compress(text_table(rng))


def zstd_compressed(rng):
    pa = pytest.importorskip("pyarrow", reason="needs something that writes zstd")
    return pa.compress(text_table(rng), codec="zstd", asbytes=True)


def sqlite_table(rng, path):
    with closing(sqlite3.connect(path)) as database, database:
        types = [rng.choice(["TEXT", "INTEGER", "REAL", "BLOB", "", "TIMESTAMP"]) for _ in range(3)]
        names = ("user_id", "item_id", rng.choice(["timestamp", "rating", "date"]))
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(names, types, strict=True))
        database.execute(f"CREATE TABLE events ({columns})")
        values = [None, 1, 2, 2**62, 1.5, "a", "b", "", b"\xff\x00", "2024-01-01", "\x1b", "9" * 30]
        plain = rng.random() < 0.5
        rows = [
            tuple(rng.choice(values[1:3] if plain else values) for _ in names)
            for _ in range(rng.choice([1, 5, 200]))
        ]
        database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
    return path.read_bytes()


def flip(data, at, rng):
    for _ in range(rng.choice([1, 1, 3, 20])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def shuffle_lines(data, at, rng):
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def insert_pieces(data, at, rng):
    for _ in range(rng.choice([1, 2, 6])):
        data[at:at] = rng.choice(PIECES)
        at = rng.randrange(len(data) + 1)
    return data


MUTATIONS = [
    lambda data, at, rng: data,
    lambda data, at, rng: data[:at],
    lambda data, at, rng: data[:at] + rng.randbytes(rng.choice([1, 4, 60])) + data[at:],
    lambda data, at, rng: data[:at] + data[at + rng.choice([1, 8, 200]) :],
    lambda data, at, rng: data[:at] + data[at : at + 30] * rng.choice([1, 50]) + data[at:],
    lambda data, at, rng: rng.randbytes(rng.choice([1, 3, 200])),
    flip,
    flip,
    shuffle_lines,
    insert_pieces,
    insert_pieces,
]


def mutate(body, rng):
    """Flip, cut, insert, drop, repeat or shuffle bytes; sometimes nothing."""
    return bytes(rng.choice(MUTATIONS)(bytearray(body), rng.randrange(len(body) + 1), rng))


FORMATS = {
    "csv": text_table,
    "tsv": lambda rng: text_table(rng, "\t"),
    "inter": recbole_table,
    "jsonl": json_lines,
    "parquet": parquet_table,
    "csv.gz": compressed,
    "jsonl.gz": lambda rng: gzip.compress(json_lines(rng)),
    "parquet.gz": lambda rng: gzip.compress(parquet_table(rng)),
    "csv.zst": zstd_compressed,
}


def check(data):
    """The arrays fit together."""
    assert data.n_rows == data.item.size >= 1
    assert data.indptr[0] == 0
    assert data.indptr[-1] == data.n_rows
    assert (np.diff(data.indptr) >= 0).all()
    assert data.item.min() >= 0
    assert data.item.max() < data.n_items
    assert data.users.values.null_count() == data.items.values.null_count() == 0


def pairs_of(data):
    users, items = data.users.values.to_list(), data.items.values.to_list()
    return {(str(users[user]), str(items[item])) for user, item in zip(data.user, data.item, strict=True)}


def slow_pairs(body, kind):
    """The pairs by a plain reader; None where quotes, odd headers or line ends need more than that."""
    try:
        text = body.decode()
        if kind == "jsonl":
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
            ids = [(row["user_id"], row["item_id"]) for row in rows]
            if any(
                len({type(one[k]) for one in ids}) > 1 or type(ids[0][k]) not in (str, int) for k in (0, 1)
            ):
                return None
            return {(str(user), str(item)) for user, item in ids}
        lines = text.removeprefix("\ufeff").split("\n")
        if (
            '"' in text
            or "\r" in text
            or "\0" in text
            or lines[0].split(",") != ["user_id", "item_id", "timestamp"]
        ):
            return None
        return {tuple(line.split(",")[:2]) for line in lines[1:] if line}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def attempt(read, *args, **given):
    """The result, or None after an error with a proper message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read(*args, **given)
    except ShortlistError as error:
        message = str(error)
        assert 0 < len(message) <= 500
        assert CONTROL.search(message) is None
        return None


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", FORMATS)
def test_files(tmp_path, capfd, kind):
    rng = random.Random(f"{SEED} {kind}")
    good = 0
    for number in range(CASES * TIMES):
        body = FORMATS[kind](rng)
        if "parquet" not in kind or rng.random() < 0.6:  # most changes make a Parquet file unreadable
            body = mutate(body, rng)
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(body)
        try:
            data = attempt(sl.read_interactions, path, training=False, timestamp=rng.choice([None, ""]))
            if data is not None:
                good += 1
                check(data)
                expected = slow_pairs(body, kind) if kind in ("csv", "jsonl") else None
                assert expected is None or pairs_of(data) == expected
        except BaseException as error:
            raise AssertionError(
                f"case {number} of seed {SEED}, {kind}: {error!r}: {body[:300]!r}"
            ) from error
        path.unlink()
    # a damaged Parquet file may make polars print a panic; the exception is a DataError all the same
    assert "parquet" in kind or "panicked" not in capfd.readouterr().err
    assert good >= TIMES  # otherwise the mutations leave nothing to read


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_list_files(tmp_path, capfd, kind):
    rng = random.Random(f"{SEED} lists {kind}")
    good = 0
    for number in range(CASES * TIMES):
        body = FORMATS[kind](rng)
        if kind != "parquet":
            body = body.replace(b"timestamp", rng.choice([b"rank", b"score", b"reason", b"boundary"]))
        body = mutate(body, rng)
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(body)
        try:
            lists = attempt(sl.RankedLists.read, path)
            if lists is not None:
                good += 1
                assert lists.indptr[-1] == lists.items.size
                assert lists.items.size == 0 or 0 <= lists.items.min() <= lists.items.max() < len(
                    lists.item_ids
                )
                lists.to_frame()
        except BaseException as error:
            raise AssertionError(
                f"case {number} of seed {SEED}, {kind}: {error!r}: {body[:300]!r}"
            ) from error
        path.unlink()
    assert kind == "parquet" or "panicked" not in capfd.readouterr().err
    assert good


@pytest.mark.fuzz
def test_sqlite(tmp_path):
    rng = random.Random(f"{SEED} sqlite")
    good = 0
    for number in range(CASES * TIMES):
        path = tmp_path / f"{number}.db"
        body = sqlite_table(rng, path)
        if rng.random() < 0.6:
            path.write_bytes(mutate(body, rng))
        try:
            data = attempt(
                sl.read_interactions, f"sqlite:///{path}", query="SELECT * FROM events", training=False
            )
            if data is not None:
                good += 1
                check(data)
        except BaseException as error:
            raise AssertionError(f"case {number} of seed {SEED}: {error!r}") from error
        for left in tmp_path.iterdir():
            left.unlink()
    assert good


WORDS = ["", ".", "..", "/", "~", "~x", "*", "**", "[", "[1]", "?", "a.csv", "\0", "\n", "x" * 300, "{", "%",
         "\ud800", "sqlite:", "sqlite:///", "postgresql:", "://", "http://", "@", ":", "#", "?password=x",
         " ", "é", "-"]  # fmt: skip


@pytest.mark.fuzz
def test_source_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_text("user_id,item_id\na,x\nb,y\n")
    rng = random.Random(f"{SEED} names")
    for number in range(5 * CASES * TIMES):
        source = "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 5)))
        if source.startswith(("/", "~/", "..")) and "/" in source:  # would search the whole disk
            source = "a" + source
        try:
            data = attempt(sl.read_interactions, source, query=rng.choice([None, None, "SELECT 1"]))
            assert data is None or data.n_rows == 2
        except BaseException as error:
            raise AssertionError(f"case {number} of seed {SEED}: {source!r}: {error!r}") from error
