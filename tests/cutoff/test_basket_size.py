"""BasketSize: means, dispersion, and the sizes that lists expect."""

from dataclasses import replace

import numpy as np
import pytest

from shortlist.cutoff.basket_size import BasketSize
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.labeled import label_lists
from shortlist.data.lists import RankedLists
from shortlist.errors import DataError

N = 300


def case():
    """Users whose next basket has 1 to 6 items; the lists expect twice as many."""
    sizes = np.arange(N) % 6 + 1
    truth = Interactions.from_tuples([(u, i) for u in range(N) for i in range(sizes[u])])
    lists = RankedLists(
        users=truth.users,
        item_ids=IdMap.of(range(6)),
        indptr=np.arange(N + 1, dtype=np.int64),
        items=np.zeros(N, np.int32),
        scores=np.ones(N, np.float32),
        expected_sizes=2.0 * sizes,
    )
    return sizes, truth, lists


def test_expected_sizes_are_rescaled_to_the_truth():
    sizes, truth, lists = case()
    known = label_lists(lists, truth)
    found = BasketSize().fit(known, known.n_relevant, None).predict(lists, None)
    np.testing.assert_allclose(found, sizes, rtol=0.02)
    without = replace(lists, expected_sizes=None)
    known = label_lists(without, truth)
    found = BasketSize().fit(known, known.n_relevant, None).predict(without, None)
    np.testing.assert_allclose(found, sizes.mean(), rtol=1e-6)


def test_lists_without_expected_sizes_are_refused_after_a_fit_with_them():
    _, truth, lists = case()
    known = label_lists(lists, truth)
    model = BasketSize().fit(known, known.n_relevant, None)
    with pytest.raises(DataError, match="fitted on lists with expected_sizes, got lists without"):
        model.predict(replace(lists, expected_sizes=None), None)


def test_a_list_without_an_expected_size_counts_as_the_mean_one():
    """The lists of users without any history that the model knows have none."""
    _, truth, lists = case()
    sizes = lists.expected_sizes.copy()
    sizes[::10] = np.nan
    known = label_lists(replace(lists, expected_sizes=sizes), truth)
    model = BasketSize().fit(known, known.n_relevant, None)
    others = np.flatnonzero(~np.isnan(sizes)).astype(np.int32)
    same = BasketSize().fit(known.take(others), known.n_relevant[others], None)
    assert (model.beta_ == same.beta_).all()
    found = model.predict(known.lists, None)
    assert (found[others] == same.predict(known.lists.take(others), None)).all()
    np.testing.assert_allclose(found[::10], np.exp(model.beta_[0]))


def test_expected_sizes_stay_with_their_lists():
    sizes, _, lists = case()
    assert (lists.take([5, 2]).expected_sizes == 2.0 * sizes[[5, 2]]).all()
    assert (lists.head(0).expected_sizes == lists.expected_sizes).all()
    with pytest.raises(DataError, match="expected_sizes must have 300 values, got 3"):
        replace(lists, expected_sizes=np.ones(3))


def counts_of(draw, n_users=20_000):
    """(labels, counts): counts of users without features, so that the mean is the same for all."""
    truth = Interactions.from_tuples([(u, 0) for u in range(n_users)])
    lists = RankedLists(
        users=truth.users,
        item_ids=IdMap.of([0]),
        indptr=np.arange(n_users + 1, dtype=np.int64),
        items=np.zeros(n_users, np.int32),
        scores=np.ones(n_users, np.float32),
    )
    return label_lists(lists, truth), draw(np.random.default_rng(0), n_users)


def test_poisson_counts_have_no_dispersion():
    labels, counts = counts_of(lambda rng, n: rng.poisson(3.0, n))
    assert BasketSize().fit(labels, counts, None).dispersion_ == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("dispersion", [0.25, 1.0])
def test_dispersion_of_negative_binomial_counts_is_recovered(dispersion):
    mean = 3.0
    labels, counts = counts_of(
        lambda rng, n: rng.negative_binomial(1 / dispersion, 1 / (1 + dispersion * mean), n)
    )
    model = BasketSize().fit(labels, counts, None)
    assert model.predict(labels.lists, None)[0] == pytest.approx(mean, rel=0.02)
    assert model.dispersion_ == pytest.approx(dispersion, rel=0.05)


def test_counts_that_vary_less_than_poisson_have_dispersion_zero():
    labels, counts = counts_of(lambda rng, n: np.full(n, 4))
    assert BasketSize().fit(labels, counts, None).dispersion_ == 0
