"""similar_items: which items a factor model holds for alike."""

from typing import Any

import numpy as np
import polars as pl

from shortlist.errors import ConfigError
from shortlist.recommend.scorer import Scorer


def similar_items(scorer: Scorer, item_id: Any, N: int = 10) -> pl.DataFrame:
    """The N other items whose vectors point most nearly the same way: item_id, similarity (their cosine).

    Equal ones by item id. An item that nobody took has no more than its random start to say.
    """
    item = scorer.items_.index(item_id)
    if N < 1:
        raise ConfigError(f"N must be at least 1, got {N}; ask for one item or more.")
    parts = scorer.factors(np.empty(0, np.int32))
    if parts is None:
        raise ConfigError(
            f"similar_items compares vectors of items, got a {type(scorer).__name__}, whose scores are no "
            "inner products of them; use a factor model such as BPRMF."
        )
    vectors = parts[1]
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vectors[item])
    cosine = np.divide(vectors @ vectors[item], norms, where=norms > 0, out=np.zeros_like(norms))
    nearest = np.argsort(-cosine, kind="stable")
    nearest = nearest[nearest != item][:N]
    frame = pl.DataFrame({"item_id": scorer.items_.to_ids(nearest), "similarity": cosine[nearest]})
    names = scorer.history.item_names
    return frame if names is None else frame.insert_column(1, names.gather(nearest).alias("item_name"))
