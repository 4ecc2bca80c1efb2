"""`shortlist warmup`: compile all kernels ahead, for instance while an image is built."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shortlist as sl
from shortlist.cli.screen import Json, print_note, show_json, show_text

if TYPE_CHECKING:
    import polars as pl

    from shortlist.models.base import Recommender
    from shortlist.split import Split

# models that together use all kernels
WARMED = [
    "PersonalFrequency",
    "Popularity",
    "BPRMF",
    "DKBPRMF",
    "HRM",
    "TIFUKNN",
    "UPCF",
    "EASE",
    "ALS",
    "GFCF",
]
MANY_ITEMS = 6000  # enough for the index of large catalogues


def warmup_command(*, json: Json = False) -> None:
    """Compile all kernels ahead, instead of when they are first used.

    Every kind of model is fitted on the built-in sample and used once. Compiled
    code is kept in the folder NUMBA_CACHE_DIR, or beside the package, or in the
    user's cache. It is compiled again after an update and on another kind of
    processor.

    For example:
      shortlist warmup
      NUMBA_CACHE_DIR=/opt/kernels shortlist warmup
    """
    from shortlist.auto.progress import Compilations, LineProgress
    from shortlist.kernels.jit import announce_compilation

    began, seconds = time.perf_counter(), {}
    data = sl.load_dataset("sample")
    split = sl.split.last_basket(data)
    with announce_compilation(Compilations(LineProgress(print_note))):
        for model, items in models(data):
            started = time.perf_counter()
            use(model.fit(split.train_valid, items=items), split)
            name = type(model).__name__
            seconds[name] = round(time.perf_counter() - started, 1)
            print_note(f"{name}: {seconds[name]} s")
        started = time.perf_counter()
        use_data(data, split)
        seconds["data and evaluation"] = round(time.perf_counter() - started, 1)
    total = round(time.perf_counter() - began, 1)
    if json:
        return show_json({"seconds": total, "by_model": seconds})
    return show_text(f"The kernels are compiled ({total} s).")


def models(data: "sl.Interactions") -> "Iterator[tuple[Recommender, pl.DataFrame | None]]":
    """Small models that together use all kernels of models, each with the content of items or None."""
    import polars as pl

    ids = data.items.values
    kinds = pl.Series([f"aisle {number % 5}" for number in range(len(ids))])
    items = pl.DataFrame({"item_id": ids, "text": kinds})
    for name in WARMED:
        kind = getattr(sl, name)
        yield kind(**kind.warmup_params), None
    yield sl.DKHRM(n_epochs=1), None  # without the terms of HRM above
    yield sl.ContentProfile(), items
    if find_spec("lightgbm") is not None:
        yield sl.TwoStage(**sl.TwoStage.warmup_params), None


def use(model: "Recommender", split: "Split") -> None:
    """Save, load, recommend in every way, observe, evaluate, and fit and apply a cutoff."""
    history, truth = split.train_valid, split.test
    user, items = history.users.values[0], history.items.values
    with tempfile.TemporaryDirectory() as folder:
        model = sl.load_model(model.save(Path(folder) / "model.shortlist"))
    lists = model.recommend(N=50, filter_seen=False, at=truth)
    cutoff = sl.cutoff.ExpectedF1().fit(lists, truth, history=history)
    sl.evaluate(cutoff.apply(lists, history=history), truth, history=history)
    model.set_cutoff(cutoff).recommend([user], candidates=items[:20])
    model.recommend([user], candidates={user: items[:20].to_list()}, N=3)
    model.recommend([user], candidates={user: items[:1].to_list()}, exclude=items[:1], N=3)  # an empty list
    if model.has_boundary:
        model.recommend([user], cutoff="boundary")
    model.recommend(history={"new": items[:2].to_list()}, N=3)
    model.explain(user)
    model.observe(truth)
    model.recommend([user], N=3, exclude=items[:2])
    if find_spec("sqlalchemy") is not None:
        from shortlist.serve.events import EventForm, warm_up

        warm_up(model, EventForm.of(model.history_))


def use_data(data: "sl.Interactions", split: "Split") -> None:
    """Read tables in any order, search a large catalogue, fit every cutoff, compare, compute baselines."""
    import numpy as np
    import polars as pl

    from shortlist.evaluation import fixed_n_curve, oracle

    rng = np.random.default_rng(0)
    table = data.to_frame()
    sl.Interactions.from_frame(pl.concat([table, table.head(5)]).sample(fraction=1, shuffle=True, seed=0))
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=20, filter_seen=False)
    for cutoff in all_cutoffs():
        cutoff.fit(lists, split.valid, history=split.train).apply(lists, history=split.train)
    unordered = replace(lists, scores=-lists.scores)  # a cutoff sorts lists that are not in order
    sl.cutoff.FixedN(N=3).apply(unordered)
    sl.choose_cutoff(lists, split.valid, split.train)
    sl.compare({"all": lists, "two": lists.head(2)}, split.valid, resamples=10)
    fixed_n_curve(lists, split.valid)
    oracle(lists, split.valid)
    sl.RankedLists.from_frame(lists.to_frame())
    two_a_day = [("u1", "i1", 1, "a"), ("u1", "i2", 1, "b"), ("u1", "i3", 2, "c")]
    columns = ["user_id", "item_id", "timestamp", "basket_id"]
    baskets = sl.Interactions.from_frame(pl.DataFrame(two_a_day, schema=columns, orient="row"))
    sl.PersonalFrequency().fit(baskets).observe([("u1", "i2", 3)])
    many = sl.Interactions.from_tuples([(n % 80, n) for n in range(MANY_ITEMS)])
    pair = tuple(rng.normal(size=(n, 8)).astype(np.float32) for n in (many.n_users, many.n_items))
    sl.PrecomputedScores(scores=pair).fit(many).recommend(N=3)
    use_allocation()
    if find_spec("lightgbm") is not None:
        use_large_trees()


def use_allocation() -> None:
    """Allocate with a total alone, with item limits, and with all limits."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(0)
    users, ids = np.repeat(np.arange(40), 8), np.concatenate([rng.permutation(20)[:8] for _ in range(40)])
    table = pl.DataFrame({"user_id": users, "item_id": ids, "probability": rng.random(320)})
    groups = [f"g{number % 3}" for number in range(20)]
    items = pl.DataFrame({"item_id": range(20), "kind": groups, "brand": groups[::-1]})
    len(sl.allocate(table, budget=50).curve)
    sl.RankedLists.from_frame(table).limit_groups({"kind": 1}, items)
    sl.allocate(table, budget=50, item_limits=3)
    sl.allocate(table, budget=50, contact_cost=0.05)
    limits: dict[str, Any] = {"max_per_group": {"kind": 1, "brand": 2}, "items": items, "contact_cost": 0.05}
    sl.allocate(table, budget=50, item_limits=3, max_users=20, cost=0.01, **limits)
    sl.allocate(table, max_items=3, **limits)


def use_large_trees() -> None:
    """Score trees with more leaves than those of TwoStage."""
    import numpy as np

    from shortlist.core.trees import TreeEnsemble, TreeParams, fit_trees

    column = np.arange(2000, dtype=np.float32)[:, None]
    params = TreeParams(n_rounds=1, n_leaves=100, min_leaf=2, l2=0.0)
    TreeEnsemble(fit_trees(column, column[:, 0] % 40 < 20, None, params)).predict(column)


def all_cutoffs() -> "Iterator[sl.cutoff.Cutoff]":
    """One cutoff of each kind that can be fitted on lists."""
    for kind in sl.cutoff.Cutoff.classes().values():
        yield kind(**kind.warmup_params)
