"""recommend, case by case: the items shown, the items left out, and the reason why lists end."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shortlist.cutoff import FixedN, Threshold
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, UnknownIdError
from tests.recommend.toys import history, make_toy, recommend

SCORES = [
    [0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    [np.nan, -np.inf, 0.2, 0.1, np.inf, 0.0],
]
BOUNDARY = [0.55, 0.55, 0.5, 0.05]
ROWS = [(0, 0), (0, 2), (1, 5), (2, 1), (3, 0), (3, 3), (0, 3), (1, 3)]


@pytest.fixture(params=["dense", "factors"])
def toy(request):
    """The same scores, once as rows and once as factors (infinity has no factors)."""
    data = history(ROWS)
    if request.param == "dense":
        return make_toy(data, SCORES, BOUNDARY)
    finite = np.nan_to_num(np.array(SCORES, np.float32), nan=-9, posinf=9, neginf=-9)
    return make_toy(data, boundary=BOUNDARY, pair=(np.eye(4, dtype=np.float32), finite.T.copy(), None))


def shown(lists):
    return {one.user_id: one.items for one in lists}


def reasons(lists):
    return {one.user_id: one.reason for one in lists}


def test_lists_hold_the_items_above_the_boundary(toy):
    lists = recommend(toy, ["u1", "u0", "u2"], filter_seen=False)
    assert shown(lists) == {"u1": ["i5"], "u0": ["i0", "i1", "i2", "i3"], "u2": []}
    assert reasons(lists) == {"u1": "boundary", "u0": "boundary", "u2": "no_candidate_above_boundary"}
    assert lists["u0"].scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert lists["u0"].boundary == pytest.approx(0.55)
    assert lists["u0"].probabilities is None


def test_seen_items_are_filtered_by_default(toy):
    assert shown(recommend(toy, ["u0", "u1"])) == {"u0": ["i1"], "u1": []}


def test_top_n_ignores_the_boundary_and_orders_ties_by_item(toy):
    lists = recommend(toy, ["u2", "u1"], N=3)
    assert shown(lists) == {"u2": ["i0", "i2", "i3"], "u1": ["i4", "i2", "i1"]}
    assert set(reasons(lists).values()) == {"top_n"}


def test_nan_and_minus_infinity_are_never_shown():
    toy = make_toy(history(ROWS), SCORES, [-np.inf] * 4)
    for options in ({"N": 6}, {}):
        lists = recommend(toy, ["u3"], filter_seen=False, **options)
        assert shown(lists) == {"u3": ["i4", "i2", "i3", "i5"]}


def test_max_items_truncates_and_sets_the_reason(toy):
    lists = recommend(toy, ["u0", "u1"], max_items=2, filter_seen=False)
    assert shown(lists) == {"u0": ["i0", "i1"], "u1": ["i5"]}
    assert reasons(lists) == {"u0": "max_items", "u1": "boundary"}
    exact = recommend(toy, ["u0"], max_items=4, filter_seen=False)
    assert reasons(exact) == {"u0": "boundary"}


def test_min_items_extends_short_lists(toy):
    lists = recommend(toy, ["u0", "u1"], min_items=2)
    assert shown(lists) == {"u0": ["i1", "i4"], "u1": ["i4", "i2"]}
    assert reasons(lists) == {"u0": "min_items", "u1": "min_items"}
    assert lists["u1"].boundary == pytest.approx(0.55)


def test_unknown_users_get_an_empty_list(toy):
    lists = recommend(toy, ["unknown", "u1", "else"], N=1)
    assert shown(lists) == {"unknown": [], "u1": ["i4"], "else": []}
    assert reasons(lists) == {"unknown": "unknown_user", "u1": "top_n", "else": "unknown_user"}
    assert reasons(recommend(toy, ["unknown"])) == {"unknown": "unknown_user"}


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        (["i4", "i1"], {"u0": ["i1", "i4"], "u2": ["i4"]}),
        ({"u0": ["i4"], "u9": ["i1"]}, {"u0": ["i4"], "u2": []}),
        ([["i4", "i4"], {"i5", "i3"}], {"u0": ["i4"], "u2": ["i3", "i5"]}),
        ([], {"u0": [], "u2": []}),
        (["i0", "i2", "i3", "i1"], {"u0": ["i1"], "u2": ["i0", "i2", "i3"]}),
    ],
)
def test_candidates_shared_or_per_user(toy, candidates, expected):
    lists = recommend(toy, ["u0", "u2"], N=5, candidates=candidates)
    assert shown(lists) == expected
    assert reasons(lists) == {user: "top_n" if items else "no_candidates" for user, items in expected.items()}


def test_no_candidates_left(toy):
    for options in ({}, {"N": 3}, {"cutoff": FixedN(N=2)}, {"min_items": 1}):
        lists = recommend(toy, ["u1"], candidates=["i5", "i3"], **options)
        assert shown(lists) == {"u1": []}
        assert reasons(lists) == {"u1": "no_candidates"}


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        (["i1", "i0"], {"u0": ["i2", "i3", "i4", "i5"], "u2": ["i2", "i3", "i4", "i5"]}),
        ({"u2": ["i0"]}, {"u0": ["i0", "i1", "i2", "i3", "i4", "i5"], "u2": ["i1", "i2", "i3", "i4", "i5"]}),
        ([["i5"], []], {"u0": ["i0", "i1", "i2", "i3", "i4"], "u2": ["i0", "i1", "i2", "i3", "i4", "i5"]}),
    ],
)
def test_excluded_items_are_not_shown(toy, exclude, expected):
    assert shown(recommend(toy, ["u0", "u2"], N=9, exclude=exclude, filter_seen=False)) == expected


def test_many_shared_exclusions_give_the_same_lists(toy, monkeypatch):
    monkeypatch.setattr("shortlist.recommend.request.SHARED_EXCLUSIONS", 0)
    lists = recommend(toy, ["u0"], N=9, exclude=["i0", "i1"], candidates=["i0", "i4", "i5"])
    assert shown(lists) == {"u0": ["i4", "i5"]}


def test_popular_fallback_fills_empty_lists_only(toy):
    lists = recommend(toy, ["u1", "unknown", "u0"], fallback="popular", max_items=2)
    assert shown(lists) == {"u1": ["i0", "i1"], "unknown": ["i3", "i0"], "u0": ["i1"]}
    assert reasons(lists) == {"u1": "fallback", "unknown": "fallback", "u0": "boundary"}
    assert lists["unknown"].scores.tolist() == [3.0, 2.0]


def test_popular_fallback_stays_within_candidates_and_exclusions(toy):
    options = {"fallback": "popular", "candidates": ["i3", "i5", "i1"], "exclude": ["i1"]}
    assert shown(recommend(toy, ["unknown"], **options)) == {"unknown": ["i3", "i5"]}
    own = recommend(
        toy, ["unknown", "u2"], fallback="popular", candidates={"unknown": ["i5", "i0"], "u2": ["i1"]}
    )
    assert shown(own) == {"unknown": ["i0", "i5"], "u2": []}
    assert reasons(own) == {"unknown": "fallback", "u2": "no_candidates"}


def test_fallback_of_one_item_replaces_an_empty_list(toy):
    lists = recommend(toy, ["unknown"], fallback="popular", max_items=1)
    assert lists.lengths.tolist() == [1]
    assert reasons(lists) == {"unknown": "fallback"}


def test_callable_fallback_respects_limits_and_exclusions(toy):
    named = {"unknown": ["i5", "i4", "i5", "i0"], "u1": ["i5", "i3"]}
    lists = recommend(toy, ["unknown", "u1"], fallback=named.__getitem__, max_items=2)
    assert shown(lists) == {"unknown": ["i5", "i4"], "u1": []}
    assert reasons(lists) == {"unknown": "fallback", "u1": "no_candidate_above_boundary"}
    with pytest.raises(UnknownIdError, match="phantom"):
        recommend(toy, ["unknown"], fallback=lambda _: ["phantom"])


def test_cutoff_sets_length_and_reason(toy):
    lists = recommend(toy, ["u0", "u1", "unknown"], cutoff=FixedN(N=2))
    assert shown(lists) == {"u0": ["i1", "i4"], "u1": ["i4", "i2"], "unknown": []}
    assert reasons(lists) == {"u0": "top_n", "u1": "top_n", "unknown": "unknown_user"}
    cut = Threshold(threshold=0.45)
    lists = recommend(toy, ["u0", "u1"], cutoff=cut, max_items=1, filter_seen=False)
    assert shown(lists) == {"u0": ["i0"], "u1": ["i5"]}
    assert reasons(lists) == {"u0": "max_items", "u1": "max_items"}
    lists = recommend(toy, ["u1"], cutoff=cut, min_items=3)
    assert shown(lists) == {"u1": ["i4", "i2", "i1"]}
    assert reasons(lists) == {"u1": "min_items"}


def test_probabilities_come_from_scores_and_the_shift():
    toy = make_toy(history(ROWS), SCORES, BOUNDARY, shift=[-0.9, 0, 0, 0])
    lists = recommend(toy, ["u0"], filter_seen=False)
    assert lists["u0"].probabilities.tolist() == pytest.approx(
        (1 / (1 + np.exp(-(lists["u0"].scores - 0.9)))).tolist()
    )
    assert lists["u0"].probabilities[0] == pytest.approx(0.5)


def test_all_users_one_user_and_no_users(toy):
    assert list(shown(recommend(toy, N=1))) == ["u0", "u1", "u2", "u3"]
    assert shown(recommend(toy, "u1", N=1)) == {"u1": ["i4"]}
    assert len(recommend(toy, [], N=1)) == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"N": 0}, "N must"),
        ({"N": 2.5}, "N must"),
        ({"max_items": 0}, "max_items must"),
        ({"min_items": -1}, "min_items must"),
        ({"min_items": 3, "max_items": 2}, "min_items"),
        ({"N": 2, "cutoff": FixedN(N=2)}, "both"),
        ({"fallback": "random"}, "fallback must"),
        (
            {"cutoff": "expected_f1"},
            "cutoff must be 'auto', 'boundary' or a fitted cutoff, got 'expected_f1'",
        ),
        ({"cutoff": FixedN}, "got the class FixedN"),
        ({"cutoff": None}, "cutoff must be"),
        ({"N": float("nan")}, "N must"),
        ({"at": "tomorrow"}, "at needs"),
        ({"candidates": "i1"}, "candidates must"),
        ({"candidates": [["i1"]]}, "one list per user"),
        ({"candidates": 1}, "candidates must be a collection of item ids, got the int 1"),
        ({"exclude": {"u0": "i1"}}, "exclude must be a collection of item ids, got the string 'i1'"),
    ],
)
def test_invalid_options_are_rejected(toy, options, word):
    toy.pair = toy.pair or (np.eye(4, dtype=np.float32), np.ones((6, 4), np.float32), None)
    with pytest.raises(ConfigError, match=word):
        recommend(toy, ["u0", "u1"], **options)


@pytest.mark.parametrize("kind", [int, float, np.int64, np.float32])
def test_whole_numbers_of_any_type_are_accepted(toy, kind):
    options = {"N": kind(3), "max_items": kind(2), "min_items": kind(1)}
    expected = recommend(toy, N=3, max_items=2, min_items=1)
    assert shown(recommend(toy, **options)) == shown(expected)


def test_ranker_without_boundary_needs_n_or_cutoff(toy):
    toy.boundary = None
    with pytest.raises(ConfigError, match="learns no boundary and has no cutoff"):
        recommend(toy, ["u0"])


def test_duplicate_users_are_rejected(toy):
    with pytest.raises(DataError, match="'u1'"):
        recommend(toy, ["u1", "u0", "u1"], N=1)


def test_scores_of_the_wrong_shape_are_rejected():
    with pytest.raises(DataError, match=r"\(1, 6\)"):
        recommend(make_toy(history(ROWS), np.zeros((4, 5))), ["u1"], N=1)


def test_batches_give_the_same_lists(toy):
    expected = recommend(toy, ["u3", "unknown", "u0", "u1"], N=2)
    toy.users_per_batch = 1
    assert shown(recommend(toy, ["u3", "unknown", "u0", "u1"], N=2)) == shown(expected)


def _has_known_item(given):
    """Whether a filter is empty or names a known item; others are refused."""
    items = list(itertools.chain.from_iterable(given.values())) if isinstance(given, dict) else given
    return not items or set(items) != {"new"}


@pytest.mark.filterwarnings("ignore:.* are unknown to the model and are ignored:shortlist.errors.DataWarning")
@given(st.data())
def test_invariants_hold_for_any_options(data):
    """No unknown, seen or excluded item, no NaN, no list over the limit, best item first."""
    n_users, n_items = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    value = st.sampled_from([0.0, 0.5, 1.0, -1.0, np.nan, np.inf, -np.inf])
    cells = st.lists(value, min_size=n_users * n_items, max_size=n_users * n_items)
    scores = np.array(data.draw(cells), np.float32).reshape(n_users, n_items)
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1))
    bought = data.draw(st.lists(pairs, min_size=1))
    toy = make_toy(
        history(bought, n_users, n_items),
        scores,
        data.draw(st.lists(value, min_size=n_users, max_size=n_users)),
    )
    names = st.lists(st.sampled_from([*(f"i{i}" for i in range(n_items)), "new"]))
    given_ids = st.none() | names | st.dictionaries(st.sampled_from(["u0", "u1", "unknown"]), names)
    candidates, exclude = data.draw(given_ids), data.draw(given_ids)
    assume(_has_known_item(candidates))
    least, most = data.draw(st.integers(0, 3)), data.draw(st.none() | st.integers(3, 4))
    N = data.draw(st.none() | st.integers(3, 5))
    fallback = data.draw(st.sampled_from([None, "popular"]))
    users = [*(f"u{u}" for u in range(n_users)), "unknown"]
    lists = recommend(
        toy,
        users,
        N=N,
        candidates=candidates,
        exclude=exclude,
        min_items=least,
        max_items=most,
        fallback=fallback,
    )
    assert lists.users.values.to_list() == users
    seen = {(f"u{u}", f"i{i}") for u, i in bought}
    for one in lists:
        allowed = set(toy.items_.values)
        if candidates is not None:
            allowed &= set(candidates.get(one.user_id, ()) if isinstance(candidates, dict) else candidates)
        if exclude is not None:
            allowed -= set(exclude.get(one.user_id, ()) if isinstance(exclude, dict) else exclude)
        allowed -= {item for user, item in seen if user == one.user_id}
        assert set(one.items) <= allowed
        assert len(set(one.items)) == len(one.items)
        assert len(one) <= min(n for n in (N, most, 99) if n is not None)
        assert not np.isnan(one.scores).any()
        assert (one.scores[1:] <= one.scores[:-1]).all()
        assert one.reason != "no_candidates" or not allowed
        if one.reason == "boundary":
            assert len(one) > 0
            assert (one.scores > one.boundary).all()


def test_seen_items_stay_if_users_repeat_items():
    rows = [("u0", "i0", 1), ("u0", "i0", 2), ("u1", "i1", 1)]
    data = Interactions.from_tuples(rows)
    assert data.has_repeats
    toy = make_toy(data, [[2.0, 1.0], [2.0, 1.0]])
    assert shown(recommend(toy, N=2)) == {"u0": ["i0", "i1"], "u1": ["i0", "i1"]}
    assert shown(recommend(toy, N=2, filter_seen=True)) == {"u0": ["i1"], "u1": ["i0"]}
