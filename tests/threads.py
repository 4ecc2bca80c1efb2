"""A setting of threads for a part of a test."""

from contextlib import contextmanager

from shortlist.core import threads


@contextmanager
def use_threads(n):
    """Use n threads meanwhile, also on a machine with fewer cores."""
    before = threads._setting
    threads.set_threads(n)
    try:
        yield
    finally:
        threads._setting = before


def on_threads(*numbers, run):
    """What `run` returns on each of these numbers of threads."""
    found = []
    for n in numbers:
        with use_threads(n):
            found.append(run())
    return found
