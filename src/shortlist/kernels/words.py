"""Words of texts: split UTF-8 bytes into words, number them, and count them per text.

A word is a run of ASCII letters, digits and underscores, and of bytes of other characters; the caller turns
other characters that belong to no word into spaces. Words with the same 64-bit hash are the same word.
"""

import numpy as np
import numpy.typing as npt

from shortlist.kernels.jit import inlined, kernel
from shortlist.types import Ints, Longs, State

Bytes = npt.NDArray[np.uint8]
FNV_START = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)
MIX = np.uint64(0x9E3779B97F4A7C15)
S29, S32 = np.uint64(29), np.uint64(32)
FREE = -1


@inlined
def is_word_byte(byte: np.uint8) -> bool:
    """Return whether a byte belongs to a word."""
    return bool(
        (byte >= 97 and byte <= 122)
        or byte >= 128
        or (byte >= 48 and byte <= 57)
        or (byte >= 65 and byte <= 90)
        or byte == 95
    )


@inlined
def find_slot(keys: State, numbers: Ints, key: np.uint64) -> int:
    """Return where a hash is, or would be, in an open table whose size is a power of two."""
    mask = keys.size - 1
    at = np.int64((key * MIX) >> S32) & mask
    while numbers[at] != FREE and keys[at] != key:
        at = (at + 1) & mask
    return int(at)


@inlined
def hash_word(text: Bytes, start: int, stop: int) -> np.uint64:
    """Return the hash of a word."""
    key = FNV_START
    for at in range(start, stop):
        key = (key ^ np.uint64(text[at])) * FNV_PRIME
    return np.uint64(key ^ (key >> S29))


@kernel
def count_words(
    text: Bytes,  # (n_bytes,) all texts, one after the other
    starts: Longs,  # (n_texts + 1,)
    first: int,  # text to begin with
    keys: State,  # (size,) hashes of the known words
    numbers: Ints,  # (size,) their numbers, -1 for a free slot
    places: Longs,  # (≥ n_words, 2) first byte and end of each word, written for new ones
    state: Longs,  # (2,) known words and written entries, updated
    latest: Longs,  # (≥ n_words,) last entry of each word, -1 at first
    indptr: Longs,  # (n_texts + 1,) written
    words: Ints,  # (n_entries,) written
    counts: Ints,  # (n_entries,) written
    learn: bool,  # whether unknown words get a number; otherwise they are skipped
) -> int:
    """Count the words of texts from `first` on; return the next text if the tables must grow first."""
    for row in range(first, starts.size - 1):
        longest = (starts[row + 1] - starts[row] + 1) // 2
        if learn and (2 * (state[0] + longest) > keys.size or state[0] + longest > places.shape[0]):
            return row
        if state[1] + longest > words.size:
            return row
        begin = state[1]
        at, end = starts[row], starts[row + 1]
        while at < end:
            if not is_word_byte(text[at]):
                at += 1
                continue
            start = at
            while at < end and is_word_byte(text[at]):
                at += 1
            key = hash_word(text, start, at)
            slot = find_slot(keys, numbers, key)
            if numbers[slot] == FREE:
                if not learn:
                    continue
                keys[slot] = key
                numbers[slot] = np.int32(state[0])
                places[state[0], 0], places[state[0], 1] = start, at
                state[0] += 1
            word = numbers[slot]
            entry = latest[word]
            if entry >= begin:
                counts[entry] += 1
            else:
                latest[word] = state[1]
                words[state[1]] = word
                counts[state[1]] = 1
                state[1] += 1
        indptr[row + 1] = state[1]
    return int(starts.size - 1)


@kernel
def fill_table(hashes: State, keys: State, numbers: Ints) -> None:
    """Put hashes 0 … n - 1 into an empty table."""
    for word in range(hashes.size):
        slot = find_slot(keys, numbers, hashes[word])
        keys[slot] = hashes[word]
        numbers[slot] = np.int32(word)


@kernel
def hash_words(text: Bytes, starts: Longs, hashes: State) -> None:
    """Hash words that are stored one after the other."""
    for word in range(hashes.size):
        hashes[word] = hash_word(text, starts[word], starts[word + 1])
