"""explain, with numbers worked by hand."""

import numpy as np
import pytest

from shortlist.errors import ConfigError, UnknownIdError
from shortlist.recommend import explain
from tests.recommend.toys import Toy, history

# items 0 and 1 are what user 0 took; item 2 leans on 0 alone, item 3 on both, item 4 on neither, 5 against
ITEMS = np.array([[1, 0], [0, 2], [1, 0], [3, 1], [0, 0], [-1, -1]], np.float32)
USERS = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], np.float32)


@pytest.fixture
def toy():
    return Toy(history([(0, 0), (0, 1)]), boundary=[0.5] * 4, shift=[-1.0] * 4, pair=(USERS, ITEMS, None))


def test_head_margin_probability_and_pull(toy):
    frame = explain(toy, "u0")
    assert frame.columns == [
        "rank",
        "item_id",
        "score",
        "boundary",
        "margin",
        "probability",
        "shown",
        "pulled_by",
    ]
    assert frame["item_id"].to_list() == ["i3", "i2", "i4", "i5"]
    assert frame["rank"].to_list() == [1, 2, 3, 4]
    assert frame["score"].to_list() == [4.0, 1.0, 0.0, -2.0]
    assert frame["margin"].to_list() == [3.5, 0.5, -0.5, -2.5]
    assert frame["shown"].to_list() == [True, True, False, False]
    assert frame["probability"].to_list() == pytest.approx([1 / (1 + np.exp(-x)) for x in (3, 0, -1, -3)])
    # item 3: 3 with item 0 and 2 with item 1
    assert frame["pulled_by"].to_list() == [
        [{"item_id": "i0", "share": 0.6}, {"item_id": "i1", "share": 0.4}],
        [{"item_id": "i0", "share": 1.0}],
        [],
        [],
    ]


def test_fewer_past_items_and_fewer_candidates(toy):
    frame = explain(toy, "u0", N=1, n_history=1, candidates=["i3", "i4"])
    assert frame["pulled_by"].to_list() == [[{"item_id": "i0", "share": 0.6}]]


def test_a_ranker_without_factors_or_boundary_says_what_it_can():
    toy = Toy(history([(0, 0)]), np.tile(np.arange(6), (4, 1)))
    frame = explain(toy, "u0", N=2)
    assert frame["item_id"].to_list() == ["i5", "i4"]
    for name in ("boundary", "margin", "probability", "shown", "pulled_by"):
        assert frame[name].null_count() == 2


def test_strangers_and_nonsense_are_refused(toy):
    with pytest.raises(UnknownIdError, match="u77"):
        explain(toy, "u77")
    with pytest.raises(ConfigError, match="n_past"):
        explain(toy, "u0", n_history=-1)
