"""History against Interactions built from all rows at once."""

import pickle

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import history as module
from shortlist.data.history import Events, History
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError

ROW = st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 8))
ROWS = st.lists(ROW, min_size=1, max_size=25)


def grow(pieces, **columns):
    """The history after the first piece and one append per further piece."""
    found = History.of(Interactions.from_frame(frame(pieces[0], **columns)))
    for piece in pieces[1:]:
        found, _ = found.append(Events(Interactions.from_frame(frame(piece, **columns))))
    return found


def frame(rows, times=True, weights=False):
    columns = {"user_id": [r[0] for r in rows], "item_id": [r[1] for r in rows]}
    if times:
        columns["timestamp"] = [r[2] for r in rows]
    if weights:
        columns["weight"] = [1.0 + r[1] for r in rows]
    return pl.DataFrame(columns)


def assert_same_rows(mine, other):
    """Equal rows, baskets, times and weights, whatever the order of the ids."""
    assert mine.n_baskets == other.n_baskets
    frames = [one.to_frame().sort("user_id", "item_id", pl.nth(-1)) for one in (mine, other)]
    columns = [column for column in ("user_id", "item_id", "timestamp") if column in frames[0].columns]
    frames = [each.sort(columns) for each in frames]
    assert frames[0].drop("weight", strict=False).equals(frames[1].drop("weight", strict=False))
    if mine.weight is not None:
        np.testing.assert_allclose(frames[0]["weight"], frames[1]["weight"], rtol=1e-5)


@pytest.mark.parametrize("share", [1000, 4, 0])  # the base is merged with every append, sometimes, or never
@pytest.mark.parametrize(
    "columns", [{}, {"times": False}, {"weights": True}], ids=["times", "plain", "weights"]
)
@settings(max_examples=40)  # for each of nine combinations
@given(pieces=st.lists(ROWS, min_size=2, max_size=6))
def test_pieces_equal_all_rows_at_once(share, columns, pieces):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGE_SHARE", share)
        found = grow(pieces, **columns)
    joined = Interactions.from_frame(frame([row for piece in pieces for row in piece], **columns))
    assert_same_rows(found.merged, joined)
    merged = found.merged
    totals = found.totals
    assert totals.n_rows == merged.n_rows
    assert totals.n_baskets == merged.n_baskets
    assert totals.n_pairs == merged.item_sets.items.size
    assert totals.end_time == merged.end_time
    assert totals.item_counts.tolist() == merged.item_counts.tolist()
    assert found.has_repeats == merged.has_repeats
    for user in range(found.n_users):
        rows = found.rows_of(np.array([user], np.int32))
        own = slice(merged.indptr[user], merged.indptr[user + 1])
        assert rows.item.tolist() == merged.item[own].tolist()
        assert np.diff(rows.baskets).tolist() == (
            np.diff(merged.baskets)[merged.user_baskets[user] : merged.user_baskets[user + 1]].tolist()
        )
        assert rows.item_counts is totals.item_counts


@given(pieces=st.lists(ROWS, min_size=2, max_size=5), before=st.integers(0, 9))
def test_rows_before_a_time(pieces, before):
    found = grow(pieces)
    users = np.arange(found.n_users, dtype=np.int32)[::-1].copy()
    rows = found.rows_of(users, before=np.full(users.size, before * 1_000_000))
    merged = found.merged
    visible = merged.where(merged.time < before * 1_000_000)
    for number, user in enumerate(users):
        own = visible.item[visible.indptr[user] : visible.indptr[user + 1]]
        assert rows.item[rows.indptr[number] : rows.indptr[number + 1]].tolist() == own.tolist()


def test_unknown_user_has_no_rows():
    found = grow([[(1, 1, 1)], [(2, 1, 2)]])
    rows = found.rows_of(np.array([-1, 1], np.int32), IdMap.of([9, 2]))
    assert np.diff(rows.indptr).tolist() == [0, 1]


def test_new_rows_are_those_that_were_not_known():
    found = grow([[(1, 1, 1), (2, 1, 2)]])
    _, new = found.append(Events(Interactions.from_tuples([(1, 1, 1), (2, 5, 2), (0, 1, 3)])))
    assert sorted(zip(new.user.tolist(), new.item.tolist(), new.time.tolist(), strict=True)) == [
        (1, 1, 2_000_000),
        (2, 0, 3_000_000),
    ]


def test_new_ids_are_numbered_by_time_then_by_id():
    found = grow([[(5, 5, 1)], [(9, 9, 3), (1, 8, 4), (7, 7, 3)]])
    assert found.users.values.to_list() == [5, 7, 9, 1]
    assert found.items.values.to_list() == [5, 7, 9, 8]


BASKETS = pl.DataFrame(
    {"user_id": [1, 1, 1], "item_id": [1, 2, 3], "timestamp": [5, 5, 6], "basket_id": ["a", "b", "c"]}
)


