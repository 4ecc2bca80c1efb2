"""TwoStage: learns what is taken again, keeps to its moment, gives the same bits."""

import sys
from functools import cache

import numpy as np
import pytest

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, ModelFileError, NotFittedError
from shortlist.models.base import load_model
from shortlist.models.two_stage import two_stage
from shortlist.models.two_stage.snapshots import FEATURES
from shortlist.models.two_stage.two_stage import TwoStage
from shortlist.split import last_basket
from tests.models.cases import bits, checkerboard, everyone

pytest.importorskip("lightgbm")
DAY = 86_400
SMALL = {"n_rounds": 20, "min_leaf": 10, "candidates_per_source": 10}


@cache
def habits():
    """Every user has a staple of their own, taken in each of five baskets, beside one stray item."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(60):
        for visit in range(5):
            when = (7 * visit + int(rng.integers(3))) * DAY
            rows += [
                (f"u{user:02}", f"i{user % 20:02}", when),
                (f"u{user:02}", f"i{rng.integers(20, 40):02}", when),
            ]
    return Interactions.from_tuples(rows)


@cache
def fitted():
    return TwoStage(**SMALL).fit(habits())


def test_the_staple_leads_every_list():
    data = habits()
    lists = fitted().heads(everyone(data), n_candidates=5)
    first = lists.items[lists.indptr[:-1]]
    assert (first == everyone(data) % 20).mean() > 0.95
    assert lists.probabilities[lists.indptr[:-1]].mean() > 0.5
    assert lists.expected_sizes == pytest.approx(2, abs=0.3)


def test_heads_are_the_best_of_the_scores():
    users = np.array([5, 2, 40], np.int32)
    at = np.array([20, 9, 30]) * DAY * 1_000_000
    scores, lists = fitted().score_at(users, at), fitted().heads(users, at, n_candidates=7)
    for number in range(users.size):
        part = slice(lists.indptr[number], lists.indptr[number + 1])
        best = np.sort(scores[number][np.isfinite(scores[number])])[::-1]
        assert (lists.scores[part] == best[:7]).all()
        assert (scores[number, lists.items[part]] == lists.scores[part]).all()
    assert lists.users.values.to_list() == habits().users.to_ids(users).to_list()
    odds = lists.scores.astype(float)
    np.testing.assert_allclose(lists.probabilities, 1 / (1 + np.exp(-odds)))


def test_what_comes_after_the_moment_does_not_matter():
    """A model that has seen more rows gives the same lists for an earlier moment, trees being equal."""
    data = habits()
    cut = 20 * DAY * 1_000_000
    later, earlier = fitted(), TwoStage(**SMALL)
    earlier.trees_, earlier.sizes_ = later.trees_, later.sizes_
    earlier.remember(data.where(data.time < cut))
    users = everyone(data)
    ours, theirs = earlier.heads(users, cut), later.heads(users, cut)
    assert (ours.items == theirs.items).all()
    assert (ours.scores == theirs.scores).all()
    assert (ours.expected_sizes == theirs.expected_sizes).all()


def test_the_default_moment_is_just_after_the_last_event():
    users = everyone(habits())
    assert (fitted().score(users) == fitted().score_at(users, habits().time.max() + 1)).all()


def test_same_seed_same_bits_and_another_seed_others():
    again = TwoStage(**SMALL).fit(habits())
    assert bits(again) == bits(fitted())
    assert bits(TwoStage(**SMALL, seed=1).fit(habits())) != bits(fitted())


def test_save_and_load(tmp_path):
    fitted().save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    users = everyone(habits())
    assert (back.score(users) == fitted().score(users)).all()
    assert back.get_params() == fitted().get_params() | {"without": back.without}
    assert (back.heads(users).expected_sizes == fitted().heads(users).expected_sizes).all()


def test_lists_are_made_without_lightgbm(tmp_path, monkeypatch):
    fitted().save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    back = load_model(tmp_path / "model")
    assert back.recommend(N=3).to_frame().equals(fitted().recommend(N=3).to_frame())
    with pytest.raises(ConfigError, match=r"pip install 'shortlist\[trees\]'"):
        TwoStage(**SMALL).fit(habits())


def test_a_file_with_other_features_is_refused(tmp_path, monkeypatch):
    fitted().save(tmp_path / "model")
    monkeypatch.setattr(two_stage, "FEATURES", FEATURES[:-1])
    with pytest.raises(ModelFileError, match="other features"):
        load_model(tmp_path / "model")


def test_features_left_out_are_not_used():
    own = tuple(name for name in FEATURES if name.startswith("own_"))
    blind = TwoStage(**SMALL, without=own).fit(habits())
    users = everyone(habits())
    first = [lists.items[lists.indptr[:-1]] for lists in (blind.heads(users), fitted().heads(users))]
    staple = [(items == users % 20).mean() for items in first]
    assert staple[0] < staple[1]
    with pytest.raises(ConfigError, match="without must name features, got 'colour'"):
        TwoStage(without=("colour",)).fit(habits())


def test_seen_items_stay_out_where_nobody_comes_back():
    rng = np.random.default_rng(2)
    rows = [(u, int(i), t) for u in range(40) for t, i in enumerate(rng.permutation(30)[:6])]
    data = Interactions.from_tuples(rows)
    assert not data.has_repeats
    scores = TwoStage(**SMALL).fit(data).score(everyone(data))
    assert not np.isfinite(scores[data.user, data.item]).any()
    assert np.isfinite(scores).any(axis=1).all()


def test_users_without_rows_get_best_sellers():
    data = habits()
    held = data.where(data.user != 4)
    lists = TwoStage(**SMALL).fit(held).heads(np.array([4], np.int32))
    assert lists.lengths[0] > 0


def test_nothing_to_foretell_is_refused():
    data = Interactions.from_tuples([("a", "x", 0), ("b", "y", 5)])
    with pytest.raises(DataError, match="TwoStage learns from users whose later baskets"):
        TwoStage().fit(data)
    with pytest.raises(NotFittedError):
        TwoStage().heads(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("candidates_per_source", 0),
        ("transition_window", 0),
        ("negative_rate", 0),
        ("negative_rate", 1.5),
        ("n_rounds", 0),
        ("n_leaves", 1),
        ("n_snapshots", 0),
    ],
)
def test_bad_parameters_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=rf"^{name}\b"):
        TwoStage(**{name: value}).fit(checkerboard())


def test_foretold_sizes_reach_the_decider():
    """Half the users take one item at a time, half take four: the lists must differ in length."""
    from shortlist.cutoff import ExpectedF1

    rng = np.random.default_rng(3)
    rows = []
    for user in range(80):
        for visit in range(6):
            taken = rng.permutation(5)[: 1 if user % 2 else 4]
            rows += [(user, int(user % 8 * 5 + i), visit * 7 * DAY) for i in taken]
    split = last_basket(Interactions.from_tuples(rows))
    model = TwoStage(**SMALL).fit(split.train)
    users = split.valid.active_users
    heads = model.heads(users, split.valid.time[split.valid.indptr[users]], n_candidates=20)
    lengths = (
        ExpectedF1(n_candidates=20, calibration="platt", size="history")
        .fit(heads, split.valid)
        .lengths(heads)
    )
    assert lengths[users % 2 == 0].mean() > lengths[users % 2 == 1].mean()


def test_lists_are_recommended_at_a_moment():
    from datetime import datetime

    data = habits()
    users = ["u03", "u41"]
    lists = fitted().recommend(users, at=datetime(1970, 1, 15), N=4)
    dense = data.users.lookup(users)
    expected = fitted().heads(dense, 14 * DAY * 1_000_000, n_candidates=4)
    assert (lists.items == expected.items).all()
    np.testing.assert_allclose(lists.probabilities, expected.probabilities)
    now = fitted().recommend(users, N=4)
    assert (
        now.scores == fitted().heads(dense, n_candidates=4).scores
    ).all()  # the earlier question left no trace
    assert (now.scores != lists.scores).any()


def test_a_decider_fitted_on_heads_decides_recommendations_alike():
    from shortlist.cutoff import ExpectedF1

    split = last_basket(habits())
    model = TwoStage(**SMALL).fit(split.train)
    users = split.valid.active_users
    heads = model.heads(users, n_candidates=10)
    cut = ExpectedF1(n_candidates=10, calibration="platt", size="history").fit(
        heads, split.valid, history=split.train
    )
    lists = model.recommend(split.train.users.to_ids(users), cutoff=cut)
    assert (lists.lengths == cut.lengths(heads, history=split.train)).all()
    assert (lists.expected_sizes == heads.expected_sizes).all()


# ------------------------------------------------------------------ moments and candidates that are asked for
def test_one_moment_per_user_or_that_of_a_test():
    split = last_basket(habits())
    model = TwoStage(**SMALL).fit(split.train_valid)
    test = split.test
    users = test.active_users
    at = test.time[test.indptr[users]]
    ids = test.users.to_ids(users)
    wanted = model.heads(users, at, n_candidates=4)
    for moment in (test, [str(np.datetime64(int(t), "us")) for t in at]):
        lists = model.recommend(ids, N=4, at=moment)
        assert lists.items.tolist() == wanted.items.tolist()
        assert lists.scores.tolist() == wanted.scores.tolist()
    assert model.recommend(ids, N=4).scores.tolist() != wanted.scores.tolist()
    with pytest.raises(ConfigError, match=r"at must be one moment or one per user \(60\), got 2"):
        model.recommend(ids, N=4, at=["1970-01-01", "1970-01-02"])
    timeless = model.recommend(ids, N=4, at=Interactions.from_csr(test.to_csr()))
    assert timeless.scores.tolist() == model.recommend(ids, N=4).scores.tolist()


def test_candidates_that_are_named_are_scored_whatever_it_would_propose():
    data = habits()
    few = TwoStage(**SMALL | {"candidates_per_source": 1}).fit(data)
    stray = [f"i{i:02}" for i in range(20, 40)]
    lists = few.recommend(["u01", "u02"], N=20, candidates=stray)
    assert lists.lengths.tolist() == [20, 20]
    own = {"u01": ["i03", "i21"], "u02": ["i01"]}
    lists = few.recommend(["u01", "u02"], N=20, items=own)
    assert sorted(lists["u01"].items) == ["i03", "i21"]
    assert list(lists["u02"].items) == ["i01"]
    usual, named = (
        few.score(np.array([1], np.int32))[0],
        few.recommend(["u01"], N=40, candidates=data.items.values),
    )
    known = np.isfinite(usual)
    scores = dict(zip(named.items.tolist(), named.scores.tolist(), strict=True))
    assert all(scores[item] == usual[item] for item in np.flatnonzero(known))


def test_sizes_come_from_the_same_look_as_the_scores():
    users = np.array([3, 1], np.int32)
    model = fitted()
    model.score(users)
    assert model.expected_sizes(users).tolist() == model.heads(users).expected_sizes.tolist()
    assert model.expected_sizes(users[:1]).tolist() == model.heads(users[:1]).expected_sizes.tolist()


def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr("shortlist.models.two_stage.snapshots.BLOCK", 7)
    one, three = (TwoStage(**SMALL, n_threads=n).fit(habits()) for n in (1, 3))
    assert bits(one) == bits(three) == bits(fitted())
    users, at = everyone(habits()), np.arange(60) * DAY * 400_000
    assert (one.score_at(users, at) == three.score_at(users, at)).all()


def test_newcomers_are_taken_in():
    model = TwoStage(**SMALL).fit(habits())
    trees = model.trees_
    model.fold_in({"guest": ["i05"]})
    assert model.trees_ is trees
    assert list(model.recommend(["guest"], N=1)["guest"].items) == ["i05"]
    more = Interactions.from_tuples([("guest", "i05", 40 * DAY), ("guest", "new", 40 * DAY)])
    assert "new" in model.partial_fit(more).items_
