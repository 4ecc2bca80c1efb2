"""Which exact method is used, and when an index is kept."""

import numpy as np
import pytest

from shortlist.recommend import retrieval as retriever
from tests.recommend.toys import history, make_toy, recommend
from tests.threads import use_threads


@pytest.fixture
def toy():
    rng = np.random.default_rng(3)
    users, items = rng.normal(size=(70, 12)).astype(np.float32), rng.normal(size=(300, 12)).astype(np.float32)
    bias = rng.normal(size=300).astype(np.float32)
    data = history([(u, (7 * u) % 300) for u in range(70)], n_users=70, n_items=300)
    return make_toy(data, boundary=np.full(70, 4.0), pair=(users, items, bias))


def same(a, b):
    return all(
        getattr(a, n).tobytes() == getattr(b, n).tobytes() for n in ("indptr", "items", "scores", "reason")
    )


@pytest.mark.parametrize(
    "options", [{}, {"N": 5}, {"max_items": 2}, {"candidates": [f"i{i}" for i in range(0, 300, 2)]}]
)
def test_index_and_full_scoring_give_the_same_bits(toy, options, monkeypatch):
    indexed = recommend(toy, **options)
    toy.fit(toy.history_)
    monkeypatch.setattr(retriever, "INDEX_USERS", 1000)
    assert same(indexed, recommend(toy, **options))
    assert indexed.items.size > 20


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_same_lists_on_any_number_of_threads(toy, n_threads):
    with use_threads(n_threads):
        found = recommend(toy)
    assert same(found, recommend(toy))


def test_index_is_kept_for_later_requests(toy):
    recommend(toy, ["u1"])
    assert toy.index_cache.index is None
    recommend(toy)
    first = toy.index_cache.index
    assert first is not None
    recommend(toy, ["u1"])
    assert toy.index_cache.index is first


def test_index_of_some_candidates_is_not_kept(toy):
    recommend(toy, candidates=[f"i{i}" for i in range(0, 300, 2)])
    assert toy.index_cache.index is None


def test_new_factors_give_new_lists(toy):
    before = recommend(toy, N=3)
    toy.pair = tuple(-array for array in toy.pair)
    toy.fit(toy.history_)
    after = recommend(toy, N=3)
    plain = recommend(make_toy(toy.history_, toy.pair[0] @ toy.pair[1].T + toy.pair[2]), N=3)
    assert after.items.tolist() == plain.items.tolist() != before.items.tolist()


def test_prepare_builds_the_index_for_single_users(toy, monkeypatch):
    expected = recommend(toy, ["u5"], N=4)
    toy.prepare()
    assert toy.index_cache.index is not None
    monkeypatch.setattr(retriever, "score_candidates", None)
    assert same(recommend(toy, ["u5"], N=4), expected)


@pytest.mark.parametrize(("decay", "n_stages"), [(0.5, 3), (1.0, 1)])
def test_bounds_are_checked_early_where_the_first_dimensions_carry_most_weight(decay, n_stages):
    items = np.random.default_rng(0).normal(size=(500, 50)) * decay ** np.arange(50)
    assert retriever.ItemIndex.build(items.astype(np.float32)).blocks.stages.size == n_stages


def test_few_users_are_scored_in_parts_of_bounded_size(toy, monkeypatch):
    expected = recommend(toy, ["u1", "u2", "u3"], N=4)
    monkeypatch.setattr(retriever, "CELLS", 301)  # one user at a time
    assert same(recommend(toy, ["u1", "u2", "u3"], N=4), expected)
