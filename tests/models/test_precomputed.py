"""PrecomputedScores: every form of scores gives the same lists, and wrong shapes are rejected."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, csr_matrix

from shortlist.errors import ConfigError, DataError
from shortlist.models.base import load_model
from shortlist.models.precomputed import PrecomputedScores, from_implicit
from tests.models.cases import all_users, answer, checkerboard, dense

RNG = np.random.default_rng(0)
USER, ITEM = (RNG.normal(size=(n, 4)).astype(np.float32) for n in (30, 20))
DENSE = USER @ ITEM.T
SOME = np.array([3, 0, 29], np.int32)

FORMS = {
    "dense": DENSE,
    "doubles": DENSE.astype(np.float64),
    "csr": csr_array(DENSE),
    "old csr": csr_matrix(DENSE),
    "coo": coo_array(DENSE),
    "factors": (USER, ITEM),
    "factors of doubles": (USER.astype(np.float64), ITEM.tolist()),
    "callable": lambda users: DENSE[users],
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_scores(form):
    one = PrecomputedScores(scores=FORMS[form]).fit(checkerboard())
    found = dense(one, SOME)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, DENSE[SOME], rtol=1e-5, atol=1e-6)
    lists = one.recommend(["u03"], N=5, filter_seen=False)
    assert lists.items.tolist() == np.argsort(-DENSE[3])[:5].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_have_a_short_representation(form):
    text = repr(PrecomputedScores(scores=FORMS[form]))
    assert text.startswith("PrecomputedScores(scores=")
    assert len(text.splitlines()) == 1
    assert len(text) < 80


@pytest.mark.parametrize("form", [form for form in FORMS if form != "callable"])
def test_all_forms_but_callables_are_saved(form, tmp_path):
    one = PrecomputedScores(scores=FORMS[form]).fit(checkerboard())
    back = load_model(one.save(tmp_path / "m"))
    users = all_users(checkerboard())
    assert (dense(back, users) == dense(one, users)).all()
    assert (answer(back, users).factors is None) == (answer(one, users).factors is None)


def test_callable_cannot_be_saved(tmp_path):
    with pytest.raises(ConfigError, match="function cannot be saved; save the array"):
        PrecomputedScores(scores=FORMS["callable"]).fit(checkerboard()).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_entries_that_a_sparse_matrix_does_not_store_are_never_shown():
    few = csr_array(([0.5, 0.0], ([3, 3], [7, 2])), shape=DENSE.shape)
    one = PrecomputedScores(scores=few).fit(checkerboard())
    scores = dense(one, SOME)
    assert np.isneginf(scores).sum() == scores.size - 2
    assert (scores[0, 7], scores[0, 2]) == (0.5, 0)
    assert one.recommend(["u03"], N=5, filter_seen=False).items.tolist() == [7, 2]


def test_factors_are_read_only_and_the_same_array_each_time():
    item = ITEM.copy()
    one = PrecomputedScores(scores=(USER, item)).fit(checkerboard())
    first, second = answer(one, SOME).factors[1], answer(one, SOME).factors[1]
    assert first is second
    assert not first.flags.writeable
    item[:] = 0  # the caller may change the array later
    np.testing.assert_array_equal(answer(one, SOME).factors[1], ITEM)


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (DENSE[:, :5], DataError, r"30 users × 20 items like the data, got \(30, 5\)"),
        ((USER[:3], ITEM), DataError, r"got \(3, 20\)"),
        ((USER, ITEM[:, :2]), ConfigError, "same number of columns"),
        ((USER, ITEM, ITEM), ConfigError, "a factor pair must be two"),
        (np.ones(3), ConfigError, "got ndarray"),
        ("scores.csv", ConfigError, "got str"),
        (None, ConfigError, "got NoneType"),
    ],
)
def test_invalid_scores_are_rejected(scores, error, message):
    with pytest.raises(error, match=message):
        PrecomputedScores(scores=scores).fit(checkerboard())


def test_function_that_returns_another_shape_is_rejected():
    one = PrecomputedScores(scores=lambda users: DENSE[users].T).fit(checkerboard())
    with pytest.raises(DataError, match=r"must return 3 × 20 scores, got \(20, 3\)"):
        dense(one, SOME)


def test_implicit_models_are_wrapped():
    bpr = pytest.importorskip("implicit.cpu.bpr")
    theirs = bpr.BayesianPersonalizedRanking(factors=7, iterations=3, random_state=1, num_threads=1)
    data = checkerboard()
    with pytest.raises(ConfigError, match="without user_factors; fit it first"):
        from_implicit(theirs, data)
    theirs.fit(csr_matrix(data.to_csr()).copy(), show_progress=False)
    ours = from_implicit(theirs, data)
    wanted = theirs.user_factors @ theirs.item_factors.T
    np.testing.assert_allclose(dense(ours), wanted, rtol=1e-5, atol=1e-6)
