"""Which exact path is taken, and that an index is kept only where it cannot go stale."""

import numpy as np
import pytest

from shortlist.recommend import prepare, recommend
from shortlist.recommend import retriever as finder
from shortlist.recommend.index import kept_index
from tests.recommend.toys import Toy, history


@pytest.fixture
def toy():
    rng = np.random.default_rng(3)
    users, items = rng.normal(size=(70, 12)).astype(np.float32), rng.normal(size=(300, 12)).astype(np.float32)
    bias = rng.normal(size=300).astype(np.float32)
    data = history([(u, (7 * u) % 300) for u in range(70)], n_users=70, n_items=300)
    return Toy(data, boundary=np.full(70, 4.0), pair=(users, items, bias))


def frozen(toy):
    for array in toy.pair:
        array.flags.writeable = False
    return toy


def same(a, b):
    return all(
        getattr(a, n).tobytes() == getattr(b, n).tobytes() for n in ("indptr", "items", "scores", "reason")
    )


@pytest.mark.parametrize(
    "wishes", [{}, {"N": 5}, {"max_items": 2}, {"candidates": [f"i{i}" for i in range(0, 300, 2)]}]
)
def test_few_users_and_many_take_different_paths_to_the_same_bits(toy, wishes, monkeypatch):
    indexed = recommend(toy, **wishes)
    monkeypatch.setattr(finder, "INDEX_USERS", 1000)
    assert same(indexed, recommend(toy, **wishes))
    assert indexed.items.size > 20


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_same_lists_on_any_number_of_threads(toy, n_threads):
    assert same(recommend(toy, n_threads=n_threads), recommend(toy))


def test_an_index_is_kept_for_read_only_factors(toy):
    items, bias = toy.pair[1:]
    recommend(toy)
    assert kept_index(toy, items, bias) is None
    recommend(frozen(toy))
    first = kept_index(toy, items, bias)
    assert first is not None
    recommend(toy, ["u1"])
    assert kept_index(toy, items, bias) is first
    assert kept_index(toy, items.copy(), bias) is None


def test_a_scorer_may_promise_what_flags_do_not_say(toy):
    toy.fixed_factors = True
    prepare(toy)
    assert kept_index(toy, *toy.pair[1:]) is not None


def test_new_factors_bring_new_lists(toy):
    before = recommend(frozen(toy), N=3)
    toy.pair = tuple(-array for array in toy.pair)
    after = recommend(frozen(toy), N=3)
    plain = recommend(Toy(toy.history, toy.pair[0] @ toy.pair[1].T + toy.pair[2]), N=3)
    assert after.items.tolist() == plain.items.tolist() != before.items.tolist()


def test_prepare_serves_single_users_from_the_index(toy, monkeypatch):
    prepare(toy)
    assert kept_index(toy, *toy.pair[1:]) is None  # writeable: an index could go stale
    prepare(frozen(toy))
    assert kept_index(toy, *toy.pair[1:]) is not None
    expected = recommend(toy, ["u5"], N=4)
    monkeypatch.setattr(finder, "from_factors", None)
    assert same(recommend(toy, ["u5"], N=4), expected)
