"""Words of texts against Python's own words."""

import re
from collections import Counter

import numpy as np
import polars as pl
import pytest

from shortlist.content import features
from shortlist.content.features import Field

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


def counted(texts, words=None):
    matrix, words = features._count(pl.Series(texts, dtype=pl.String), "text", words)
    ends = zip(matrix.indptr, matrix.indptr[1:], strict=False)
    return [
        {words[int(w)]: n for w, n in zip(matrix.indices[a:b], matrix.data[a:b], strict=True)}
        for a, b in ends
    ]


def test_words_are_counted_like_python_counts_them():
    assert counted(TEXTS) == [expected(text) for text in TEXTS]


def test_words_are_in_alphabetical_order():
    words = features._count(pl.Series(TEXTS), "text")[1].to_list()
    assert words == sorted({word for text in TEXTS for word in expected(text)}, key=str.encode)


@pytest.mark.parametrize("at_once", [1, 7, 300])
def test_the_number_of_texts_at_once_changes_nothing(at_once, monkeypatch):
    texts = [" ".join(f"w{n % 97}x{n // 5}" for n in range(at, at + 40)) for at in range(300)]
    monkeypatch.setattr(features, "VALUES_AT_ONCE", at_once)
    assert counted(texts) == [expected(text) for text in texts]


def test_unknown_words_are_skipped():
    words = pl.Series(["lakes", "sea"])
    assert counted(["lakes of the deep sea, lakes"], words) == [{"lakes": 2, "sea": 1}]


def test_a_tag_counts_once_per_item():
    matrix, words = features._count(pl.Series([["b", "a", "b"], None, []]), "tags")
    assert words.to_list() == ["a", "b"]
    assert matrix.toarray().tolist() == [[1, 1], [0, 0], [0, 0]]


def test_saved_words_are_read_back():
    field, _ = Field.fit(pl.Series("t", TEXTS), "text")
    arrays, notes = field.to_arrays("field0")
    again = Field.from_arrays("field0", arrays, notes)
    assert again.words.to_list() == field.words.to_list()


@pytest.mark.parametrize(
    ("text", "rule"), [(b"\xff\xfe", "must be UTF-8 text"), (b"aa", "must be different words")]
)
def test_damaged_words_are_refused(text, rule):
    field, _ = Field.fit(pl.Series("t", ["a b"]), "text")
    arrays, notes = field.to_arrays("field0")
    with pytest.raises(Exception, match=rule):
        Field.from_arrays("field0", arrays | {"field0.words.text": np.frombuffer(text, np.uint8)}, notes)
