"""The contract that every model keeps."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from shortlist.cutoff import Boundary, ExpectedF1, FixedN, Guarantee, Threshold
from shortlist.data.interactions import Interactions
from shortlist.errors import ConfigError, DataError, DataWarning, ModelFileError, NotFittedError
from shortlist.models.base import Recommender, load_model
from shortlist.models.factorization.mf import BPRMF
from tests.models.cases import (
    ALL_MODELS,
    CLOSED,
    COUNTING,
    DENSE_MODELS,
    JOINT,
    bits,
    checkerboard,
    content,
    dense,
    fit,
    fitted,
    model,
    other_scores,
)

dense_model = pytest.mark.parametrize("name", DENSE_MODELS)
every_model = pytest.mark.parametrize("name", ALL_MODELS)
joint_model = pytest.mark.parametrize("name", JOINT)
CALIBRATED = ("DKBPRMF", "DKHRM")  # their lists are ordered by probability


@dense_model
def test_scores_have_one_row_per_user_and_one_column_per_item(name):
    one, data = fitted(name), checkerboard()
    scores = dense(one, [3, 0])
    assert scores.shape == (2, data.n_items)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert dense(one, []).shape == (0, data.n_items)
    assert one.users_ == data.users
    assert one.items_ == data.items


@joint_model
def test_checkerboard_is_learned(name):
    data = checkerboard()
    scores = dense(fitted(name))
    has_item = data.to_csr().toarray() > 0
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    right = 0
    for user in range(data.n_users):
        missed = scores[user, own[user] & ~has_item[user]]
        right += (missed.min() > scores[user, ~own[user]]).mean()
    assert right / data.n_users > 0.95


def test_counting_models_count():
    data = checkerboard()
    frequency, popularity = dense(fitted("PersonalFrequency")), dense(fitted("Popularity"))
    assert (popularity == np.bincount(data.item)).all()
    has_item = data.to_csr().toarray() > 0
    assert all(
        frequency[u, has_item[u]].min() > frequency[u, ~has_item[u]].max() for u in range(data.n_users)
    )


@joint_model
def test_factors_give_the_scores(name):
    one = fitted(name)
    scores = one.score(one.build_request(["u00", "u07"]))
    vectors, items, bias, _ = scores.factors
    np.testing.assert_allclose(vectors @ items.T + bias, scores.dense(len(one.items_)), rtol=1e-6)


@every_model
def test_refit_gives_the_same_bits(name):
    one = fit(name, checkerboard())
    first = bits(one)
    assert first == bits(one.fit(checkerboard(), **content(name, checkerboard()))) == bits(fitted(name))


@dense_model
def test_duplicate_rows_change_nothing(name):
    frame = checkerboard().to_frame()
    doubled = Interactions.from_frame(pl.concat([frame, frame]))
    assert bits(fit(name, doubled)) == bits(fitted(name))


@every_model
def test_weights_change_nothing(name):
    """As documented: weights are kept, and without `weighting` every row counts the same."""
    weight = np.random.default_rng(0).random(checkerboard().n_rows) * 5
    weighted = Interactions.from_frame(checkerboard().to_frame().with_columns(weight=weight))
    assert weighted.weight is not None
    one = fit(
        name, weighted, **({"scores": other_scores(checkerboard())} if name == "PrecomputedScores" else {})
    )
    assert bits(one) == bits(fitted(name))
    lists, plain = (each.recommend(N=5, fallback="popular") for each in (one, fitted(name)))
    assert lists.items.tolist() == plain.items.tolist()


@every_model
def test_order_of_rows_changes_nothing(name):
    frame = checkerboard().to_frame().sample(fraction=1, shuffle=True, seed=3)
    assert bits(fit(name, Interactions.from_frame(frame))) == bits(fitted(name))


EDGE_CASES = {
    "user with all items": [("a", i, t) for t in range(2) for i in "xyz"] + [("b", "x", 0), ("b", "y", 1)],
    "single item": [("a", "x", 0), ("b", "x", 0), ("a", "x", 1)],
    "one user": [("a", "x", 0), ("a", "y", 1), ("a", "z", 1)],
    "one user with all items": [("a", "x", 0), ("a", "y", 1), ("a", "x", 2)],
    "one item bought twice": [("a", "x", 0), ("a", "x", 1)],
}


@dense_model
@pytest.mark.parametrize("case", EDGE_CASES)
def test_edge_cases_give_finite_scores(name, case):
    data = Interactions.from_tuples(EDGE_CASES[case])
    scores = dense(fit(name, data))
    assert scores.shape == (data.n_users, data.n_items)
    assert np.isfinite(scores).all()


@dense_model
def test_users_without_rows_are_scored(name):
    data = checkerboard()
    held = data.where(data.user != 4)
    assert np.isfinite(dense(fit(name, held), [4])).all()


@every_model
def test_parameters_round_trip(name):
    one = fitted(name)
    params = one.get_params()
    copy = one.clone()
    assert type(copy) is type(one)
    assert copy.get_params().keys() == params.keys()
    assert all(copy.get_params()[key] is params[key] for key in params)
    assert not copy.is_fitted
    assert type(one)(**params).set_params(**params).get_params().keys() == params.keys()
    with pytest.raises(ConfigError, match="no parameter 'depth'"):
        copy.set_params(depth=3)


@every_model
def test_unfitted_model_raises(name):
    fresh = model(name)
    if name == "PrecomputedScores":
        fresh = model(name, scores=other_scores(checkerboard()))
    for use in (
        fresh.recommend,
        fresh.build_request,
        lambda: fresh.explain("a"),
        lambda: fresh.save("x"),
        lambda: fresh.observe([("a", "i00", 900)]),
    ):
        with pytest.raises(NotFittedError, match=f"{name} is not fitted yet"):
            use()
    with pytest.raises(NotFittedError):
        _ = fresh.users_


@every_model
def test_data_without_rows_is_rejected(name):
    data = checkerboard()
    with pytest.raises(DataError, match="at least one interaction"):
        fit(name, data.where(np.zeros(data.n_rows, bool)))
    for strange in (np.eye(3), "events.csv", None):
        with pytest.raises(DataError, match=f"interactions must be .* got {type(strange).__name__}"):
            model(name).fit(strange)
    with pytest.raises(DataError, match=r"must have a column 'item_id' .*did you mean 'itemm'"):
        model(name).fit(pl.DataFrame({"user": [1, 2], "itemm": [1, 2]}))


FORMS = {
    "polars": lambda data: data.to_frame(),
    "lazy": lambda data: data.to_frame().lazy(),
    "pandas": lambda data: data.to_frame().to_pandas(),
    "Arrow": lambda data: data.to_frame().to_arrow(),
}


@every_model
@pytest.mark.parametrize("form", FORMS)
def test_fit_accepts_tables(name, form):
    one = fit(name, checkerboard())
    assert bits(one.fit(FORMS[form](checkerboard()), **content(name, checkerboard()))) == bits(fitted(name))
    assert one.users_ == checkerboard().users


@pytest.mark.parametrize("name", [name for name in DENSE_MODELS if not name.endswith("HRM")])
def test_fit_accepts_matrices(name):
    csr = csr_array(checkerboard().to_csr().toarray() > 0).astype(np.float32)
    data = Interactions.from_csr(csr)
    changed = {"scores": other_scores(data)} if name == "PrecomputedScores" else {}
    one = model(name, **changed)
    for matrix in (csr, csr.tocoo(), csr.tocsc()):
        assert bits(one.fit(train=matrix)) == bits(fit(name, data))
    assert one.recommend([0, 29], N=2)[29].items == fit(name, data).recommend([29], N=2)[29].items


def test_validation_accepts_matrices():
    csr = csr_array(np.random.default_rng(0).random((30, 20)) < 0.4).astype(np.float32)
    held = csr_array(np.random.default_rng(1).random((30, 20)) < 0.1).astype(np.float32)
    data, valid = Interactions.from_csr(csr), Interactions.from_csr(held)
    one, same = model("BPRMF").fit(data, valid=valid), model("BPRMF").fit(csr, valid=held)
    assert one.valid_scores_ == same.valid_scores_ != []
    assert bits(model("BPRMF").fit(csr, valid=None)) == bits(fit("BPRMF", data))


BAD = {
    "n_factors": [0, 2.5, "8", True],
    "n_epochs": [0, -1],
    "patience": [0],
    "negative_draws": [0, 1.5],
    "lr": [0, -1, float("nan"), 11, "fast"],
    "reg": [-0.1, float("inf"), "large"],
    "reg_user": [-0.1],
    "reg_item": [-0.1],
    "reg_negative": [-0.1],
    "tol": [-1],
    "init": [-1, float("nan")],
    "seed": [-1, 0.5],
    "alpha": [-0.1, 1.1, float("nan")],
    "t": [float("inf")],
    "boundary": ["none", 3, None],
    "lambda_t": [-1],
    "lambda_t_per": ["epoch", 1],
    "negatives": [0, -1, "many", None],
    "loss": ["log", "squared", np.array(["logistic", "hinge"])],
    "penalty": ["l3", np.array(["l2", "l1"]), None],
    "c": [0],
    "pool_items": ["sum", np.array(["max", "mean"])],
    "pool_user": ["min", ["mean"]],
    "window": [0, 1.5],
    "repeat_decay": [0, -1, 1.5, float("nan"), "long"],
    "trend_half_life": [0, -1, 2**62, float("nan"), float("inf"), "long"],
    "half_life": [0, -1, 2**62, float("inf")],
    "decay": [0, 1.5],
    "popularity": [-1],
    "n_neighbors": [0, 2.5],
    "group_size": [0],
    "basket_decay": [-0.1, 1.5],
    "group_decay": [-0.1, 1.5],
    "own": [-0.1, 1.5],
    "locality": [-1, "far"],
    "unobserved": [-1, float("nan"), "all"],
    "reg_power": [-1],
    "low_pass": [-1, "wide"],
    "weight": [0, 1.5, "half"],
    "max_memory": [-1, float("inf")],
    "sharpen": [-0.1, float("nan")],
    "user_power": [-0.1, float("inf")],
    "item_power": [-0.1, float("inf")],
    "weighting": ["squared", None, np.array(["log"])],
    "weight_cap": [0, -1, float("nan"), "much"],
}


@pytest.mark.parametrize("name", [*JOINT, *COUNTING, *CLOSED])
def test_invalid_parameter_is_named(name):
    own = model(name).get_params()
    assert own.keys() - BAD.keys() <= {"bias"}
    for key in own.keys() & BAD.keys():
        for value in BAD[key]:
            if value is None and (name, key) == ("HRM", "negatives"):
                assert own[key] is None  # the pairwise ranking loss
                continue
            one = model(name)
            with pytest.raises(ConfigError, match=rf"^{key}\b") as constructed:
                type(one)(**own | {key: value})
            for change in (partial(setattr, one, key, value), partial(one.set_params, **{key: value})):
                with pytest.raises(ConfigError) as caught:
                    change()
                assert str(caught.value) == str(constructed.value)
                assert one.get_params() == own


@every_model
def test_assigned_parameter_makes_the_model_unfitted(name):
    for key, value in fitted(name).get_params().items():
        one = copy.copy(fitted(name))
        setattr(one, key, value)
        assert not one.is_fitted, key
        assert fitted(name).is_fitted


@pytest.mark.parametrize("cut", [FixedN(), Threshold(), ExpectedF1(), Guarantee(min_precision=0.1)], ids=repr)
def test_cutoff_that_needs_fit_is_not_set(cut):
    one = copy.copy(fitted("Popularity"))
    with pytest.raises(NotFittedError, match=f"set_cutoff needs a fitted cutoff, got {type(cut).__name__}"):
        one.set_cutoff(cut)
    assert one.cutoff_ is None


def test_cutoff_that_needs_no_fit_is_set():
    for cut in (FixedN(N=3), Threshold(threshold=0.5), Boundary(t=0.5)):
        assert copy.copy(fitted("Popularity")).set_cutoff(cut).cutoff_ is cut
    cut = Boundary()  # uses the boundaries that the model learned
    one = copy.copy(fitted("DKBPRMF")).set_cutoff(cut)
    assert one.recommend(N=5).boundary is not None


@every_model
def test_copies_keep_parameters_and_fit(name):
    one = fit(name, checkerboard())
    for copied in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied.get_params().keys() == one.get_params().keys()
        assert copied.is_fitted
        copied.set_params()
        assert one.is_fitted


@every_model
def test_failed_fit_keeps_the_earlier_state(name):
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
    assert type(back) is type(one)
    assert (dense(back) == dense(one)).all()
    assert bits(back) == bits(one)
    assert back.users_ == one.users_
    assert back.items_ == one.items_
    assert back.items_.values.dtype == one.items_.values.dtype
    assert back.history_.fingerprint == data.fingerprint
    assert (back.history_.item_names is None) == (ids != "names")
    assert ids != "names" or back.history_.item_names.to_list() == data.item_names.to_list()
    if name != "PrecomputedScores":
        assert back.get_params() == one.get_params()
    mine, theirs = (each.score(each.build_request()) for each in (one, back))
    for part in ("boundaries", "log_odds_shift", "expected_sizes"):
        a, b = getattr(mine, part), getattr(theirs, part)
        assert (a is None and b is None) or (a == b).all()


@every_model
def test_loading_as_another_class_is_rejected(name, tmp_path):
    fitted(name).save(tmp_path / "model")
    own = type(fitted(name))
    assert type(own.load(tmp_path / "model")) is own
    assert type(Recommender.load(tmp_path / "model")) is own
    other = type(model("Popularity" if name != "Popularity" else "BPRMF"))
    with pytest.raises(ModelFileError, match=f"holds a {name}, not a {other.__name__}"):
        other.load(tmp_path / "model")


@pytest.mark.parametrize("name", [*JOINT, *COUNTING, *CLOSED])
def test_loaded_model_can_be_updated(name, tmp_path):
    """observe gives the same on a loaded model."""
    one = fit(name, checkerboard())
    one.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    more = [("u00", "i04", 900), ("u00", "i06", 901), ("zed", "i02", 902)]
    for each in (one, back):
        each.observe(more)
    assert bits(one) == bits(back)
    assert one.users_.values.to_list() == back.users_.values.to_list()


# ------------------------------------------------------------------ lists
@dense_model
def test_lists_are_the_best_of_the_scores(name):
    data = checkerboard()
    one = fit(name, data, boundary="learned") if name in CALIBRATED else fitted(name)
    users = data.users.values.to_list()[:4]
    lists = one.recommend(users, N=3, filter_seen=False)
    scores = dense(one, range(4))
    for row, user_id in enumerate(users):
        wanted = np.sort(scores[row])[::-1][:3]
        np.testing.assert_allclose(lists[user_id].scores, wanted, rtol=1e-5, atol=1e-6)


@every_model
def test_unknown_user_gets_an_empty_list(name):
    lists = fitted(name).recommend(["unknown", "u00"], N=3)
    assert list(lists["unknown"].items) == []
    assert lists["unknown"].reason == "unknown_user"
    assert len(lists["u00"].items) == 3


@dense_model
def test_user_with_all_items_gets_an_empty_list(name):
    data = Interactions.from_tuples(EDGE_CASES["user with all items"])
    lists = fit(name, data).recommend(["a"], N=5, filter_seen=True)
    assert list(lists["a"].items) == []


def test_boundaries_decide_the_length():
    one = fit("DKBPRMF", checkerboard(), boundary="learned")
    lists = one.recommend(filter_seen=False)
    assert lists.lengths.tolist() == (dense(one) > one.boundaries()[:, None]).sum(1).tolist()
    assert lists.boundary.tolist() == one.boundaries().tolist()


# ------------------------------------------------------------------ one request path
OPTIONS = {
    "N": {"N": 4},
    "candidates": {"N": 5, "candidates": [f"i{i:02}" for i in range(0, 20, 3)]},
    "candidates per user": {"N": 5, "candidates": {"u00": ["i02", "i05"], "u05": ["i01"]}},
    "at": {"N": 4, "at": 200},
    "cutoff": {"cutoff": FixedN(N=3), "exclude": ["i00"]},
}


@every_model
@pytest.mark.parametrize("case", OPTIONS)
def test_memory_file_and_batches_give_identical_lists(name, case, tmp_path, monkeypatch):
    one, users = fitted(name), [f"u{u:02}" for u in range(0, 30, 5)]
    options = OPTIONS[case]
    if case == "at" and not one.answers_past:
        last, end = one.history_.end_time - 1, one.history_.end_time
        for at in (200, np.datetime64(last, "us")):
            with pytest.raises(ConfigError, match=f"^at must be after the last event that {name} knows"):
                one.recommend(users, N=4, at=at)
        options = {"N": 4, "at": np.datetime64(end, "us")}
        assert one.recommend(users, **options).to_frame().equals(one.recommend(users, N=4).to_frame())
    lists = one.recommend(users, **options)
    path = one.recommend_to_file(tmp_path / "lists.parquet", users, **options)
    assert pl.read_parquet(path).equals(lists.to_frame())
    alone = pl.concat([one.recommend([user], **options).to_frame() for user in users])
    exact = lists.to_frame()
    assert alone.drop("score", "probability").equals(exact.drop("score", "probability"))
    np.testing.assert_allclose(alone["score"].to_numpy(), exact["score"].to_numpy(), rtol=2e-6)
    monkeypatch.setattr(type(one), "batch_size", lambda self, state: 2)
    assert (
        one.recommend(users, **options)
        .to_frame()
        .drop("score", "probability")
        .equals(exact.drop("score", "probability"))
    )


@pytest.mark.filterwarnings("ignore:all 30 lists of DKHRM are empty")
@every_model
def test_saved_cutoff_is_the_default(name, tmp_path):
    one = fit(name, checkerboard()).set_cutoff(FixedN(N=2))
    assert set(one.recommend().lengths.tolist()) == {2}
    back = load_model(one.save(tmp_path / "model"))
    assert set(back.recommend().lengths.tolist()) == {2}
    if one.has_boundary:
        free = fitted(name).recommend()
        assert back.recommend(cutoff="boundary").lengths.tolist() == free.lengths.tolist()
    else:
        with pytest.raises(ConfigError, match="learns no boundary"):
            back.recommend(cutoff="boundary")


@pytest.mark.parametrize("cutoff", ["ExpectedF1", FixedN])
def test_set_cutoff_rejects_anything_but_a_cutoff(cutoff):
    with pytest.raises(ConfigError, match=r"cutoff must be None or a fitted cutoff, got .*pass an obj"):
        fitted("Popularity").set_cutoff(cutoff)


# ------------------------------------------------------------------ sessions
@every_model
def test_sessions_store_nothing_and_do_not_depend_on_each_other(name):
    one, items = fitted(name), checkerboard().items.values.to_list()
    before, state = bits(one), one._state
    sessions = {"s": items[0:6:2], "u00": items[1:5:2], "empty": []}
    lists = one.recommend(history=sessions, N=5, filter_seen=True)
    assert lists.users.values.to_list() == ["s", "u00", "empty"]
    assert lists["empty"].reason == "unknown_user"
    assert not set(lists["s"].items) & set(sessions["s"])
    for user in ("s", "u00"):
        alone = one.recommend(history={user: sessions[user]}, N=5, filter_seen=True)[user]
        assert list(alone.items) == list(lists[user].items)
        np.testing.assert_allclose(alone.scores, lists[user].scores, rtol=2e-6)
    assert one._state is state
    assert bits(one) == before


@every_model
def test_unknown_items_of_a_session_are_skipped(name):
    one = fitted(name)
    with pytest.warns(DataWarning, match="1 of 3 items"):
        lists = one.recommend(history={"s": ["i00", "phantom", "i02"]}, N=3)
    same = one.recommend(history={"s": ["i00", "i02"]}, N=3)
    assert list(lists["s"].items) == list(same["s"].items)


@pytest.mark.parametrize("name", ["Popularity", "PersonalFrequency", "EASE", "TwoStage"])
def test_session_equal_to_a_known_history_gives_the_same_list(name):
    """Exact: the same baskets and times as a known user give the list of that user."""
    one, data = fitted(name), checkerboard()
    rows = data.to_frame().filter(pl.col("user_id") == "u04")
    session = rows.with_columns(user_id=pl.lit("guest"))
    lists = one.recommend(history=session, N=6)["guest"]
    known = one.recommend(["u04"], N=6)["u04"]
    assert list(lists.items) == list(known.items)
    np.testing.assert_allclose(lists.scores, known.scores, rtol=1e-6)


@pytest.mark.parametrize("name", [*JOINT, *COUNTING, "EASE"])
def test_session_equals_an_observed_user(name):
    one, items = fit(name, checkerboard()), ["i00", "i02", "i06"]
    session = one.recommend(history={"guest": items}, N=6, filter_seen=True)["guest"]
    one.observe([("guest", item, 900) for item in items])
    observed = one.recommend(["guest"], N=6, filter_seen=True)["guest"]
    if name != "Popularity" and name != "PersonalFrequency":  # they also count the new rows
        assert list(session.items) == list(observed.items)
        np.testing.assert_allclose(session.scores, observed.scores, rtol=1e-5, atol=1e-6)
    assert {int(i[1:]) % 2 for i in session.items[:3]} == {0} or name in COUNTING


# ------------------------------------------------------------------ threads
@every_model
def test_concurrent_calls_lose_nothing(name):
    """Readers beside observe see whole states; no user is lost and no list is wrong."""
    if name == "PrecomputedScores":
        pytest.skip("has no scores for new users")
    one, data = fit(name, checkerboard()), checkerboard()
    items = data.items.values.to_list()
    expected = list(fitted(name).recommend(history={"s": items[:3]}, N=3)["s"].items)
    static = name in ("EASE", *JOINT)  # events of new users do not change other users' lists
    known = {u: list(fitted(name).recommend([u], N=3)[u].items) for u in ("u01", "u02")}

    def read(number):
        for _ in range(10):
            lists = one.recommend(["u01", "u02"], N=3)
            session = one.recommend(history={"s": items[:3]}, N=3)["s"]
            assert lists.lengths.tolist() == [3, 3]
            assert not static or {u: list(lists[u].items) for u in known} == known
            assert not static or list(session.items) == expected
        return 0

    def write(number):
        for call in range(3):
            one.observe([(f"new{number}-{call}", item, 900) for item in items[number : number + 3]])
        return 3

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(read if n % 2 else write, n) for n in range(8)]
        added = sum(job.result() for job in jobs)
    assert one.history_.n_users == data.n_users + added == data.n_users + 12


@every_model
def test_models_can_be_copied_and_pickled(name):
    one = fitted(name)
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other.recommend(["u03"], N=4)["u03"].items == one.recommend(["u03"], N=4)["u03"].items


@every_model
def test_repr_is_short_and_shows_changed_parameters(name):
    assert repr(fitted(name)).startswith(f"{name}(")
    assert "\n" not in repr(fitted(name))
    assert len(repr(fitted(name))) < 200
    assert repr(BPRMF(n_factors=8, seed=3)) == "BPRMF(n_factors=8, seed=3)"
