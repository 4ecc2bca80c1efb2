"""A cutoff as a function of Arrow tables: the lists of `apply`, however the table is divided."""

import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl
from shortlist.errors import DataError, NotFittedError

CUTOFFS = [
    k for k, kind in sorted(sl.cutoff.Cutoff.classes().items()) if kind.__module__.startswith("shortlist.")
]


@pytest.fixture(scope="module")
def split():
    return sl.split.last_basket(sl.load_dataset("sample"))


@pytest.fixture(scope="module")
def lists(split):
    """Candidates of all users, with probabilities."""
    top = sl.PersonalFrequency().fit(split.train).recommend(N=30, filter_seen=False)
    return sl.cutoff.Calibration().fit(top, split.valid).apply(top)


@pytest.mark.filterwarnings("ignore:the guarantee was tested on model")
@pytest.mark.parametrize(
    ("name", "has_history"), [*((name, False) for name in CUTOFFS), ("ExpectedF1", True)]
)
def test_lists_are_those_of_apply_however_the_users_are_divided(name, has_history, split, lists):
    settings = {"Guarantee": {"min_precision": 0.05}, "Boundary": {"t": float(np.median(lists.scores))}}
    history = split.train if has_history else None
    cutoff = sl.cutoff.Cutoff.classes()[name](**settings.get(name, {})).fit(
        lists, split.valid, history=history
    )
    table = (
        lists.to_frame()
        .select("user_id", "item_id", "score", "probability")
        .sort("user_id", maintain_order=True)
    )
    expected = cutoff.apply(sl.RankedLists.from_frame(table), history=history).to_frame()
    assert expected["length"].max() > 0
    cut = pickle.loads(pickle.dumps(cutoff.arrow(history=history)))
    assert pl.DataFrame(cut(table.to_arrow())).equals(expected)
    batches = table.to_arrow().to_batches(max_chunksize=37)
    for n_rows in (1, 1000):
        assert pl.DataFrame(pa.concat_tables(list(cut.batches(batches, n_rows)))).equals(expected), n_rows


def test_what_cannot_be_right_is_refused():
    with pytest.raises(NotFittedError):
        sl.cutoff.ExpectedF1().arrow()
    with pytest.raises(DataError, match="item_id must be a column"):
        sl.cutoff.FixedN(N=3).arrow()(pa.table({"user_id": [1], "score": [0.5]}))
