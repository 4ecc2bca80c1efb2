"""recommend_to_file: the same table as in memory, complete or not at all."""

import numpy as np
import polars as pl
import pytest

from shortlist.data.lists import RankedLists
from shortlist.errors import ConfigError
from tests.recommend.toys import history, make_toy


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    data = history([(u, u % 6) for u in range(9)], n_users=9)
    boundary = np.linspace(-1, 9, 9)
    return make_toy(data, rng.normal(size=(9, 6)), boundary, shift=np.zeros(9), users_per_batch=2)


@pytest.mark.parametrize("options", [{}, {"N": 2}, {"fallback": "popular", "max_items": 3}])
def test_file_holds_the_lists_of_recommend(toy, tmp_path, options):
    users = ["u3", "unknown", *(f"u{u}" for u in (0, 8, 1, 2))]
    seen = []
    path = toy.recommend_to_file(
        tmp_path / "deep" / "lists.parquet", users, progress=lambda *at: seen.append(at), **options
    )
    expected = toy.recommend(users, **options)
    assert pl.read_parquet(path).equals(expected.to_frame())
    assert seen == [(2, 6), (4, 6), (6, 6)]
    again = RankedLists.read(path, toy.items_)
    assert again.items.tolist() == expected.items.tolist()
    assert [p.name for p in path.parent.iterdir()] == ["lists.parquet"]


def test_all_users(toy, tmp_path):
    path = toy.recommend_to_file(tmp_path / "a.parquet", N=1, filter_seen=False)
    assert pl.read_parquet(path).equals(toy.recommend(N=1, filter_seen=False).to_frame())


def test_no_users_give_a_table_without_rows(toy, tmp_path):
    frame = pl.read_parquet(toy.recommend_to_file(tmp_path / "a.parquet", [], N=1))
    assert frame.height == 0
    assert frame.schema == toy.recommend(N=1).to_frame().schema


def test_failure_leaves_the_old_file(toy, tmp_path, monkeypatch):
    path = tmp_path / "lists.parquet"
    toy.recommend_to_file(path, N=1)
    before, score = path.read_bytes(), toy.score

    def broken(request):
        if 4 in request.users:
            raise ZeroDivisionError("scoring failed")
        return score(request)

    monkeypatch.setattr(toy, "score", broken)
    with pytest.raises(ZeroDivisionError, match="scoring failed"):
        toy.recommend_to_file(path, N=1)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_only_parquet_is_streamed(toy, tmp_path):
    with pytest.raises(ConfigError, match="lists"):
        toy.recommend_to_file(tmp_path / "lists.csv", N=1)
