"""RankedLists: selection, tables and files, including empty lists."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data.ids import IdMap
from shortlist.data.lists import REASON_CODE, REASONS, RankedLists
from shortlist.errors import DataError, UnknownIdError


def make(lists, scores=None, **extra):
    """Lists from {user_id: [item_id, …]} over the sorted items; scores fall by one half from 1."""
    item_ids = IdMap.of(sorted({item for items in lists.values() for item in items}))
    lengths = [len(items) for items in lists.values()]
    flat = [item for items in lists.values() for item in items]
    falling = [1 - rank / 2 for n in lengths for rank in range(n)]
    return RankedLists(
        users=IdMap.of(list(lists)),
        item_ids=item_ids,
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        items=item_ids.lookup(flat),
        scores=np.array(falling if scores is None else scores, np.float32),
        **extra,
    )


def rich():
    """Three lists, the middle one empty, with all optional arrays."""
    return make(
        {"zoe": ["c", "a"], "abe": [], "mia": ["b"]},
        probabilities=np.array([0.75, 0.5, 0.25]),
        boundary=np.array([0.5, np.nan, -1.0], np.float32),
        reason=np.array([REASON_CODE[r] for r in ("boundary", "unknown_user", "max_items")], np.uint8),
    )


def same(one, other):
    """Equal in everything, with NaN equal to NaN."""
    assert one.users == other.users
    assert one.item_ids.to_ids(one.items).to_list() == other.item_ids.to_ids(other.items).to_list()
    for name in ("indptr", "scores", "probabilities", "boundary", "reason"):
        left, right = getattr(one, name), getattr(other, name)
        if left is None or right is None:
            assert left is None, name
            assert right is None, name
        else:
            assert left.dtype == right.dtype, name
            np.testing.assert_array_equal(left, right, err_msg=name)


def test_one_list_by_user_id():
    one = rich()["zoe"]
    assert (one.user_id, one.items, one.boundary, one.reason) == ("zoe", ["c", "a"], 0.5, "boundary")
    assert one.scores.tolist() == [1.0, 0.5]
    assert one.probabilities.tolist() == [0.75, 0.5]
    assert len(one) == 2


def test_empty_list_has_a_reason():
    one = rich()["abe"]
    assert (one.items, one.boundary, one.reason, len(one)) == ([], None, "unknown_user", 0)


def test_unknown_user_is_named():
    with pytest.raises(UnknownIdError, match=r"'zoo'.*'zoe'"):
        rich()["zoo"]


def test_shape_of_the_lists():
    lists = rich()
    assert len(lists) == 3
    assert lists.lengths.tolist() == [2, 0, 1]
    assert lists.positions.tolist() == [0, 1, 0]
    assert lists.cover_ratio == pytest.approx(2 / 3)
    assert [one.user_id for one in lists] == ["zoe", "abe", "mia"]
    assert repr(lists) == "RankedLists(3 lists, 3 items, 67% not empty)"


def test_no_lists_at_all():
    lists = make({})
    assert (len(lists), lists.cover_ratio, lists.positions.size) == (0, 0.0, 0)
    assert len(lists.to_frame()) == 0


@pytest.mark.parametrize("name", ["scores", "probabilities", "boundary", "reason"])
def test_arrays_of_other_sizes_are_rejected(name):
    with pytest.raises(DataError, match=f"{name} must have"):
        make({"u": ["a", "b"]}, **{name: np.zeros(7)})


def test_take_reorders_and_may_repeat():
    lists = rich().take([2, 0, 2])
    assert lists.users.values.to_list() == ["mia", "zoe", "mia"]
    assert [one.items for one in lists] == [["b"], ["c", "a"], ["b"]]
    assert lists.boundary.tolist() == [-1.0, 0.5, -1.0]
    assert [lists.reason_of(n) for n in range(3)] == ["max_items", "boundary", "max_items"]
    assert len(lists.summary()) == 3


def test_slices_select_by_position():
    same(rich()[1:], rich().take([1, 2]))


def test_head_accepts_one_length_or_one_per_list():
    assert [one.items for one in rich().head(1)] == [["c"], [], ["b"]]
    assert [one.items for one in rich().head([2, 5, 0])] == [["c", "a"], [], []]
    assert [one.items for one in rich().head(-3)] == [[], [], []]
    assert rich().head(1).probabilities.tolist() == [0.75, 0.25]


def test_head_may_give_a_new_reason():
    codes = np.full(3, REASON_CODE["top_n"], np.uint8)
    assert rich().head(1, codes).reason_of(0) == "top_n"
    assert rich().head(1).reason_of(0) == "boundary"


def test_head_rejects_lengths_of_another_shape():
    with pytest.raises(DataError, match="one per list"):
        rich().head([1, 2])


def test_table_has_a_row_for_the_empty_list():
    table = rich().to_frame()
    assert table.columns == [
        "user_id",
        "rank",
        "item_id",
        "score",
        "probability",
        "length",
        "boundary",
        "reason",
    ]
    assert table.rows() == [
        ("zoe", 1, "c", 1.0, 0.75, 2, 0.5, "boundary"),
        ("zoe", 2, "a", 0.5, 0.5, 2, 0.5, "boundary"),
        ("abe", 0, None, None, None, 0, None, "unknown_user"),
        ("mia", 1, "b", 1.0, 0.25, 1, -1.0, "max_items"),
    ]


def test_summary_has_a_row_per_list():
    assert rich().summary().rows() == [
        ("zoe", 2, 0.5, "boundary"),
        ("abe", 0, None, "unknown_user"),
        ("mia", 1, -1.0, "max_items"),
    ]


def test_table_without_rank_is_sorted_by_score():
    table = pl.DataFrame({"user_id": [7, 7, 8], "item_id": [1, 2, 1], "score": [0.1, 0.9, 0.5]})
    lists = RankedLists.from_frame(table)
    assert lists[7].items == [2, 1]


def test_table_without_rank_and_score_keeps_its_order():
    table = pl.DataFrame({"user_id": [7, 8, 7], "item_id": [2, 2, 1]})
    lists = RankedLists.from_frame(table)
    assert lists[7].items == [2, 1]
    assert lists.scores.tolist() == [0, -1, 0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user_id": [1]}, "item_id"),
        ({"user_id": [1, None], "item_id": [1, 2]}, "null"),
        ({"user_id": [1, 1], "item_id": [2, 2]}, "twice"),
        ({"user_id": [1], "item_id": [2], "reason": ["whim"]}, "'whim'"),
    ],
)
def test_invalid_list_tables_are_rejected(columns, message):
    with pytest.raises(DataError, match=message):
        RankedLists.from_frame(pl.DataFrame(columns))


@pytest.mark.parametrize("known", [[], [1, 2]])
def test_unknown_items_are_rejected(known):
    with pytest.raises(DataError, match="known items only, got 5"):
        RankedLists.from_frame(pl.DataFrame({"user_id": [1], "item_id": [5]}), IdMap.of(known))


@pytest.mark.parametrize("extension", ["parquet", "csv", "jsonl"])
class TestFiles:
    def test_lists_round_trip(self, tmp_path, extension):
        path = rich().write(tmp_path / f"lists.{extension}")
        same(RankedLists.read(path), rich())

    @pytest.mark.parametrize(
        "lists",
        [
            {3: [10, 9], 1: [], 2: [9]},
            {"x": ["one, two", 'quo"te'], "ünï": ["b"]},
            {"007": ["08", "9"], "7": []},  # leading zeros must be kept
            {1: [], 2: []},
            {"a": [], "b": []},
        ],
    )
    def test_ids_round_trip(self, tmp_path, extension, lists):
        path = make(lists).write(tmp_path / f"lists.{extension}")
        back = RankedLists.read(path)
        assert {one.user_id: one.items for one in back} == lists

    def test_file_may_start_with_many_empty_lists(self, tmp_path, extension):
        lists = make({user: [] for user in range(1500)} | {2000: ["x", "y"]})
        same(RankedLists.read(lists.write(tmp_path / f"lists.{extension}")), lists)

    def test_string_items_that_look_like_numbers_stay_strings(self, tmp_path, extension):
        lists = make({1: ["2", "10"]})
        back = RankedLists.read(lists.write(tmp_path / f"lists.{extension}"), lists.item_ids)
        assert back.items.tolist() == lists.items.tolist()

    def test_damaged_file_is_reported(self, tmp_path, extension):
        path = tmp_path / f"lists.{extension}"
        path.write_bytes(b'{"user_id": [1, \n\xff\xfe')
        with pytest.raises(DataError):
            RankedLists.read(path)


def test_other_extensions_and_missing_files_are_rejected(tmp_path):
    with pytest.raises(DataError, match=r"\.xlsx"):
        rich().write(tmp_path / "lists.xlsx")
    (tmp_path / "lists.xlsx").touch()
    with pytest.raises(DataError, match=r"\.xlsx"):
        RankedLists.read(tmp_path / "lists.xlsx")
    with pytest.raises(DataError, match="no file"):
        RankedLists.read(tmp_path / "missing.csv")


@given(
    lists=st.dictionaries(
        st.integers(-5, 50), st.lists(st.integers(0, 30), unique=True, max_size=6), min_size=1
    ),
    cut=st.integers(0, 7),
)
def test_tables_round_trip_and_head_cuts_each_list(lists, cut):
    ranked = make(lists)
    back = RankedLists.from_frame(ranked.to_frame())
    assert {one.user_id: one.items for one in back} == lists
    assert {one.user_id: one.items for one in ranked.head(cut)} == {
        u: items[:cut] for u, items in lists.items()
    }


def test_reasons_are_distinct():
    assert len(set(REASONS)) == len(REASONS)


@pytest.mark.parametrize("name", ["rank", "score", "probability", "boundary"])
def test_numbers_written_as_text_are_converted(name):
    frame = pl.DataFrame({"user_id": ["a"] * 3, "item_id": ["x", "y", "z"], name: ["10", "9", "11"]})
    lists = RankedLists.from_frame(frame)
    if name == "rank":
        assert lists.at(0).items == ["y", "x", "z"]
    with pytest.raises(DataError, match=f"{name} must be a number in a list table, got 'ten'"):
        RankedLists.from_frame(frame.with_columns(pl.lit("ten").alias(name)))
    with pytest.raises(DataError, match=f"{name} must be a number"):
        RankedLists.from_frame(frame.with_columns(pl.lit([1]).alias(name)))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_list_table_may_use_aliases(tmp_path, suffix):
    frame = pl.DataFrame({"customerId": ["007", "007"], "sku": ["b", "a"], "rank": [2, 1]})
    path = tmp_path / f"lists{suffix}"
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}[suffix](path)
    assert RankedLists.read(path)["007"].items == ["a", "b"]
