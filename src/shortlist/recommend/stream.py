"""recommend_to: lists for everybody, written to one Parquet file while memory stays flat."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from shortlist.core.files import atomic_write
from shortlist.errors import ConfigError
from shortlist.recommend.batch import BatchRecommender
from shortlist.recommend.lists import empty_lists
from shortlist.recommend.request import Wishes, renamed
from shortlist.recommend.scorer import Scorer


def recommend_to(
    path: str | Path,
    scorer: Scorer,
    users: Any = None,
    *,
    candidates: Any = None,
    exclude: Any = None,
    n_threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **wishes: Any,
) -> Path:
    """Write what `recommend` returns, as RankedLists.to_frame has it; `progress(done, all)` after each chunk.

    The file is written beside and renamed into place: whoever reads it sees a whole one, old or new.
    """
    target = Path(path)
    if target.suffix != ".parquet":
        raise ConfigError(f"lists are streamed to a .parquet file, got {target.name!r}; change the ending.")
    desk = BatchRecommender.of(scorer, users, Wishes(**renamed(wishes)), candidates, exclude, n_threads)
    schema = empty_lists(desk.ids.head(0), scorer.items_, "top_n").to_frame().schema

    def frames(columns: Any, predicate: Any, n_rows: Any, batch: Any) -> Iterator[pl.DataFrame]:
        done = 0
        for lists in desk.chunks():
            yield lists.to_frame().cast(schema)
            done += len(lists)
            if progress is not None:
                progress(done, len(desk.ids))

    with atomic_write(target) as temporary:
        register_io_source(frames, schema=schema).sink_parquet(temporary, maintain_order=True)
    return target
