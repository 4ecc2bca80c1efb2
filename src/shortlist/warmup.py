"""Compile all kernels ahead, for instance while an image is built."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.cutoff.base import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.evaluation import fixed_n_curve, oracle
from shortlist.models.base import Recommender
from shortlist.split import Split


def compile_kernels() -> None:
    """Fit every model and cutoff on the built-in sample and use it once.

    Compiled code is kept in the folder NUMBA_CACHE_DIR, or beside the package, or in the user's cache. It is
    compiled again after an update and on another kind of processor.
    """
    data = sl.load_dataset("sample")
    split = sl.split.last_basket(data)
    for model, items in list_models(data):
        use_model(model.fit(split.train_valid, items=items), split)
    use_cutoffs(split)
    use_tables(data)


def list_models(data: Interactions) -> Iterator[tuple[Recommender, pl.DataFrame | None]]:
    """Every built-in model with small parameters, and the content of items if it is made of that."""
    topics = [f"aisle {number % 5}" for number in range(data.n_items)]
    for name in sl.MODEL_MODULES:
        kind = getattr(sl, name)
        if name == "PrecomputedScores":
            vectors = (np.ones((n, 8), np.float32) for n in (data.n_users, data.n_items))
            yield kind(scores=tuple(vectors)), None
        elif name == "ContentProfile":
            yield kind(), pl.DataFrame({"item_id": data.items.values, "topic": topics})
        elif name != "TwoStage" or find_spec("lightgbm") is not None:
            yield kind(**kind.warmup_params), None


def use_model(model: Recommender, split: Split) -> None:
    """Save, load, recommend in every way, explain, observe, and fit and apply a cutoff."""
    history, truth = split.train_valid, split.test
    user, items = history.users.values[0], history.items.values
    with tempfile.TemporaryDirectory() as folder:
        model = sl.load_model(model.save(Path(folder) / "model.shortlist"))
    lists = model.recommend(N=50, filter_seen=False, at=truth)
    cutoff = sl.cutoff.ExpectedF1().fit(lists, truth, history=history)
    sl.evaluate(cutoff.apply(lists, history=history), truth, history=history)
    model.set_cutoff(cutoff).recommend([user], candidates=items[:20])
    model.recommend([user], candidates={user: items[:1].to_list()}, exclude=items[:1], N=3)  # an empty list
    if model.has_boundary:
        model.recommend([user], cutoff="boundary")
        model.recommend(history={"new": items[:2].to_list()}, cutoff="boundary")
    model.recommend(history={"new": items[:2].to_list()}, N=3)
    model.explain(user)
    model.observe(truth).recommend([user], N=3)


def use_cutoffs(split: Split) -> None:
    """Fit and apply every cutoff, choose one, compare lists, and allocate items."""
    lists = sl.PersonalFrequency().fit(split.train).recommend(N=20, filter_seen=False)
    for kind in Cutoff.classes().values():
        cutoff = kind(**kind.warmup_params)
        cutoff.fit(lists, split.valid, history=split.train).apply(lists, history=split.train)
    sl.cutoff.FixedN(N=3).apply(replace(lists, scores=-lists.scores))  # which are not in order
    sl.choose_cutoff(lists, split.valid, split.train)
    sl.compare({"all": lists, "two": lists.head(2)}, split.valid, resamples=10)
    fixed_n_curve(lists, split.valid)
    oracle(lists, split.valid)
    table = lists.to_frame().with_columns(probability=0.5 / pl.col("rank"))
    items = table.select("item_id", kind=pl.col("item_id").str.slice(-1)).unique()
    limits: dict[str, Any] = {"contact_cost": 0.05, "cost": 0.01, "item_limits": 3, "contacts": 20}
    sl.allocate(table, budget=50, items=items, max_per_group={"kind": 1}, **limits)
    sl.allocate(table, budget=50, contact_cost=0.05)
    len(sl.allocate(table, budget=50).curve)
    lists.limit_groups({"kind": 1}, items)


def use_tables(data: Interactions) -> None:
    """Read tables with integer ids in any order, as interactions and as lists, and two baskets of one day."""
    table = data.to_frame().with_columns(user_id=pl.col("user_id").rank("dense"))
    sl.Interactions.from_frame(pl.concat([table, table.head(5)]).sample(fraction=1, shuffle=True, seed=0))
    rows = [("ann", "tea", 1, "a"), ("ann", "jam", 1, "b"), ("bob", "tea", 2, "c")]
    columns = ["user_id", "item_id", "timestamp", "basket_id"]
    baskets = sl.Interactions.from_frame(pl.DataFrame(rows, schema=columns, orient="row"))
    sl.PersonalFrequency().fit(baskets).observe([("ann", "jam", 3)])
    sl.RankedLists.from_frame(table.select("user_id", "item_id", score=1.0).unique())
