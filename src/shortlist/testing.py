"""Contracts that every model, cutoff and metric keeps, to test one of your own.

A broken contract is an AssertionError that says what is expected.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.core.metrics import Metric
from shortlist.cutoff import Cutoff
from shortlist.data.interactions import Interactions
from shortlist.data.lists import REASONS, RankedLists
from shortlist.errors import NotFittedError
from shortlist.evaluation import evaluate
from shortlist.models.base import Recommender, load_model


def check_model(model: Recommender, train: Interactions, *, new_users: bool = True) -> None:
    """Check that a model keeps the contract of all models: seeds, lists, sessions, events, files.

    Parameters
    ----------
    model
        A model that is not fitted; copies of it are fitted several times.
    train
        A few hundred interactions with times, of at least three users who do not have every item.
    new_users
        Whether the model can make lists for users whom it has not been trained on.

    Raises
    ------
    AssertionError
        If a contract is broken.

    Examples
    --------
    >>> from shortlist.testing import check_model
    >>> check_model(sl.PersonalFrequency(), sl.load_dataset("sample"))
    """
    try:
        model.clone().recommend(N=1)
    except NotFittedError:
        pass
    else:
        raise AssertionError("a model that is not fitted must raise NotFittedError")
    fitted, again = (model.clone().fit(train) for _ in range(2))
    users = train.users.values.to_list()[:3]
    lists = fitted.recommend(users, N=5)
    _assert_equal(lists, again.recommend(users, N=5), "two fits with the same seed must give the same lists")
    _check_lists(lists, 5)
    seen = train.to_csr().tocsr()
    for number, row in enumerate(fitted.recommend(users, N=5, filter_seen=True)):
        own = set(train.items.to_ids(seen[[number]].indices).to_list())
        assert not own & set(row.items), "filter_seen=True must leave out the items of the user"
    single = fitted.recommend(users[:1], N=5)[users[0]]
    assert single.items == lists[users[0]].items, "a list must not depend on the other users of the request"
    few = train.items.values.to_list()[:4]
    chosen = fitted.recommend(users, N=5, candidates=few, filter_seen=False)
    assert all(set(row.items) <= set(few) for row in chosen), "lists must hold candidates of the request only"
    unknown_id = "no such user" if isinstance(users[0], str) else -1
    unknown = fitted.recommend([unknown_id], N=5)
    assert unknown.lengths.tolist() == [0], "an unknown user must get an empty list"
    _check_file(fitted, users)
    if new_users:
        _check_new_users(fitted, train)


def check_cutoff(cutoff: Cutoff, lists: RankedLists, truth: Interactions) -> None:
    """Check that a cutoff keeps the contract of all cutoffs: prefixes, reasons, order, files.

    Parameters
    ----------
    cutoff
        A cutoff; a copy of it is fitted.
    lists
        Ranked candidates of at least ten users.
    truth
        What these users did next.

    Raises
    ------
    AssertionError
        If a contract is broken.

    Examples
    --------
    >>> from shortlist.testing import check_cutoff
    >>> split = sl.split.last_basket(sl.load_dataset("sample"))
    >>> lists = sl.Popularity().fit(split.train).recommend(N=20)
    >>> check_cutoff(sl.cutoff.Threshold(), lists, split.valid)
    """
    fitted = cutoff.clone().fit(lists, truth)
    lengths, shown = fitted.lengths(lists), fitted.apply(lists)
    assert lengths.tolist() == shown.lengths.tolist(), "lengths and apply must agree"
    assert ((lengths >= 0) & (lengths <= lists.lengths)).all(), "a list cannot be longer than its candidates"
    ranked = fitted.with_probabilities(lists)
    for number in range(len(lists)):
        full, part = ranked.at(number), shown.at(number)
        assert part.items == full.items[: len(part)], "a list must be the first candidates"
        assert part.reason in REASONS, f"the reason {part.reason!r} is unknown"
    order = np.random.default_rng(0).permutation(len(lists))
    moved = cutoff.clone().fit(lists.take(order), truth).lengths(lists.take(order))
    assert moved.tolist() == lengths[order].tolist(), "the order of the users must not matter"
    bare = fitted.apply(lists.head(np.zeros(len(lists), np.int64)))
    assert not bare.lengths.any(), "users without candidates must get empty lists"
    with tempfile.TemporaryDirectory() as folder:
        loaded = Cutoff.load(fitted.save(Path(folder) / "cutoff"))
    _assert_equal(loaded.apply(lists), shown, "a loaded cutoff must give the same lists")


def check_metric(name: str, lists: RankedLists, truth: Interactions) -> None:
    """Check that a metric keeps the contract of all metrics: one finite number per user, 0 for an empty list.

    Parameters
    ----------
    name
        Name of the metric.
    lists, truth
        Lists, and what their users did next.

    Raises
    ------
    AssertionError
        If a contract is broken.

    Examples
    --------
    >>> from shortlist.testing import check_metric
    >>> truth = sl.Interactions.from_tuples([("ann", "tea"), ("bob", "jam")])
    >>> lists = sl.Popularity().fit(truth).recommend(N=1, filter_seen=False)
    >>> check_metric("f1", lists, truth)
    """
    assert name in Metric.registry, f"there is no metric {name!r}; derive a class from Metric"
    values = evaluate(lists, truth).values(name)
    assert np.isfinite(values).all(), "a metric must be finite"
    nothing = evaluate(lists.head(np.zeros(len(lists), np.int64)), truth).values(name)
    assert not nothing.any(), "an empty list must count 0"


def _check_lists(lists: RankedLists, most: int) -> None:
    for row in lists:
        assert len(row) <= most, f"a list must have at most N = {most} items"
        assert len(set(row.items)) == len(row), "an item may stand in a list once"
        assert np.isfinite(row.scores).all(), "scores must be finite"
        assert (np.diff(row.scores) <= 0).all(), "scores must descend"


def _check_file(fitted: Recommender, users: list[Any]) -> None:
    """A model that was saved gives the lists that it gave before."""
    lists = fitted.recommend(users, N=5)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(fitted.save(Path(folder) / "model"))
    _assert_equal(loaded.recommend(users, N=5), lists, "a loaded model must give the same lists")


def _check_new_users(fitted: Recommender, train: Interactions) -> None:
    items, before = train.items.values.to_list(), fitted.recommend(N=5)
    session = fitted.recommend(history={"guest": items[:2]}, N=5, filter_seen=True)["guest"]
    assert not set(session.items) & set(items[:2]), "the items of a session are seen items"
    _assert_equal(fitted.recommend(N=5), before, "a session must not be stored")


def _assert_equal(lists: RankedLists, expected: RankedLists, sentence: str) -> None:
    assert lists.to_frame().equals(expected.to_frame()), sentence
