"""Weights: what a row counts, in counting models, TIFUKNN and EASE."""

import warnings

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import shortlist as sl
from shortlist.core.glm import fit_item_weights
from shortlist.errors import ConfigError, DataWarning
from shortlist.models.weighting import WeightTransform
from tests.models.cases import bits, dense

MODELS = {
    "Popularity": sl.Popularity(),
    "Popularity+half_life": sl.Popularity(half_life=2),
    "PersonalFrequency": sl.PersonalFrequency(decay=0.5),
    "PersonalFrequency+half_life": sl.PersonalFrequency(half_life=3),
    "TIFUKNN": sl.TIFUKNN(n_neighbors=2, group_size=2),
    "EASE": sl.EASE(reg=2, decay=0.8),
}
ROWS = [
    ("ann", "tea", "2024-01-01", 3),
    ("ann", "jam", "2024-01-01", 1),
    ("ann", "tea", "2024-01-03", 7),
    ("bob", "jam", "2024-01-02", 1),
    ("bob", "oil", "2024-01-02", -1),
    ("cat", "oil", "2024-01-04", 15),
    ("cat", "tea", "2024-01-05", 0.5),
]


def build(rows):
    """Interactions in which returns are kept."""
    return sl.Interactions.from_tuples(rows, negative_weights="keep")


def weighted(name, weighting, cap=5.0):
    """An unfitted model."""
    return MODELS[name].clone().set_params(weighting=weighting, weight_cap=cap)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (WeightTransform("linear"), [7, 1, 0, -3, 0.5]),
        (WeightTransform("log"), [3, 1, 0, -2, np.log2(1.5)]),
        (WeightTransform("cap", 2.0), [2, 1, 0, -2, 0.5]),
    ],
)
def test_transforms(transform, expected):
    found = transform.values(np.array([7, 1, 0, -3, 0.5], np.float32))
    assert found == pytest.approx(expected, abs=1e-7)


def test_popularity_adds_weights():
    scores = {}
    for weighting in ("linear", "log", "cap"):
        model = sl.Popularity(weighting=weighting, weight_cap=4).fit(build(ROWS))
        scores[weighting] = dict(zip(model.items_.values, dense(model)[0], strict=True))
    assert scores["linear"] == pytest.approx({"jam": 2, "oil": 14, "tea": 10.5})
    assert scores["log"] == pytest.approx({"jam": 2, "oil": 3, "tea": 5 + np.log2(1.5)})
    assert scores["cap"] == pytest.approx({"jam": 2, "oil": 3, "tea": 7.5})


def test_popularity_with_half_life():
    model = sl.Popularity(weighting="linear", half_life=2).fit(build(ROWS))  # as of January 5
    tea = 3 / 4 + 7 / 2 + 0.5
    oil = -1 * 0.5**1.5 + 15 * 0.5**0.5
    assert dense(model)[0] == pytest.approx([2**-2 + 2**-1.5, oil, tea], rel=1e-6)


def test_a_count_of_zero_has_no_age():
    rows = [("a", "x", 10, 1), ("b", "x", 11, -1), ("c", "x", 12, 4), ("c", "y", 12, 1)]
    model = sl.Popularity(weighting="linear", half_life=1e9).fit(build(rows))
    assert dense(model)[0] == pytest.approx([4, 1])


def test_personal_frequency_adds_weights():
    model = sl.PersonalFrequency(weighting="linear", decay=0.5, popularity=0).fit(build(ROWS))
    assert dense(model)[0] == pytest.approx([0.5, 0, 0.5 * 3 + 7])  # ann: jam, oil, tea
    model.set_params(popularity=26.5).fit(build(ROWS))  # the sum of all weights
    assert dense(model)[1] == pytest.approx([2 + 1, 14 - 1, 10.5])


def test_tifuknn_multiplies_by_weights():
    model = sl.TIFUKNN(weighting="linear", own=1, group_size=2, basket_decay=0.5).fit(build(ROWS))
    assert dense(model)[0] == pytest.approx([0.5 / 2, 0, (0.5 * 3 + 7) / 2])  # one group of two baskets
    assert dense(model)[1] == pytest.approx([1, -1, 0])


