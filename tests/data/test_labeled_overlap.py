"""Truth that the model was trained on is reported; repeat purchases are not mistaken for it."""

import pickle
import warnings

import numpy as np
import pytest

import shortlist as sl
from shortlist.data.labeled import overlap_share
from shortlist.errors import DataWarning

SAMPLE = sl.load_dataset("sample")
SPLIT = sl.split.last_basket(SAMPLE)


def without_times(data):
    """The same users, items and baskets."""
    frame = data.to_frame()
    return sl.Interactions.from_frame(frame.select("user_id", "item_id"))


def test_leaked_rows_are_counted_against_a_plain_oracle():
    rows = set(SPLIT.train_valid.to_frame().select("user_id", "item_id", "timestamp").rows())
    for truth in (SPLIT.valid, SPLIT.test, SAMPLE.where(np.arange(SAMPLE.n_rows) % 3 == 0)):
        own = truth.to_frame().select("user_id", "item_id", "timestamp").rows()
        expected = np.mean([row in rows for row in own])
        assert overlap_share(SPLIT.train_valid, truth) == pytest.approx(expected, abs=0.02)


def test_items_bought_again_later_are_not_leaked():
    pairs = set(SPLIT.train.to_frame().select("user_id", "item_id").rows())
    own = SPLIT.valid.to_frame().select("user_id", "item_id").rows()
    assert np.mean([pair in pairs for pair in own]) > 0.3  # many repeats
    assert overlap_share(SPLIT.train, SPLIT.valid) == 0


def test_without_times_only_a_contained_truth_counts():
    train, valid, data = (without_times(part) for part in (SPLIT.train, SPLIT.valid, SAMPLE))
    assert overlap_share(train, valid) == 0
    assert overlap_share(data, valid) == 1
    assert overlap_share(data, valid.where(np.arange(valid.n_rows) < 10)) == 0  # too few rows to be sure


def test_other_ids_and_empty_truth_do_not_overlap():
    numbers = sl.Interactions.from_tuples([(1, 2, 3)])
    assert overlap_share(SAMPLE, numbers) == 0
    assert overlap_share(SAMPLE, SPLIT.test.where(np.zeros(SPLIT.test.n_rows, bool))) == 0


@pytest.mark.parametrize("cutoff", [sl.cutoff.ExpectedF1(calibration="platt"), sl.cutoff.FixedN()])
def test_a_cutoff_fitted_on_training_rows_is_a_warning(cutoff):
    model = sl.PersonalFrequency().fit(SPLIT.train_valid)
    lists = model.recommend(N=20)
    with pytest.warns(DataWarning, match="100% of the rows of truth .* the cutoff expects too much") as found:
        cutoff.clone().fit(lists, SPLIT.valid)
    assert found[0].filename == __file__
    with pytest.warns(DataWarning, match="the cutoff expects too much"):
        cutoff.clone().fit(lists, SPLIT.valid, history=SPLIT.train)
    with pytest.warns(DataWarning, match="the cutoff expects too much"):
        cutoff.clone().fit(lists.take(np.arange(100)), SPLIT.valid)


def test_an_evaluation_on_training_rows_is_a_warning():
    lists = sl.PersonalFrequency().fit(SAMPLE).recommend(N=5)
    with pytest.warns(DataWarning, match="the metrics are too high"):
        sl.evaluate(lists, SPLIT.test)
    with pytest.warns(DataWarning, match="the metrics are too high"):
        sl.evaluate((part for part in (lists[:100], lists[100:])), SPLIT.test)


def test_honest_fits_are_silent():
    model = sl.PersonalFrequency().fit(SPLIT.train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = sl.cutoff.ExpectedF1().fit(model.recommend(N=20), SPLIT.valid, history=SPLIT.train)
        sl.evaluate(cut.apply(model.recommend(N=20), history=SPLIT.train), SPLIT.valid)
        sl.fit(SAMPLE, models="PersonalFrequency")


def test_lists_are_pickled_without_their_origin():
    model = sl.Popularity().fit(SPLIT.train)
    lists = model.recommend(N=1)
    assert lists.origin is model.history_
    copy = pickle.loads(pickle.dumps(lists))
    assert copy.origin is None
    assert copy.items.tolist() == lists.items.tolist()
