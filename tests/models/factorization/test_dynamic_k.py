"""Lists of the joint models: the cutoff that `fit` learns on an inner hold-out, and the learned boundary."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.core.codec import load_artifact, save_artifact
from shortlist.data.interactions import Interactions
from shortlist.data.lists import REASON_CODE
from shortlist.errors import ConfigError, ModelFileError
from shortlist.models.factorization.model import hold_out_inner
from tests.models.cases import checkerboard, crowd, fit, model

TERMS = {"repeat_decay": 0.9, "trend_half_life": 3.0}
CASES = [("DKBPRMF", {}), ("DKHRM", {}), ("DKHRM", TERMS), ("DKBPRMF", {"loss": "hinge"})]
dynamic_model = pytest.mark.parametrize(("name", "changed"), CASES)


def sizes_by_user():
    """Even users buy two of their four favorite items at a time, odd users eight of twelve; ten baskets."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(60):
        favorites = rng.permutation(40)[: 12 if user % 2 else 4]
        for when in range(10):
            bought = rng.permutation(favorites)[: 8 if user % 2 else 2]
            rows += [(user, int(item), 100 * when + user) for item in bought]
    return Interactions.from_tuples(rows)


@dynamic_model
def test_lists_end_where_the_same_cutoff_ends_them_that_is_fitted_on_the_last_baskets(name, changed):
    data = crowd()
    one = fit(name, data, n_epochs=3, **changed)
    history, truth = hold_out_inner(data, one.seed)
    inner = fit(name, history, n_epochs=3, boundary="learned", **changed)
    candidates = inner.recommend(truth.users.to_ids(truth.active_users), N=100, filter_seen=False, at=truth)
    cutoff = sl.cutoff.ExpectedF1(calibration="features", size="both", floor=0.0)
    cutoff.fit(candidates, truth, history=history)
    scores = fit(name, data, n_epochs=3, boundary="learned", **changed).recommend(N=100)
    lists, expected = one.recommend(), cutoff.apply(scores, history=data)
    assert lists.lengths.tolist() == expected.lengths.tolist()
    assert lists.items.tolist() == expected.items.tolist()
    np.testing.assert_array_equal(lists.probabilities, expected.probabilities)
    assert (lists.lengths > 0).all()
    assert set(lists.reason.tolist()) <= {REASON_CODE["utility"], REASON_CODE["all_candidates"]}


@dynamic_model
def test_any_length_shows_the_most_probable_items_first(name, changed):
    one = fit(name, crowd(), n_epochs=3, **changed)
    lists, top = one.recommend(), one.recommend(N=30)
    for user in range(len(lists)):
        n = min(30, int(lists.lengths[user]))
        assert top[user].items[:n] == lists[user].items[:n]
    assert (np.diff(top.probabilities)[top.owner[1:] == top.owner[:-1]] <= 0).all()


@dynamic_model
def test_lists_depend_on_the_candidates_and_on_nobody_else(name, changed):
    one = fit(name, crowd(), n_epochs=3, **changed)
    whole, few = one.recommend(), one.recommend(candidates=list(range(40)))
    assert (whole.lengths != few.lengths).any()
    alone = one.recommend([7, 3])
    for user_id in (7, 3):
        assert alone[user_id].items == whole[user_id].items
    session = one.recommend(history={10_001: [1, 2, 3]})
    assert session.lengths[0] > 0
    shown = one.explain(7)
    assert shown["item_id"].to_list()[: len(alone[7])] == alone[7].items


def test_the_last_basket_is_held_out_or_a_fifth_of_the_items():
    history, truth = hold_out_inner(checkerboard(), 0)
    assert (history.basket_counts == 4).all()
    assert (truth.basket_counts == 1).all()
    assert (truth.time > history.time[history.indptr[1:] - 1][truth.user]).all()
    matrix = Interactions.from_csr(np.ones((30, 20), np.float32))
    history, truth = hold_out_inner(matrix, 0)
    assert (history.user_counts == 16).all()
    assert (truth.user_counts == 4).all()
    single = Interactions.from_csr(np.eye(30, dtype=np.float32))
    assert not hold_out_inner(single, 0)[1].n_rows


def test_of_many_users_some_are_held_out(monkeypatch):
    monkeypatch.setattr("shortlist.models.factorization.model.MAX_USERS", 7)
    history, truth = hold_out_inner(checkerboard(), 0)
    assert (history.basket_counts == 4).all()
    assert truth.active_users.size == 7


