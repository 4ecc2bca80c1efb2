"""What every model promises, whatever it is."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, ModelFileError, NotFittedError
from shortlist.models.base import Recommender, load_model
from tests.models.cases import (
    CLOSED,
    COUNTING,
    JOINT,
    NAMES,
    bits,
    checkerboard,
    everyone,
    fit,
    fitted,
    model,
    outside_scores,
)

every_model = pytest.mark.parametrize("name", NAMES)
joint_model = pytest.mark.parametrize("name", JOINT)


@every_model
def test_scores_have_one_row_per_user_and_one_column_per_item(name):
    one, data = fitted(name), checkerboard()
    scores = one.score(np.array([3, 0, 3], np.int32))
    assert scores.shape == (3, data.n_items)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert (scores[0] == scores[2]).all()
    assert one.score(np.empty(0, np.int32)).shape == (0, data.n_items)
    assert one.users_ == data.users
    assert one.items_ == data.items


@joint_model
def test_checkerboard_is_learned(name):
    data = checkerboard()
    scores = fitted(name).score(everyone(data))
    taken = data.to_csr().toarray() > 0
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    right = 0
    for user in everyone(data):
        missed = scores[user, own[user] & ~taken[user]]
        right += (missed.min() > scores[user, ~own[user]]).mean()
    assert right / data.n_users > 0.95


def test_counting_models_count():
    data = checkerboard()
    frequency, sales = (
        fitted("PersonalFrequency").score(everyone(data)),
        fitted("Popularity").score(everyone(data)),
    )
    assert (sales == np.bincount(data.item)).all()
    taken = data.to_csr().toarray() > 0
    assert all(frequency[u, taken[u]].min() > frequency[u, ~taken[u]].max() for u in everyone(data))


@every_model
def test_factors_give_the_scores(name):
    users = np.array([0, 7], np.int32)
    found = fitted(name).factors(users)
    if name not in JOINT:
        assert found is None
        return
    vectors, items, bias = found
    np.testing.assert_allclose(vectors @ items.T + bias, fitted(name).score(users), rtol=1e-6)


@every_model
def test_refit_gives_the_same_bits(name):
    one = fit(name, checkerboard())
    first = bits(one)
    assert first == bits(one.fit(checkerboard())) == bits(fitted(name))


@every_model
def test_duplicate_rows_change_nothing(name):
    frame = checkerboard().to_frame()
    doubled = Interactions.from_frame(pl.concat([frame, frame]))
    assert bits(fit(name, doubled)) == bits(fitted(name))


@every_model
def test_weights_change_nothing(name):
    """As the pages say: they are kept, and every row counts as taken."""
    weight = np.random.default_rng(0).normal(size=checkerboard().n_rows) * 5
    weighed = Interactions.from_frame(checkerboard().to_frame().with_columns(weight=weight))
    assert weighed.weight is not None
    one = fit(
        name, weighed, **({"scores": outside_scores(checkerboard())} if name == "PrecomputedScores" else {})
    )
    assert bits(one) == bits(fitted(name))
    lists, plain = (each.recommend(N=5, fallback="popular") for each in (one, fitted(name)))
    assert lists.items.tolist() == plain.items.tolist()


@every_model
def test_the_order_of_rows_changes_nothing(name):
    frame = checkerboard().to_frame().sample(fraction=1, shuffle=True, seed=3)
    assert bits(fit(name, Interactions.from_frame(frame))) == bits(fitted(name))


EDGES = {
    "user with everything": [("a", i, t) for t in range(2) for i in "xyz"] + [("b", "x", 0), ("b", "y", 1)],
    "single item": [("a", "x", 0), ("b", "x", 0), ("a", "x", 1)],
    "one user": [("a", "x", 0), ("a", "y", 1), ("a", "z", 1)],
    "one user with everything": [("a", "x", 0), ("a", "y", 1), ("a", "x", 2)],
    "one row twice over": [("a", "x", 0), ("a", "x", 1)],
}


@every_model
@pytest.mark.parametrize("edge", EDGES)
def test_edges_end_in_finite_scores(name, edge):
    data = Interactions.from_tuples(EDGES[edge])
    scores = fit(name, data).score(everyone(data))
    assert scores.shape == (data.n_users, data.n_items)
    assert np.isfinite(scores).all()


@every_model
def test_users_without_rows_are_scored(name):
    data = checkerboard()
    held = data.where(data.user != 4)
    assert np.isfinite(fit(name, held).score(np.array([4], np.int32))).all()


@every_model
def test_parameters_round_trip(name):
    one = fitted(name)
    params = one.get_params()
    copy = one.clone()
    assert type(copy) is type(one)
    assert copy.get_params().keys() == params.keys()
    assert all(copy.get_params()[key] is params[key] for key in params)
    assert not copy.fitted()
    assert type(one)(**params).set_params(**params).get_params().keys() == params.keys()
    with pytest.raises(ConfigError, match="no parameter 'depth'"):
        copy.set_params(depth=3)


@every_model
def test_used_before_it_was_fitted(name):
    fresh, users = model(name), np.zeros(1, np.int32)
    if name == "PrecomputedScores":
        fresh = model(name, scores=outside_scores(checkerboard()))
    for use in (fresh.score, fresh.factors) if name in JOINT else (fresh.score,):
        with pytest.raises(NotFittedError, match=f"{name} was used before it was fitted"):
            use(users)
    with pytest.raises(NotFittedError):
        fresh.save("nowhere")
    with pytest.raises(NotFittedError):
        _ = fresh.users_


@every_model
def test_data_that_teaches_nothing_is_refused(name):
    data = checkerboard()
    with pytest.raises(DataError, match="at least one interaction"):
        fit(name, data.where(np.zeros(data.n_rows, bool)))
    for strange in (np.eye(3), "events.csv", None):
        with pytest.raises(DataError, match=f"interactions must come .* got {type(strange).__name__}"):
            model(name).fit(strange)
    with pytest.raises(DataError, match=r"^Interactions\.from_frame: .*did you mean 'itemm'"):
        model(name).fit(pl.DataFrame({"user": [1, 2], "itemm": [1, 2]}))


FORMS = {
    "polars": lambda data: data.to_frame(),
    "lazy": lambda data: data.to_frame().lazy(),
    "pandas": lambda data: data.to_frame().to_pandas(),
    "Arrow": lambda data: data.to_frame().to_arrow(),
}


@every_model
@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_as_good_as_interactions(name, form):
    one = fit(name, checkerboard())
    assert bits(one.fit(FORMS[form](checkerboard()))) == bits(fitted(name))
    assert one.users_ == checkerboard().users


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("HRM")])
def test_a_matrix_is_as_good_as_interactions(name):
    csr = csr_array(checkerboard().to_csr().toarray() > 0).astype(np.float32)
    data = Interactions.from_csr(csr)
    changed = {"scores": outside_scores(data)} if name == "PrecomputedScores" else {}
    one = model(name, **changed)
    for matrix in (csr, csr.tocoo(), csr.tocsc()):
        assert bits(one.fit(train=matrix)) == bits(fit(name, data))
    assert one.recommend([0, 29], N=2)[29].items == fit(name, data).recommend([29], N=2)[29].items


def test_more_and_valid_may_be_matrices_too():
    csr = csr_array(np.random.default_rng(0).random((30, 20)) < 0.4).astype(np.float32)
    held = csr_array(np.random.default_rng(1).random((30, 20)) < 0.1).astype(np.float32)
    data, valid = Interactions.from_csr(csr), Interactions.from_csr(held)
    one, same = model("BPRMF").fit(data, valid=valid), model("BPRMF").fit(csr, valid=held)
    assert one.valid_scores_ == same.valid_scores_ != []
    assert bits(one.partial_fit(valid)) == bits(same.partial_fit(more=held))
    assert bits(model("BPRMF").fit(csr, valid=None)) == bits(fit("BPRMF", data))


BAD = {
    "n_factors": [0, 2.5, "8", True],
    "n_epochs": [0, -1],
    "patience": [0],
    "negative_draws": [0, 1.5],
    "lr": [0, -1, float("nan"), 11, "fast"],
    "reg": [-0.1, float("inf"), None],
    "reg_user": [-0.1],
    "reg_item": [-0.1],
    "reg_negative": [-0.1],
    "tol": [-1],
    "init": [-1, float("nan")],
    "seed": [-1, 0.5],
    "n_threads": [-1],
    "alpha": [-0.1, 1.1, float("nan")],
    "t": [float("inf")],
    "lambda_t": [-1],
    "negatives": [0, -1, "many", None],
    "loss": ["log", "squared"],
    "penalty": ["l3"],
    "c": [0],
    "pool_items": ["sum"],
    "pool_user": ["min"],
    "window": [0, 1.5],
    "repeat_decay": [0, -1, 1.5, float("nan"), "long"],
    "trend_half_life": [0, -1, float("nan"), float("inf"), "long"],
    "half_life": [0, -1, float("inf")],
    "decay": [0, 1.5],
    "popularity": [-1],
    "n_neighbors": [0, 2.5],
    "group_size": [0],
    "basket_decay": [-0.1, 1.5],
    "group_decay": [-0.1, 1.5],
    "own": [-0.1, 1.5],
}


@pytest.mark.parametrize("name", [*JOINT, *COUNTING, *CLOSED])
def test_bad_parameters_are_refused_by_name(name):
    own = model(name).get_params()
    assert own.keys() - BAD.keys() <= {"bias"}
    for key in own.keys() & BAD.keys():
        for value in BAD[key]:
            with pytest.raises(ConfigError, match=rf"^{key}\b"):
                model(name).set_params(**{key: value}).fit(checkerboard())


@every_model
def test_a_refused_fit_leaves_the_earlier_one(name):
    one = fit(name, checkerboard())
    kept = bits(one)
    with pytest.raises(DataError):
        one.fit(checkerboard().where(np.zeros(checkerboard().n_rows, bool)))
    assert bits(one) == kept


@every_model
@pytest.mark.parametrize("ids", ["strings", "integers", "names"])
def test_save_and_load_give_the_same_scores(name, ids, tmp_path):
    data = checkerboard()
    if ids == "integers":
        frame = data.to_frame().with_columns(pl.col("user_id", "item_id").str.slice(1).cast(pl.Int32))
        data = Interactions.from_frame(frame)
    if ids == "names":
        data = data.with_item_names(data.items.values, pl.Series([f"thing {n}" for n in range(data.n_items)]))
    one = fit(name, data)
    assert one.save(tmp_path / "model") == tmp_path / "model"
    back = load_model(tmp_path / "model")
    users = everyone(data)
    assert type(back) is type(one)
    assert (back.score(users) == one.score(users)).all()
    assert bits(back) == bits(one)
    assert back.users_ == one.users_
    assert back.items_ == one.items_
    assert back.items_.values.dtype == one.items_.values.dtype
    assert back.history.fingerprint == data.fingerprint
    assert (back.history.item_names is None) == (ids != "names")
    assert ids != "names" or back.history.item_names.to_list() == data.item_names.to_list()
    if name != "PrecomputedScores":
        assert back.get_params() == one.get_params()
    for ask in ("boundaries", "log_odds_shift", "probabilities"):
        mine, theirs = getattr(one, ask)(users), getattr(back, ask)(users)
        assert (mine is None and theirs is None) or (mine == theirs).all()


@every_model
def test_loading_as_another_class_is_refused(name, tmp_path):
    fitted(name).save(tmp_path / "model")
    own = type(fitted(name))
    assert type(own.load(tmp_path / "model")) is own
    assert type(Recommender.load(tmp_path / "model")) is own
    stranger = type(model("Popularity" if name != "Popularity" else "BPRMF"))
    with pytest.raises(ModelFileError, match=f"holds a {name}, not a {stranger.__name__}"):
        stranger.load(tmp_path / "model")


@pytest.mark.parametrize("name", [*JOINT, *COUNTING, *CLOSED])
def test_a_loaded_model_goes_on(name, tmp_path):
    """Folding in and continuing work on what came from a file, and give what they give without one."""
    one = fit(name, checkerboard())
    one.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    more = Interactions.from_tuples([("u00", "i04", 900), ("u00", "new", 901), ("zed", "i02", 902)])
    for each in (one, back):
        each.fold_in({"guest": ["i00", "i02"]}).partial_fit(more)
    assert bits(one) == bits(back)
    assert one.users_.values.to_list() == back.users_.values.to_list()


# ------------------------------------------------------------------ lists
@every_model
def test_lists_are_the_best_of_the_scores(name):
    one, data = fitted(name), checkerboard()
    users = data.users.values.to_list()[:4]
    lists = one.recommend(users, N=3, filter_seen=False)
    scores = one.score(np.arange(4, dtype=np.int32))
    for row, user_id in enumerate(users):
        wanted = np.sort(scores[row])[::-1][:3]
        np.testing.assert_allclose(lists[user_id].scores, wanted, rtol=1e-5, atol=1e-6)
    same = one.recommend(userid=users, N=3, filter_already_liked_items=False)
    assert same.items.tolist() == lists.items.tolist()


@every_model
def test_an_unknown_user_gets_an_empty_list_that_says_so(name):
    lists = fitted(name).recommend(["nobody", "u00"], N=3)
    assert list(lists["nobody"].items) == []
    assert lists["nobody"].reason == "unknown_user"
    assert len(lists["u00"].items) == 3


@every_model
def test_a_user_with_everything_gets_nothing_new(name):
    data = Interactions.from_tuples(EDGES["user with everything"])
    lists = fit(name, data).recommend(["a"], N=5, filter_seen=True)
    assert list(lists["a"].items) == []


@every_model
def test_explain_ranks_as_recommend_does(name):
    one = fitted(name)
    head = one.explain("u03", N=4)
    assert head["item_id"].to_list() == list(one.recommend(["u03"], N=4)["u03"].items)


def test_boundaries_decide_the_length():
    one, data = fitted("DKBPRMF"), checkerboard()
    lists = one.recommend(filter_seen=False)
    above = one.score(everyone(data)) > one.boundaries(everyone(data))[:, None]
    assert lists.lengths.tolist() == above.sum(1).tolist()
