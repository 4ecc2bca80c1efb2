"""Hybrid factors: the steps of features are those of the chain rule; new items have scores and boundaries."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from shortlist.data.interactions import Interactions
from shortlist.data.items import Items
from shortlist.errors import ConfigError
from shortlist.kernels.sgd import Parameters
from shortlist.models.als import ALS
from shortlist.models.base import load_model
from shortlist.models.factorization.hrm import DKHRM, HRM
from shortlist.models.factorization.mf import BPRMF, DKBPRMF
from shortlist.models.factorization.parameters import ItemFeatures, SharedSteps
from shortlist.split import last_basket
from tests.models.cases import FACTORS

PLAIN = {"n_factors": FACTORS, "n_epochs": 25, "lr": 0.1, "reg": 0.001, "n_threads": 1, "tol": 0.0}
SGD_MODELS = [BPRMF, DKBPRMF, HRM, DKHRM]
MODELS = [*SGD_MODELS, ALS]
KINDS = ["tea", "soap", "rope"]


def table(n=60, prefix="i"):
    return pl.DataFrame({"item_id": [f"{prefix}{i:02}" for i in range(n)], "kind": KINDS * (n // 3)})


@cache
def shop():
    """User u takes items of kind u % 3 in three baskets; i45 … i59 are never taken."""
    rng = np.random.default_rng(1)
    rows = [
        (f"u{user:02}", f"i{3 * item + user % 3:02}", 10 * basket)
        for user in range(45)
        for basket in range(3)
        for item in rng.choice(15, 2, replace=False)
    ]
    return Interactions.from_tuples(rows)


@cache
def fitted(kind):
    return build(kind).fit(shop(), items=table())


def build(kind, **changed):
    return ALS(n_factors=FACTORS) if kind is ALS else kind(**PLAIN | changed)


def features(n_items=6):
    items = Items.from_frame(table(n_items).with_columns(word=pl.lit("a b") + pl.col("kind")), text=["word"])
    found = ItemFeatures.of(items, items.ids, 4, True)
    return found, np.random.default_rng(0)


def bpr_loss(item, bias, user, triples):
    scores = user @ item.T + bias
    return sum(np.logaddexp(0, scores[u, j] - scores[u, i]) for u, i, j in triples)


def numeric_gradient(function, at):
    """Central differences."""
    found, flat = np.zeros(at.size), at.reshape(-1)
    for k in range(at.size):
        up, down = flat.copy(), flat.copy()
        up[k] += 1e-5
        down[k] -= 1e-5
        found[k] = (function(up.reshape(at.shape)) - function(down.reshape(at.shape))) / 2e-5
    return found.reshape(at.shape)


def test_shared_steps_are_gradient_steps():
    """After steps of -lr ∂L/∂v on the items, features move by -lr ∂L/∂w of v = q + X w."""
    content, rng = features()
    user, own = rng.normal(size=(3, 4)), rng.normal(size=(6, 4))
    triples = [(0, 1, 2), (0, 3, 5), (1, 4, 0), (2, 2, 1)]
    x, lr = content.matrix.toarray().astype(float), 1e-2
    w, c = rng.normal(size=content.vectors.shape), rng.normal(size=content.biases.shape)
    item, bias = own + x @ w, x @ c
    by_item = numeric_gradient(lambda v: bpr_loss(v, bias, user, triples), item)
    by_bias = numeric_gradient(lambda b: bpr_loss(item, b, user, triples), bias)
    by_feature = numeric_gradient(lambda f: bpr_loss(own + x @ f, bias, user, triples), w)
    by_feature_bias = numeric_gradient(lambda f: bpr_loss(item, x @ f, user, triples), c)

    steps = SharedSteps(content)
    steps.vectors, steps.biases = w.astype("f4"), c.astype("f4")
    label = rng.permutation(6).astype(np.int32)  # position of each item
    order = np.argsort(label)
    empty = np.empty(0, np.float32)
    theta = Parameters(
        user.astype("f4"), np.zeros(3, "f4"), item[order].astype("f4"), bias[order].astype("f4"), *[empty] * 4
    )
    steps.begin_epoch(theta, label)
    theta.item[:] -= (lr * by_item[order]).astype("f4")
    theta.bias[:] -= (lr * by_bias[order]).astype("f4")
    steps.share(theta)
    assert steps.vectors == pytest.approx(w - lr * by_feature, abs=1e-5)
    assert steps.biases == pytest.approx(c - lr * by_feature_bias, abs=1e-5)
    moved = own - lr * by_item + x @ (w - lr * by_feature)
    assert theta.item[label] == pytest.approx(moved, abs=1e-5)
    steps.undo_epoch()
    assert steps.vectors == pytest.approx(w, abs=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_items_without_interactions_rank_by_their_content(kind):
    model = fitted(kind)
    new = [f"i{i:02}" for i in range(45, 60)]
    lists = model.recommend(candidates=new, N=5)
    right = np.mean([int(item[1:]) % 3 == int(one.user_id[1:]) % 3 for one in lists for item in one.items])
    assert right > 0.9


@pytest.mark.parametrize("kind", [DKBPRMF, DKHRM])
def test_new_items_have_boundaries_and_probabilities(kind):
    model = kind(**PLAIN).fit(shop(), items=table())
    model.add_items(table(3, "n"))
    lists = model.recommend(["u00", "u01"], candidates=["n00", "n01", "n02"], N=3)
    assert lists["u00"].items[0] == "n00"
    assert lists["u01"].items[0] == "n01"
    first = lists.probabilities.reshape(2, 3)
    assert (first[:, 0] > 2 * first[:, 1]).all()
    assert lists.boundary is not None
    cut = model.recommend(["u00", "u01"], candidates=["n00", "n01", "n02"], cutoff="boundary")
    assert cut["u00"].items in (["n00"], [])


@pytest.mark.parametrize("kind", MODELS)
def test_added_items_are_saved(kind, tmp_path):
    model = build(kind, n_epochs=3).fit(shop(), items=table())
    before = model.recommend(N=10).to_frame()
    model.add_items(table(3, "n"))
    known = [f"i{i:02}" for i in range(60)]
    assert model.recommend(candidates=known, N=10).to_frame().equals(before)
    again = load_model(model.save(tmp_path / "m"))
    assert again.recommend(N=70).to_frame().equals(model.recommend(N=70).to_frame())
    same = again.add_items(table(6, "m").tail(3))
    assert same.recommend(["u00"], N=1, candidates=["m03", "m04"])["u00"].items


def test_content_of_known_items_can_change():
    model = BPRMF(**PLAIN).fit(shop(), items=table())
    as_tea = model.recommend(["u00"], candidates=["i48"], N=1)["u00"].scores[0]
    model.add_items(pl.DataFrame({"item_id": ["i48"], "kind": ["soap"]}))
    as_soap = model.recommend(["u00"], candidates=["i48"], N=1)["u00"].scores[0]
    assert as_soap < as_tea
    model.add_items(pl.DataFrame({"item_id": ["i48"], "kind": ["tea"]}))
    assert model.recommend(["u00"], candidates=["i48"], N=1)["u00"].scores[0] == pytest.approx(
        as_tea, rel=1e-4
    )


def test_threads_do_not_change_the_model():
    more = DKBPRMF(**PLAIN | {"n_threads": 3}).fit(shop(), items=table())
    assert more.recommend(N=9).to_frame().equals(fitted(DKBPRMF).recommend(N=9).to_frame())


def test_early_stopping_keeps_the_features_of_the_best_epoch():
    parts = last_basket(shop())
    model = BPRMF(**PLAIN | {"patience": 2}).fit(parts.train, items=table(), valid=parts.test)
    assert model.n_epochs_ < PLAIN["n_epochs"]
    best = BPRMF(**PLAIN | {"n_epochs": model.n_epochs_}).fit(parts.train, items=table())
    assert np.array_equal(model._state.features.vectors, best._state.features.vectors)


def test_more_data_keeps_the_content():
    model = BPRMF(**PLAIN).fit(shop(), items=table())
    model.partial_fit(Interactions.from_tuples([("new", "i00", 90), ("new", "i03", 90), ("new", "x", 90)]))
    lists = model.recommend(["new"], candidates=["i45", "i46", "i47"], N=1)
    assert lists["new"].items == ["i45"]


def test_options_that_do_not_go_with_items(tmp_path):
    with pytest.raises(ConfigError, match="checkpoint must be None with items"):
        BPRMF(**PLAIN).fit(shop(), items=table(), checkpoint=tmp_path / "c")
    with pytest.raises(ConfigError, match="needs a model fitted with the content"):
        BPRMF(**PLAIN | {"n_epochs": 1}).fit(shop()).add_items(table())
