"""Hits: the best items of many users, from factors, dense rows or scored pairs; exact, whatever the path."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from shortlist.core.threads import map_slices
from shortlist.kernels.retrieve import Query, retrieve_from_factors
from shortlist.kernels.topk import score_grid, score_pairs, select_top, unpack_keys
from shortlist.recommend.index import NO_BIAS, ItemIndex, frozen
from shortlist.types import Bools, Floats, Ints, Longs, State

PIECE = 256  # users one thread takes at a time
ROOM = 1024  # hits a user may have before a list without limit needs a second look
CELLS = 1 << 22  # scores of a dense piece held at once, per thread


class Sets(NamedTuple):
    """One set of items per user."""

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n,) ascending per user

    def part(self, rows: slice) -> "Sets":
        """The sets of neighbouring users."""
        at = self.indptr[rows.start : rows.stop + 1]
        return Sets(frozen(at - at[0]), frozen(self.items[at[0] : at[-1]]))

    def row(self, number: int) -> Ints:
        """One user's set."""
        return self.items[self.indptr[number] : self.indptr[number + 1]]

    def take(self, numbers: Longs) -> "Sets":
        """The sets of these users, in this order."""
        lengths = np.diff(self.indptr)[numbers]
        at = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(self.indptr[numbers] - at[:-1], lengths) + np.arange(at[-1])
        return Sets(at, self.items[rows])


class Hits(NamedTuple):
    """What was found, best first, ties to the smaller item."""

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n_hits,)
    scores: Floats  # (n_hits,)
    full: Bools  # (n_users,) whether the limit cut something off


def no_sets(n_users: int) -> Sets:
    """An empty set for everybody."""
    return Sets(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))


def joined(parts: Sequence[Hits]) -> Hits:
    """Hits of consecutive users in one piece."""
    lengths = [np.diff(part.indptr) for part in parts]
    return Hits(
        np.concatenate([[0], *lengths]).cumsum().astype(np.int64),
        np.concatenate([np.empty(0, np.int32), *(part.items for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.scores for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.full for part in parts)]),
    )


def from_index(
    index: ItemIndex,
    vectors: Floats,  # (n_users, n_factors)
    floors: Floats,  # (n_users,) only scores strictly above are hits; NaN finds nothing
    excluded: Sets,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """The best `limit` items of each user, or all above the floor; most items are never scored."""
    vectors, floors = frozen(np.asarray(vectors, np.float32)), frozen(floors)

    def piece(rows: slice) -> Hits:
        query = Query(vectors[rows], floors[rows], *excluded.part(rows))

        def run(words: State, held: Longs) -> None:
            retrieve_from_factors(index.items, index.blocks, query, index.slack, words, held)

        return _collect(run, rows.stop - rows.start, limit, index.n_items)

    return joined(map_slices(piece, floors.size, PIECE, n_threads))


def from_factors(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats | None,  # (n_items,)
    items: Ints,  # (n_columns,) the candidates of everybody
    floors: Floats,  # (n_users,)
    excluded: Sets,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """The same, every candidate scored: for few users it is not worth building an index."""
    vectors, item_factors, offsets = _ready(vectors, item_factors, bias)

    def piece(rows: slice) -> Hits:
        scores = np.empty((rows.stop - rows.start, items.size), np.float32)
        score_grid(vectors[rows], item_factors, offsets, frozen(items), scores)
        return from_rows(scores, items, floors[rows], excluded.part(rows), limit)

    return joined(map_slices(piece, floors.size, max(CELLS // max(items.size, 1), 1), n_threads))


def from_pairs(
    vectors: Floats,  # (n_users, n_factors)
    item_factors: Floats,  # (n_items, n_factors)
    bias: Floats | None,  # (n_items,)
    candidates: Sets,
    floors: Floats,  # (n_users,)
    excluded: Sets,
    limit: int | None,
    n_threads: int,
) -> Hits:
    """Every user has candidates of their own."""
    vectors, item_factors, offsets = _ready(vectors, item_factors, bias)

    def piece(rows: slice) -> Hits:
        own = candidates.part(rows)
        scores = np.empty(own.items.size, np.float32)
        score_pairs(vectors[rows], item_factors, offsets, *own, scores)
        return from_ragged(own, scores, floors[rows], excluded.part(rows), limit)

    return joined(map_slices(piece, floors.size, PIECE, n_threads))


def from_rows(scores: Floats, items: Ints, floors: Floats, excluded: Sets, limit: int | None) -> Hits:
    """The best of dense (n_users, n_columns) scores; `items` names the columns."""
    indptr = np.arange(len(scores) + 1, dtype=np.int64) * items.size
    return from_ragged(Sets(indptr, items), np.asarray(scores, np.float32).ravel(), floors, excluded, limit)


def from_ragged(candidates: Sets, scores: Floats, floors: Floats, excluded: Sets, limit: int | None) -> Hits:
    """The best of each user's scored candidates; `candidates.items` may be shared, see `select_top`."""
    indptr, items, values = frozen(candidates.indptr), frozen(candidates.items), frozen(scores)
    floors, excluded_at, excluded_items = frozen(floors), frozen(excluded.indptr), frozen(excluded.items)

    def run(keys: State, counts: Longs) -> None:
        select_top(indptr, items, values, floors, excluded_at, excluded_items, keys, counts)

    return _collect(run, floors.size, limit, int(np.diff(indptr).max(initial=0)))


def _ready(vectors: Floats, item_factors: Floats, bias: Floats | None) -> tuple[Floats, Floats, Floats]:
    """The arrays as the scoring kernels want them."""
    offsets = NO_BIAS if bias is None else np.asarray(bias, np.float32)
    return (
        frozen(np.asarray(vectors, np.float32)),
        frozen(np.asarray(item_factors, np.float32)),
        frozen(offsets),
    )


def _collect(run: Callable[[State, Longs], None], n_users: int, limit: int | None, most: int) -> Hits:
    """Run a selecting kernel with room enough and put what it found in order; nobody has more than `most`."""
    width = min(ROOM if limit is None else limit + 1, most)  # one more, to know whether the limit cuts
    while True:
        words, held = np.empty((n_users, width), np.uint64), np.zeros(n_users, np.int64)
        run(words, held)
        if limit is not None or not (held > width).any():
            break
        width = min(width * 8, most)
    np.minimum(held, width, out=held)
    wanted = held if limit is None else np.minimum(held, limit)
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(wanted, out=indptr[1:])
    items, scores = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    unpack_keys(words, held, indptr, items, scores)
    return Hits(indptr, items, scores, held > wanted)
