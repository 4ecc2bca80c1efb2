"""fit with a Guarantee: what the guarantee is tested on trains no model, and the tested model is deployed."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.auto import guaranteed
from shortlist.auto.validation import Validation, hold_out, last_baskets
from shortlist.cutoff import Guarantee
from shortlist.errors import ConfigError, DataError, DataWarning

DATA = sl.load_dataset("sample")
GUARANTEE = Guarantee(min_precision=0.05, confidence=0.8)


def fitted(**options):
    return sl.fit(DATA, models="PersonalFrequency", budget="quick", cutoff=GUARANTEE, **options)


def test_kept_back_users_train_nothing_but_their_history():
    kept = guaranteed.keep_back(DATA, hold_out(DATA), seed=0)
    training, truth, *_ = kept.tested
    users = truth.active_users
    assert 0.2 * DATA.n_users < users.size < 0.4 * DATA.n_users
    assert training.n_rows + truth.n_rows == DATA.n_rows
    assert not np.isin(kept.selection.truth.active_users, users).any()
    for user in users[:20]:
        n = np.diff(training.indptr)[user]
        rows = slice(int(DATA.indptr[user]), int(DATA.indptr[user + 1]))
        np.testing.assert_array_equal(DATA.item[rows][:n], training.item[training.user == user])
        np.testing.assert_array_equal(DATA.item[rows][n:], truth.item[truth.user == user])


def test_what_is_tested_changes_no_learned_value():
    """Other items in the tested baskets give the same model; only the threshold may differ."""
    holdout = hold_out(DATA)
    kept = guaranteed.keep_back(DATA, holdout, seed=0)
    tested = kept.tested.truth
    rows = np.isin(DATA.user, tested.active_users) & ~guaranteed.in_history(DATA, holdout.history)
    item = DATA.item.copy()
    item[rows] = (item[rows] + 7) % DATA.n_items
    other = sl.Interactions.from_dense(
        DATA.users, DATA.items, DATA.user, item, DATA.time, np.empty(0, np.int32), np.empty(0, np.float32)
    )
    one, two = (
        sl.fit(data, models="EASE", budget="quick", cutoff=Guarantee(max_empty=0.5, confidence=0.6))
        for data in (DATA, other)
    )
    assert one.fingerprint_ == two.fingerprint_


def test_the_deployed_model_is_the_tested_one_and_knows_all_events():
    model = fitted()
    assert model.cutoff_.source_ == model.fingerprint_
    assert model.history_.n_rows == DATA.n_rows
    assert model.fingerprint_[:8] in model.cutoff_.guarantee_
    assert model.recommend().lengths.sum() > 0
    assert "kept back" in model.selection_.validation


def test_under_strict_time_the_deployed_model_learns_before_the_cut_and_knows_all_events():
    kept = guaranteed.keep_back(DATA, hold_out(DATA, validation="by_time"), seed=0)
    assert kept.tested.history is kept.selection.history
    assert kept.tested.later is kept.selection.later
    assert not np.isin(kept.selection.truth.active_users, kept.tested.truth.active_users).any()
    model = fitted(validation="by_time")
    assert model.cutoff_.source_ == model.fingerprint_
    assert model.history_.n_rows == DATA.n_rows
    learned = sl.PersonalFrequency().fit(kept.tested.history).observe(kept.tested.later)
    assert model.recommend(N=5).items.tolist() == learned.recommend(N=5).items.tolist()


# ------------------------------------------------------------------ several baskets
def test_earlier_baskets_are_predicted_by_models_that_were_trained_before(monkeypatch):
    trained, refit = [], Validation.refit

    def recorded(self, data, **options):
        trained.append(data)
        return refit(self, data, **options)

    monkeypatch.setattr(Validation, "refit", recorded)
    model = fitted()
    *earlier, deployed = trained
    folds = last_baskets(DATA, 4)
    assert [data.n_rows for data in earlier] == [fold.history.n_rows for fold in reversed(folds[1:])]
    assert deployed.n_rows > folds[0].history.n_rows
    assert "on each of the last 4 baskets or periods" in model.cutoff_.guarantee_


def test_the_worst_basket_decides():
    """Users repeat less three baskets ago: the threshold of the last basket alone is looser."""
    kept = guaranteed.keep_back(DATA, hold_out(DATA), seed=0)
    validation = Validation(sl.PersonalFrequency(), kept.selection, 50)
    alone = guaranteed.deploy(validation, kept._replace(earlier=[]), GUARANTEE, None)[1].cutoff
    together = guaranteed.deploy(validation, kept, GUARANTEE, None)[1].cutoff
    assert together.threshold_ >= alone.threshold_
    assert "on one basket or period only" in alone.guarantee_


def test_earlier_baskets_of_too_few_users_are_left_out():
    """An earlier basket needs at least half as many users as are tested on the latest one."""
    folds = last_baskets(DATA, 4)
    users = [fold.truth.active_users.size for fold in folds]
    assert len(guaranteed.earlier_folds(folds[0], n_tested=users[3])) == 3
    assert len(guaranteed.earlier_folds(folds[0], n_tested=2 * users[1] + 2)) == 0
    two_baskets = [(u, u % 5 + day, f"2024-01-0{day + 1}") for u in range(50) for day in range(2)]
    assert guaranteed.earlier_folds(hold_out(sl.Interactions.from_tuples(two_baskets)), n_tested=1) == []


def test_max_empty_holds_over_all_users_of_the_model():
    """Users without a held-out basket are served, too: their lists count in the test."""
    rows = [(f"a{u}", i, f"2024-01-{d + 1:02}") for u in range(60) for d in range(6) for i in (u % 7, 8)]
    rows += [(f"b{u}", u % 7, "2024-01-01") for u in range(140)]
    data = sl.Interactions.from_tuples(rows)
    cutoff = Guarantee(max_empty=0.3, confidence=0.9)
    model = sl.fit(data, models="PersonalFrequency", budget="quick", cutoff=cutoff)
    assert (model.recommend().lengths == 0).mean() <= 0.3
    assert f"tested on {data.n_users} users" in model.cutoff_.guarantee_


def test_same_seed_same_guarantee():
    one, two, other = fitted(), fitted(), fitted(seed=1)
    assert one.cutoff_.threshold_ == two.cutoff_.threshold_
    assert one.fingerprint_ == two.fingerprint_
    assert one.fingerprint_ != other.fingerprint_


def test_users_are_drawn_with_histories_as_long_as_those_of_returning_users():
    rng = np.random.default_rng(0)
    n_baskets = rng.geometric(0.3, 20_000)
    users = np.flatnonzero(n_baskets > 1).astype(np.int32)
    drawn = guaranteed.draw_like_served(n_baskets, n_baskets - 1, users, seed=0)
    assert drawn.size == pytest.approx(0.3 * users.size, rel=0.01)
    returned = n_baskets[rng.random(n_baskets.size) < 0.7]  # every user returns with probability 0.7
    for short in (1, 2):
        share = (n_baskets[drawn] - 1 == short).mean()
        assert share == pytest.approx((returned == short).mean(), abs=0.02)


def test_short_histories_are_not_left_out_when_old_users_dominate():
    n_baskets = np.repeat([1, 2, 20], [500, 100, 400])  # most served users have one basket
    users = np.flatnonzero(n_baskets > 1).astype(np.int32)
    drawn = guaranteed.draw_like_served(n_baskets, n_baskets - 1, users, seed=0)
    short = (n_baskets[drawn] == 2).mean()
    assert short > 100 / 500


def test_few_returning_users_are_held_out_by_item():
    one_basket = sl.Interactions.from_tuples(
        [(u, (u * 7 + k * k) % 40) for u in range(200) for k in range(8)]
    )
    kept = guaranteed.keep_back(one_basket, hold_out(one_basket), seed=0)
    assert kept.tested.history.n_rows + kept.tested.truth.n_rows == one_basket.n_rows


def test_too_few_users_are_refused():
    data = sl.Interactions.from_tuples([(u, i, f"2024-01-0{i + 1}") for u in range(3) for i in range(3)])
    with pytest.raises(DataError, match="a guarantee needs at least two users"):
        sl.fit(data, models="Popularity", cutoff=GUARANTEE)


# ------------------------------------------------------------------ a guarantee and its model
def test_another_model_is_refused():
    model = fitted()
    other = sl.PersonalFrequency(decay=0.5).fit(DATA)
    with pytest.raises(ConfigError, match="this guarantee was tested on the model"):
        other.set_cutoff(model.cutoff_)
    with pytest.raises(ConfigError, match="the same one after fit"):
        other.recommend(cutoff=model.cutoff_)
    with pytest.raises(ConfigError, match="tested on the model"):
        model.cutoff_.apply(other.recommend(N=50))


def test_fit_ends_the_guarantee_and_observe_does_not():
    model = fitted()
    before = model.fingerprint_
    model.observe([("u1", "i10", "2030-01-01"), ("new", "i1", "2030-01-01")])
    assert model.fingerprint_ == before
    model.recommend()
    cutoff = model.cutoff_
    model.fit(model.history_)
    assert model.fingerprint_ != before
    with pytest.raises(ConfigError, match="test it again with"):
        model.recommend(cutoff=cutoff)


def test_guarantee_is_tested_again_on_demand():
    split = sl.split.last_basket(DATA)
    model = sl.PersonalFrequency().fit(split.train)
    guarantee = GUARANTEE.clone().fit(model.recommend(N=50, at=split.valid), split.valid)
    model.set_cutoff(guarantee)
    model.fit(split.train_valid)
    again = guarantee.clone().fit(model.recommend(N=50, at=split.test), split.test)
    assert model.set_cutoff(again).recommend().lengths.sum() > 0


def test_fingerprint_survives_a_file(tmp_path):
    model = fitted()
    same = sl.load_model(model.save(tmp_path / "model"))
    assert same.fingerprint_ == model.fingerprint_
    assert same.cutoff_.source_ == model.fingerprint_
    np.testing.assert_array_equal(same.recommend().items, model.recommend().items)


def test_lists_of_no_model_keep_their_guarantee_and_a_mixture_warns():
    split = sl.split.last_basket(DATA)
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=50)
    outside = sl.RankedLists.from_frame(lists.to_frame())
    guarantee = GUARANTEE.clone().fit(outside, split.valid)
    assert "for the lists it was tested on" in guarantee.guarantee_
    guarantee.apply(outside)
    with pytest.warns(DataWarning, match="tested on lists of no known model"):
        guarantee.apply(lists)
    bound = GUARANTEE.clone().fit(lists, split.valid)
    with pytest.warns(DataWarning, match="is used on lists of no known model"):
        bound.apply(outside)


def test_scores_given_as_a_function_have_no_fingerprint():
    scores = np.random.default_rng(0).random((DATA.n_users, DATA.n_items), np.float32)
    assert sl.PrecomputedScores(scores=lambda users: scores[users]).fit(DATA).fingerprint_ is None
    assert sl.PrecomputedScores(scores=scores).fit(DATA).fingerprint_ is not None
