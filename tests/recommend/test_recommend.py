"""recommend, case by case: what is shown, what is not, and the reason given."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.cutoff import FixedN, Threshold
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, UnknownIdError
from shortlist.recommend import recommend
from tests.recommend.toys import Toy, history

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
        return Toy(data, SCORES, BOUNDARY)
    finite = np.nan_to_num(np.array(SCORES, np.float32), nan=-9, posinf=9, neginf=-9)
    return Toy(data, boundary=BOUNDARY, pair=(np.eye(4, dtype=np.float32), finite.T.copy(), None))


def shown(lists):
    return {one.user_id: one.items for one in lists}


def reasons(lists):
    return {one.user_id: one.reason for one in lists}


def test_k_is_what_lies_above_the_boundary(toy):
    lists = recommend(toy, ["u1", "u0", "u2"], filter_seen=False)
    assert shown(lists) == {"u1": ["i5"], "u0": ["i0", "i1", "i2", "i3"], "u2": []}
    assert reasons(lists) == {"u1": "boundary", "u0": "boundary", "u2": "no_candidate_above_boundary"}
    assert lists["u0"].scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert lists["u0"].boundary == pytest.approx(0.55)
    assert lists["u0"].probabilities is None


def test_seen_items_are_left_out_unless_wanted(toy):
    assert shown(recommend(toy, ["u0", "u1"])) == {"u0": ["i1"], "u1": []}


def test_top_n_ignores_the_boundary_and_breaks_ties_by_item(toy):
    lists = recommend(toy, ["u2", "u1"], N=3)
    assert shown(lists) == {"u2": ["i0", "i2", "i3"], "u1": ["i4", "i2", "i1"]}
    assert set(reasons(lists).values()) == {"top_n"}


def test_nan_and_minus_infinity_are_never_shown():
    toy = Toy(history(ROWS), SCORES, [-np.inf] * 4)
    for wishes in ({"N": 6}, {}):
        lists = recommend(toy, ["u3"], filter_seen=False, **wishes)
        assert shown(lists) == {"u3": ["i4", "i2", "i3", "i5"]}


def test_max_items_cuts_and_says_so(toy):
    lists = recommend(toy, ["u0", "u1"], max_items=2, filter_seen=False)
    assert shown(lists) == {"u0": ["i0", "i1"], "u1": ["i5"]}
    assert reasons(lists) == {"u0": "max_items", "u1": "boundary"}
    exact = recommend(toy, ["u0"], max_items=4, filter_seen=False)
    assert reasons(exact) == {"u0": "boundary"}


def test_min_items_fills_up_with_the_next_best(toy):
    lists = recommend(toy, ["u0", "u1"], min_items=2)
    assert shown(lists) == {"u0": ["i1", "i4"], "u1": ["i4", "i2"]}
    assert reasons(lists) == {"u0": "min_items", "u1": "min_items"}
    assert lists["u1"].boundary == pytest.approx(0.55)


def test_unknown_users_get_an_empty_list_in_their_place(toy):
    lists = recommend(toy, ["nobody", "u1", "else"], N=1)
    assert shown(lists) == {"nobody": [], "u1": ["i4"], "else": []}
    assert reasons(lists) == {"nobody": "unknown_user", "u1": "top_n", "else": "unknown_user"}
    assert reasons(recommend(toy, ["nobody"])) == {"nobody": "unknown_user"}


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        (["i4", "i1", "new"], {"u0": ["i1", "i4"], "u2": ["i4"]}),
        ({"u0": ["i4"], "u9": ["i1"]}, {"u0": ["i4"], "u2": []}),
        ([["i4", "i4"], {"i5", "i3"}], {"u0": ["i4"], "u2": ["i3", "i5"]}),
        (["new"], {"u0": [], "u2": []}),
        ([], {"u0": [], "u2": []}),
        (["i0", "i2", "i3", "i1"], {"u0": ["i1"], "u2": ["i0", "i2", "i3"]}),
    ],
)
def test_candidates_for_all_or_for_each(toy, candidates, expected):
    lists = recommend(toy, ["u0", "u2"], N=5, candidates=candidates)
    assert shown(lists) == expected
    assert reasons(lists) == {user: "top_n" if items else "no_candidates" for user, items in expected.items()}


def test_everything_seen_leaves_no_candidates(toy):
    for wishes in ({}, {"N": 3}, {"cutoff": FixedN(N=2)}, {"min_items": 1}):
        lists = recommend(toy, ["u1"], candidates=["i5", "i3"], **wishes)
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


def test_a_long_list_of_exclusions_does_the_same(toy, monkeypatch):
    monkeypatch.setattr("shortlist.recommend.batch.FEW", 0)
    lists = recommend(toy, ["u0"], N=9, exclude=["i0", "i1"], candidates=["i0", "i4", "i5"])
    assert shown(lists) == {"u0": ["i4", "i5"]}


def test_popular_fallback_fills_empty_lists_only(toy):
    lists = recommend(toy, ["u1", "nobody", "u0"], fallback="popular", max_items=2)
    assert shown(lists) == {"u1": ["i0", "i1"], "nobody": ["i3", "i0"], "u0": ["i1"]}
    assert reasons(lists) == {"u1": "fallback", "nobody": "fallback", "u0": "boundary"}
    assert lists["nobody"].scores.tolist() == [3.0, 2.0]


def test_popular_fallback_stays_within_candidates_and_exclusions(toy):
    wishes = {"fallback": "popular", "candidates": ["i3", "i5", "i1"], "exclude": ["i1"]}
    assert shown(recommend(toy, ["nobody"], **wishes)) == {"nobody": ["i3", "i5"]}
    own = recommend(
        toy, ["nobody", "u2"], fallback="popular", candidates={"nobody": ["i5", "i0"], "u2": ["i1"]}
    )
    assert shown(own) == {"nobody": ["i0", "i5"], "u2": []}
    assert reasons(own) == {"nobody": "fallback", "u2": "no_candidates"}


def test_callable_fallback_is_asked_by_id_and_kept_within_bounds(toy):
    named = {"nobody": ["i5", "i4", "i5", "i0"], "u1": ["i5", "i3"]}
    lists = recommend(toy, ["nobody", "u1"], fallback=named.__getitem__, max_items=2)
    assert shown(lists) == {"nobody": ["i5", "i4"], "u1": []}
    assert reasons(lists) == {"nobody": "fallback", "u1": "no_candidate_above_boundary"}
    with pytest.raises(UnknownIdError, match="phantom"):
        recommend(toy, ["nobody"], fallback=lambda _: ["phantom"])


def test_a_cutoff_decides_and_brings_its_reason(toy):
    lists = recommend(toy, ["u0", "u1", "nobody"], cutoff=FixedN(N=2))
    assert shown(lists) == {"u0": ["i1", "i4"], "u1": ["i4", "i2"], "nobody": []}
    assert reasons(lists) == {"u0": "top_n", "u1": "top_n", "nobody": "unknown_user"}
    cut = Threshold(threshold=0.45)
    lists = recommend(toy, ["u0", "u1"], cutoff=cut, max_items=1, filter_seen=False)
    assert shown(lists) == {"u0": ["i0"], "u1": ["i5"]}
    assert reasons(lists) == {"u0": "max_items", "u1": "max_items"}
    lists = recommend(toy, ["u1"], cutoff=cut, min_items=3)
    assert shown(lists) == {"u1": ["i4", "i2", "i1"]}
    assert reasons(lists) == {"u1": "min_items"}


def test_probabilities_come_from_scores_and_the_shift():
    toy = Toy(history(ROWS), SCORES, BOUNDARY, shift=[-0.9, 0, 0, 0])
    lists = recommend(toy, ["u0"], filter_seen=False)
    assert lists["u0"].probabilities.tolist() == pytest.approx(
        (1 / (1 + np.exp(-(lists["u0"].scores - 0.9)))).tolist()
    )
    assert lists["u0"].probabilities[0] == pytest.approx(0.5)


def test_everybody_and_one_alone(toy):
    assert list(shown(recommend(toy, N=1))) == ["u0", "u1", "u2", "u3"]
    assert shown(recommend(toy, "u1", N=1)) == {"u1": ["i4"]}
    assert len(recommend(toy, [], N=1)) == 0


@pytest.mark.parametrize(
    ("wishes", "word"),
    [
        ({"N": 0}, "N must"),
        ({"N": 2.5}, "N must"),
        ({"max_items": 0}, "max_items must"),
        ({"min_items": -1}, "min_items must"),
        ({"min_items": 3, "max_items": 2}, "min_items"),
        ({"N": 2, "cutoff": FixedN(N=2)}, "both"),
        ({"fallback": "random"}, "fallback must"),
        ({"candidates": "i1"}, "candidates must"),
        ({"candidates": [["i1"]]}, "one list per user"),
        ({"n_threads": -1}, "n_threads"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(toy, wishes, word):
    toy.pair = toy.pair or (np.eye(4, dtype=np.float32), np.ones((6, 4), np.float32), None)
    with pytest.raises(ConfigError, match=word):
        recommend(toy, ["u0", "u1"], **wishes)


def test_a_ranker_needs_to_be_told_where_to_stop(toy):
    toy.boundary = None
    with pytest.raises(ConfigError, match="neither N nor cutoff"):
        recommend(toy, ["u0"])


def test_a_user_asked_for_twice_is_refused(toy):
    with pytest.raises(DataError, match="'u1'"):
        recommend(toy, ["u1", "u0", "u1"], N=1)


def test_a_scorer_of_the_wrong_shape_is_refused():
    with pytest.raises(DataError, match=r"\(1, 6\)"):
        recommend(Toy(history(ROWS), np.zeros((4, 5))), ["u1"], N=1)


def test_dense_scores_are_asked_for_in_bounded_chunks(monkeypatch):
    monkeypatch.setattr("shortlist.recommend.retriever.CELLS", 12)
    toy = Toy(history(ROWS), SCORES, BOUNDARY)
    assert shown(recommend(toy, N=1)) == {"u0": ["i1"], "u1": ["i4"], "u2": ["i0"], "u3": ["i4"]}
    assert toy.asked == [2, 2]


@given(st.data())
def test_invariants_hold_whatever_is_wished(data):
    """Against rules alone: no phantom, no seen or excluded item, no NaN, no more than asked, best first."""
    n_users, n_items = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    value = st.sampled_from([0.0, 0.5, 1.0, -1.0, np.nan, np.inf, -np.inf])
    cells = st.lists(value, min_size=n_users * n_items, max_size=n_users * n_items)
    scores = np.array(data.draw(cells), np.float32).reshape(n_users, n_items)
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1))
    taken = data.draw(st.lists(pairs, min_size=1))
    toy = Toy(
        history(taken, n_users, n_items),
        scores,
        data.draw(st.lists(value, min_size=n_users, max_size=n_users)),
    )
    names = st.lists(st.sampled_from([*(f"i{i}" for i in range(n_items)), "new"]))
    given_ids = st.none() | names | st.dictionaries(st.sampled_from(["u0", "u1", "nobody"]), names)
    candidates, exclude = data.draw(given_ids), data.draw(given_ids)
    least, most = data.draw(st.integers(0, 3)), data.draw(st.none() | st.integers(3, 4))
    N = data.draw(st.none() | st.integers(3, 5))
    fallback = data.draw(st.sampled_from(["none", "popular"]))
    asked = [*(f"u{u}" for u in range(n_users)), "nobody"]
    lists = recommend(
        toy,
        asked,
        N=N,
        candidates=candidates,
        exclude=exclude,
        min_items=least,
        max_items=most,
        fallback=fallback,
    )
    assert lists.users.values.to_list() == asked
    seen = {(f"u{u}", f"i{i}") for u, i in taken}
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


def test_where_people_take_items_again_seen_items_stay():
    rows = [("u0", "i0", 1), ("u0", "i0", 2), ("u1", "i1", 1)]
    data = Interactions.from_tuples(rows)
    assert data.has_repeats
    toy = Toy(data, [[2.0, 1.0], [2.0, 1.0]])
    assert shown(recommend(toy, N=2)) == {"u0": ["i0", "i1"], "u1": ["i0", "i1"]}
    assert shown(recommend(toy, N=2, filter_seen=True)) == {"u0": ["i1"], "u1": ["i0"]}
