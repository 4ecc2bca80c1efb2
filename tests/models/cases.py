"""Data and models shared by the tests; one number of factors, so that kernels compile once."""

from functools import cache

import numpy as np
import polars as pl
from scipy.special import expit
from shortlist_extras import UPCF

from shortlist.core.codec import Contents, write_learned
from shortlist.data.interactions import Interactions
from shortlist.models.als import ALS
from shortlist.models.content import ContentProfile
from shortlist.models.counting import PersonalFrequency, Popularity
from shortlist.models.ease import EASE
from shortlist.models.factorization.hrm import DKHRM, HRM
from shortlist.models.factorization.mf import BPRMF, CRRMF, DKBPRMF, LogMF
from shortlist.models.gfcf import GFCF
from shortlist.models.matrix_blend import MatrixBlend
from shortlist.models.precomputed import PrecomputedScores
from shortlist.models.tifuknn import TIFUKNN
from shortlist.models.two_stage.two_stage import TwoStage

FACTORS = 8
JOINT = {"BPRMF": BPRMF, "LogMF": LogMF, "CRRMF": CRRMF, "HRM": HRM, "DKBPRMF": DKBPRMF, "DKHRM": DKHRM}
COUNTING = {"Popularity": Popularity, "PersonalFrequency": PersonalFrequency}
CLOSED = {  # not trained in epochs
    "TIFUKNN": TIFUKNN,
    "UPCF": UPCF,
    "EASE": EASE,
    "ALS": ALS,
    "GFCF": GFCF,
    "MatrixBlend": MatrixBlend,
}
DENSE_MODELS = [*JOINT, *COUNTING, *CLOSED, "PrecomputedScores"]  # score every item
ALL_MODELS = [*DENSE_MODELS, "TwoStage", "ContentProfile"]
DAY = 86_400_000_000


@cache
def checkerboard():
    """Even users buy even items, odd users odd ones: 30 × 20, four baskets each, never all of their items."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(30):
        own = rng.permutation(np.arange(user % 2, 20, 2))[:8]
        rows += [
            (f"u{user:02}", f"i{i:02}", 10 * user + basket) for basket in range(4) for i in own[basket::4]
        ]
        rows += [(f"u{user:02}", f"i{i:02}", 10 * user + 4) for i in own[:2]]  # some items are bought again
    return Interactions.from_tuples(rows)


@cache
def crowd(n_rows=20_000, n_users=400, n_items=120):
    """Enough rows for several blocks; four groups of users, popular items, five baskets at most."""
    rng = np.random.default_rng(1)
    user = rng.integers(n_users, size=n_rows)
    base = np.minimum(rng.geometric(4 / n_items, n_rows), n_items // 4) - 1
    item = np.where(rng.random(n_rows) < 0.8, base * 4 + user % 4, rng.integers(n_items, size=n_rows))
    when = rng.integers(5, size=n_rows)
    return Interactions.from_tuples(zip(user.tolist(), item.tolist(), when.tolist(), strict=True))


def model(name, **changed):
    """An unfitted model that learns the checkerboard quickly."""
    if name in JOINT:
        plain = {"n_factors": FACTORS, "n_epochs": 60, "lr": 0.1, "reg": 0.001, "tol": 0.0}
        if "HRM" in name or name == "DKBPRMF":
            plain |= {"repeat_decay": None, "trend_half_life": None}
        if name.startswith("DK"):
            plain |= {"negatives": 10.0}
        return JOINT[name](**plain | changed)
    if name in COUNTING or name in CLOSED:
        return {**COUNTING, **CLOSED}[name](**changed)
    if name == "TwoStage":
        return TwoStage(**{"n_rounds": 20, "n_bags": 1, "min_leaf": 5} | changed)
    if name == "ContentProfile":
        return ContentProfile(**{"n_neighbors": 3} | changed)
    return PrecomputedScores(**changed)


def content(name, data):
    """The items that a content model is fitted with, in two halves; nothing for other models."""
    if name != "ContentProfile":
        return {}
    half = pl.Series(["even" if at % 2 == 0 else "odd" for at in range(data.n_items)])
    words = [f"{one} number {at % 7}" for at, one in enumerate(half)]
    table = {"item_id": data.items.values, "words": words, "price": np.arange(data.n_items) / 7}
    return {"items": pl.DataFrame(table)}


def other_scores(data):
    """The scores of another ranker: 1 for items of the user, plus popularity."""
    has_item = data.to_csr().toarray() > 0
    return (has_item + 0.01 * has_item.mean(0)).astype(np.float32)


def fit(name, data, **changed):
    """A fitted model."""
    if name == "PrecomputedScores":
        changed = {"scores": other_scores(data)} | changed
    return model(name, **changed).fit(data, **content(name, data))


@cache
def fitted(name):
    """One fitted model for tests that do not change it."""
    return fit(name, checkerboard())


def dense(one, users=None, **request):
    """(n, n_items) scores of users, given by dense index."""
    ids = one.users_.values if users is None else one.users_.to_ids(np.asarray(users, np.int32))
    return one.score(one.build_request(ids, **request)).dense(len(one.items_))


def all_users(data):
    """All dense users."""
    return np.arange(data.n_users, dtype=np.int32)


def answer(one, users=None):
    """The model's answer for users, given by dense index."""
    ids = one.users_.values if users is None else one.users_.to_ids(np.asarray(users, np.int32))
    return one.score(one.build_request(ids))


def probabilities(one, users=None):
    """(n, n_items) probabilities, or None if scores only rank."""
    found = answer(one, users)
    if found.log_odds_shift is None:
        return None
    return expit(found.dense(len(one.items_)).astype(np.float64) + found.log_odds_shift[:, None])


def bits(one):
    """Everything a model learned, as bytes."""
    contents = Contents({}, {})
    write_learned(one, "", contents)
    arrays = {name: array for name, array in contents.arrays.items() if not name.startswith("history.")}
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}
