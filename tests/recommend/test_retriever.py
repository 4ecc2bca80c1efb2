"""Which exact method is used, and when an index is kept."""

import numpy as np
import pytest

from shortlist.recommend import retrieval as retriever
from tests.recommend.toys import history, make_toy, recommend


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
    assert same(recommend(toy, n_threads=n_threads), recommend(toy))


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
    monkeypatch.setattr(retriever.ProductIndex, "build", None)
    assert same(recommend(toy, ["u5"], N=4), expected)


@pytest.mark.parametrize("fastest", [0, 1, 2])
def test_way_with_the_least_processor_time_is_chosen(fastest, monkeypatch):
    """The first search of each way compiles and does not count; one slow repetition does not either."""
    clock, calls = [0.0], [0, 0, 0]

    def search(way, *_):
        first, slow = calls[way] == 0, way == fastest and calls[way] == 2
        calls[way] += 1
        clock[0] += 100.0 if first or slow else 1.0 if way == fastest else 2.0

    monkeypatch.setattr(retriever, "search_index", search)
    monkeypatch.setattr(retriever.time, "process_time", lambda: clock[0])
    assert retriever.choose_fastest((0, 1, 2), np.ones((5, 2), np.float32)) == fastest


def test_trial_takes_users_from_the_whole_request():
    vectors = np.arange(1000, dtype=np.float32)[:, None]
    few, many = (retriever.sample_vectors(vectors, n)[:, 0] for n in (10_000_000, 5000))
    assert (few.size, many.size) == retriever.TRIAL_USERS
    for found in (few, many):
        assert (found[0], found[-1]) == (0, 999)
        assert (np.diff(found) >= 3).all()
    assert retriever.sample_vectors(vectors[:3], 5000)[:, 0].tolist() == [0, 1, 2]
