"""A model as a function of Arrow tables: the lists of `recommend`, however the table is divided."""

import pickle

import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError
from shortlist.models.base import find_model_class, model_names


@pytest.fixture(scope="module")
def split():
    return sl.split.last_basket(sl.load_dataset("sample"))


@pytest.fixture(scope="module")
def table(split):
    """Histories, sorted by user."""
    return split.train.to_frame().sort("user_id", maintain_order=True)


def rows_of(tables):
    return pl.DataFrame(pa.concat_tables(list(tables)))


MODELS = [name for name in model_names() if name not in ("PrecomputedScores", "ContentProfile")]


@pytest.mark.parametrize("name", MODELS)
def test_lists_are_those_of_recommend_however_the_users_are_divided(name, split, table):
    kind = find_model_class(name)
    model = kind(**kind.warmup_params).fit(split.train)
    make_lists = pickle.loads(pickle.dumps(model.arrow(N=5)))
    expected = model.recommend(history=table, N=5).to_frame()
    assert expected["length"].max() == 5
    assert pl.DataFrame(make_lists(table.to_arrow())).equals(expected)
    batches = table.to_arrow().to_batches(max_chunksize=37)  # no user ends where a batch ends
    for n_rows in (1, 97, 1000):
        assert rows_of(make_lists.batches(batches, n_rows)).equals(expected), n_rows


def test_options_are_those_of_recommend(split, table):
    model = sl.PersonalFrequency().fit(split.train)
    top = model.recommend(N=30, filter_seen=False)
    cutoff = sl.cutoff.ExpectedF1().fit(top, split.valid, history=split.train)
    options = {"cutoff": cutoff, "exclude": {"u1": ["i92"]}, "max_items": 4, "fallback": "popular"}
    expected = model.recommend(history=table, **options).to_frame()
    batches = table.to_arrow().to_batches(max_chunksize=500)
    assert rows_of(model.arrow(**options).batches(batches, 700)).equals(expected)
    numbers = table.with_columns(pl.col("user_id").rank("dense").cast(pl.Int32))
    lists = model.arrow(N=2)(numbers.to_arrow())
    assert lists["user_id"].type == pa.int32()  # ids have the type of the table
    assert lists["item_id"].type == pa.string()
    assert (
        pl.DataFrame(lists)
        .cast({"user_id": pl.Int64})
        .equals(model.recommend(history=numbers, N=2).to_frame().cast({"user_id": pl.Int64}))
    )


def test_an_empty_table_gives_an_empty_table(split, table):
    make_lists = sl.Popularity().fit(split.train).arrow(N=5)
    assert make_lists(table.head(0).to_arrow()).schema == make_lists(table.to_arrow()).schema
    assert list(make_lists.batches([])) == []


def test_what_cannot_be_right_is_refused(split, table):
    model = sl.Popularity().fit(split.train)
    with pytest.raises(ConfigError, match="history must be None for arrow"):
        model.arrow(N=5, history=table)
    with pytest.raises(ConfigError, match="N"):
        model.arrow()
    with pytest.raises(DataError, match="user_id must be a column"):
        model.arrow(N=5)(pa.table({"x": [1]}))
    unsorted = pa.concat_tables([table.to_arrow(), table.head(1).to_arrow()])
    with pytest.raises(DataError, match="rows must be sorted by user"):
        list(model.arrow(N=5).batches(unsorted.to_batches(max_chunksize=100), 100))
