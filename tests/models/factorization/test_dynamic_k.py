"""Lists of the joint models: the boundary with the highest expected F1, and the learned one."""

import numpy as np
import pytest

import shortlist as sl
from shortlist.core.codec import load_artifact, save_artifact
from shortlist.data.interactions import Interactions
from shortlist.data.lists import REASON_CODE
from shortlist.errors import ConfigError, ModelFileError
from tests.models.cases import checkerboard, crowd, fit, model

TERMS = {"repeat_decay": 0.9, "trend_half_life": 3.0}
CASES = [("DKBPRMF", {}), ("DKHRM", {}), ("DKHRM", TERMS), ("DKHRM", {"negatives": "uniform"})]
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
def test_lists_end_at_their_boundary(name, changed):
    one = fit(name, crowd(), n_epochs=3, **changed)
    lists, top = one.recommend(), one.recommend(N=60)
    np.testing.assert_array_equal(lists.boundary, top.boundary)
    for user in range(len(lists)):
        scores = top.scores[top.indptr[user] : top.indptr[user + 1]]
        assert lists.lengths[user] == (scores > lists.boundary[user]).sum() > 0
    assert (lists.reason == REASON_CODE["boundary"]).all()
    # at the boundary, the probability is about half of the expected F1
    total = np.add.reduceat(lists.probabilities, lists.indptr[:-1])
    best = 2 * total / (lists.lengths + lists.expected_sizes)
    shift = one.score(one.build_request()).log_odds_shift
    at_boundary = 1 / (1 + np.exp(-(lists.boundary + shift)))
    assert np.median(at_boundary / best) == pytest.approx(0.5, abs=0.1)


@dynamic_model
def test_boundary_depends_on_the_candidates_and_on_nobody_else(name, changed):
    one = fit(name, crowd(), n_epochs=3, **changed)
    whole, few = one.recommend(), one.recommend(candidates=list(range(40)))
    assert (whole.boundary != few.boundary).any()
    alone = one.recommend([7, 3])
    np.testing.assert_allclose(alone.boundary, whole.boundary[one.users_.lookup([7, 3])], rtol=1e-5)
    without = one.recommend([7], exclude=[one.recommend([7]).item_ids.to_ids(alone.items[:1])[0]])
    assert without.boundary[0] < alone.boundary[0]  # the best item is gone, so F* is lower
    session = one.recommend(history={10_001: [1, 2, 3]})
    assert np.isfinite(session.boundary).all()
    shown = one.explain(7)
    assert (shown["margin"] > 0).to_list() == shown["shown"].to_list()


@dynamic_model
def test_file_keeps_the_boundary(name, changed, tmp_path):
    one = fit(name, crowd(), n_epochs=2, **changed)
    same = sl.load_model(one.save(tmp_path / "m"))
    first, second = one.recommend(), same.recommend()
    for part in ("items", "boundary", "probabilities", "expected_sizes"):
        np.testing.assert_array_equal(getattr(first, part), getattr(second, part))


@pytest.mark.parametrize("part", ["center_", "scale_", "beta_"])
def test_damaged_size_in_a_file_is_rejected(part, tmp_path):
    artifact = load_artifact(fit("DKHRM", checkerboard(), n_epochs=1).save(tmp_path / "m"), "model")
    artifact.arrays[f"model.next_size.{part}"] = np.full(2, 1.0)
    with pytest.raises(ModelFileError, match=f"next_size.{part}"):
        sl.load_model(save_artifact(tmp_path / "bad", artifact))


def test_size_of_the_next_list_comes_from_earlier_baskets():
    data = sizes_by_user()
    one = fit("DKHRM", data, n_epochs=2)
    sizes = one.recommend().expected_sizes
    assert sizes[::2].mean() == pytest.approx(2, abs=0.4)
    assert sizes[1::2].mean() == pytest.approx(8, abs=1.0)
    lengths = one.recommend().lengths
    assert lengths[1::2].mean() > 2 * lengths[::2].mean()


def test_learned_boundary_is_the_users_own():
    one = fit("DKBPRMF", checkerboard(), boundary="learned")
    lists = one.recommend()
    np.testing.assert_array_equal(lists.boundary, one.boundaries())
    assert lists.expected_sizes is None
    np.testing.assert_array_equal(fit("DKBPRMF", checkerboard()).boundaries(), one.boundaries())


def test_hinge_loss_uses_the_learned_boundary():
    one = fit("DKBPRMF", checkerboard(), loss="hinge")
    np.testing.assert_array_equal(one.recommend().boundary, one.boundaries())


def test_data_without_second_baskets_treats_the_history_as_the_list():
    data = Interactions.from_csr((np.random.default_rng(0).random((40, 30)) < 0.3).astype(np.float32))
    one = fit("DKBPRMF", data, n_epochs=5)
    lists = one.recommend()
    np.testing.assert_array_equal(lists.expected_sizes, np.maximum(np.diff(data.indptr), 1))
    assert np.isfinite(lists.boundary).all()


def test_boundary_wins_over_every_fixed_length_if_users_differ():
    data = sizes_by_user()
    split = sl.split.last_basket(data)
    one = fit("DKHRM", split.train_valid, n_epochs=20, repeat_decay=1.0)
    dynamic = sl.evaluate(one.recommend(), split.test).f1
    fixed = max(sl.evaluate(one.recommend(N=n), split.test).f1 for n in (2, 4, 8, 12, 16, 40))
    assert dynamic > 1.1 * fixed


def test_other_boundaries_are_rejected():
    for wrong in ("none", 3, ["learned"]):
        with pytest.raises(ConfigError, match="boundary must be one of expected_f1, learned"):
            model("DKHRM", boundary=wrong)
