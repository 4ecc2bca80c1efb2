"""Budget against the allocation of the same total to the validation users."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.cutoff import Budget
from shortlist.errors import ConfigError, NotFittedError
from tests.cutoff.test_allocation import random_lists


def fit(lists, **params):
    truth = sl.Interactions.from_tuples([(0, 0), (1, 1)])
    return Budget(calibration="none", n_candidates=20, **params).fit(lists, truth, users=range(len(lists)))


@pytest.fixture
def lists():
    drawn = random_lists(1)
    order = np.lexsort((-drawn.probabilities, np.repeat(np.arange(len(drawn)), drawn.lengths)))
    return sl.RankedLists(
        users=drawn.users,
        item_ids=drawn.item_ids,
        indptr=drawn.indptr,
        items=drawn.items[order],
        scores=drawn.scores[order],
        probabilities=drawn.probabilities[order],
    )


@pytest.mark.parametrize(
    ("items_per_list", "gain", "cost"), [(0.4, 1.0, 0.0), (2.0, 3.0, 0.1), (1.0, 1.0, 0.05)]
)
def test_validation_users_get_the_lists_of_an_allocation(lists, items_per_list, gain, cost):
    cut = fit(lists, items_per_list=items_per_list, gain=gain, cost=cost)
    shown = cut.apply(lists)
    allocation = sl.allocate(lists, budget=round(items_per_list * len(lists)), gain=gain, cost=cost)
    assert shown.lengths.tolist() == allocation.lists.lengths.tolist()
    assert cut.price_ == pytest.approx(allocation.prices.item)
    assert set(shown.summary()["reason"]) <= {"below_price", "no_candidates", "all_candidates"}


def test_more_items_than_there_are_have_no_price(lists):
    cut = fit(lists, items_per_list=1000.0, cost=0.1)
    assert cut.price_ == 0
    assert (cut.apply(lists).probabilities > 0.1).all()


@pytest.mark.parametrize("items_per_list", [0.1, 0.7, 3.0])
def test_the_price_at_a_length_gives_that_length(lists, items_per_list):
    cut = fit(lists)
    price = cut.price_at(items_per_list)
    assert cut.with_price(price).apply(lists).lengths.mean() == pytest.approx(items_per_list, abs=0.03)
    assert cut.price_ == fit(lists).price_  # a copy


def test_saved_and_loaded(lists, tmp_path):
    cut = fit(lists, items_per_list=0.5, gain=2.0, cost=0.1)
    again = sl.cutoff.Cutoff.load(cut.save(tmp_path / "cutoff"))
    assert again.lengths(lists).tolist() == cut.lengths(lists).tolist()
    assert again.price_at(0.3) == cut.price_at(0.3)


@pytest.mark.parametrize(
    "params", [{"items_per_list": 0}, {"items_per_list": -1.0}, {"gain": 0.0}, {"cost": -1.0}]
)
def test_parameters(params):
    with pytest.raises(ConfigError, match=next(iter(params))):
        fit(random_lists(0), **params)


def test_before_fit_and_bad_prices(lists):
    with pytest.raises(NotFittedError):
        Budget().price_at(1.0)
    with pytest.raises(NotFittedError):
        Budget().with_price(1.0)
    for price in (float("nan"), -0.5):
        with pytest.raises(ConfigError, match="price"):
            fit(lists).with_price(price)


def test_a_hit_is_worth_1_unless_another_gain_is_given(lists):
    assert fit(lists, items_per_list=0.5).price_ == fit(lists, items_per_list=0.5, gain=1.0).price_
