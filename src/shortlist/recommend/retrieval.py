"""Exact selection of the best items, from an index, from factors, or from dense or ragged scores."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from shortlist.content.features import to_rows
from shortlist.core.ragged import ItemSets, Ragged
from shortlist.core.threads import map_slices
from shortlist.data.items import skip_items
from shortlist.errors import DataError
from shortlist.kernels.allocation import UNLIMITED, UserLimits
from shortlist.kernels.retrieval import (
    TILE,
    ItemBlocks,
    ItemFactors,
    Query,
    fill_blocks,
    retrieve_from_factors,
    score_pairs,
    select_top,
    unpack_keys,
)
from shortlist.kernels.rows import read_only, starts, take_rows
from shortlist.kernels.simd import BLOCK
from shortlist.kernels.sparse import (
    Postings,
    SparseRows,
    score_rows,
    search_postings,
)
from shortlist.types import Bools, Doubles, Floats, Ints, Longs, State

if TYPE_CHECKING:
    from shortlist.recommend.request import Factors, Scores


FIRST_STAGE = 16  # dimensions scored before the first bound check; each stage doubles them
STAGED_SHARE = 0.6  # early bound checks pay off if these dimensions hold this share of the squared lengths
INDEX_ROWS = 1 << 16  # items converted to double precision at a time
LINE = 64  # bytes of a cache line
ROUNDING = 2.0**-24  # relative rounding error of one 32-bit operation
NO_BIAS = np.empty(0, np.float32)


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """Items rotated by the singular vectors of their factors, in blocks, highest possible score first."""

    items: ItemFactors
    blocks: ItemBlocks

    @classmethod
    def build(
        cls,
        item_factors: Floats,
        bias: Floats | None = None,
        *,
        items: Ints | None = None,
        vector_norm: float = 1.0,
    ) -> Self:
        """Index all items or the distinct `items`; `vector_norm` is a typical norm of a user vector."""
        factors, biases = scored_by = _item_factors(item_factors, bias)
        chosen = np.arange(len(factors), dtype=np.int32) if items is None else items
        squares, gram = _norms_and_gram(factors, chosen)
        offset = np.zeros(chosen.size) if bias is None else biases[chosen].astype(np.float64)
        scorable = ~np.isnan(squares) & (offset > -np.inf)  # the others score NaN or -inf for every user
        chosen, offset = chosen[scorable], offset[scorable]
        order = np.argsort(-(np.sqrt(squares[scorable]) * vector_norm + offset), kind="stable")
        blocks = _empty_blocks(chosen[order], offset[order], *_rotate(gram))
        lengths = np.zeros(blocks.item.size, np.float32)

        def fill(some: slice) -> None:
            rows = slice(some.start * BLOCK, min(some.stop * BLOCK, chosen.size))
            fill_blocks(factors, chosen[order][rows], _block_slice(blocks, some), lengths[rows])

        map_slices(fill, len(blocks.peaks), 64)
        blocks.peaks[:, 0] = lengths.reshape(-1, BLOCK).max(axis=1)
        np.maximum.accumulate(blocks.peaks[::-1], out=blocks.ahead[::-1])
        return cls(scored_by, blocks)

    @cached_property
    def n_items(self) -> int:
        """Number of items in the index."""
        return int((self.blocks.item >= 0).sum())

    @property
    def slack(self) -> np.float32:
        """Twice the rounding error of a bound plus a score, relative to the vector norms."""
        return np.float32(4 * (self.items.factors.shape[1] + 8) * ROUNDING)


def _item_factors(item_factors: Floats, bias: Floats | None) -> ItemFactors:
    """The factors and biases of items as the kernels expect them."""
    offsets = NO_BIAS if bias is None else np.asarray(bias, np.float32)
    return ItemFactors(read_only(np.asarray(item_factors, np.float32)), read_only(offsets))


def _convert_batches(factors: Floats, chosen: Ints) -> Iterator[tuple[slice, Doubles]]:
    """Yield (rows, factors in double precision), ROWS items at a time."""
    for start in range(0, chosen.size, INDEX_ROWS):
        rows = slice(start, start + INDEX_ROWS)
        yield rows, factors[chosen[rows]].astype(np.float64)


def _norms_and_gram(factors: Floats, chosen: Ints) -> tuple[Doubles, Doubles]:
    """Squared norms of the items, and the sum of the outer products of the finite ones."""
    squares, gram = np.empty(chosen.size), np.zeros((factors.shape[1], factors.shape[1]))
    for rows, batch in _convert_batches(factors, chosen):
        squares[rows] = np.einsum("if,if->i", batch, batch)
        finite = batch[np.isfinite(squares[rows])]
        gram += finite.T @ finite
    return squares, gram


def _rotate(gram: Doubles) -> tuple[Doubles, bool]:
    """(n_factors, n_factors) singular directions, largest first, and whether the first carry most weight."""
    values, vectors = np.linalg.eigh(gram)
    is_decaying = values[-FIRST_STAGE:].sum() >= STAGED_SHARE * values.sum()
    return np.ascontiguousarray(vectors[:, ::-1]), bool(is_decaying)


def _empty_blocks(item: Ints, bias: Doubles, rotation: Doubles, has_stages: bool) -> ItemBlocks:
    """Blocks with items and biases in place; coordinates, residuals and lengths are still to be filled."""
    n_dims = rotation.shape[1]
    stages = [FIRST_STAGE * 2**n for n in range(8) if has_stages and FIRST_STAGE * 2**n < n_dims]
    n_blocks, n_stages = -(-item.size // BLOCK), len(stages) + 1
    items = np.full(n_blocks * BLOCK, -1, np.int32)
    items[: item.size] = item
    biases = np.full(n_blocks * BLOCK, -np.inf, np.float32)
    biases[: item.size] = bias
    sizes = np.where(items < 0, 0, np.abs(biases)).reshape(-1, BLOCK)
    highest = biases.reshape(-1, BLOCK).max(axis=1)
    peaks = np.stack([np.zeros(n_blocks), highest, sizes.max(axis=1)], axis=1).astype(np.float32)
    return ItemBlocks(
        coordinates=_aligned(n_blocks * n_dims * BLOCK),
        residuals=_aligned(n_blocks * n_stages * BLOCK),
        bias=biases,
        item=items,
        peaks=peaks,
        ahead=np.empty_like(peaks),
        stages=np.array([*stages, n_dims], np.int64),
        rotation=rotation,
    )


def _aligned(n: int) -> Floats:
    """(n,) zeros aligned to a cache line, so that no vector load touches two lines."""
    room = np.zeros(n + LINE // 4, np.float32)
    start = -room.ctypes.data % LINE // 4
    return room[start : start + n]


def _block_slice(blocks: ItemBlocks, some: slice) -> ItemBlocks:
    """Consecutive blocks, as views."""
    n_dims, n_stages = blocks.rotation.shape[1], blocks.stages.size

    def flat(share: int) -> slice:
        return slice(some.start * share * BLOCK, some.stop * share * BLOCK)

    return blocks._replace(
        coordinates=blocks.coordinates[flat(n_dims)],
        residuals=blocks.residuals[flat(n_stages)],
        bias=blocks.bias[flat(1)],
        item=blocks.item[flat(1)],
        peaks=blocks.peaks[some],
        ahead=blocks.ahead[some],
    )


class ItemIndexCache:
    """Keep the index of one model's item factors between requests; assigned in one step."""

    def __init__(self) -> None:
        self.index: ItemIndex | None = None


