"""Arrays that are written part by part."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayParts:
    """An array that is written part by part, so that it is never in memory as a whole."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[Array]]  # consecutive rows

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.itemsize

    def load(self) -> Array:
        """The whole array in memory."""
        found, done = np.empty(self.shape, self.dtype), 0
        for part in self.parts():
            found[done : done + len(part)] = part
            done += len(part)
        return found


def parts_of(array: "Array | ArrayParts") -> Iterator[memoryview]:
    """The bytes of an array, in parts if it has parts; contiguous arrays are not copied."""
    parts = array.parts() if isinstance(array, ArrayParts) else iter([array])
    for part in parts:
        yield np.ascontiguousarray(part, array.dtype).reshape(-1).view(np.uint8).data
