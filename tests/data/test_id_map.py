"""IdMap: ids and indices round-trip."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data.ids import UNKNOWN, IdMap, encode, id_series
from shortlist.errors import DataError, UnknownIdError

INTEGERS = st.integers(-(2**63), 2**63 - 1)
id_lists = st.one_of(
    st.lists(st.text(max_size=8), min_size=1, max_size=50),
    st.lists(INTEGERS, min_size=1, max_size=50),
    st.lists(st.integers(-20, 60), min_size=1, max_size=50),
)


@given(id_lists)
def test_encoding_round_trips_and_sorts(values):
    ids, codes = encode(pl.Series(values))
    assert ids.to_ids(codes).to_list() == values
    assert ids.values.to_list() == sorted(set(values))
    assert codes.dtype == np.int32


@given(
    st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=20, unique=True),
    st.lists(st.text(max_size=4)),
)
def test_lookup_of_few_and_of_many_ids_agrees_with_a_dictionary(known, wanted):
    ids = IdMap.of(known)
    expected = [known.index(one) if one in known else UNKNOWN for one in wanted]
    assert ids.lookup(wanted).tolist() == expected
    assert ids.lookup(pl.Series(wanted * 1001 + known, dtype=pl.String)).tolist() == (
        expected * 1001 + list(range(len(known)))
    )


def test_types_are_kept():
    for dtype in (pl.Int8, pl.UInt16, pl.Int64, pl.UInt64):
        ids, _ = encode(pl.Series([3, 1, 2], dtype=dtype))
        assert ids.values.dtype == dtype
    assert encode(pl.Series(["b", "a"], dtype=pl.Categorical))[0].values.to_list() == ["a", "b"]


def test_large_unsigned_integers_survive():
    ids, codes = encode(pl.Series([2**64 - 1, 2**63, 2**64 - 1], dtype=pl.UInt64))
    assert ids.to_ids(codes).to_list() == [2**64 - 1, 2**63, 2**64 - 1]


def test_chunked_series_encode_like_contiguous_ones():
    parts = pl.concat([pl.Series([5, 3]), pl.Series([4, 3, 9])], rechunk=False)
    assert parts.n_chunks() == 2
    ids, codes = encode(parts)
    assert ids.to_ids(codes).to_list() == [5, 3, 4, 3, 9]


def test_numpy_scalars_are_found():
    ids = IdMap.of([10, 20])
    assert ids.lookup(np.array([20, 30])).tolist() == [1, UNKNOWN]
    assert ids.index(np.int64(20)) == 1
    assert 10 in ids
    assert 30 not in ids


def test_integers_and_strings_of_digits_are_different_ids():
    ids = IdMap.of([1, 2])
    for wanted in (["1"], [2, "1"], pl.Series(["1"] * 2000), np.array(["1"])):
        with pytest.raises(UnknownIdError, match=r"^ids are integers, got the string '1'; pass 1\.$"):
            ids.lookup(wanted)
    with pytest.raises(UnknownIdError, match=r"^user ids are strings, got the integer 5; pass '5'\.$"):
        IdMap.of(["5"]).lookup(np.array([5]), "user id")
    with pytest.raises(UnknownIdError, match="pass an integer, such as 1"):
        ids.lookup(["one"])


@pytest.mark.parametrize("bad", [True, 1.0, None, ("a",), ["a"], b"1", float("nan")])
def test_values_that_are_no_ids_are_not_looked_up(bad):
    for ids in (IdMap.of([1, 2]), IdMap.of(["1", "b"])):
        with pytest.raises(UnknownIdError, match=f"got a {type(bad).__name__}"):
            ids.lookup([bad])
        with pytest.raises(UnknownIdError, match="got a"):
            ids.index(bad)


def test_an_empty_map_knows_no_type():
    assert IdMap.of([]).lookup(["a"]).tolist() == [UNKNOWN]
    assert IdMap.of([]).lookup(["a"] * 2000).max() == UNKNOWN


def test_error_for_an_unknown_id_names_similar_ids():
    with pytest.raises(UnknownIdError, match=r"unknown id 'appel'.*did you mean 'apple'\?$"):
        IdMap.of(["apple", "pear"]).index("appel")
    with pytest.raises(UnknownIdError, match="none of the 2 known ids is similar"):
        IdMap.of(["apple", "pear"]).index("1")
    with pytest.raises(UnknownIdError, match="ids are integers, got the string '1'; pass 1"):
        IdMap.of([1, 2]).index("1")


def test_union_keeps_indices_and_sorts_new_ids():
    ids = IdMap.of(["m", "a"]).union(["z", "a", "b", "z"])
    assert ids.values.to_list() == ["m", "a", "b", "z"]
    assert ids.union([]) is ids
    with pytest.raises(DataError, match="new ids must have the type of the known ones"):
        ids.union([1])


def test_equality_is_of_values_in_order():
    assert IdMap.of([1, 2]) == IdMap.of([1, 2])
    assert IdMap.of([1, 2]) != IdMap.of([2, 1])


def test_align_gives_the_index_of_each_id_in_this_map():
    ids = IdMap.of(["a", "b", "c"])
    assert ids.align(IdMap.of(["c", "x", "a"])).tolist() == [2, -1, 0]
    assert ids.align(IdMap.of(["a", "b", "c"])).tolist() == [0, 1, 2]
    assert ids.align(IdMap.of([1, 2])).tolist() == [-1, -1]


@pytest.mark.parametrize("bad", [[1.5, 2.0], [True, False], [None, None], ["a", None], [1, True], [1, "1"]])
def test_other_types_are_rejected(bad):
    with pytest.raises(DataError, match="ids must be strings or integers"):
        id_series(bad)


def test_repeated_ids_are_rejected():
    with pytest.raises(DataError, match="ids must be distinct"):
        IdMap.of([1, 1])