SLICE = 2 * TILE  # users per task of a thread
CAPACITY = 1024  # hits per user that fit before a search without limit must be repeated
CELLS = 1 << 22  # dense scores in memory at once, per thread


@dataclass(frozen=True, eq=False)
class Hits(Ragged):
    """The selected items, best first; equal scores by smaller item index."""

    per_element: ClassVar[tuple[str, ...]] = ("items", "scores")
    per_row: ClassVar[tuple[str, ...]] = ("truncated", "skipped")

    indptr: Longs  # (n_users + 1,)
    items: Ints  # (n_hits,)
    scores: Floats  # (n_hits,)
    truncated: Bools  # (n_users,) whether the limit removed hits
    skipped: Bools | None = None  # (n_users,) whether all that is left is beyond the limits of groups

    def repeat(self, values: Floats) -> Doubles:
        """(n_hits,) the value (n_users,) of the user of each hit."""
        return np.repeat(values.astype(np.float64), self.lengths)

    def within(self, limits: UserLimits, limit: int | None) -> "Hits":
        """The best `limit` hits within the limits of groups."""
        most = UNLIMITED if limit is None else limit + 1
        keep, sizes = skip_items(self.indptr, self.items, limits._replace(max_items=most))
        truncated = sizes == most
        if truncated.any():
            keep, sizes = skip_items(self.indptr, self.items, limits._replace(max_items=most - 1))
        skipped = ~truncated & ~self.truncated & (sizes < self.lengths)
        return Hits(starts(sizes), self.items[keep], self.scores[keep], truncated | self.truncated, skipped)


