"""Cutoffs in the pipelines of other libraries: one small class per library, imported only on demand.

Each takes a fitted cutoff that needs no history, or the file of one. Import it from its module, such as
`from shortlist.adapters.llama_index import CutPostprocessor`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shortlist.cutoff.base import Cutoff
from shortlist.types import Ints


def prepare_cutoff(cutoff: Cutoff | str | Path) -> Callable[..., Ints]:
    """A function from the scores of one list to the positions to show, of a cutoff or of its file."""
    loaded = cutoff if isinstance(cutoff, Cutoff) else Cutoff.load(cutoff)
    show = loaded.prepare()

    def show_any(scores: npt.ArrayLike, sizes: npt.ArrayLike | None = None) -> Ints:
        values = np.asarray(scores, np.float32)
        return show(values, sizes) if values.size else np.empty(0, np.int32)

    return show_any
