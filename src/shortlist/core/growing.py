"""GrowingArray: an immutable array that can be extended without copying it."""

from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt


class GrowingArray:
    """Values that never change, followed by room that a longer version may fill.

    Versions share one buffer. Only the longest version fills the room; any other is copied when it is
    extended. A series of appends therefore takes time proportional to the appended values.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._buffer, self._size, self._used = values, len(values), [len(values)]
        self._lock = Lock()

    @property
    def values(self) -> npt.NDArray[Any]:
        """The values, as a read-only view."""
        view = self._buffer[: self._size]
        view.flags.writeable = False
        return view

    def __len__(self) -> int:
        return self._size

    def append(self, more: npt.NDArray[Any]) -> Self:
        """The values followed by `more`."""
        end, new = self._size + len(more), object.__new__(type(self))
        with self._lock:
            if self._used[0] == self._size and end <= len(self._buffer) and self._buffer.flags.writeable:
                new._buffer, new._used, new._lock = self._buffer, self._used, self._lock
                new._used[0] = end
            else:
                new._buffer = np.empty((2 * end, *more.shape[1:]), self._buffer.dtype)
                new._buffer[: self._size] = self._buffer[: self._size]
                new._used, new._lock = [end], Lock()
        new._buffer[self._size : end], new._size = more, end
        return new

    def __getstate__(self) -> npt.NDArray[Any]:
        return self.values

    def __setstate__(self, values: npt.NDArray[Any]) -> None:
        self.__init__(values)  # type: ignore[misc]
