"""A model whose lists are all empty says so."""

import pytest

import shortlist as sl
from shortlist.errors import DataWarning


def test_many_empty_lists_are_a_warning(tmp_path):
    data = sl.load_dataset("sample")
    model = sl.DKBPRMF(n_epochs=5, t=9.0, boundary="learned").fit(data)
    match = "all 300 lists of DKBPRMF are empty: no item scores above .*train DKBPRMF for more epochs"
    with pytest.warns(DataWarning, match=match) as found:
        model.recommend()
    assert found[0].filename == __file__
    with pytest.warns(DataWarning, match=match):
        model.recommend_to_file(tmp_path / "lists.parquet")
    model.recommend(["u1", "u2"])  # a few empty lists are not
    model.recommend(fallback="popular")
    model.recommend([f"nobody{k}" for k in range(50)])
    with pytest.warns(DataWarning, match=match.replace("300 lists", r"\d+ lists")):
        sl.fit(data, models=sl.DKBPRMF(n_epochs=2, t=9.0, boundary="learned"), cutoff=None)
