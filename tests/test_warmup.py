"""`compile_kernels` compiles everything that later processes need."""

from importlib import import_module
from pkgutil import iter_modules

import pytest
from numba.core import event
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

import shortlist as sl
from shortlist import MODEL_MODULES, kernels, warmup


@pytest.fixture(scope="module", autouse=True)
def warm():
    warmup.compile_kernels()


def all_kernels():
    """(name, dispatcher) of every kernel, not of the functions that only kernels call."""
    for module in iter_modules(kernels.__path__):
        found = import_module(f"shortlist.kernels.{module.name}")
        for name, one in vars(found).items():
            own = isinstance(one, Dispatcher) and one.py_func.__module__ == found.__name__
            if own and not isinstance(one._cache, NullCache):
                yield f"{module.name}.{name}", one


def test_every_kernel_is_compiled():
    found = dict(all_kernels())
    assert len(found) > 60
    rare = {"trees.sum_trees"}  # for more leaves than any default
    assert [name for name, one in found.items() if not one.signatures and name not in rare] == []


def test_nothing_is_compiled_afterwards():
    data = sl.load_dataset("sample")
    split = sl.split.last_basket(data)
    with event.install_recorder("numba:compile") as recorder:
        warmup.compile_kernels()
        for name in sorted(MODEL_MODULES.keys() - {"TwoStage", "ContentProfile", "PrecomputedScores"}):
            kind = getattr(sl, name)
            model = kind(n_epochs=2) if kind.uses_epochs else kind()
            lists = model.fit(split.train).recommend(N=30, filter_seen=False)
            sl.choose_cutoff(lists, split.valid, split.train)
            sl.compare({"all": lists, "one": lists.head(1)}, split.valid, resamples=20)
            model.recommend(history={"new": data.items.values[:3].to_list()}, N=2)
            model.observe(split.valid)
    begun = [one for _, one in recorder.buffer if one.is_start]
    assert [one.data["dispatcher"].py_func.__name__ for one in begun] == []
