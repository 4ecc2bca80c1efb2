"""Texts as counts of words, and strings as arrays of bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shortlist.core.checks import check_array, check_starts, file_error
from shortlist.core.ragged import read_only, starts
from shortlist.kernels.postings import SparseRows
from shortlist.kernels.words import Bytes, count_words, fill_table, hash_words
from shortlist.types import Ints, Longs, State

CHUNK_BYTES = 1 << 24  # text in memory as one array
FIRST_SIZE = 1 << 16  # slots of the first table of words
OTHER = r"[^\w]+"  # characters outside words; only needed where a text is not ASCII


class Strings(NamedTuple):
    """Strings as UTF-8 bytes, one after the other."""

    text: Bytes  # (n_bytes,)
    starts: Longs  # (n + 1,)

    @classmethod
    def of(cls, values: pl.Series) -> "Strings":
        """Strings without nulls."""
        joined = values.str.join("").item() if len(values) else ""
        return cls(np.frombuffer(joined.encode(), np.uint8), starts(values.str.len_bytes().to_numpy()))

    def to_list(self, numbers: Ints | Longs | None = None) -> list[str]:
        """The strings at these numbers, or all."""
        at = range(self.starts.size - 1) if numbers is None else numbers.tolist()
        return [bytes(self.text[self.starts[n] : self.starts[n + 1]]).decode(errors="replace") for n in at]

    def __len__(self) -> int:
        return self.starts.size - 1

    def to_arrays(self, name: str) -> dict[str, Any]:
        """The arrays that `from_arrays` reads."""
        return {f"{name}.text": self.text, f"{name}.starts": self.starts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], name: str, n: int) -> "Strings":
        """The n strings that were saved under a name; ModelFileError if they are not valid."""
        text = check_array(arrays, f"{name}.text", np.uint8, (None,))
        found = cls(text, check_starts(arrays, f"{name}.starts", n, text.size))
        try:
            found.to_list()
        except UnicodeDecodeError:
            raise file_error(name, "must be UTF-8 text") from None
        return found


@dataclass(eq=False)
class WordTable:
    """Numbers of words; texts are counted against it, and unknown words are added or skipped."""

    hashes: State = field(default_factory=lambda: np.empty(0, np.uint64))  # (n_words,)

    def __post_init__(self) -> None:
        self._words: list[bytes] = []  # the new words, in the order of their numbers
        self._resize(FIRST_SIZE)

    @classmethod
    def of(cls, words: Strings) -> "WordTable":
        """A table of known words."""
        hashes = np.empty(len(words), np.uint64)
        hash_words(words.text, words.starts, hashes)
        return cls(hashes)

    def _resize(self, size: int) -> None:
        """Make room for size / 2 words."""
        while size < 4 * self.hashes.size:
            size *= 2
        self.keys, self.numbers = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
        fill_table(self.hashes, self.keys, self.numbers)

    def count(self, texts: pl.Series, *, learn: bool) -> SparseRows:
        """(n_texts, n_words) how often each word occurs in each text; nulls have no words."""
        clean = _clean(texts)
        sizes = clean.str.len_bytes().to_numpy()
        step = np.searchsorted(starts(sizes), np.arange(0, int(sizes.sum()) + CHUNK_BYTES, CHUNK_BYTES))
        edges = np.unique(np.concatenate([[0], step, [len(clean)]]))
        parts = [self._count_chunk(clean[int(a) : int(b)], learn) for a, b in pairwise(edges)]
        lengths = [np.diff(part.indptr) for part in parts]
        return SparseRows(
            starts(np.concatenate([np.empty(0, np.int64), *lengths])),
            np.concatenate([np.empty(0, np.int32), *(part.columns for part in parts)]),
            np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)]),
        )

    def _count_chunk(self, texts: pl.Series, learn: bool) -> SparseRows:
        """The counts of texts that fit into one array."""
        text, at = Strings.of(texts)
        n_known = self.hashes.size
        most = int(((np.diff(at) + 1) // 2).sum())  # entries, if every second byte were a word
        words, counts = np.empty(most, np.int32), np.empty(most, np.int32)
        indptr = np.zeros(at.size, np.int64)
        state = np.array([n_known, 0], np.int64)
        row = 0
        while row < at.size - 1:
            room = self.keys.size // 2 if learn else n_known
            places, latest = np.empty((room, 2), np.int64), np.full(room, -1, np.int64)
            row = count_words(
                read_only(text), read_only(at), row, self.keys, self.numbers, places, state, latest, indptr,
                words, counts, learn,
            )  # fmt: skip
            self._add_words(text, places[self.hashes.size : state[0]])
            if row < at.size - 1:
                self._resize(2 * self.keys.size)
        n = int(state[1])
        return SparseRows(indptr, words[:n].copy(), counts[:n].astype(np.float32))

    def _add_words(self, text: Bytes, places: Longs) -> None:
        """Keep the spelling and the hash of new words."""
        if not len(places):
            return
        raw = text.tobytes()
        fresh = [raw[a:b] for a, b in places.tolist()]
        self._words += fresh
        found = Strings(np.frombuffer(b"".join(fresh), np.uint8), starts(places[:, 1] - places[:, 0]))
        hashes = np.empty(len(found), np.uint64)
        hash_words(found.text, found.starts, hashes)
        self.hashes = np.concatenate([self.hashes, hashes])

    def new_words(self) -> Strings:
        """The words that were added, in the order of their numbers."""
        sizes = np.array([len(word) for word in self._words], np.int64)
        return Strings(np.frombuffer(b"".join(self._words), np.uint8), starts(sizes))


def _clean(texts: pl.Series) -> pl.Series:
    """Lower case, followed by a space; characters outside words become spaces where a text is not ASCII."""
    lower = texts.cast(pl.String).fill_null("").str.to_lowercase()
    is_ascii = lower.str.len_bytes() == lower.str.len_chars()
    if not is_ascii.all():
        lower = pl.select(
            pl.when(pl.lit(is_ascii)).then(pl.lit(lower)).otherwise(pl.lit(lower).str.replace_all(OTHER, " "))
        ).to_series()
    return lower + " "
