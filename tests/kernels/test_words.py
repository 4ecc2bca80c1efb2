"""count_words against Python's own words."""

import re
from collections import Counter

import polars as pl
import pytest

from shortlist.content.features import Strings, WordTable

TEXTS = [
    "Deep lakes, deep-sea fish",
    "",
    None,
    "naïve café — naïve!",
    "lakes_2 2024",
    "日本 語 日本",
    "a" * 300,
]


def expected(text):
    return Counter(re.findall(r"\w+", (text or "").lower()))


def counted(table, texts, words, learn):
    found = table.count(pl.Series(texts, dtype=pl.String), learn=learn)
    names = words() if callable(words) else words
    ends = zip(found.indptr, found.indptr[1:], strict=False)
    return [
        {names[w]: n for w, n in zip(found.columns[a:b], found.values[a:b], strict=True)} for a, b in ends
    ]


def test_words_are_counted_like_python_counts_them():
    table = WordTable()
    assert counted(table, TEXTS, lambda: table.new_words().to_list(), True) == [expected(t) for t in TEXTS]


@pytest.mark.parametrize("chunk", [8, 64])
def test_chunks_and_growing_tables_change_nothing(chunk, monkeypatch):
    texts = [" ".join(f"w{n % 97}x{n // 5}" for n in range(at, at + 40)) for at in range(300)]
    monkeypatch.setattr("shortlist.content.features.CHUNK_BYTES", chunk * 40)
    monkeypatch.setattr("shortlist.content.features.FIRST_SIZE", 256)
    table = WordTable()
    assert counted(table, texts, lambda: table.new_words().to_list(), True) == [expected(t) for t in texts]


def test_unknown_words_are_skipped():
    words = Strings.of(pl.Series(["lakes", "sea"]))
    assert counted(WordTable.of(words), ["lakes of the deep sea, lakes"], ["lakes", "sea"], False) == [
        {"lakes": 2, "sea": 1}
    ]
