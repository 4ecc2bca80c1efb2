"""`shortlist warmup`: compile kernels ahead, for instance while an image is built."""

import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import shortlist as sl
from shortlist.cli.screen import Json, print_note, show_json, show_text

if TYPE_CHECKING:
    from shortlist.models.base import Recommender
    from shortlist.split import Split


def warmup(*, json: Json = False) -> None:
    """Compile the kernels of the usual models ahead, instead of when they are first used.

    Each model is fitted on the built-in sample and used once. Compiled code is kept in the folder
    NUMBA_CACHE_DIR, or beside the package, or in the user's cache. It is compiled again after an update
    and on another kind of processor.

    For example:
      shortlist warmup
      NUMBA_CACHE_DIR=/opt/kernels shortlist warmup
    """
    began, seconds = time.perf_counter(), {}
    split = sl.split.last_basket(sl.load_dataset("sample"))
    for model in models():
        started = time.perf_counter()
        use(model.fit(split.train_valid), split)
        name = type(model).__name__
        seconds[name] = round(time.perf_counter() - started, 1)
        print_note(f"{name}: {seconds[name]} s")
    total = round(time.perf_counter() - began, 1)
    if json:
        return show_json({"seconds": total, "by_model": seconds})
    return show_text(f"The kernels are compiled ({total} s).")


def models() -> "Iterator[Recommender]":
    """Small models that together use most kernels."""
    yield sl.PersonalFrequency()
    yield sl.BPRMF(n_epochs=1)
    yield sl.DKBPRMF(n_epochs=1)
    yield sl.HRM(n_epochs=1, repeat_decay=0.9, trend_half_life=3.0)
    yield sl.DKHRM(n_epochs=1)
    yield sl.TIFUKNN()
    yield sl.EASE()
    if find_spec("lightgbm") is not None:
        yield sl.TwoStage(n_snapshots=500, n_rounds=5, n_bags=1)


def use(model: "Recommender", split: "Split") -> None:
    """Save, load, recommend in every way, observe, evaluate, and fit and apply a cutoff."""
    history, truth = split.train_valid, split.test
    user, items = history.users.values[0], history.items.values
    with tempfile.TemporaryDirectory() as folder:
        model = sl.load_model(model.save(Path(folder) / "model.shortlist"))
    lists = model.recommend(N=50, filter_seen=False, at=truth)
    cutoff = sl.cutoff.ExpectedF1().fit(lists, truth, history=history)
    sl.evaluate(cutoff.apply(lists, history=history), truth)
    model.set_cutoff(cutoff).recommend([user], candidates=items[:20])
    if model.has_boundary:
        model.recommend([user], cutoff="boundary")
    model.recommend(history={"new": items[:2].to_list()}, N=3)
    model.explain(user)
    model.observe(truth)
    model.recommend([user], N=3)
    if find_spec("sqlalchemy") is not None:
        from shortlist.serve.observing import EventForm, warm_up

        warm_up(model, EventForm.of(model.history_))
