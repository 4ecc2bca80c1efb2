"""Ids of the wrong type, and unknown items among candidates and exclusions."""

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import ConfigError, DataError, DataWarning, UnknownIdError

STRINGS = sl.Popularity().fit(sl.Interactions.from_tuples([("1", "a"), ("1", "b"), ("2", "a"), ("3", "c")]))
INTEGERS = sl.Popularity().fit(sl.Interactions.from_tuples([(1, 10), (1, 11), (2, 10), (3, 12)]))


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"users": [1]}, "user ids are strings, got the integer 1; pass '1'."),
        ({"users": 1}, "user ids are strings, got the integer 1; pass '1'."),
        ({"users": np.array([1, 2])}, "user ids are strings, got the integer 1; pass '1'."),
        ({"users": pl.Series([1] * 2000).unique()}, "user ids are strings, got the integer 1; pass '1'."),
        ({"candidates": [5]}, "candidates: item ids are strings, got the integer 5; pass '5'."),
        ({"candidates": ["a", 5]}, "candidates: item ids are strings, got the integer 5; pass '5'."),
        ({"exclude": {"1": [5]}}, "exclude: item ids are strings, got the integer 5; pass '5'."),
        ({"exclude": {1: ["a"]}}, "exclude: user ids are strings, got the integer 1; pass '1'."),
        (
            {"candidates": [[5], ["a"], ["b"]]},
            "candidates: item ids are strings, got the integer 5; pass '5'.",
        ),
        ({"history": {"new": [5]}}, "history: item ids are strings, got the integer 5; pass '5'."),
        (
            {"history": pl.DataFrame({"user": ["a", "b"], "item": [5, 6]})},
            "history: item ids are strings, got the integer 5; pass '5'.",
        ),
    ],
)
def test_integers_asked_of_string_data(request_, sentence):
    with pytest.raises(UnknownIdError) as caught:
        STRINGS.recommend(**request_, N=2)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"users": "1"}, "user ids are integers, got the string '1'; pass 1."),
        ({"users": ["ann"]}, "user ids are integers, got the string 'ann'; pass an integer, such as 1."),
        ({"candidates": ["10"]}, "candidates: item ids are integers, got the string '10'; pass 10."),
        ({"exclude": {"1": [10]}}, "exclude: user ids are integers, got the string '1'; pass 1."),
        ({"history": {7: ["10"]}}, "history: item ids are integers, got the string '10'; pass 10."),
    ],
)
def test_strings_asked_of_integer_data(request_, sentence):
    with pytest.raises(UnknownIdError) as caught:
        INTEGERS.recommend(**request_, N=2)
    assert str(caught.value) == sentence


def test_other_lookups():
    for call in (
        lambda: STRINGS.explain(1),
        lambda: STRINGS.recommend("1", N=1)[1],
        lambda: sl.DKBPRMF(n_epochs=1).fit(STRINGS.history_).boundaries([1]),
    ):
        with pytest.raises(UnknownIdError, match=r"^user ids are strings, got the integer 1; pass '1'\.$"):
            call()
    with pytest.raises(UnknownIdError, match="item ids are strings, got the integer 1"):
        STRINGS.similar_items(1)


def test_cutoffs_refuse_lists_with_other_ids_than_the_truth():
    lists = INTEGERS.recommend(N=2, filter_seen=False)
    with pytest.raises(DataError, match=r"ids of users must have one type .* integer 1 and the string '1'"):
        sl.cutoff.Threshold().fit(lists, STRINGS.history_)


def test_sessions_may_have_ids_of_another_type():
    assert STRINGS.recommend(history={7: ["a"]}, N=1).users.values.to_list() == [7]
    assert INTEGERS.recommend(history={"session": [10]}, N=1).users.values.to_list() == ["session"]


@pytest.mark.parametrize("name", ["candidates", "exclude"])
class TestUnknownItems:
    @pytest.mark.parametrize("given", [["b", "new", "c", "newer"], {"2": ["b", "new"], "3": ["c", "newer"]}])
    def test_some_are_counted(self, name, given):
        with pytest.warns(DataWarning) as caught:
            STRINGS.recommend(["2"], N=3, **{name: given})
        assert [str(one.message) for one in caught] == [
            f"2 of 4 item ids in `{name}` are unknown to the model and are ignored, such as 'new'."
        ]
        assert caught[0].filename == __file__

    def test_none_at_all_is_allowed(self, name):
        for given in ([], {}, {"2": []}):
            assert len(STRINGS.recommend(["2"], N=3, **{name: given})) == 1


@pytest.mark.parametrize("given", [["new", "newer"], {"2": ["new"], "3": ["newer"]}, [["new"], ["newer"]]])
def test_only_unknown_items(given):
    with pytest.raises(UnknownIdError, match="2 of 2 item ids in `candidates` are unknown"):
        STRINGS.recommend(["2", "3"], N=3, candidates=given)
    with pytest.warns(DataWarning, match="2 of 2 item ids in `exclude` are unknown to the model and are ign"):
        lists = STRINGS.recommend(["2", "3"], N=3, exclude=given)  # a cart of new items
    assert lists.to_frame().equals(STRINGS.recommend(["2", "3"], N=3).to_frame())


def test_items_of_a_generator_are_used_in_every_batch():
    wanted = {user: (item for item in ("c", "b")) for user in ("1", "2", "3")}
    lists = STRINGS.recommend(N=3, candidates=wanted, filter_seen=False)
    assert [one.items for one in lists] == [["b", "c"]] * 3


def test_strings_are_no_collections():
    with pytest.raises(ConfigError, match="must be a collection"):
        STRINGS.recommend(N=1, candidates="a")