def test_rows_join_the_last_basket_with_their_time():
    found = History.of(Interactions.from_frame(BASKETS))
    for piece in ([(1, 4, 5)], [(1, 5, 5), (1, 1, 9)], [(1, 4, 5), (1, 6, 9)]):
        found, _ = found.append(Events(Interactions.from_tuples(piece)))
    merged = found.merged
    assert [merged.item[a:b].tolist() for a, b in zip(merged.baskets, merged.baskets[1:], strict=False)] == [
        [0],
        [1, 3, 4],
        [2],
        [0, 5],
    ]
    assert found.totals.n_rows == merged.n_rows == 7
    assert found.totals.n_baskets == merged.n_baskets == 4


def test_baskets_of_events_stay_apart():
    found = grow([[(1, 1, 1), (1, 2, 1)], [(1, 3, 2)]])
    found, _ = found.append(Events(Interactions.from_frame(BASKETS)))
    assert found.merged.n_baskets == found.totals.n_baskets == 5


def test_without_times_every_append_is_a_basket_if_there_are_baskets():
    data = Interactions.from_frame(BASKETS.drop("timestamp").with_columns(basket_id=pl.Series([1, 2, 3])))
    found, _ = History.of(data).append(Events(Interactions.from_tuples([(1, 1), (1, 4), (2, 1)])))
    found, _ = found.append(Events(Interactions.from_tuples([(1, 1)])))
    assert np.diff(found.merged.user_baskets).tolist() == [5, 1]


def test_two_histories_grow_from_one():
    base = grow([[(1, 1, 1)], [(2, 2, 2)]])
    first, _ = base.append(Events(Interactions.from_tuples([(3, 3, 3)])))
    second, _ = base.append(Events(Interactions.from_tuples([(4, 4, 4)])))
    assert first.users.values.to_list() == [1, 2, 3]
    assert second.users.values.to_list() == [1, 2, 4]
    assert base.users.lookup([3, 4]).tolist() == [-1, -1]
    assert 3 not in base.users
    assert 4 not in first.users
    assert first.users.lookup([3, 4]).tolist() == [2, -1]
    assert pickle.loads(pickle.dumps(second.users)).index(4) == 2


def test_names_of_new_items():
    named = Interactions.from_frame(BASKETS.with_columns(item_name=pl.Series(["x", "y", "z"])))
    more = Interactions.from_frame(
        pl.DataFrame({"user_id": [1], "item_id": [7], "timestamp": [9], "item_name": ["new"]})
    )
    found, _ = History.of(named).append(Events(more))
    found, _ = found.append(Events(Interactions.from_tuples([(1, 8, 9)])))
    assert found.item_names.to_list() == ["x", "y", "z", "new", "8"]
    assert found.item_labels(np.array([3, 4])) == ["new", "8"]


def test_ids_of_another_type_are_refused():
    with pytest.raises(DataError, match="new ids must have the type"):
        grow([[(1, 1, 1)]]).append(Events(Interactions.from_tuples([("a", "b", 1)])))


def test_there_are_few_runs():
    found = grow([[(u, i, 0) for u in range(60) for i in range(60)]])
    for number in range(500):
        found, _ = found.append(Events(Interactions.from_tuples([(number % 60, number % 7, 1 + number)])))
    assert len(found.runs) <= 10
    assert found.n_rows == 3600 + 500


def test_returns_of_a_renamed_user_stay_subtracted():
    found, new = grow([[(1, 1, 1), (2, 2, 2)]]).append(Events.of([(1, 1, 3, -1.0), (9, 1, 4, -1.0)]))
    assert new is None
    assert found.n_rows == found.merged.n_rows == 1
    renamed = found.rename_users(IdMap.of([77, 2]), pl.Series([1, 9]))
    assert renamed.merged.to_frame()["user_id"].to_list() == [2]
    assert renamed.returns["user_id"].to_list() == [77]


def test_purchases_that_were_returned_are_kept_for_late_ones():
    found, _ = grow([[(1, 1, 5), (2, 2, 2)]]).append(Events.of([(1, 1, 9, -1.0)]))
    users = np.array([0], np.int32)
    assert found.rows_of(users).n_rows == 0
    assert found.purchases_of(users).n_rows == 1
    found, new = found.append(Events.of([(1, 1, 8)]))  # the later one is the one that was returned
    assert new is None
    assert found.rows_of(users).time.tolist() == [5_000_000]


def test_known_rows_and_new_weights():
    data = Interactions.from_frame(frame([(1, 1, 1), (2, 1, 2)], weights=True))
    found, new = History.of(data).append(Events(Interactions.from_frame(frame([(1, 1, 1)], weights=True))))
    assert new.item.size == 0
    assert new.reweighted.tolist() == [0]
    assert found.merged.weight.tolist() == [4, 2]
    plain, again = grow([[(1, 1, 1)]]), Events(Interactions.from_tuples([(1, 1, 1)]))
    assert plain.append(again)[0] is plain
