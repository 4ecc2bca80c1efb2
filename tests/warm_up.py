"""Compile the kernels once, in parallel, before several test processes would each compile them.

`python -m tests.warm_up 2` uses two processes. They fill the folder NUMBA_CACHE_DIR.
"""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import shortlist as sl
from shortlist.cli import warmup


@cache
def sample():
    """The built-in data, split."""
    data = sl.load_dataset("sample")
    return data, sl.split.last_basket(data)


def fit(number):
    """Compile what a model needs for training; return the model."""
    data, split = sample()
    model, items = list(warmup.models(data))[number]
    return model.fit(split.train_valid, items=items)


def use(number):
    """Compile what a fitted model needs for lists."""
    warmup.use(fit(number), sample()[1])


def use_data():
    """Compile what needs no particular model."""
    warmup.use_data(*sample())


if __name__ == "__main__":
    n_models = len(list(warmup.models(sample()[0])))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(int(sys.argv[1]), context) as pool:
        # Lists of the first model need what all lists need; meanwhile other processes train the others.
        first = [pool.submit(use, 0), *(pool.submit(fit, number) for number in reversed(range(1, n_models)))]
        first.append(pool.submit(use_data))
        for call in [*first, *(pool.submit(use, number) for number in reversed(range(1, n_models)))]:
            call.result()
