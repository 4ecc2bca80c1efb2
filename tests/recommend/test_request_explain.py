"""explain and similar_items, with numbers worked by hand."""

import numpy as np
import polars as pl
import pytest

from shortlist.cutoff import FixedN
from shortlist.errors import ConfigError, UnknownIdError
from shortlist.recommend.request import largest_first
from tests.models.cases import ALL_MODELS, checkerboard, fitted
from tests.recommend.toys import history, make_toy

ITEMS = np.array([[1, 0], [0, 2], [1, 0], [3, 1], [0, 0], [-1, -1]], np.float32)
USERS = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], np.float32)


@pytest.fixture
def toy():
    return make_toy(
        history([(0, 0), (0, 1)]), boundary=[0.5] * 4, shift=[-1.0] * 4, pair=(USERS, ITEMS, None)
    )


def test_scores_margins_probabilities_and_the_cut(toy):
    frame = toy.explain("u0")
    assert frame.columns == [
        "rank",
        "item_id",
        "score",
        "boundary",
        "margin",
        "probability",
        "shown",
        "contributions",
    ]
    assert frame["item_id"].to_list() == ["i3", "i2", "i4", "i5"]
    assert frame["rank"].to_list() == [1, 2, 3, 4]
    assert frame["score"].to_list() == [4.0, 1.0, 0.0, -2.0]
    assert frame["margin"].to_list() == [3.5, 0.5, -0.5, -2.5]
    assert frame["shown"].to_list() == [True, True, False, False]
    assert frame["probability"].to_list() == pytest.approx([1 / (1 + np.exp(-x)) for x in (3, 0, -1, -3)])


def test_shown_follows_the_cutoff_in_force(toy):
    assert toy.explain("u0", cutoff=FixedN(N=3))["shown"].to_list() == [True, True, True, False]
    saved = toy.set_cutoff(FixedN(N=1))
    assert saved.explain("u0", n_withheld=2)["shown"].to_list() == [True, False, False]
    assert saved.explain("u0", cutoff="boundary", n_withheld=1)["shown"].to_list() == [True, True, False]
    assert saved.explain("u0", min_items=2, n_withheld=1)["shown"].to_list() == [True, True, False]


def test_n_and_candidates_limit_the_rows(toy):
    assert toy.explain("u0", N=1, candidates=["i3", "i4"])["item_id"].to_list() == ["i3", "i4"]
    assert toy.explain("u0", N=1, candidates=["i3", "i4"], n_withheld=0)["item_id"].to_list() == ["i3"]


def test_ranker_without_boundary_shows_the_first_items():
    toy = make_toy(history([(0, 0)]), np.tile(np.arange(6), (4, 1)))
    frame = toy.explain("u0", N=2, n_withheld=0)
    assert frame["item_id"].to_list() == ["i5", "i4"]
    for name in ("boundary", "margin", "probability"):
        assert frame[name].null_count() == 2


def test_unknown_users_and_invalid_arguments_are_rejected(toy):
    with pytest.raises(UnknownIdError, match="u77"):
        toy.explain("u77")
    with pytest.raises(ConfigError, match="n_contributions"):
        toy.explain("u0", n_contributions=-1)
    with pytest.raises(ConfigError, match="N must be a whole number of at least 1, got 0"):
        toy.explain("u0", N=0)


@pytest.mark.parametrize("cutoff", ["expected_f1", FixedN, None])
def test_invalid_cutoff_is_rejected_without_a_boundary_too(cutoff):
    toy = make_toy(history([(0, 0)]), np.zeros((4, 6)))
    with pytest.raises(ConfigError, match="cutoff must be"):
        toy.explain("u0", cutoff=cutoff)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_every_model_explains_its_list(name):
    model = fitted(name)
    frame = model.explain("u03", N=4, n_withheld=0)
    assert frame["item_id"].to_list() == list(model.recommend(["u03"], N=4)["u03"].items)
    assert all(len(found) > 0 for found in frame["contributions"].to_list())
    session = checkerboard().items.values[:3].to_list()
    other = model.explain("guest", history={"guest": session}, N=4, n_withheld=0)
    lists = model.recommend(history={"guest": session}, N=4)
    assert other["item_id"].to_list() == list(lists["guest"].items)
    assert model.users_ == checkerboard().users


@pytest.mark.parametrize(
    "name", ["PersonalFrequency", "EASE", "ALS", "GFCF", "MatrixBlend", "TIFUKNN", "UPCF", "HRM", "TwoStage"]
)
def test_contributions_add_up_to_the_score(name):
    """All of them, where the model decomposes its score exactly; the trees add a base value."""
    frame = fitted(name).explain("u03", N=4, n_contributions=1000)
    total = np.array([sum(part["amount"] for part in row) for row in frame["contributions"].to_list()])
    base = frame["score"].to_numpy() - total
    assert np.ptp(base) < 1e-4
    assert name == "TwoStage" or abs(base).max() < 1e-4


# ------------------------------------------------------------------ similar items
VECTORS = np.array([[2, 0], [0, 3], [5, 5], [-1, 0], [0, 0], [4, 0]], np.float32)


@pytest.fixture
def vectors():
    pair = (np.ones((4, 2), np.float32), VECTORS, np.arange(6, dtype=np.float32))
    return make_toy(history([(0, 0)]), pair=pair)


def test_similarity_is_the_cosine(vectors):
    frame = vectors.similar_items("i0")
    assert frame.columns == ["item_id", "similarity"]
    # i1 at a right angle and i4 without a direction are equal: the smaller id first
    assert frame["item_id"].to_list() == ["i5", "i2", "i1", "i4", "i3"]
    assert frame["similarity"].to_list() == pytest.approx([1, np.sqrt(0.5), 0, 0, -1], abs=1e-6)
    assert vectors.similar_items("i0", N=2)["item_id"].to_list() == ["i5", "i2"]
    assert vectors.similar_items("i4", 2)["similarity"].to_list() == [0, 0]


def test_item_names_are_shown(vectors):
    data = vectors.history_
    names = pl.Series([f"thing {n}" for n in range(6)])
    vectors.fit(data.with_item_names(data.items.values, names))
    assert vectors.similar_items("i0", 1).row(0)[:2] == ("i5", "thing 5")


def test_similar_items_rejects_invalid_input(vectors):
    with pytest.raises(UnknownIdError, match="i77"):
        vectors.similar_items("i77")
    with pytest.raises(ConfigError, match="N must be a whole number of at least 1, got 0"):
        vectors.similar_items("i0", N=0)
    with pytest.raises(ConfigError, match="Toy has none"):
        make_toy(history([(0, 0)]), np.zeros((4, 6))).similar_items("i0")


@pytest.mark.parametrize("name", ["BPRMF", "DKHRM"])
def test_similar_items_share_their_buyers(name):
    found = fitted(name).similar_items("i04", N=9)["item_id"].to_list()
    assert {int(item[1:]) % 2 for item in found} == {0}


def test_contributions_of_zero_are_left_out():
    found = largest_first(["own", "trend", "others", "bias"], np.array([0.0, -1.0, 0.5, 2.0]))
    assert found == [("bias", 2.0), ("trend", -1.0), ("others", 0.5)]
