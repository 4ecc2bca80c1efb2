"""Compile the kernels once, in parallel, before several test processes would each compile them.

`python -m tests.warm_up 2` uses two processes. They fill the folder NUMBA_CACHE_DIR.
"""

import multiprocessing
import signal
import sys
from functools import cache

import shortlist as sl
from shortlist import warmup
from tests.models import cases


@cache
def sample():
    """The built-in data, split."""
    data = sl.load_dataset("sample")
    return data, sl.split.last_basket(data)


def fit(number):
    """Compile what a model needs for training."""
    fitted(number)


@cache
def fitted(number):
    """A model of the list of `warmup.list_models`."""
    data, split = sample()
    model, items = list(warmup.list_models(data))[number]
    return model.fit(split.train_valid, items=items)


def fit_case(name):
    """Compile training with the number of factors of most tests."""
    cases.fitted(name)


def use(number):
    """Compile what a fitted model needs for lists."""
    warmup.use_model(fitted(number), sample()[1])


def use_data():
    """Compile what needs no particular model."""
    data, split = sample()
    warmup.use_cutoffs(split)
    warmup.use_tables(data)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the other processes too
    others = range(
        len(list(warmup.list_models(sample()[0]))) - 1, 0, -1
    )  # TwoStage, the slowest, is among the first
    with multiprocessing.get_context("spawn").Pool(int(sys.argv[1])) as pool:
        # Lists of the first model need what all lists need; meanwhile other processes train the others.
        calls = [
            (use, 0),
            *((fit, number) for number in others),
            *((fit_case, name) for name in ("DKHRM", "DKBPRMF")),
            (use_data,),
            *((use, one) for one in others),
        ]
        for waiting in [pool.apply_async(function, number) for function, *number in calls]:
            waiting.get()
