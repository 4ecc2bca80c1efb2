"""ItemIndex: item factors rotated and blocked for exact retrieval that skips most items."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from shortlist.core.ragged import read_only
from shortlist.core.threads import map_slices
from shortlist.kernels.retrieve import ItemBlocks, Items, fill_blocks
from shortlist.kernels.simd_blocks import BLOCK
from shortlist.types import Doubles, Floats, Ints

FIRST_STAGE = 16  # dimensions scored before the first bound check; each stage doubles them
ROWS = 1 << 16  # items converted to double precision at a time
LINE = 64  # bytes of a cache line
UNDERFLOW = 2e-19  # twice the root of the smallest normal 32-bit number
ROUNDING = 2.0**-24  # relative rounding error of one 32-bit operation
NO_BIAS = np.empty(0, np.float32)


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """Items rotated by the singular vectors of their factors, in blocks, highest possible score first."""

    items: Items
    blocks: ItemBlocks

    @classmethod
    def build(
        cls,
        item_factors: Floats,
        bias: Floats | None = None,
        *,
        items: Ints | None = None,
        vector_norm: float = 1.0,
        n_threads: int = 0,
    ) -> Self:
        """Index all items or the distinct `items`; `vector_norm` is a typical norm of a user vector."""
        factors = read_only(np.asarray(item_factors, np.float32))
        biases = read_only(NO_BIAS if bias is None else np.asarray(bias, np.float32))
        chosen = np.arange(len(factors), dtype=np.int32) if items is None else items
        squares, gram = _norms_and_gram(factors, chosen)
        offset = np.zeros(chosen.size) if bias is None else biases[chosen].astype(np.float64)
        scorable = ~np.isnan(squares) & (offset > -np.inf)  # the others score NaN or -inf for every user
        chosen, offset = chosen[scorable], offset[scorable]
        order = np.argsort(-(np.sqrt(squares[scorable]) * vector_norm + offset), kind="stable")
        blocks = _empty_blocks(chosen[order], offset[order], _rotation(gram))
        lengths = np.zeros(blocks.item.size, np.float32)

        def fill(part: slice) -> None:
            rows = slice(part.start * BLOCK, min(part.stop * BLOCK, chosen.size))
            fill_blocks(factors, chosen[order][rows], _block_slice(blocks, part), lengths[rows])

        map_slices(fill, len(blocks.peaks), 64, n_threads)
        blocks.peaks[:, 0] = lengths.reshape(-1, BLOCK).max(axis=1)
        np.maximum.accumulate(blocks.peaks[::-1], out=blocks.ahead[::-1])
        return cls(Items(factors, biases), blocks)

    def without_stages(self) -> "ItemIndex":
        """The same index without early bound checks; faster if the first dimensions carry little weight."""
        stages = self.blocks.stages[-1:].copy()
        return ItemIndex(
            self.items, self.blocks._replace(stages=stages, residuals=_aligned(self.blocks.item.size))
        )

    @cached_property
    def n_items(self) -> int:
        """Number of items in the index."""
        return int((self.blocks.item >= 0).sum())

    @property
    def slack(self) -> np.float32:
        """Twice the rounding error of a bound plus a score, relative to the vector norms."""
        return relative_slack(self.items.factors.shape[1])


@dataclass(frozen=True, eq=False)
class ProductIndex:
    """Items that are scored by a matrix product, because an index would skip too few of them."""

    items: Items
    chosen: Ints  # (n,) the items

    @classmethod
    def build(cls, item_factors: Floats, bias: Floats | None = None, *, items: Ints | None = None) -> Self:
        """All items or the distinct `items`."""
        factors = read_only(np.asarray(item_factors, np.float32))
        biases = read_only(NO_BIAS if bias is None else np.asarray(bias, np.float32))
        chosen = np.arange(len(factors), dtype=np.int32) if items is None else items
        return cls(Items(factors, biases), read_only(chosen))

    @property
    def n_items(self) -> int:
        """Number of items."""
        return int(self.chosen.size)

    @cached_property
    def has_all(self) -> bool:
        """Whether the items are all items in their order, so that their factors need not be copied."""
        return self.chosen.size == len(self.items.factors) and bool((np.diff(self.chosen) == 1).all())

    @cached_property
    def largest(self) -> tuple[float, float]:
        """The largest norm of an item, rounded up, NaN if there is one, and the largest finite |bias|."""
        factors, bias = self.items
        with np.errstate(all="ignore"):  # an overflow gives infinity, which is handled
            squares = float(np.einsum("if,if->i", factors, factors).max(initial=0.0))
        # the squares of factors below UNDERFLOW may have been lost
        norm = np.sqrt(squares) + np.sqrt(factors.shape[1]) * UNDERFLOW
        return float(norm * (1 + relative_slack(factors.shape[1]))), float(
            np.abs(bias[np.isfinite(bias)]).max(initial=0.0)
        )


def relative_slack(n_factors: int) -> np.float32:
    """Twice the rounding error of two scores of the same item, relative to the vector norms."""
    return np.float32(4 * (n_factors + 8) * ROUNDING)


def _convert_batches(factors: Floats, chosen: Ints) -> Iterator[tuple[slice, Doubles]]:
    """Yield (rows, factors in double precision), ROWS items at a time."""
    for start in range(0, chosen.size, ROWS):
        rows = slice(start, start + ROWS)
        yield rows, factors[chosen[rows]].astype(np.float64)


def _norms_and_gram(factors: Floats, chosen: Ints) -> tuple[Doubles, Doubles]:
    """Squared norms of the items, and the sum of the outer products of the finite ones."""
    squares, gram = np.empty(chosen.size), np.zeros((factors.shape[1], factors.shape[1]))
    for rows, part in _convert_batches(factors, chosen):
        squares[rows] = np.einsum("if,if->i", part, part)
        finite = part[np.isfinite(squares[rows])]
        gram += finite.T @ finite
    return squares, gram


def _rotation(gram: Doubles) -> Doubles:
    """(n_factors, n_factors) singular directions, largest singular value first."""
    return np.ascontiguousarray(np.linalg.eigh(gram)[1][:, ::-1])


def _empty_blocks(item: Ints, bias: Doubles, rotation: Doubles) -> ItemBlocks:
    """Blocks with items and biases in place; coordinates, residuals and lengths are still to be filled."""
    n_dims = rotation.shape[1]
    stages = [FIRST_STAGE * 2**n for n in range(n_dims) if FIRST_STAGE * 2**n < n_dims][:8]
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


def _block_slice(blocks: ItemBlocks, part: slice) -> ItemBlocks:
    """Consecutive blocks, as views."""
    n_dims, n_stages = blocks.rotation.shape[1], blocks.stages.size

    def flat(share: int) -> slice:
        return slice(part.start * share * BLOCK, part.stop * share * BLOCK)

    return blocks._replace(
        coordinates=blocks.coordinates[flat(n_dims)],
        residuals=blocks.residuals[flat(n_stages)],
        bias=blocks.bias[flat(1)],
        item=blocks.item[flat(1)],
        peaks=blocks.peaks[part],
        ahead=blocks.ahead[part],
    )


class ItemIndexCache:
    """Keep the index of one model's item factors between requests; assigned in one step."""

    def __init__(self) -> None:
        self.index: ItemIndex | ProductIndex | None = None  # the fastest for many users
        self.product: ProductIndex | None = None  # for few users
