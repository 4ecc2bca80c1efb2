"""Words of texts against Python's own words."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from shortlist.content import features
from shortlist.content.features import Field
from shortlist.core.codec import Contents, RecordForm, Scope
from shortlist.errors import ModelFileError

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


def reload(field):
    """The field as a file gives it back."""
    contents = Contents({}, {})
    packed = RecordForm(Field).write(field, "field", contents)
    return RecordForm(Field).read(packed, "field", contents, Scope())


def test_saved_words_are_read_back():
    field, _ = Field.fit(pl.Series("t", TEXTS), "text")
    assert reload(field).words.to_list() == field.words.to_list()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"words": pl.Series(["a", "a"])}, "must hold distinct ids"),
        ({"words": pl.Series(["a"])}, "must have shape 1, got 2"),
        ({"idf": np.ones(1, np.float32), "words": pl.Series(["a"])}, "must have a word or a knot"),
    ],
)
def test_damaged_words_are_refused(changes, rule):
    field, _ = Field.fit(pl.Series("t", ["a b"]), "text")
    with pytest.raises(ModelFileError, match=rule):
        reload(replace(field, **changes))
