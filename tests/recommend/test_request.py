"""Sessions and prediction times in requests."""

from datetime import datetime

import numpy as np
import polars as pl
import pytest

from shortlist.cutoff import FixedN
from shortlist.data.history import History
from shortlist.data.ids import UNKNOWN
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataWarning, UnknownIdError
from shortlist.models.base import ModelState
from shortlist.models.counting import Popularity
from shortlist.recommend.options import RequestOptions
from shortlist.recommend.request import build_request, read_sessions, request_times

ROWS = [("a", "x", 10), ("a", "y", 20), ("b", "x", 30), ("c", "z", 40)]
DATA = Interactions.from_tuples(ROWS)
KNOWN = History.of(DATA)
END = 40_000_000 + 1
USERS = pl.Series(["b", "new", "a"])


def test_no_time_means_after_the_last_event():
    assert request_times(KNOWN, USERS, None) is None
    assert request_times(KNOWN, USERS, Interactions.from_tuples([("a", "x")])) is None


@pytest.mark.parametrize("at", [datetime(1970, 1, 2), "1970-01-02", np.datetime64("1970-01-02")])
def test_one_time_for_all(at):
    assert request_times(KNOWN, USERS, at).tolist() == [86_400_000_000] * 3


def test_one_time_per_user_and_times_of_a_test_set():
    assert request_times(KNOWN, USERS, ["1970-01-02", "1970-01-03", "1970-01-02"])[1] == 2 * 86_400_000_000
    test = Interactions.from_tuples([("a", "x", 70), ("a", "y", 60), ("b", "x", 50)])
    assert request_times(KNOWN, USERS, test).tolist() == [50_000_000, END, 60_000_000]


@pytest.mark.parametrize(
    ("at", "word"),
    [("tomorrow", "at must be a date"), ([1, 2], r"one per user \(3\), got 2"), (True, "at must")],
)
def test_invalid_times_are_rejected(at, word):
    with pytest.raises(ConfigError, match=word):
        request_times(KNOWN, USERS, at)
    with pytest.raises(ConfigError, match="fitted on data with timestamps"):
        request_times(History.of(Interactions.from_tuples([("a", "x")])), USERS, at)


def test_session_is_one_basket_over_the_known_items():
    sessions = read_sessions(KNOWN, {"s": ["z", "x"], "t": ["y"], "empty": []}, None)
    assert sessions.items is DATA.items
    assert sessions.users.values.to_list() == ["s", "t", "empty"]
    assert sessions.to_frame()["item_id"].to_list() == ["x", "z", "y"]
    assert sessions.n_baskets == 2
    assert set(sessions.time.tolist()) == {END - 1}
    assert set(read_sessions(KNOWN, {"s": ["x"]}, "1970-01-02").time.tolist()) == {86_400_000_000 - 1}


def test_sessions_from_a_table_keep_their_baskets():
    frame = pl.DataFrame({"user_id": ["s", "s"], "item_id": ["x", "z"], "timestamp": [1, 2]})
    sessions = read_sessions(KNOWN, frame, None)
    assert sessions.n_baskets == 2
    assert sessions.time.tolist() == [1_000_000, 2_000_000]


def test_test_set_without_rows_means_after_the_last_event():
    assert request_times(KNOWN, USERS, DATA.where(np.zeros(DATA.n_rows, bool))) is None


@pytest.mark.parametrize("sessions", [{}, {"empty": []}, {"s": ["x"]}])
def test_user_without_a_session_is_refused(sessions):
    with pytest.raises(ConfigError, match="users must be users of `history`, got 'a'"):
        build_request(ModelState(history=KNOWN), ["a"], RequestOptions(N=1, history=sessions))


def test_session_without_known_items_is_unknown():
    request = build_request(ModelState(history=KNOWN), None, RequestOptions(N=1, history={"empty": []}))
    assert request.users.tolist() == [UNKNOWN]


def test_unknown_items_are_skipped_with_a_warning():
    with pytest.warns(DataWarning, match="1 of 3 items in `history` are unknown"):
        sessions = read_sessions(KNOWN, {"s": ["x", "new", "z"]}, None)
    assert sessions.n_rows == 2


def test_integer_ids_for_string_data_are_refused():
    with pytest.raises(UnknownIdError, match="history: item ids are strings, got the integer 1; pass '1'"):
        read_sessions(KNOWN, {"s": [1]}, None)
    with pytest.raises(UnknownIdError):
        DATA.users.index("unknown")


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ({"s": "x"}, "list of item ids, got 'x' for 's'"),
        ({"s": 3}, "list of item ids, got 3"),
        (["x"], "dictionary user id → item ids, Interactions or a table, got a list"),
    ],
)
def test_invalid_sessions_are_refused(history, word):
    with pytest.raises(ConfigError, match=word):
        read_sessions(KNOWN, history, None)


def test_users_beside_a_history_must_be_in_it():
    model = Popularity().fit(DATA)
    with pytest.raises(ConfigError, match="users must be users of `history`, got 'a'"):
        model.recommend(["a", "s"], history={"s": ["x"]}, N=1)
    assert model.recommend(["s"], history={"s": ["x"], "t": ["y"]}, N=1).users.values.to_list() == ["s"]


def test_the_warning_points_at_the_caller():
    with pytest.warns(DataWarning) as found:
        Popularity().fit(DATA).recommend(history={"s": ["x", "new"]}, N=1)
    assert found[0].filename == __file__


def test_cutoff_classes_are_refused_when_they_are_set():
    model = Popularity().fit(DATA)
    with pytest.raises(ConfigError, match="got the class FixedN"):
        model.set_cutoff(FixedN)
    with pytest.raises(ConfigError, match="cutoff must be None or a fitted cutoff, got 'FixedN'"):
        model.set_cutoff("FixedN")
    with pytest.raises(ConfigError, match="Popularity learns no boundary; use cutoff='auto'"):
        model.set_cutoff(FixedN(N=1)).recommend(cutoff="boundary")
    with pytest.raises(ConfigError, match="filter_seen must be True or False, got 'no'"):
        model.recommend(N=1, filter_seen="no")
