"""Streaming to Parquet: the same table as in memory, whole or not at all."""

import numpy as np
import polars as pl
import pytest

from shortlist.data.ranked_lists import RankedLists
from shortlist.errors import ConfigError
from shortlist.recommend import recommend, recommend_to
from tests.recommend.toys import Toy, history


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr("shortlist.recommend.retriever.CELLS", 12)  # two users a chunk
    rng = np.random.default_rng(0)
    data = history([(u, u % 6) for u in range(9)], n_users=9)
    return Toy(data, rng.normal(size=(9, 6)), np.linspace(-1, 9, 9), shift=np.zeros(9))


@pytest.mark.parametrize("wishes", [{}, {"N": 2}, {"fallback": "popular", "max_items": 3}])
def test_the_file_holds_what_recommend_returns(toy, tmp_path, wishes):
    users = ["u3", "nobody", *(f"u{u}" for u in (0, 8, 1, 2))]
    seen = []
    path = recommend_to(
        tmp_path / "deep" / "lists.parquet", toy, users, progress=lambda *at: seen.append(at), **wishes
    )
    expected = recommend(toy, users, **wishes)
    assert pl.read_parquet(path).equals(expected.to_frame())
    assert seen == [(2, 6), (4, 6), (6, 6)]
    again = RankedLists.read(path, toy.items_)
    assert again.items.tolist() == expected.items.tolist()
    assert [p.name for p in path.parent.iterdir()] == ["lists.parquet"]


def test_everybody_and_the_words_of_implicit(toy, tmp_path):
    path = recommend_to(tmp_path / "a.parquet", toy, N=1, filter_already_liked_items=False)
    assert pl.read_parquet(path).equals(recommend(toy, N=1, filter_seen=False).to_frame())


def test_nobody_is_a_table_without_rows(toy, tmp_path):
    frame = pl.read_parquet(recommend_to(tmp_path / "a.parquet", toy, [], N=1))
    assert frame.height == 0
    assert frame.schema == recommend(toy, N=1).to_frame().schema


def test_a_failure_leaves_the_old_file(toy, tmp_path):
    path = tmp_path / "lists.parquet"
    recommend_to(path, toy, N=1)
    before = path.read_bytes()

    def broken(users):
        if 4 in users:
            raise ZeroDivisionError("the scorer broke")
        return np.zeros((users.size, 6), np.float32)

    toy.score = broken
    with pytest.raises(ZeroDivisionError, match="the scorer broke"):
        recommend_to(path, toy, N=1)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_only_parquet_is_streamed(toy, tmp_path):
    with pytest.raises(ConfigError, match="lists"):
        recommend_to(tmp_path / "lists.csv", toy, N=1)
