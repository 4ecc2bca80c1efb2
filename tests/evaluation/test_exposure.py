"""Truth about shown items: precision and calibration are unbiased, and nothing else is printed."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.cutoff import ExpectedF1, ExpectedValue, FixedN, Guarantee, Threshold, top_candidates
from shortlist.cutoff.boundary import Boundary
from shortlist.cutoff.calibration import Calibration
from shortlist.data.ids import IdMap
from shortlist.errors import ConfigError, DataError
from shortlist.recommend.request import Exploration, concat_lists, draw_explored, extend_lists

N_USERS, N_ITEMS, SHARE, EXTRA = 4_000, 10, 0.2, 3


def probability(scores):
    """The true probability of relevance."""
    return 1 / (1 + np.exp(1.0 - scores))


def log(rng, n_users=N_USERS):
    """(candidates, truth of all items, shown lists with exploration, truth of shown items)."""
    scores = rng.normal(size=(n_users, N_ITEMS)).astype(np.float32)
    relevant = rng.random(scores.shape) < probability(scores)
    everything = sl.Interactions.from_csr(relevant)
    candidates = top_candidates(scores, ids=everything)
    base = Threshold(threshold=1.0).apply(candidates)
    base = replace(base, propensities=np.ones(base.items.size))
    drawn = np.flatnonzero(rng.random(n_users) < SHARE)
    parts = [base.take(drawn), candidates.take(drawn)]
    longer = extend_lists(*parts, np.full(drawn.size, EXTRA), SHARE)
    order = np.arange(n_users)
    order[drawn] = n_users + np.arange(drawn.size)
    shown = sl.RankedLists(
        users=candidates.users,
        item_ids=base.item_ids,
        **_joined(base, longer, order),
    )
    rows = shown.to_frame().drop_nulls("item_id")
    seen = everything.to_frame().join(rows.select("user_id", "item_id"), on=["user_id", "item_id"])
    return candidates, everything, shown, sl.Interactions.from_frame(seen)


def _joined(base, longer, order):
    joined = concat_lists([base, replace(longer, users=sl.IdMap(longer.users.values + 10**6))]).take(order)
    return {name: getattr(joined, name) for name in ("indptr", "items", "scores", "reason", "propensities")}


CANDIDATES, EVERYTHING, SHOWN, SEEN = log(np.random.default_rng(0))


# ------------------------------------------------------------------ evaluate
def test_precision_of_shown_lists_is_exact():
    report = sl.evaluate_shown(SHOWN, SEEN, SHOWN)
    everything = sl.evaluate(SHOWN, EVERYTHING, users=EVERYTHING.users.values)
    assert report.precision_bounds[0] == report.precision_bounds[1]
    assert report.precision_bounds[0] == pytest.approx(everything.mean("precision", "covered"))


def test_longer_lists_are_estimated_without_bias():
    """Lists that run two items longer than the log: the mean of many estimates is the truth."""
    errors = []
    for seed in range(60):
        candidates, everything, shown, seen = log(np.random.default_rng(seed + 1), 500)
        lengths = Threshold(threshold=1.0).lengths(candidates) + 2
        longer = candidates.head(lengths)
        report = sl.evaluate_shown(longer, seen, shown)
        true = sl.evaluate(longer, everything, users=everything.users.values).mean("precision", "covered")
        low, high = report.precision_bounds
        assert low <= true <= high
        errors.append(report.precision - true)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors))
    assert np.mean(errors) > 3 * (low - true) / 10  # far from the bound that counts unseen items as misses


@pytest.mark.parametrize("metric", ["recall", "f1", "ndcg", "average_precision"])
def test_what_cannot_be_estimated_is_said_and_not_printed(metric):
    report = sl.evaluate_shown(SHOWN, SEEN, SHOWN)
    with pytest.raises(DataError, match="needs the relevant items that were not shown"):
        report.mean(metric)
    assert report.to_dict()[metric] is None
    assert metric in str(report).split("not estimated:")[1]
    assert metric not in str(report).split("not estimated:")[0]
    json.dumps(report.to_dict())


def test_items_that_exploration_could_not_show_leave_only_bounds():
    report = sl.evaluate_shown(CANDIDATES, SEEN, SHOWN)
    assert report.precision is None
    with pytest.raises(DataError, match="never shown"):
        report.mean("precision")
    low, high = report.precision_bounds
    assert low < sl.evaluate(CANDIDATES, EVERYTHING).mean("precision") < high


def test_calibration_is_weighted_by_the_propensities():
    """Items below the cut are rare in the log; with weights they count as often as they would be shown."""
    p = probability(CANDIDATES.scores.astype(float))
    lengths = Threshold(threshold=1.0).lengths(CANDIDATES) + EXTRA
    lists = replace(CANDIDATES, probabilities=p).head(lengths)
    report = sl.evaluate_shown(lists, SEEN, SHOWN)
    assert report.calibration_error < 0.03
    assert report.calibration["weight"].sum() == pytest.approx(lists.items.size, rel=0.05)
    worse = replace(lists, probabilities=np.clip(lists.probabilities + 0.2, 0, 1))
    assert sl.evaluate_shown(worse, SEEN, SHOWN).calibration_error > 0.1


def test_shown_must_be_lists_of_the_same_users():
    with pytest.raises(DataError, match="shown must be the RankedLists"):
        sl.evaluate_shown(SHOWN, SEEN, {"a": ["b"]})
    with pytest.raises(DataError, match="lists must be RankedLists"):
        sl.evaluate_shown({"a": ["b"]}, SEEN, SHOWN)
    other = replace(SHOWN, users=sl.IdMap(SHOWN.users.values + 10**6))
    with pytest.raises(DataError, match="users who were shown something"):
        sl.evaluate_shown(other, SEEN, SHOWN)


# ------------------------------------------------------------------ cutoffs
@pytest.mark.parametrize("method", ["platt", "isotonic", "features"])
def test_calibration_learned_from_a_log_is_that_of_all_outcomes(method):
    options = {"method": method, "n_candidates": N_ITEMS}
    learned = Calibration(**options).fit(CANDIDATES, SEEN, shown=SHOWN)
    full = Calibration(**options).fit(CANDIDATES, EVERYTHING, users=EVERYTHING.users.values)
    reach = CANDIDATES.head(Threshold(threshold=1.0).lengths(CANDIDATES) + EXTRA)
    error = np.abs(learned.probabilities(reach) - full.probabilities(reach)).mean()
    assert error < 0.04


def test_cutoffs_that_need_probabilities_only_learn_from_a_log():
    options = {"calibration": "platt", "n_candidates": N_ITEMS}
    for cut in (
        ExpectedValue(gain=1.0, cost=1.0, **options),
        ExpectedF1(**options),
        Threshold(on="probability", threshold=0.5, **options),
    ):
        learned = cut.clone().fit(CANDIDATES, SEEN, shown=SHOWN)
        full = cut.clone().fit(CANDIDATES, EVERYTHING, users=EVERYTHING.users.values)
        if isinstance(cut, ExpectedF1):
            assert learned.size_ == "probabilities"
            continue
        same = (learned.lengths(CANDIDATES) == full.lengths(CANDIDATES)).mean()
        assert same > 0.9


@pytest.mark.parametrize(
    "cut",
    [FixedN(), Threshold(), Boundary(), ExpectedF1(size="both"), ExpectedF1(size="history")],
    ids=lambda cut: repr(cut),
)
def test_cutoffs_that_need_all_outcomes_are_refused(cut):
    with pytest.raises(ConfigError, match="needs the relevant items that were not shown"):
        cut.fit(CANDIDATES, SEEN, shown=SHOWN)


def test_guarantee_from_a_log_is_never_better_than_it_should_be():
    """Items that were not shown count as misses, so the guarantee also holds on all outcomes."""
    cut = Guarantee(min_precision=0.5, n_candidates=N_ITEMS).fit(CANDIDATES, SEEN, shown=SHOWN)
    candidates, everything, _, _ = log(np.random.default_rng(99))
    true = sl.evaluate(cut.apply(candidates), everything, users=everything.users.values)
    assert true.mean("precision", "covered") >= 0.5
    assert true.cover_ratio > 0.1


def test_monitor_counts_every_user_who_was_shown_a_list():
    monitor = sl.GuaranteeMonitor(0.1).update(SHOWN, SEEN, shown=True)
    base = Threshold(threshold=1.0).apply(CANDIDATES)
    true = sl.evaluate(base, EVERYTHING, users=EVERYTHING.users.values).mean("precision", "covered")
    assert monitor.mean == pytest.approx(true)


# ------------------------------------------------------------------ recommend(explore=)
DATA = sl.load_dataset("sample")
MODEL = sl.PersonalFrequency().fit(DATA)


def test_explored_lists_run_longer_and_are_marked():
    plain = MODEL.recommend(N=4)
    lists = MODEL.recommend(N=4, explore=Exploration(share=0.2, extra_items=2, seed=1))
    assert 0.1 < lists.explored.mean() < 0.3
    np.testing.assert_array_equal(lists.lengths, np.where(lists.explored, 6, 4))
    for number in np.flatnonzero(lists.explored)[:5].tolist():
        assert lists.at(number).items[:4] == plain.at(number).items
        assert lists.at(number).items == MODEL.recommend(N=6).at(number).items
    np.testing.assert_array_equal(np.unique(lists.propensities), [0.2, 1.0])
    assert plain.propensities is None


def test_exploration_depends_on_user_time_and_seed_only():
    def explored(users=None, **options):
        lists = MODEL.recommend(users, N=3, explore=Exploration(share=0.3, **options))
        return dict(zip(lists.users.values.to_list(), lists.explored.tolist(), strict=True))

    everyone = explored()
    some = explored(["u7", "u2", "u5"])
    assert some == {user: everyone[user] for user in some}
    assert explored(seed=1) != everyone
    ids = pl.Series([f"u{k}" for k in range(20_000)])
    drawn = draw_explored(ids, None, Exploration(share=0.01))
    assert drawn.mean() == pytest.approx(0.01, abs=0.003)
    later = draw_explored(ids, np.ones(20_000, np.int64), Exploration(share=0.01))
    assert 0 < (drawn & later).sum() < 15  # other users at another time


def test_exploration_respects_max_items_and_explores_empty_lists():
    cut = Threshold(threshold=1e9)
    lists = MODEL.recommend(cutoff=cut, max_items=2, explore=Exploration(share=0.5, extra_items=5))
    assert set(lists.lengths.tolist()) == {0, 2}
    assert lists.explored.sum() == (lists.lengths == 2).sum()


def test_propensities_survive_files(tmp_path):
    lists = MODEL.recommend(N=3, explore=0.5)
    path = MODEL.recommend_to_file(tmp_path / "lists.parquet", N=3, explore=0.5)
    for one in (sl.RankedLists.read(path), sl.RankedLists.read(lists.write(tmp_path / "lists.csv"))):
        np.testing.assert_array_equal(one.propensities, lists.propensities)
        np.testing.assert_array_equal(one.explored, lists.explored)


@pytest.mark.parametrize("explore", [-0.1, 1.5, "much", True, float("nan")])
def test_invalid_share_is_refused(explore):
    with pytest.raises(ConfigError, match="explore must be a share"):
        MODEL.recommend(N=3, explore=explore)


def test_calibration_bins_hold_equal_weight():
    """Two items of weight 1 and 9 per bin of weight 10: the bins are found by the middle of each weight."""
    n = 20
    users = [f"u{k:02}" for k in range(n)]
    table = pl.DataFrame(
        {
            "user_id": users,
            "item_id": ["x"] * n,
            "rank": 1,
            "score": 1.0,
            "probability": np.arange(1, n + 1) / 40,
            "propensity": [1.0, 1 / 9] * (n // 2),
        }
    )
    lists = sl.RankedLists.from_frame(table)
    report = sl.evaluate_shown(lists, sl.Interactions.from_tuples([(u, "x") for u in users[::2]]), lists)
    assert report.calibration["weight"].to_list() == pytest.approx([10.0] * 10)
    assert report.calibration["observed"].to_list() == pytest.approx([0.1] * 10)


def test_tails_by_hand():
    """Items after the end of a list: y for both users, of whom one takes it, and z for one, who takes it."""
    shown = sl.RankedLists(
        users=IdMap.of(["ann", "bob", "cat"]),
        item_ids=IdMap.of(["x", "y", "z"]),
        indptr=np.array([0, 3, 5, 6]),
        items=np.array([0, 1, 2, 0, 1, 0], np.int32),
        scores=np.array([3, 2, 1, 3, 2, 3], np.float32),
        propensities=np.array([1, 0.5, 0.5, 1, 0.5, 1]),
    )
    truth = sl.Interactions.from_tuples([("ann", "y"), ("ann", "z"), ("bob", "x")])
    table = sl.evaluate_tails(shown, truth, gain=2.0, cost=0.5)
    assert table.select("position", "n", "rate").rows() == [(1, 2, 0.5), (2, 1, 1.0)]
    # one of two: P(at least one) = 0.025 at the lower end; one of one: the rate itself is
    assert table["low"].to_list() == pytest.approx([1 - 0.975**0.5, 0.025])
    assert table["high"].to_list() == pytest.approx([0.975**0.5, 1])
    assert table["value"].to_list() == pytest.approx([0.5, 1.5])
    assert table["value_high"].to_list() == pytest.approx([2 * 0.975**0.5 - 0.5, 1.5])
    for money in ({"gain": -0.5}, {"cost": -0.5}):
        with pytest.raises(ConfigError, match=next(iter(money))):
            sl.evaluate_tails(shown, truth, **money)