NO_HITS = Hits(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.bool_))


def _search_slices(search: Callable[[slice], Hits], n_users: int, size: int) -> Hits:
    """The hits of all users, of whom `size` are searched at once."""
    return Hits.concat(map_slices(search, n_users, size) or [NO_HITS])


def search_index(
    index: ItemIndex,
    vectors: Floats,  # (n_users, n_factors)
    floors: Floats,  # (n_users,) only scores strictly above count; NaN selects nothing
    excluded: ItemSets,
    limit: int | None,
) -> Hits:
    """The best `limit` items of each user above the floor; most items are never scored."""
    vectors, floors = read_only(np.asarray(vectors, np.float32)), read_only(floors)

    def search(rows: slice) -> Hits:
        banned = excluded.part(rows)
        query = Query(vectors[rows], floors[rows], banned.indptr, banned.items)

        def run(keys: State, counts: Longs) -> None:
            retrieve_from_factors(index.items, index.blocks, query, index.slack, keys, counts)

        return _collect(run, rows.stop - rows.start, limit, index.n_items)

    return _search_slices(search, floors.size, SLICE)


def score_candidates(
    factors: "Factors",
    candidates: ItemSets | Ints,  # of each user, or (n,) those that all users share
    floors: Floats,  # (n_users,)
    excluded: ItemSets,
    limit: int | None,
) -> Hits:
    """The best `limit` items of the candidates, all of which are scored."""
    vectors = read_only(np.asarray(factors.vectors, np.float32))
    items = _item_factors(factors.item_factors, factors.bias)

    def search(rows: slice) -> Hits:
        if isinstance(candidates, ItemSets):
            sets = candidates.part(rows)
        else:
            sets = ItemSets(np.arange(rows.stop - rows.start + 1) * candidates.size, read_only(candidates))
        scores = np.empty(sets.indptr[-1], np.float32)
        score_pairs(vectors[rows], *items, sets.indptr, sets.items, scores)
        return select_ragged(sets, scores, floors[rows], excluded.part(rows), limit)

    size = SLICE if isinstance(candidates, ItemSets) else max(CELLS // max(candidates.size, 1), 1)
    return _search_slices(search, floors.size, size)


def select_dense(scores: Floats, items: Ints, floors: Floats, excluded: ItemSets, limit: int | None) -> Hits:
    """The best of dense (n_users, n_columns) scores; `items` are the items of the columns."""
    indptr = np.arange(len(scores) + 1, dtype=np.int64) * items.size
    values = np.asarray(scores, np.float32).ravel()
    return select_ragged(ItemSets(indptr, items), values, floors, excluded, limit)


def select_ragged(
    candidates: ItemSets, scores: Floats, floors: Floats, excluded: ItemSets, limit: int | None
) -> Hits:
    """The best of each user's scored candidates; `candidates.items` may be shared, see `select_top`."""
    values, floors = read_only(scores), read_only(floors)
    indptr, items = candidates.indptr, candidates.items

    def run(keys: State, counts: Longs) -> None:
        select_top(indptr, items, values, floors, excluded.indptr, excluded.items, keys, counts)

    return _collect(run, floors.size, limit, int(candidates.lengths.max(initial=0)))


def _collect(run: Callable[[State, Longs], None], n_users: int, limit: int | None, most: int) -> Hits:
    """Run a selection kernel with enough capacity and sort its hits; no user has more than `most`."""
    # one more than the limit, to know whether the limit removes hits
    width = min(CAPACITY if limit is None else limit + 1, most)
    while True:
        keys, counts = np.empty((n_users, width), np.uint64), np.zeros(n_users, np.int64)
        run(keys, counts)
        if limit is not None or not (counts > width).any():
            break
        width = min(width * 8, most)
    np.minimum(counts, width, out=counts)
    lengths = counts if limit is None else np.minimum(counts, limit)
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    items, scores = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    unpack_keys(keys, counts, indptr, items, scores)
    return Hits(indptr, items, scores, counts > lengths)


POSTINGS_SLICE = 64  # users per task of a thread
POSTINGS_BLOCK = 1 << 16  # items whose scores are computed together; they fit into the cache


@dataclass(frozen=True, eq=False)
class SparseItems:
    """Sparse item vectors, and their inverted index, which is built when it is first needed."""

    rows: SparseRows  # (n_items, n_features)
    n_features: int
    shared: dict[str, Postings] = field(default_factory=dict)  # the index, kept when empty items are added

    @classmethod
    def of(cls, matrix: csr_array) -> "SparseItems":
        """The items of a sparse matrix with sorted columns."""
        return cls(to_rows(matrix), matrix.shape[1])

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.rows.indptr.size - 1

    @cached_property
    def matrix(self) -> csr_array:
        """(n_items, n_features)."""
        rows = self.rows
        return csr_array((rows.values, rows.columns, rows.indptr), shape=(self.n_items, self.n_features))

    @property
    def postings(self) -> Postings:
        """The inverted index."""
        if "index" not in self.shared:
            by_feature = csr_array(self.matrix.T)
            indptr, items, values = to_rows(by_feature)
            largest = abs(by_feature).max(axis=1).toarray()
            self.shared["index"] = Postings(indptr, items, np.asarray(values), read_only(largest))
        return self.shared["index"]

    def pad(self, n_items: int) -> "SparseItems":
        """These items followed by others without content."""
        more = np.full(n_items - self.n_items, self.rows.indptr[-1])
        indptr = read_only(np.concatenate([self.rows.indptr, more]))
        return SparseItems(self.rows._replace(indptr=indptr), self.n_features, self.shared)


class SparseScores(NamedTuple):
    """Scores as inner products: queries @ items.T. Items that share no feature with a query have no score."""

    queries: SparseRows  # (n_users, n_features)
    items: SparseItems

    def take(self, numbers: Longs) -> "SparseScores":
        """The scores of these users, in this order."""
        indptr, rows = take_rows(self.queries.indptr, numbers)
        queries = SparseRows(indptr, self.queries.columns[rows], self.queries.values[rows])
        return SparseScores(queries, self.items)

    def part(self, rows: slice) -> SparseRows:
        """The queries of consecutive users."""
        at = self.queries.indptr[rows.start : rows.stop + 1]
        return SparseRows(
            read_only(at - at[0]),
            read_only(self.queries.columns[at[0] : at[-1]]),
            read_only(self.queries.values[at[0] : at[-1]]),
        )


def dense_scores(scores: SparseScores, items: Ints) -> Floats:
    """(n_users, n_items) scores of these items; -inf where nothing is shared."""
    queries = scores.queries
    matrix = np.empty((queries.indptr.size - 1, items.size), np.float32)
    scratch, at = np.zeros(scores.items.n_features, np.float32), np.arange(len(matrix) + 1) * items.size
    score_rows(queries, scores.items.rows, read_only(at), read_only(items), scratch, matrix.reshape(-1))
    matrix[matrix == 0] = -np.inf
    return matrix


def search_sparse(
    scores: SparseScores,
    shared: Ints | None,  # (n,) the candidates of all users; None: all items
    floors: Floats,  # (n_users,) only scores strictly above count
    excluded: ItemSets,
    per_user: ItemSets | None,
    limit: int | None,
) -> Hits:
    """The best `limit` items of each user above the floor, from own or shared candidates or all items."""
    items, n_users = scores.items, floors.size
    if per_user is not None:

        def search_own(rows: slice) -> Hits:
            mine = per_user.part(rows)
            values = np.empty(mine.items.size, np.float32)
            scratch = np.zeros(items.n_features, np.float32)
            score_rows(scores.part(rows), items.rows, mine.indptr, mine.items, scratch, values)
            values[values == 0] = -np.inf
            return select_ragged(mine, values, floors[rows], excluded.part(rows), limit)

        return _search_slices(search_own, n_users, POSTINGS_SLICE)
    if shared is not None or limit is None:
        columns = np.arange(items.n_items, dtype=np.int32) if shared is None else shared

        def search_shared(rows: slice) -> Hits:
            some = SparseScores(scores.part(rows), items)
            return select_dense(
                dense_scores(some, columns), columns, floors[rows], excluded.part(rows), limit
            )

        return _search_slices(search_shared, n_users, max(CELLS // max(columns.size, 1), 1))
    index = items.postings

    def search_all(rows: slice) -> Hits:
        banned = excluded.part(rows)
        width = min(limit + 1 + int(banned.lengths.max(initial=0)), items.n_items)
        best = top_items(scores.part(rows), items, index, width)
        return select_ragged(ItemSets(best.indptr, best.items), best.scores, floors[rows], banned, limit)

    return _search_slices(search_all, n_users, POSTINGS_SLICE)


def top_items(
    queries: SparseRows, items: SparseItems, index: Postings, width: int, block: int = POSTINGS_BLOCK
) -> Hits:
    """The best `width` items of each query, best first."""
    size = min(block, max(items.n_items, 1))

    def run(keys: State, counts: Longs) -> None:
        query, scores = np.zeros(items.n_features, np.float32), np.zeros(size, np.float32)
        search_postings(queries, items.rows, index, query, scores, np.zeros(size, np.bool_), keys, counts)

    return _collect(run, queries.indptr.size - 1, width, items.n_items)


class ScoredCandidates(NamedTuple):
    """The scores of some users, what they may be shown, and what they may not."""

    scores: "Scores"
    candidates: ItemSets | None  # of each user; None if all users have the same
    excluded: ItemSets

    def take(self, users: Longs) -> "ScoredCandidates":
        """Those of these users, in this order."""
        sets = None if self.candidates is None else self.candidates.take(users)
        return ScoredCandidates(self.scores.take(users), sets, self.excluded.take(users))


GROUP_DEPTH = 4  # how much deeper the next search is if items are skipped

# Building an index costs about as much as scoring every item for this many users.
INDEX_USERS = 64


@dataclass(eq=False)
class Retriever:
    """Searches the `shared` candidates of a request (None: all items) for `n_users` users in total.

    With `limits`, items beyond the limits of their groups are skipped.
    """

    n_items: int
    shared: Ints | None  # (n,) ascending
    n_users: int
    limits: UserLimits | None = None
    index: ItemIndex | None = field(default=None, init=False)

    def search(self, scored: ScoredCandidates, limit: int | None, floors: Floats | None = None) -> Hits:
        """The best `limit` items (None: all) of each user, above the floor (n_users,) if there are floors."""
        if floors is None:
            floors = np.full(len(scored.excluded), -np.inf, np.float32)
        if self.limits is None:
            return self._search(scored, limit, floors)
        depth = None if limit is None else GROUP_DEPTH * limit
        return self._search_deeper(self._search(scored, depth, floors), scored, limit, floors, depth or 0)

    def _search_deeper(
        self, hits: Hits, scored: ScoredCandidates, limit: int | None, floors: Floats, depth: int
    ) -> Hits:
        """The hits within the limits of groups; more candidates for users of whom too many were skipped."""
        assert self.limits is not None
        within = hits.within(self.limits, limit)
        short = np.flatnonzero(hits.truncated & (within.lengths < (limit or 0)))
        if short.size == 0:
            return within
        parts, depth = [within], depth * GROUP_DEPTH
        for users in np.array_split(short, -(-short.size * min(depth, self.n_items) // CELLS)):
            more = scored.take(users)
            hits = self._search(more, depth, floors[users])
            parts.append(self._search_deeper(hits, more, limit, floors[users], depth))
        order = np.arange(floors.size)
        order[short] = floors.size + np.arange(short.size)
        return Hits.concat(parts).take(order)

    def _search(self, scored: ScoredCandidates, limit: int | None, floors: Floats) -> Hits:
        """The best `limit` items without regard to groups."""
        scores, per_user, excluded = scored
        if scores.sparse is not None:
            return search_sparse(scores.sparse, self.shared, floors, excluded, per_user, limit)
        if scores.factors is None:
            return self._select(scored, limit, floors)
        index = self._find_index(scores.factors) if per_user is None else None
        if index is not None:
            vectors = scores.factors.vectors
            return search_index(index, vectors, floors, excluded, limit)
        candidates = self._columns() if per_user is None else per_user
        return score_candidates(scores.factors, candidates, floors, excluded, limit)

    def _columns(self) -> Ints:
        """The candidates of all users, which are also the columns of dense scores."""
        return np.arange(self.n_items, dtype=np.int32) if self.shared is None else self.shared

    def _find_index(self, factors: "Factors") -> ItemIndex | None:
        """The index of this request or of the model; a new one if there are enough users."""
        cache = factors.index_cache if self.shared is None and factors.index_cache else ItemIndexCache()
        if self.index is None and cache.index is None and self.n_users >= INDEX_USERS:
            cache.index = build_index(factors, self.shared)
        if self.index is None:
            self.index = cache.index
        return self.index

    def _select(self, scored: ScoredCandidates, limit: int | None, floors: Floats) -> Hits:
        """Select from scores that are already computed."""
        scores, per_user, excluded = scored
        values = np.asarray(scores.values, np.float32)
        if scores.candidates is not None:
            return select_ragged(scores.candidates, values, floors, excluded, limit)
        if values.shape != (floors.size, self.n_items):
            raise DataError(
                f"score() must return one row per user and one column per item, "
                f"{(floors.size, self.n_items)}, got {values.shape}."
            )
        if per_user is not None:
            values = values[per_user.owner, per_user.items]
            return select_ragged(per_user, values, floors, excluded, limit)
        rows = values if self.shared is None else values[:, self.shared]
        return select_dense(rows, self._columns(), floors, excluded, limit)


def build_index(factors: "Factors", shared: Ints | None) -> ItemIndex:
    """The index of these items for users like these; it finds the same items as scoring all, bit for bit."""
    norms = np.linalg.norm(np.asarray(factors.vectors[:1024], np.float64), axis=1)
    norms = norms[np.isfinite(norms)]
    return ItemIndex.build(
        factors.item_factors,
        factors.bias,
        items=shared,
        vector_norm=float(norms.mean()) if norms.size else 1.0,
    )