def test_the_inner_model_is_trained_for_as_many_epochs(monkeypatch):
    trained = []
    exact = sl.DKBPRMF._learn

    def learn(self, train, options):
        state = exact(self, train, options)
        trained.append((train.n_rows, state.n_epochs))
        return state

    monkeypatch.setattr(sl.DKBPRMF, "_learn", learn)
    data = checkerboard()
    split = sl.split.last_basket(data)
    model("DKBPRMF", patience=1).fit(split.train, valid=split.valid)
    (inner, n_inner), (outer, n_outer) = trained
    assert inner < outer == split.train.n_rows
    assert n_inner == n_outer < 60


@dynamic_model
def test_file_keeps_the_cutoff(name, changed, tmp_path):
    one = fit(name, crowd(), n_epochs=2, **changed)
    same = sl.load_model(one.save(tmp_path / "m"))
    first, second = one.recommend(), same.recommend()
    for part in ("items", "boundary", "probabilities", "indptr"):
        np.testing.assert_array_equal(getattr(first, part), getattr(second, part))


@pytest.mark.parametrize("part", ["center_", "scale_", "beta_"])
def test_damaged_cutoff_in_a_file_is_rejected(part, tmp_path):
    artifact = load_artifact(fit("DKHRM", checkerboard(), n_epochs=1).save(tmp_path / "m"), "model")
    (name,) = (name for name in artifact.arrays if name.endswith(f"boundary_cutoff.n_missed_.{part}"))
    artifact.arrays[name] = np.full(9, 1.0)
    with pytest.raises(ModelFileError, match=r"boundary_cutoff\.n_missed_"):
        sl.load_model(save_artifact(tmp_path / "bad", artifact))


def test_learned_boundary_is_the_users_own():
    one = fit("DKBPRMF", checkerboard(), boundary="learned")
    lists = one.recommend()
    np.testing.assert_array_equal(lists.boundary, one.boundaries())
    assert (lists.scores > lists.boundary[lists.owner]).all()
    assert type(one.boundary_) is sl.cutoff.Boundary
    np.testing.assert_array_equal(fit("DKBPRMF", checkerboard()).boundaries(), one.boundaries())


def test_with_nothing_to_hold_out_lists_end_at_the_learned_boundary():
    data = Interactions.from_tuples([(user, user % 7) for user in range(30)])
    one = fit("DKBPRMF", data, negatives=1.0)
    lists = one.recommend(filter_seen=False, N=7)
    assert type(one.boundary_) is sl.cutoff.Boundary
    above = (lists.scores > one.boundaries()[lists.owner]).sum()
    assert above > 0
    assert one.recommend(filter_seen=False).items.size == above


def test_a_cutoff_of_the_user_comes_first():
    one = fit("DKBPRMF", crowd(), n_epochs=2)
    lists = one.recommend()
    one.set_cutoff(sl.cutoff.FixedN(N=2))
    assert set(one.recommend().lengths) == {2}
    assert one.recommend(cutoff="boundary").items.tolist() == lists.items.tolist()


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_boundary_wins_over_every_fixed_length_if_users_differ(name):
    data = sizes_by_user()
    split = sl.split.last_basket(data)
    one = fit(name, split.train_valid, n_epochs=20, repeat_decay=1.0)
    dynamic = sl.evaluate(one.recommend(), split.test).f1
    fixed = max(sl.evaluate(one.recommend(N=n), split.test).f1 for n in (2, 4, 8, 12, 16, 40))
    assert dynamic > 1.1 * fixed
    lengths = one.recommend().lengths
    assert lengths[1::2].mean() > 2 * lengths[::2].mean()


def test_other_boundaries_are_rejected():
    for wrong in ("none", 3, ["learned"]):
        with pytest.raises(ConfigError, match="boundary must be one of expected_f1, learned"):
            model("DKHRM", boundary=wrong)


@pytest.mark.parametrize("name", ["DKBPRMF", "DKHRM"])
def test_boundaries_of_two_seeds_agree_over_the_users(name):
    """With the paper's penalty in every step, they are noise around t."""
    data = sl.load_dataset("sample")

    def correlation(**changed):
        models = (getattr(sl, name)(seed=seed, boundary="learned", **changed) for seed in (0, 1))
        return np.corrcoef([one.fit(data).boundaries() for one in models])[0, 1]

    assert correlation() > 0.6
    assert correlation(lambda_t_per="user", lambda_t=1.0) > 0.6
    assert correlation(lambda_t=1.0) < 0.5
