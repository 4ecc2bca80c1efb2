"""TwoStage: ranking, prediction times, sessions, threads, contributions, saving."""

import copy
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import cache
from multiprocessing import get_context
from operator import methodcaller

import numpy as np
import polars as pl
import pytest

from shortlist.cutoff import ExpectedF1
from shortlist.data.history import History
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, ModelFileError, NotFittedError
from shortlist.models.base import load_model
from shortlist.models.two_stage import two_stage
from shortlist.models.two_stage.features import FEATURES
from shortlist.models.two_stage.quantities import QUANTITY_FEATURES
from shortlist.models.two_stage.two_stage import TwoStage, group_of
from shortlist.split import last_basket
from tests.models.cases import bits, checkerboard
from tests.threads import on_threads

pytest.importorskip("lightgbm")
DAY = 86_400
MICRO = 1_000_000
SMALL = {"n_rounds": 20, "min_leaf": 10, "candidates_per_source": 10}


def weekly(seed=0):
    """Every user buys one item of their own in each of five baskets, beside one random item."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(60):
        for visit in range(5):
            when = (7 * visit + int(rng.integers(3))) * DAY
            rows += [
                (f"u{user:02}", f"i{user % 20:02}", when),
                (f"u{user:02}", f"i{rng.integers(20, 40):02}", when),
            ]
    return rows


@cache
def habits():
    return Interactions.from_tuples(weekly())


@cache
def fitted():
    return TwoStage(**SMALL).fit(habits())


@cache
def fitted_without_ties():
    """A model on data in which no two baskets have the same time."""
    rows = [(user, item, when + 7 * int(user[1:])) for user, item, when in weekly()]
    return TwoStage(**SMALL).fit(Interactions.from_tuples(rows))


def scores_at(model, users=None, times=None):
    """Scores at times in microseconds."""
    request = model.build_request(users)
    return model.score(request if times is None else replace(request, timestamps=np.asarray(times)))


def instant(microseconds):
    return np.datetime64(int(microseconds), "us").item()


def parts(scores):
    """What `score` returned, in a form that can be compared."""
    arrays = (scores.candidates.indptr, scores.candidates.items, scores.values, scores.expected_sizes)
    return [array.tolist() for array in arrays]


def test_item_bought_every_time_ranks_first():
    lists = fitted().recommend(N=5)
    first = lists.items[lists.indptr[:-1]]
    assert (first == np.arange(60) % 20).mean() > 0.95
    assert lists.probabilities[lists.indptr[:-1]].mean() > 0.5
    assert lists.expected_sizes == pytest.approx(2, abs=0.3)


def test_lists_are_the_best_scores():
    users, at = ["u05", "u02", "u40"], np.array([20, 9, 30]) * DAY * MICRO
    scores = scores_at(fitted(), users, at)
    lists = fitted().recommend(users, N=7, at=[datetime(1970, 1, 1 + int(t // (DAY * MICRO))) for t in at])
    for number in range(3):
        part = slice(lists.indptr[number], lists.indptr[number + 1])
        row = slice(scores.candidates.indptr[number], scores.candidates.indptr[number + 1])
        assert (lists.scores[part] == np.sort(scores.values[row])[::-1][:7]).all()
        known = dict(zip(scores.candidates.items[row].tolist(), scores.values[row].tolist(), strict=True))
        assert [known[i] for i in lists.items[part].tolist()] == lists.scores[part].tolist()
    np.testing.assert_allclose(lists.probabilities, 1 / (1 + np.exp(-lists.scores.astype(float))))
    assert (lists.expected_sizes == scores.expected_sizes).all()


def test_candidates_are_ascending_and_distinct_per_user():
    candidates = scores_at(fitted()).candidates
    for number in range(60):
        assert (np.diff(candidates.row(number)) > 0).all()
    assert candidates.items.size == scores_at(fitted()).values.size


def test_events_after_the_prediction_time_do_not_matter():
    data, cut = habits(), 20 * DAY * MICRO
    later, earlier = fitted(), TwoStage(**SMALL).fit(habits())
    known = data.where(data.time < cut)
    earlier._state = earlier._observe(earlier._state, History.of(known), None)
    assert parts(scores_at(earlier, times=np.full(60, cut))) == parts(
        scores_at(later, times=np.full(60, cut))
    )


def test_default_prediction_time_is_just_after_the_last_event():
    end = int(habits().time.max()) + 1
    assert parts(scores_at(fitted())) == parts(scores_at(fitted(), times=np.full(60, end)))


def test_another_seed_gives_other_bits():
    assert bits(TwoStage(**SMALL, seed=1).fit(habits())) != bits(fitted())


# ------------------------------------------------------------------ examples
def test_examples_give_the_same_model_as_fit():
    model = TwoStage(**SMALL)
    examples = model.compute_examples(habits())
    assert bits(model.fit_from_examples(examples)) == bits(fitted())
    other = TwoStage(**SMALL, seed=1).fit_from_examples(examples)
    assert bits(other) == bits(TwoStage(**SMALL, seed=1).fit(habits()))
    with pytest.raises(ConfigError, match="same candidates_per_source"):
        TwoStage(**SMALL | {"candidates_per_source": 11}).fit_from_examples(examples)


def test_predictions_for_examples_are_those_of_requests():
    model = fitted()
    every = TwoStage(**SMALL, negative_rate=1.0).compute_examples(habits())
    log_odds = model._state.ranker.raw_scores(every.features)
    sizes = model._state.size_trees.predict(every.user_features)
    for number in (0, 100, len(sizes) - 1):
        user, at = every.snapshots.user[number], every.snapshots.at[number : number + 1]
        scores = scores_at(model, [f"u{user:02}"], at)
        rows = np.flatnonzero(every.owner == number)
        rows = rows[np.argsort(every.items[rows])]
        assert scores.candidates.items.tolist() == every.items[rows].tolist()
        assert (scores.values == log_odds[rows].astype(np.float32)).all()
        assert scores.expected_sizes[0] == sizes[number]


def test_weights_of_kept_negatives_stand_for_all_negatives():
    some, every = (TwoStage(**SMALL, negative_rate=rate).compute_examples(habits()) for rate in (0.25, 1.0))
    assert (some.weight[some.labels] == 1).all()
    assert (some.weight[~some.labels] == 4).all()
    assert (every.weight == 1).all()
    assert some.labels.sum() == every.labels.sum()
    assert 0.2 < (~some.labels).mean() / (~every.labels).mean() < 1
    assert some.weight[~some.labels].sum() == pytest.approx((~every.labels).sum(), rel=0.1)


def test_probabilities_refer_to_all_candidates():
    """Without the weights of kept negatives, they would be about five times too high."""
    data = Interactions.from_tuples(weekly(seed=3))
    every = TwoStage(**SMALL, negative_rate=1.0).compute_examples(data)
    model = TwoStage(**SMALL, negative_rate=0.1).fit(data)
    predicted = model._state.ranker.predict(every.features).mean()
    assert 0.5 * every.labels.mean() < predicted < 2 * every.labels.mean()


# ------------------------------------------------------------------ saving
def test_lightgbm_is_needed_only_for_fitting(tmp_path, monkeypatch):
    fitted().save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    back = load_model(tmp_path / "model")
    assert back.recommend(N=3).to_frame().equals(fitted().recommend(N=3).to_frame())
    with pytest.raises(ConfigError, match=r"pip install lightgbm"):
        TwoStage(**SMALL).fit(habits())


def test_file_with_other_features_is_rejected(tmp_path, monkeypatch):
    fitted().save(tmp_path / "model")
    monkeypatch.setattr(two_stage, "FEATURES", FEATURES[:-1])
    with pytest.raises(ModelFileError, match="other features"):
        load_model(tmp_path / "model")


# ------------------------------------------------------------------ data and parameters
def test_excluded_features_are_not_used():
    own = tuple(name for name in FEATURES if name.startswith("own_"))
    without = TwoStage(**SMALL, exclude_features=own).fit(habits())
    first = [lists.items[lists.indptr[:-1]] for lists in (without.recommend(N=1), fitted().recommend(N=1))]
    found = [(items == np.arange(60) % 20).mean() for items in first]
    assert found[0] < found[1]
    sources = {one["source"] for row in without.explain("u03", N=10)["contributions"] for one in row}
    assert sources
    assert "own purchases" not in sources
    with pytest.raises(ConfigError, match="exclude_features must name features, got 'color'"):
        TwoStage(exclude_features=("color",)).fit(habits())


def test_seen_items_are_not_proposed_if_users_do_not_repeat_items():
    rng = np.random.default_rng(2)
    rows = [(u, int(i), t) for u in range(40) for t, i in enumerate(rng.permutation(30)[:6])]
    data = Interactions.from_tuples(rows)
    assert not data.has_repeats
    candidates = scores_at(TwoStage(**SMALL).fit(data)).candidates
    for user in range(40):
        assert candidates.row(user).size
        assert not set(candidates.row(user)) & set(data.item[data.indptr[user] : data.indptr[user + 1]])


def test_user_without_events_gets_best_sellers():
    data = habits()
    model = TwoStage(**SMALL).fit(data.where(data.user != 4))
    assert model.recommend(["u04"], N=5).lengths[0] == 5


def test_data_without_second_baskets_is_rejected():
    data = Interactions.from_tuples([("a", "x", 0), ("b", "y", 5)])
    with pytest.raises(DataError, match="TwoStage needs users whose later baskets"):
        TwoStage().fit(data)
    with pytest.raises(NotFittedError):
        TwoStage().recommend(["a"], N=1)


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
def test_invalid_parameter_is_named(name, value):
    with pytest.raises(ConfigError, match=rf"^{name}\b"):
        TwoStage(**{name: value}).fit(checkerboard())


# ------------------------------------------------------------------ requests
def test_expected_sizes_reach_the_cutoff():
    """Half of the users buy one item at a time, half buy four: the lists must differ in length."""
    rng = np.random.default_rng(3)
    rows = []
    for user in range(80):
        for visit in range(6):
            items = rng.permutation(5)[: 1 if user % 2 else 4]
            rows += [(user, int(user % 8 * 5 + i), visit * 7 * DAY) for i in items]
    split = last_basket(Interactions.from_tuples(rows))
    model = TwoStage(**SMALL).fit(split.train)
    top = model.recommend(N=20, at=split.valid)
    cutoff = ExpectedF1(n_candidates=20, calibration="platt", size="history").fit(top, split.valid)
    lengths = cutoff.lengths(top)
    assert lengths[::2].mean() > lengths[1::2].mean()
    lists = model.recommend(at=split.valid, cutoff=cutoff)
    assert (lists.lengths == lengths).all()
    assert (lists.expected_sizes == top.expected_sizes).all()


def test_prediction_time_changes_scores_of_this_request_only():
    users = ["u03", "u41"]
    now = fitted().recommend(users, N=4)
    earlier = fitted().recommend(users, at=datetime(1970, 1, 15), N=4)
    expected = scores_at(fitted(), users, np.full(2, 14 * DAY * MICRO))
    assert set(earlier.scores.tolist()) <= set(expected.values.tolist())
    assert (now.scores != earlier.scores).any()
    assert fitted().recommend(users, N=4).scores.tolist() == now.scores.tolist()


def test_given_candidates_are_scored_whether_proposed_or_not():
    few = TwoStage(**SMALL | {"candidates_per_source": 1}).fit(habits())
    lists = few.recommend(["u01", "u02"], N=20, candidates=[f"i{i:02}" for i in range(20, 40)])
    assert lists.lengths.tolist() == [20, 20]
    lists = few.recommend(["u01", "u02"], N=20, candidates={"u01": ["i03", "i21"], "u02": ["i01"]})
    assert sorted(lists["u01"].items) == ["i03", "i21"]
    assert list(lists["u02"].items) == ["i01"]
    proposed = scores_at(few, ["u01"])
    every = few.recommend(["u01"], N=40, candidates=habits().items.values)
    assert every.lengths.tolist() == [40]
    known = dict(zip(every.items.tolist(), every.scores.tolist(), strict=True))
    for item, score in zip(proposed.candidates.items.tolist(), proposed.values.tolist(), strict=True):
        assert known[item] == score


def test_many_exclusions_do_not_change_the_proposed_candidates(monkeypatch):
    few = TwoStage(**SMALL | {"candidates_per_source": 1}).fit(habits())
    exclude = [f"i{i:02}" for i in range(10)]
    expected = few.recommend(["u15"], N=40, exclude=exclude)
    monkeypatch.setattr("shortlist.recommend.request.SHARED_EXCLUSIONS", 1)
    lists = few.recommend(["u15"], N=40, exclude=exclude)
    assert 0 < lists.lengths[0] < 30
    assert lists.items.tolist() == expected.items.tolist()


def test_observe_keeps_trees():
    model = TwoStage(**SMALL).fit(habits())
    before = model._state
    model.observe([("guest", "i05", 40 * DAY)])
    assert model._state.ranker is before.ranker
    assert before.history.n_users == 60  # readers of the earlier state are not affected
    assert list(model.recommend(["guest"], N=1)["guest"].items) == ["i05"]


# ------------------------------------------------------------------ sessions
def test_session_equal_to_a_known_user_gives_the_same_scores():
    model = fitted_without_ties()
    own = model.history_.to_frame().with_columns(user_id="s" + pl.col("user_id"))
    known = scores_at(model)
    sessions = model.score(model.build_request([f"su{u:02}" for u in range(60)], history=own))
    assert parts(sessions) == parts(known)


@pytest.mark.parametrize("at", [datetime(1970, 1, 20, 11), datetime(1970, 3, 1)])
def test_session_equals_known_user_at_other_times(at):
    model = fitted_without_ties()
    own = Interactions.from_frame(model.history_.to_frame().with_columns(user_id="s" + pl.col("user_id")))
    known = model.recommend(["u11", "u25"], N=10, at=at)
    lists = model.recommend(["su11", "su25"], N=10, at=at, history=own)
    assert lists.items.tolist() == known.items.tolist()
    assert lists.scores.tolist() == known.scores.tolist()
    assert lists.expected_sizes.tolist() == known.expected_sizes.tolist()


def test_session_without_times_is_one_basket_before_the_prediction():
    model = fitted_without_ties()
    last = instant(model.history_.time.max())
    timed = Interactions.from_tuples([("s", "i05", last), ("s", "i23", last)])
    scores = [model.score(model.build_request(history=h)) for h in ({"s": ["i05", "i23"]}, timed)]
    assert parts(scores[0]) == parts(scores[1])
    assert "i05" in model.recommend(history={"s": ["i05", "i23"]}, N=3)["s"].items


def test_session_newer_than_the_history_is_used():
    model = fitted_without_ties()
    end = int(model.history_.time.max())
    last = end + 9 * DAY * MICRO
    rows = [("s", "i05", instant(end + 5 * DAY * MICRO)), ("s", "i23", instant(last))]
    lists = model.recommend(history=Interactions.from_tuples(rows), N=5)
    after = model.recommend(history=Interactions.from_tuples(rows), N=5, at=instant(last + 1))
    assert lists.scores.tolist() == after.scores.tolist()
    assert {"i05", "i23"} & set(lists["s"].items)


def test_session_of_baskets_without_times_equals_known_user():
    """Without times, baskets are a day apart, for known users as for sessions."""
    rng = np.random.default_rng(4)
    rows = [
        (user, int(item), basket)
        for user in range(30)
        for basket in range(int(rng.integers(2, 6)))
        for item in {user % 10, int(rng.integers(10, 20))}
    ]
    frame = pl.DataFrame(rows, schema=["user_id", "item_id", "basket_id"], orient="row")
    model = TwoStage(**SMALL).fit(frame)
    first = frame.filter(pl.col("user_id") == 0)  # user 0 comes first among baskets of the same day
    session = model.score(model.build_request(history=first.with_columns(user_id=pl.lit(99))))
    assert parts(session) == parts(scores_at(model, [0]))


def test_sessions_replay_nothing_at_the_end_of_the_history(monkeypatch):
    model = fitted_without_ties()
    model.recommend(["u01"], N=1)  # the first request brings the replay to the end
    state = model._state.replay._at_end
    before = pickle.dumps(state)
    monkeypatch.setattr("shortlist.models.two_stage.snapshots.replay_until", None)
    monkeypatch.setattr("shortlist.data.timeline.Timeline.of", None)
    model.recommend(history={"s": ["i05"]}, N=3)
    model.recommend(["u01"], N=3, at="1970-04-01")
    assert model._state.replay._at_end is state
    assert pickle.dumps(state) == before


# ------------------------------------------------------------------ threads
def test_number_of_threads_does_not_change_bits(monkeypatch):
    monkeypatch.setattr("shortlist.models.two_stage.features.BLOCK", 7)
    one, three = on_threads(1, 3, run=lambda: TwoStage(**SMALL).fit(habits()))
    assert bits(one) == bits(three) == bits(fitted())
    request = replace(one.build_request(), timestamps=np.arange(60) * DAY * 400_000)
    alone, together = on_threads(1, 3, run=lambda: parts(one.score(request)))
    assert alone == together


def test_snapshots_within_the_first_hour_do_not_depend_on_each_other():
    rows = [(u, i, 60 * u + 7 * i) for u in range(20) for i in range(6) if (u + i) % 3]
    model = TwoStage(**SMALL).fit(Interactions.from_tuples(rows))
    times = np.arange(20) * 60 * MICRO
    together = model.score(replace(model.build_request(), timestamps=times))
    for user in (5, 11, 19):
        alone = model.score(replace(model.build_request([user]), timestamps=times[user : user + 1]))
        part = slice(together.candidates.indptr[user], together.candidates.indptr[user + 1])
        assert alone.candidates.items.tolist() == together.candidates.items[part].tolist()
        assert alone.values.tolist() == together.values[part].tolist()


def test_concurrent_requests_at_different_times_give_the_same_bits():
    model = TwoStage(**SMALL).fit(habits())
    days = [4, 36, 11, 50, 20, 36, 29, 15] * 3
    requests = [replace(model.build_request(), timestamps=np.full(60, d * DAY * MICRO)) for d in days]
    requests += [model.build_request(), model.build_request(history={"s": ["i05", "i21"]})] * 4
    expected = [parts(fitted().score(replace(r, state=fitted()._state))) for r in requests]
    with ThreadPoolExecutor(8) as pool:
        found = [parts(scores) for scores in pool.map(model.score, requests)]
    assert found == expected


# ------------------------------------------------------------------ contributions
def test_contributions_sum_to_the_scores():
    model = fitted()
    scores = scores_at(model, ["u07"])
    items = scores.candidates.items[::-1].copy()
    found = model.contributions(model.build_request(["u07"]), items)
    for amounts, score in zip(found, scores.values[::-1], strict=True):
        assert model._state.ranker.base + sum(v for _, v in amounts) == pytest.approx(score, abs=1e-5)
        names = [name for name, _ in amounts]
        assert len(set(names)) == len(names)  # features of one group are merged
        assert set(names) <= {group_of(one) for one in FEATURES}
        sizes = [abs(v) for _, v in amounts]
        assert sizes == sorted(sizes, reverse=True)
    best = model.explain("u07", N=1)["contributions"][0].to_list()
    assert best[0]["source"] == "own purchases"
    assert best[0]["amount"] > 0


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("own_decayed_0.8", "own purchases"),
        ("own_quantity_mean", "own purchases"),
        ("sales_7d", "recent sales"),
        ("sales", "total sales"),
        ("sales_per_buyer", "repeat purchases of all buyers"),
        ("before_sum", "bought before own items"),
        ("together_lift", "bought together"),
        ("ease", "similar items (EASE)"),
        ("user_repeat_rate", "the user's baskets"),
        ("weekday", "the user's baskets"),
        ("content_color_match", "content of the item"),
    ],
)
def test_features_are_explained_in_words(feature, words):
    assert group_of(feature) == words


def test_every_feature_is_explained_in_words():
    for feature in (*FEATURES, *QUANTITY_FEATURES):
        assert "_" not in group_of(feature)


def test_model_goes_to_a_spawned_process():
    one = fitted()
    users = one.users_.values.head(3)
    ask = methodcaller("recommend", users, N=3)
    expected = ask(one)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(ask, one).result()
    np.testing.assert_array_equal(found.items, expected.items)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert copy.deepcopy(one)._state.replay is not one._state.replay
