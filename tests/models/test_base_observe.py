"""observe: the lists after many small pieces, one large piece and a rebuild from the joined history agree."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import polars as pl
import pytest

from shortlist.cutoff import FixedN
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, DataWarning
from shortlist.models.base import load_model
from shortlist.models.two_stage import snapshots
from tests.models.cases import ALL_MODELS, DAY, fit

every_model = pytest.mark.parametrize("name", ALL_MODELS)
COUNTS = {
    "Popularity",
    "PersonalFrequency",
    "TIFUKNN",
    "UPCF",
}  # equal to a fit on the joined history
REFUSE_PAST = {"TIFUKNN", "UPCF", "ContentProfile"}  # their neighbors are those of now
NEW_ITEMS = {*COUNTS, "TwoStage", "ContentProfile"}  # can recommend new items
SETTINGS = {"HRM": {"repeat_decay": 0.9, "trend_half_life": 2.0, "n_epochs": 5}, "EASE": {"decay": 0.8}}
USERS = [f"u{u:02}" for u in range(12)] + ["zoe", "adam"]


def rows_between(first, last, seed=0, n=150):
    """Random rows of 12 users and 15 items, with times from day `first` to day `last`."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(12, size=n), rng.integers(15, size=n), rng.integers(4 * first, 4 * last, size=n)
    return [(f"u{u:02}", f"i{i:02}", int(t) * DAY // 4) for u, i, t in zip(*columns, strict=True)]


KNOWN = rows_between(10_000, 10_010)
LATER = [
    *rows_between(10_010, 10_014, seed=1, n=40),
    ("zoe", "i03", 10_011 * DAY),
    ("zoe", "i04", 10_012 * DAY),
    ("adam", "i03", 10_013 * DAY),
]
LATER.sort(key=lambda row: row[2])


@cache
def fitted(name):
    return fit(name, Interactions.from_tuples(KNOWN), **SETTINGS.get(name, {}))


def observed(name, pieces):
    """A copy of the fitted model that observed the pieces one by one."""
    one = copy.copy(fitted(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for piece in pieces:
            assert one.observe(piece) is one
    return one


def rebuilt(one, rows):
    """The same learned parameters, and everything else computed from the joined rows."""
    kept = [row for row in rows if row[0] in one.users_ and row[1] in one.items_]
    user, item = one.users_.lookup([r[0] for r in kept]), one.items_.lookup([r[1] for r in kept])
    time, none = np.array([r[2] for r in kept]), np.empty(0, np.int32)
    joined = Interactions.from_dense(one.users_, one.items_, user, item, time, none, none.astype("f4"))
    other = copy.copy(fitted(type(one).__name__))
    if type(one).__name__ in COUNTS:
        return other.clone().fit(joined)
    learned = one if type(one).__name__ == "ContentProfile" else other  # new items have empty rows
    fields = learned._state_fields(learned._state)
    other._state = other.clone()._build_state(fields | {"history": History.of(joined)})
    return other


def at_of_rows(users, time):
    """A test set whose rows give the prediction time of each user."""
    return Interactions.from_tuples([(user, "i00", time) for user in users])


def lists(one):
    """The lists of several requests, as tables."""
    session = {"s": ["i00", "i05"]}
    found = [
        one.recommend(USERS, N=6),
        one.recommend(USERS, N=6, filter_seen=True, fallback="popular"),
        one.recommend(USERS[3:5], N=6, at=at_of_rows(USERS[3:5], 10_012 * DAY)),
        one.recommend(USERS[3:9], N=4, at=10_020 * DAY / 1e6),
        one.recommend(history=session, N=5),
    ]
    return [each.to_frame() for each in found]


def assert_same_lists(one, other):
    for mine, theirs in zip(lists(one), lists(other), strict=True):
        assert mine.equals(theirs)


@every_model
@pytest.mark.parametrize("size", [1, 7])
def test_pieces_one_large_piece_and_a_rebuild_give_the_same_lists(name, size):
    pieces = [LATER[at : at + size] for at in range(0, len(LATER), size)]
    small, large = observed(name, pieces), observed(name, [LATER])
    assert small.history_.fingerprint == large.history_.fingerprint
    assert_same_lists(small, large)
    assert_same_lists(small, rebuilt(small, KNOWN + LATER))


@every_model
@pytest.mark.parametrize("seed", range(3))
def test_late_and_repeated_events_count_as_in_the_joined_history(name, seed):
    rng = np.random.default_rng(seed)
    late = [*rows_between(9_990, 10_009, seed + 5, n=10), ("u01", "novel", 9_995 * DAY), *KNOWN[:5]]
    events = [(LATER + late + LATER[:9])[n] for n in rng.permutation(len(LATER) + len(late) + 9)]
    cuts = np.sort(rng.integers(len(events), size=4))
    pieces = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    one = observed(name, pieces)
    assert ("novel" in one.items_) == (name in NEW_ITEMS)
    usable = [row for row in events if row[1] in one.items_]
    same = Interactions.from_tuples(KNOWN + usable)
    assert one.history_.n_rows == same.n_rows
    assert one.history_.n_baskets == same.n_baskets
    assert one._state.history.totals.n_pairs == same.item_sets.items.size
    assert_same_lists(one, rebuilt(one, KNOWN + usable))


def test_two_stage_continues_from_a_kept_state(monkeypatch):
    """Late events within the last baskets need no replay of the whole history; older ones do."""
    monkeypatch.setattr(snapshots, "UNSETTLED", 12)
    one = copy.deepcopy(fitted("TwoStage"))
    lists(one)
    known, taken = list(KNOWN), []
    extend = snapshots._extend_state
    monkeypatch.setattr(
        snapshots, "_extend_state", lambda state, *a: taken.append(state) or extend(state, *a)
    )
    for piece in (LATER[:9], LATER[14:20], LATER[9:14], [*LATER[20:], ("u02", "novel", 10_013 * DAY)]):
        taken.clear()
        one.observe(piece)
        one.recommend(USERS, N=3)
        known += piece
        assert taken[0].item_stats.cursor[0] > 0  # some baskets were already counted
        assert_same_lists(one, rebuilt(one, known))
    taken.clear()
    one.observe(known[:20]).recommend(USERS, N=3)
    assert not taken  # nothing new: nothing is replayed
    late = [("u02", "i01", 9_999 * DAY)]
    one.observe(late).recommend(USERS, N=3)
    assert_same_lists(one, rebuilt(one, known + late))


@every_model
def test_observed_events_are_saved(name, tmp_path):
    one = observed(name, [LATER[:20], LATER[20:]]).set_cutoff(FixedN(N=3))
    back = load_model(one.save(tmp_path / "model"))
    assert back.history_.fingerprint == one.history_.fingerprint
    assert back.cutoff_ is not None
    assert_same_lists(back, one)
    more = [("u00", "i01", 10_015 * DAY), ("zoe", "i01", 10_015 * DAY)]
    assert_same_lists(back.observe(more), one.observe(more))


@every_model
def test_earlier_states_stay_as_they_were(name):
    one = copy.copy(fitted(name))
    before, state = [each.clone() for each in lists(one)], one._state
    other = copy.copy(one)
    one.observe(LATER[:20])
    other.observe(LATER[20:])  # two models grow from one state
    assert_same_lists(one, observed(name, [LATER[:20]]))
    assert_same_lists(other, observed(name, [LATER[20:]]))
    one._state = state
    assert all(mine.equals(theirs) for mine, theirs in zip(lists(one), before, strict=True))


@every_model
def test_nothing_observed_changes_nothing(name):
    one = copy.copy(fitted(name))
    state = one._state
    for nothing in ([], (), pl.DataFrame({"user_id": [], "item_id": [], "timestamp": []})):
        assert one.observe(nothing)._state is state
    assert_same_lists(one.observe(KNOWN[:30]), fitted(name))


def net_rows(rows, weighted):
    """What is left of purchases and returns (user, item, time, weight), worked out one by one."""
    left = {}
    for user, item, time, weight in rows:
        if weight > 0:
            key = (user, item, time)
            left[key] = left.get(key, 0) + weight if weighted else 1
    for pair in {row[:2] for row in rows if row[3] < 0}:
        events = [(time, 0, left[(*pair, time)]) for user, item, time in left if (user, item) == pair]
        events += [(r[2], 1, -r[3] if weighted else 1) for r in rows if r[:2] == pair and r[3] < 0]
        bought = []
        for time, is_return, amount in sorted(events):
            if not is_return:
                bought.append([time, amount])
                continue
            while bought and amount > 0:
                taken = min(amount, bought[-1][1])
                amount, bought[-1][1] = amount - taken, bought[-1][1] - taken
                if not bought[-1][1]:
                    bought.pop()
        for key in [key for key in left if key[:2] == pair]:
            del left[key]
        left |= {(*pair, time): amount for time, amount in bought}
    return sorted((*key, amount) for key, amount in left.items())


def events_with_returns(seed, known):
    """New purchases, some of them late, and returns of old and new ones or of nothing, in any order."""
    rng = np.random.default_rng(seed)
    bought = [(*row, int(rng.integers(1, 4))) for row in LATER + rows_between(9_990, 10_012, seed, n=20)]
    pairs = [*(row[:2] for row in known[:25] + bought[:25]), ("u00", "i14"), ("ghost", "i03")]
    when = rng.integers(4 * 9_995, 4 * 10_016, size=len(pairs))
    returns = [
        (*pair, int(t) * DAY // 4, -int(rng.integers(1, 4))) for pair, t in zip(pairs, when, strict=True)
    ]
    events = bought + returns + returns[:2]
    return [events[n] for n in rng.permutation(len(events))]


@every_model
@pytest.mark.parametrize("seed", range(3))
def test_returns_are_subtracted_whatever_the_pieces(name, seed):
    events = events_with_returns(seed, KNOWN)
    cuts = np.sort(np.random.default_rng(seed).integers(len(events), size=6))
    pieces = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    small, large = observed(name, pieces), observed(name, [events])
    expected = net_rows([(*row, 1) for row in KNOWN] + events, weighted=False)
    assert len(expected) < len(set(KNOWN)) + len({row[:3] for row in events if row[3] > 0})
    for one in (small, large):
        frame = one.history_.to_frame().with_columns(pl.col("timestamp").to_physical())
        assert sorted(frame.rows()) == [row[:3] for row in expected]
        assert "ghost" not in one.users_
    for mine, theirs in zip(lists(small), lists(large), strict=True):
        assert mine.equals(theirs)
    assert_same_lists(small, rebuilt(small, [row[:3] for row in expected]))


@pytest.mark.parametrize("name", ["Popularity", "PersonalFrequency", "TIFUKNN", "EASE", "TwoStage"])
@pytest.mark.parametrize("seed", range(2))
def test_returned_quantities_reduce_purchases(name, seed):
    rng = np.random.default_rng(seed)
    known = net_rows([(*row, int(rng.integers(1, 5))) for row in KNOWN], weighted=True)
    events = [row for row in events_with_returns(seed, known) if row[1] != "novel"]
    one = fit(name, Interactions.from_tuples(known), weighting="linear")
    small, large = copy.copy(one), copy.copy(one).observe(events)
    for at in range(0, len(events), 9):
        small.observe(events[at : at + 9])
    expected = net_rows(known + events, weighted=True)
    for model in (small, large):
        frame = model.history_.to_frame().with_columns(pl.col("timestamp").to_physical())
        assert sorted(frame.rows()) == expected
    assert_same_lists(small, large)
    if name in COUNTS:
        rebuilt = fit(name, Interactions.from_tuples(expected), weighting="linear")
        mine, theirs = (m.recommend(USERS[:12], N=6).to_frame() for m in (small, rebuilt))
        assert mine.drop("score").equals(theirs.drop("score"))


def test_a_purchase_that_arrives_late_is_the_one_that_was_returned():
    days = [(10_000 + n) * DAY for n in range(10)]
    one = fit(
        "PersonalFrequency", Interactions.from_tuples([("ann", "tea", days[1]), ("bob", "rum", days[2])])
    )
    one.observe([("ann", "tea", days[9], -1)])
    assert one.history_.to_frame().filter(user_id="ann").height == 0
    assert len(one.recommend("ann", N=2)["ann"].items) > 0
    one.observe([("ann", "tea", days[8], 1)])
    assert one.history_.to_frame().filter(user_id="ann")["timestamp"].to_physical().to_list() == [days[1]]


def test_returns_of_everything_leave_a_model_without_rows():
    one = fit("Popularity", Interactions.from_tuples([("ann", "tea", 1), ("bob", "rum", 2)]))
    one.observe([("ann", "tea", 3, -1), ("bob", "rum", 3, -1)])
    assert one.history_.n_rows == 0
    assert len(one.recommend("ann", N=2)["ann"].items) == 2


def test_negative_ratings_are_dislikes_and_not_returns():
    frame = pl.DataFrame({"user": ["ann", "bob"], "item": ["tea", "rum"], "rating": [4.0, 5.0]})
    one = fit("Popularity", Interactions.from_frame(frame))
    disliked = frame.head(1).with_columns(rating=-pl.col("rating"))
    with pytest.warns(DataWarning, match="1 events are skipped: .* ratings"):
        one.observe(Interactions.from_frame(disliked, negative_weights="keep"))
    assert one.history_.n_rows == 2


@every_model
def test_new_items_are_used_or_reported(name):
    one = copy.copy(fitted(name))
    events = [("u00", "novel", 10_011 * DAY), ("u01", "novel", 10_011 * DAY), ("u01", "i02", 10_011 * DAY)]
    if name in NEW_ITEMS:
        one.observe(events)
        assert "novel" in one.items_
        assert one.history_.n_rows == fitted(name).history_.n_rows + 3
        return
    with pytest.warns(DataWarning, match="2 of 3 events are skipped: .* 1 new items"):
        one.observe(events)
    assert "novel" not in one.items_
    assert one.history_.n_rows == fitted(name).history_.n_rows + 1


@every_model
def test_a_past_prediction_time_hides_later_events_of_the_user(name):
    """Seen items follow `at`: with filter_seen, an item of a later basket may be shown."""
    one = observed(name, [[("u00", f"i{i:02}", 10_020 * DAY) for i in range(15)]])
    at = at_of_rows(["u00"], 10_015 * DAY)
    assert one.recommend(["u00"], N=15, filter_seen=True).lengths.tolist() == [0]
    seen = {item for user, item, _ in KNOWN if user == "u00"}
    shown = one.recommend(["u00"], N=15, filter_seen=True, at=at)["u00"].items
    assert len(shown) > 0
    assert not seen & set(shown)


NOW = 10_010 * DAY  # all that is trained on is earlier
FUTURES = {
    "nothing": [],
    "later": LATER,
    "other items": [(user, f"i{(int(item[1:]) + 5) % 15:02}", time) for user, item, time in LATER],
    "new items": [(user, f"n{item}", time) for user, item, time in LATER],
    "much": rows_between(10_010, 10_060, seed=3, n=600),
}


@every_model
@pytest.mark.parametrize("days", [0, 2, 5])
def test_the_future_does_not_change_a_list(name, days):
    """A list for a time is the same whatever happens later, or it is refused."""
    at, before = NOW + days * DAY, [row for row in LATER if row[2] < NOW + days * DAY]
    expected = observed(name, [before] if before else [])
    expected = expected.recommend(USERS[:12], N=6, at=at / 1e6)
    for kind, rows in FUTURES.items():
        later = [row for row in rows if row[2] >= at]
        if not later and kind != "nothing":
            continue
        one = observed(name, [before + later] if before + later else [])
        if later and name in REFUSE_PAST:
            with pytest.raises(ConfigError, match=f"at must be after the last event that {name} knows"):
                one.recommend(USERS[:12], N=6, at=at / 1e6)
            continue
        lists = one.recommend(USERS[:12], N=6, at=at / 1e6)
        assert lists.to_frame().equals(expected.to_frame()), kind


@pytest.mark.parametrize("name", ["Popularity", "PersonalFrequency"])
@pytest.mark.parametrize("half_life", [None, 2.0])
@pytest.mark.parametrize("weighting", ["none", "log"])
def test_counts_for_a_past_time_are_those_of_a_fit_on_earlier_events(name, half_life, weighting):
    """Several times in one request; users are in no order of time."""
    rows = [(*row, 1 + number % 4) for number, row in enumerate(KNOWN + LATER)]
    settings = {"half_life": half_life, "weighting": weighting}
    one = fit(name, Interactions.from_tuples(rows), **settings)
    days = [10_004, 10_012, 10_004, 10_002, 10_030]
    lists = one.recommend(USERS[:5], N=15, at=[day * DAY / 1e6 for day in days])
    for user, day in zip(USERS[:5], days, strict=True):
        earlier = fit(name, Interactions.from_tuples([row for row in rows if row[2] < day * DAY]), **settings)
        expected = earlier.recommend([user], N=len(earlier.items_))[user]
        shown = dict(zip(lists[user].items, lists[user].scores, strict=True))
        for item, score in zip(expected.items, expected.scores, strict=True):
            assert shown[item] == pytest.approx(score, rel=1e-5)


def test_times_must_match():
    with pytest.raises(DataError, match="events must have times like the data"):
        fitted("Popularity").observe([("u00", "i01")])
    plain = fit("Popularity", Interactions.from_tuples([row[:2] for row in KNOWN]))
    with pytest.raises(DataError, match="events must have no times"):
        plain.observe(LATER)
    assert plain.observe([("u00", "i01"), ("nia", "i14")]).users_.values.to_list()[-1] == "nia"


def test_ids_must_have_one_type():
    with pytest.raises(DataError, match="new ids must have the type"):
        copy.copy(fitted("Popularity")).observe([(1, "i01", 10_011 * DAY)])


@every_model
def test_readers_see_a_whole_state_while_another_thread_observes(name):
    one, n = copy.copy(fitted(name)), 12
    pieces = [
        [(f"u{k:02}", f"i{(3 * k + j) % 15:02}", (10_011 + k) * DAY) for j in range(3)] for k in range(n)
    ]
    allowed = [observed(name, pieces[:k]).recommend(USERS[:12], N=5).to_frame() for k in range(n + 1)]

    def read(_):
        found = [one.recommend(USERS[:12], N=5).to_frame() for _ in range(8)]
        return all(any(each.equals(known) for known in allowed) for each in found)

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(read, number) for number in range(3)]
        for piece in pieces:
            one.observe(piece)
        assert all(job.result() for job in jobs)
    assert one.recommend(USERS[:12], N=5).to_frame().equals(allowed[-1])