def test_ease_adds_weights():
    model = sl.EASE(weighting="linear", reg=2).fit(build(ROWS))
    matrix = np.array([[1.0, 0, 10], [1, -1, 0], [0, 15, 0.5]])
    expected = matrix @ fit_item_weights(csr_array(matrix), 2)
    assert dense(model) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_one_change_counts_only_of_rows(name):
    ones = build([(*row[:3], 1) for row in ROWS])
    counted = dense(MODELS[name].clone().fit(ones))
    for weighting in ("linear", "log", "cap"):
        found = dense(weighted(name, weighting).fit(ones))
        if name == "EASE":  # which otherwise counts an item once
            found, counted = found[1:2], dense(sl.EASE(reg=2, decay=0.8, weighting="cap").fit(ones))[1:2]
        assert found == pytest.approx(counted, rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_none_ignores_weights_bit_for_bit(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # on the return
        found = MODELS[name].clone().fit(build(ROWS))
    plain = MODELS[name].clone().fit(sl.Interactions.from_tuples([row[:3] for row in ROWS]))
    assert bits(found) == bits(plain)
    assert np.array_equal(dense(found), dense(plain))


@pytest.mark.parametrize("weighting", ["linear", "log", "cap"])
@pytest.mark.parametrize("name", MODELS)
def test_returns_lower_the_score(name, weighting):
    rows = [("ann", "tea", 1, 4.0), ("ann", "jam", 1, 4), ("bob", "tea", 2, 4), ("bob", "jam", 2, 4)]
    rows += [("cat", "tea", 2, 4), ("cat", "oil", 3, 2)]
    returned = [("ann", "tea", 5, -2.0), ("bob", "jam", 5, -0.0)]
    base = [("ann", "tea", 5, 0.0), ("bob", "jam", 5, 0.0)]
    before = weighted(name, weighting).fit(build(rows + base))
    after = weighted(name, weighting).fit(build(rows + returned))
    tea = before.items_.index("tea", "item id")
    if name == "EASE":  # scores an item by the user's other items: the similar item loses
        assert dense(after)[0].sum() < dense(before)[0].sum()
    else:
        assert dense(after)[0, tea] < dense(before)[0, tea]


@pytest.mark.parametrize("weighting", ["linear", "log", "cap"])
@pytest.mark.parametrize("name", MODELS)
def test_observing_in_pieces_is_fitting_the_whole(name, weighting, tmp_path):
    rng = np.random.default_rng(5)
    rows = [
        (f"u{rng.integers(8)}", f"i{rng.integers(6)}", f"2024-01-{d:02}", float(rng.integers(-2, 9)) / 2)
        for d in range(1, 29)
        for _ in range(4)
    ]
    known, more = rows[:80], rows[80:]
    # known rows come again: with another weight, on their own and among new rows
    pieces = [more[:9], [(*known[3][:3], 2.5)], [*more[9:20], (*known[70][:3], -1.0)], more[20:]]
    whole = [*known, *(row for piece in pieces for row in piece)]
    assert {row[1] for row in known} == {row[1] for row in rows}  # EASE learns no new items
    learned = weighted(name, weighting).fit(build(known))
    joined = weighted(name, weighting).fit(build(whole))
    for number, piece in enumerate(pieces):
        learned.observe(build(piece))
        if number == 1:
            dense(learned)  # what a request computes is not out of date later
    users = joined.users_.values
    if name == "EASE":  # the item-item weights stay
        known_state = weighted(name, weighting).fit(build(known))._fitted_state()
        matrix = joined._history_matrix(joined.build_request(users))
        expected = np.asarray(matrix @ known_state.weights, np.float32)
    else:
        expected = dense(joined)
    assert learned.history_.to_frame().sort(pl.all()).equals(joined.history_.to_frame().sort(pl.all()))
    found = learned.score(learned.build_request(users)).dense(len(learned.items_))
    order = learned.items_.lookup(joined.items_.values)
    assert found[:, order] == pytest.approx(expected, rel=1e-6, abs=1e-7)
    loaded = sl.load_model(learned.save(tmp_path / "m.shortlist"))
    assert np.array_equal(loaded.score(loaded.build_request(users)).dense(len(loaded.items_)), found)
    assert loaded.weighting == weighting


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_needed(name):
    with pytest.raises(ConfigError, match="weighting='log' needs weights"):
        weighted(name, "log").fit(sl.Interactions.from_tuples([row[:3] for row in ROWS]))


@pytest.mark.parametrize(
    "bad", [{"weighting": "sqrt"}, {"weighting": None}, {"weight_cap": 0}, {"weight_cap": -1}]
)
@pytest.mark.parametrize("cls", [sl.Popularity, sl.PersonalFrequency, sl.TIFUKNN, sl.EASE])
def test_other_parameters_are_refused(cls, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        cls(**bad)


def test_sessions_count_one_per_row():
    model = sl.PersonalFrequency(weighting="log", popularity=0).fit(build(ROWS))
    lists = model.recommend(history={"new": ["oil", "tea"]}, N=2, filter_seen=False)
    assert lists.scores.tolist() == [1, 1]


class TestReports:
    def test_negative_rows_that_count_as_positive_are_a_warning(self):
        with pytest.warns(DataWarning, match="1 of 7 rows have a negative weight.*Popularity counts them"):
            sl.Popularity().fit(build(ROWS))
        with pytest.warns(DataWarning, match="BPRMF counts them like any other row"):
            sl.BPRMF(n_epochs=1, n_factors=8).fit(build(ROWS))

    def test_models_that_use_them_are_silent(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sl.Popularity(weighting="log").fit(build(ROWS)).observe(build([("ann", "tea", "2024-02-01", -1)]))

    def test_observed_returns_are_rows_if_the_data_has_such_rows(self):
        model = sl.Popularity(weighting="linear").fit(build(ROWS))
        n_rows = model.history_.n_rows
        model.observe([("ann", "tea", "2024-02-01", -1), ("bob", "tea", "2024-02-01", 1)])
        assert model.history_.n_rows == n_rows + 2
        assert (model.history_.weight < 0).sum() == 2
        with pytest.warns(DataWarning, match="1 of 7 rows have a negative weight"):
            plain = sl.Popularity().fit(build(ROWS))
        with pytest.warns(DataWarning, match="1 of 1 rows have a negative weight"):
            plain.observe(build([("ann", "tea", "2024-02-01", -1)]))

    def test_observed_returns_take_purchases_away(self):
        model = sl.Popularity().fit(sl.Interactions.from_tuples([row[:3] for row in ROWS]))
        before = dense(model)[0].tolist()
        model.observe(build([("ann", "tea", "2024-02-01", -1), ("ann", "jam", "2024-02-01", 2)]))
        jam, oil, tea = before
        assert dense(model)[0].tolist() == [jam + 1, oil, tea - 1]
