"""Quantity features of TwoStage, against a slow computation from the rows, and in the whole model."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.data.history import History
from shortlist.data.timeline import event_times
from shortlist.errors import ConfigError
from shortlist.models.two_stage.features import FEATURES
from shortlist.models.two_stage.quantities import QUANTITY_FEATURES, Quantities
from shortlist.models.two_stage.two_stage import feature_names
from shortlist.models.weighting import WeightTransform

DAY = 86_400_000_000
START = 1_600_041_600  # midnight, in seconds
PARAMS = {"n_rounds": 5, "n_bags": 1, "min_leaf": 5, "weighting": "linear"}


def random_rows(n=300, seed=0, first_day=0):
    """Rows of 9 users and 7 items over 20 days; some are returns."""
    rng = np.random.default_rng(seed)
    return [
        (
            f"u{rng.integers(9)}",
            f"i{rng.integers(7)}",
            START + int(first_day + day) * 86_400,
            float(rng.choice([1, 2, 3, 8, 0.5, -1])),
        )
        for day in np.sort(rng.integers(20, size=n))
    ]


def build(rows):
    """Interactions in which returns are kept."""
    return sl.Interactions.from_tuples(rows, negative_weights="keep")


def slow_features(data, user, item, at):
    """The features of one user and item, row by row."""
    nan = float("nan")
    rows = [
        (int(u), int(i), int(t), float(w))
        for u, i, t, w in zip(data.user, data.item, data.time, data.weight, strict=True)
        if t < at
    ]
    own = sorted((t, w) for u, i, t, w in rows if (u, i) == (user, item))
    bought = [(t, w) for t, w in own if w >= 0]
    of_item = [w for u, i, t, w in rows if i == item]
    of_user = [w for u, i, t, w in rows if u == user and w >= 0]
    total = sum(w for _, w in bought)
    supply = nan
    if bought:
        last_time, last = bought[-1]
        days = (last_time - own[0][0]) / DAY
        if days > 0 and last > 0:
            supply = (at - last_time) / DAY * (total - last) / days / last
    item_bought = sum(w for w in of_item if w >= 0)
    return [
        bought[-1][1] if bought else nan,
        total / len(bought) if bought else nan,
        total,
        supply,
        -sum(w for _, w in own if w < 0),
        item_bought / len([w for w in of_item if w >= 0]) if any(w >= 0 for w in of_item) else nan,
        -sum(w for w in of_item if w < 0) / item_bought if item_bought else nan,
        sum(of_user) / len(of_user) if of_user else nan,
    ]


def test_features_against_a_slow_computation():
    data = build(random_rows())
    assert (data.weight < 0).any()
    quantities = Quantities.of(data, event_times(data), WeightTransform("linear"))
    rng = np.random.default_rng(1)
    user, item = rng.integers(9, size=200).astype(np.int32), rng.integers(7, size=200).astype(np.int32)
    at = START * 1_000_000 + rng.integers(-1, 22, size=200) * DAY
    found = quantities.features(user, item, at)
    expected = [slow_features(data, *one) for one in zip(user, item, at, strict=True)]
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-5, atol=1e-6)
    assert np.isfinite(found[:, QUANTITY_FEATURES.index("own_supply_used")]).sum() > 20


def test_an_unknown_pair_and_an_empty_session():
    data = build([("a", "x", 1, 2.0), ("b", "y", 2, 3.0)])
    none = data.where(np.zeros(2, np.bool_))
    transform = WeightTransform("log")
    whole = Quantities.of(data, event_times(data), transform)
    empty = Quantities.of(none, event_times(none), transform)._replace(by_item=whole.by_item)
    for one in (whole, empty):
        row = one.features(np.array([0], np.int32), np.array([1], np.int32), np.array([DAY * 9]))[0]
        assert np.isnan(row[[0, 1, 3]]).all()
        assert row[2] == row[4] == 0
        assert row[5] == 2  # log2(1 + 3), of the other user


@pytest.fixture(scope="module")
def fitted():
    return sl.TwoStage(**PARAMS).fit(build(random_rows()))


def lists(model, **request):
    """Lists as a table."""
    return model.recommend(["u0", "u1", "u5"], N=5, **request).to_frame()


def test_returns_are_not_purchases(fitted):
    log = fitted._state.replay.whole.timeline.log.users
    data = fitted.history_
    assert log.item.size == (data.weight >= 0).sum() < data.n_rows


def test_trees_see_the_features(fitted):
    assert fitted._state.features == (*FEATURES, *QUANTITY_FEATURES)
    data = build(random_rows())
    examples = fitted.compute_examples(data)
    assert examples.features.shape[1] == len(FEATURES) + len(QUANTITY_FEATURES)
    last = examples.features[:, len(FEATURES) + QUANTITY_FEATURES.index("own_quantity_last")]
    assert np.isfinite(last).any()
    assert set(last[np.isfinite(last)]) <= set(data.weight[data.weight >= 0])


def test_saved_and_loaded(fitted, tmp_path):
    loaded = sl.load_model(fitted.save(tmp_path / "m.shortlist"))
    assert lists(loaded).equals(lists(fitted))


def test_observing_in_pieces_is_the_joined_history(tmp_path):
    rows, more = random_rows(), random_rows(60, seed=2, first_day=20)
    model = sl.TwoStage(**PARAMS).fit(build(rows))
    returned = (*rows[-1][:3], -9.0)  # turns a known purchase into a return
    learned = model._state_fields(model._state)
    for piece in (more[:20], [more[20]], [*more[21:40], returned], more[40:]):
        model.observe(build(piece))
        lists(model)
    joined = build([*rows, *more, returned])
    other = sl.TwoStage(**PARAMS)
    other._state = other._build_state(learned | {"history": History.of(joined)})
    assert lists(model).equals(lists(other))
    assert lists(model, at="2020-09-25").equals(lists(other, at="2020-09-25"))
    session = {"s": ["i1", "i2"]}
    assert (
        model.recommend(history=session, N=3)
        .to_frame()
        .equals(other.recommend(history=session, N=3).to_frame())
    )


def test_without_weighting_nothing_is_added():
    data = build([row for row in random_rows() if row[3] > 0])
    replay = sl.TwoStage()._replay(History.of(data), has_clock=False)
    assert replay.whole.quantities is None
    assert feature_names(replay, None) == FEATURES


def test_examples_of_another_weighting_are_refused(fitted):
    examples = fitted.compute_examples(build(random_rows()))
    with pytest.raises(ConfigError, match="weighting"):
        fitted.clone().set_params(weighting="log").fit_from_examples(examples)
