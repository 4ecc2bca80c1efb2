"""What every cutoff must do, whatever the scores: one suite over all of them."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from shortlist.cutoff import (
    Boundary,
    Calibration,
    Cutoff,
    ExpectedF1,
    ExpectedNDCG,
    ExpectedValue,
    FixedN,
    Guarantee,
    Threshold,
    heads,
)
from shortlist.data.id_map import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.ranked_lists import REASONS, RankedLists
from shortlist.errors import ConfigError, DataError, InfeasibleError, ModelFileError, NotFittedError

CUTOFFS = {
    "fixed": FixedN(),
    "fixed-3": FixedN(N=3),
    "threshold": Threshold(),
    "threshold-ndcg": Threshold(target="ndcg"),
    "threshold-probability": Threshold(on="probability", calibration="isotonic"),
    "threshold-coverage": Threshold(coverage=0.6),
    "boundary": Boundary(),
    "boundary-hinge": Boundary(loss="hinge", penalty="l1", lambda_t=0.5, negatives=2),
    "f1": ExpectedF1(),
    "f1-platt": ExpectedF1(calibration="platt", size="probabilities", floor=0.1),
    "f1-normal": ExpectedF1(calibration="isotonic", size="both", method="normal"),
    "ndcg": ExpectedNDCG(calibration="features", size="history", coverage=0.5),
    "value": ExpectedValue(calibration="platt"),
    "guarantee": Guarantee(min_precision=0.2, confidence=0.6, fallback="empty"),
    "guarantee-users": Guarantee(min_precision=0.5, over="users", fallback="empty", confidence=0.6),
    "guarantee-items": Guarantee(
        min_precision=0.1, over="items", on="probability", calibration="platt", fallback="empty"
    ),
    "guarantee-empty": Guarantee(max_empty=0.9, confidence=0.5),
}
# (loose, strict): the strict one never shows more
STRICTER = {
    "fixed": (FixedN(N=4), FixedN(N=2)),
    "threshold": (Threshold(threshold=0.0), Threshold(threshold=0.5)),
    "threshold-coverage": (Threshold(coverage=0.9), Threshold(coverage=0.4)),
    "boundary": (Boundary(t=0.0, negatives=2), Boundary(t=0.7, negatives=2)),
    "boundary-l1": (Boundary(t=0.0, penalty="l1"), Boundary(t=0.7, penalty="l1")),
    "f1-floor": (ExpectedF1(calibration="platt", floor=0.1), ExpectedF1(calibration="platt", floor=0.4)),
    "f1-coverage": (
        ExpectedF1(calibration="platt", coverage=0.8),
        ExpectedF1(calibration="platt", coverage=0.3),
    ),
    "ndcg-floor": (ExpectedNDCG(calibration="platt"), ExpectedNDCG(calibration="platt", floor=0.5)),
    "value": (ExpectedValue(calibration="platt", cost=0.1), ExpectedValue(calibration="platt", cost=0.6)),
    "guarantee": tuple(
        Guarantee(min_precision=level, confidence=0.6, fallback="empty") for level in (0.1, 0.5)
    ),
    "guarantee-users": tuple(
        Guarantee(min_precision=level, over="users", confidence=0.6, fallback="empty") for level in (0.1, 0.5)
    ),
    "guarantee-items": tuple(
        Guarantee(min_precision=level, over="items", n_candidates=5, confidence=0.6, fallback="empty")
        for level in (0.1, 0.5)
    ),
    "guarantee-confidence": tuple(
        Guarantee(min_precision=0.2, confidence=level, fallback="empty") for level in (0.5, 0.9)
    ),
}
FEW = settings(max_examples=15)
N_ITEMS = 7
score = st.one_of(st.floats(-2, 2, width=32), st.sampled_from([-np.inf, np.inf, np.nan, 0.0, 0.5, 1.0]))


@st.composite
def worlds(draw):
    """(heads, truth, history) of a few users; somebody with truth has candidates."""
    n_users = draw(st.integers(1, 7))
    cells = st.lists(st.lists(score, min_size=N_ITEMS, max_size=N_ITEMS), min_size=n_users, max_size=n_users)
    scores = np.array(draw(cells), np.float32)
    users, items = [f"u{u}" for u in range(n_users)], [10 * i for i in range(N_ITEMS)]
    pair = st.tuples(st.sampled_from(users), st.sampled_from(items))
    taken = draw(st.lists(pair, min_size=1, max_size=12))
    past = draw(
        st.lists(st.tuples(st.sampled_from(users), st.sampled_from(items), st.integers(0, 3)), min_size=1)
    )
    truth, history = Interactions.from_tuples(taken), Interactions.from_tuples(past)
    lists = heads(scores, ids=(IdMap.of(users), IdMap.of(items)))
    ready = {user for user, length in zip(users, lists.lengths, strict=True) if length}
    assume(ready & {user for user, _ in taken})
    return lists, truth, history


def fitted(cutoff, world):
    """A fitted copy; a promise that cannot be kept ends the example."""
    lists, truth, history = world
    try:
        return cutoff.clone().fit(lists, truth, history=history)
    except InfeasibleError:
        reject()


def reordered(lists, rng):
    """The same candidates, shuffled within every list."""
    order = np.concatenate(
        [
            start + rng.permutation(end - start)
            for start, end in zip(lists.indptr, lists.indptr[1:], strict=False)
        ]
    ).astype(int)
    return replace(lists, items=lists.items[order], scores=lists.scores[order])


@pytest.mark.parametrize("name", CUTOFFS)
@FEW
@given(world=worlds())
def test_lists_are_explained_prefixes(name, world):
    lists, _, history = world
    cut = fitted(CUTOFFS[name], world)
    lengths, shown = cut.lengths(lists, history=history), cut.apply(lists, history=history)
    assert (lengths == shown.lengths).all()
    assert ((lengths >= 0) & (lengths <= lists.lengths)).all()
    for number in range(len(lists)):
        full, cut_list = lists.at(number), shown.at(number)
        assert cut_list.items == full.items[: len(cut_list)]
        assert cut_list.reason in REASONS
        assert (cut_list.reason == "no_candidates") == (len(full) == 0)
    if shown.probabilities is not None:
        assert ((shown.probabilities >= 0) & (shown.probabilities <= 1)).all()


@pytest.mark.parametrize("name", CUTOFFS)
@FEW
@given(world=worlds(), seed=st.integers(0, 99))
def test_order_of_users_and_candidates_does_not_matter(name, world, seed):
    lists, truth, history = world
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lists))
    other = reordered(lists.take(order), rng)
    here = fitted(CUTOFFS[name], world).lengths(lists, history=history)
    there = fitted(CUTOFFS[name], (other, truth, history)).lengths(other, history=history)
    assert here[order].tolist() == there.tolist()


@pytest.mark.parametrize("name", STRICTER)
@FEW
@given(world=worlds())
def test_stricter_never_shows_more(name, world):
    loose, strict = (fitted(cutoff, world).lengths(world[0], history=world[2]) for cutoff in STRICTER[name])
    assert (strict <= loose).all()


@pytest.mark.parametrize("name", STRICTER)
def test_stricter_shows_less_somewhere(name):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 30)).astype(np.float32)
    truth = Interactions.from_csr(rng.random(scores.shape) < 1 / (1 + np.exp(3 - 2 * scores)))
    loose, strict = (cutoff.clone().fit(scores, truth).lengths(scores) for cutoff in STRICTER[name])
    assert strict.sum() < loose.sum()


def plain_world():
    """Thirty users, forty items, scores that mean something."""
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(30, 40)).astype(np.float32)
    taken = rng.random(scores.shape) < 1 / (1 + np.exp(2 - 2 * scores))
    taken[:, 0] = True
    truth = Interactions.from_csr(taken)
    return heads(scores, ids=truth), truth, Interactions.from_csr(rng.random(scores.shape) < 0.2)


def test_truth_and_history_may_be_tables():
    lists, truth, history = plain_world()

    def table(data):
        ids = {"user_id": data.users.to_ids(data.user), "item_id": data.items.to_ids(data.item)}
        return pl.DataFrame(ids)

    plain, given_tables = ExpectedF1(size="history"), ExpectedF1(size="history")
    plain.fit(lists, truth, history=history)
    given_tables.fit(lists, table(truth), history=table(history))
    assert (given_tables.lengths(lists, history=history) == plain.lengths(lists, history=history)).all()
    with pytest.raises(DataError, match="user_id"):
        FixedN().fit(lists, pl.DataFrame({"who": ["a"], "what": ["x"]}))


@pytest.mark.parametrize("name", CUTOFFS)
def test_no_users_no_lists(name):
    world = plain_world()
    empty = world[0].take([])
    shown = fitted(CUTOFFS[name], world).apply(empty, history=world[2])
    assert len(shown) == 0
    assert shown.items.size == 0


@pytest.mark.parametrize("name", CUTOFFS)
def test_users_without_candidates_get_nothing_and_are_told(name):
    lists, truth, history = plain_world()
    bare = lists.head(np.where(np.arange(len(lists)) % 3, 100, 0))
    shown = fitted(CUTOFFS[name], (bare, truth, history)).apply(bare, history=history)
    assert [shown.at(n).reason for n in (0, 3)] == ["no_candidates"] * 2
    assert shown.lengths[1] > 0 or shown.at(1).reason != "no_candidates"


@pytest.mark.parametrize("name", CUTOFFS)
def test_all_equal_scores_treat_equals_alike(name):
    lists, truth, _ = plain_world()
    level = replace(lists, scores=np.full_like(lists.scores, 0.25), boundary=None)
    shared = Interactions.from_csr(np.ones((30, 40)))  # one history for everybody
    cut = fitted(CUTOFFS[name], (level, truth, shared))
    if "boundary" in name:  # whose point is that users differ
        assert set(cut.lengths(level, history=shared)) <= {0, 40}
    else:
        assert np.unique(cut.lengths(level, history=shared)).size == 1


@pytest.mark.parametrize("name", CUTOFFS)
def test_one_item(name):
    users, items = IdMap.of(range(40)), IdMap.of(["only"])
    one = RankedLists(
        users, items, np.arange(41), np.zeros(40, np.int32), np.linspace(3, -3, 40, dtype=np.float32)
    )
    truth = Interactions.from_tuples([(u, "only" if u < 20 else "other") for u in range(40)])
    assert set(fitted(CUTOFFS[name], (one, truth, truth)).lengths(one, history=truth)) <= {0, 1}


@pytest.mark.parametrize("name", CUTOFFS)
def test_saved_and_loaded_decides_the_same(name, tmp_path):
    world = plain_world()
    cut = fitted(CUTOFFS[name], world)
    cut.save(tmp_path / "cut")
    again = Cutoff.load(tmp_path / "cut")
    assert type(again) is type(cut)
    assert again.get_params() == cut.get_params()
    new = world[0].take(np.arange(0, 30, 2))
    before, after = cut.apply(new, history=world[2]), again.apply(new, history=world[2])
    assert before.to_frame().equals(after.to_frame())


@pytest.mark.parametrize("name", [name for name in CUTOFFS if name != "fixed-3"])
def test_unfitted_says_so(name):
    with pytest.raises(NotFittedError, match=r"call fit\(scores, truth\)"):
        CUTOFFS[name].clone().lengths(plain_world()[0])


@pytest.mark.parametrize("name", CUTOFFS)
def test_parameters_as_scikit_learn_users_expect(name):
    cut = fitted(CUTOFFS[name], plain_world())
    assert cut.clone().get_params() == cut.get_params()
    assert cut.clone().fitted() == {}
    assert cut.set_params(n_candidates=7).n_candidates == 7
    assert cut.fitted() == {}
    with pytest.raises(ConfigError, match="no parameter 'n_items'"):
        cut.set_params(n_items=3)


def test_a_failed_fit_leaves_what_was_there():
    lists, truth, _ = plain_world()
    cut = FixedN().fit(lists, truth)
    cut.target = "recall"
    with pytest.raises(ConfigError, match="target must be one of f1, ndcg"):
        cut.fit(lists, truth)
    assert cut.N_ > 0


def test_truth_of_strangers_teaches_nothing():
    with pytest.raises(ValueError, match="at least one user who has a list"):
        FixedN().fit(plain_world()[0], Interactions.from_tuples([("nobody", "nothing")]))


def test_a_cutoff_is_not_a_calibration(tmp_path):
    from shortlist.cutoff import Calibration

    FixedN(N=2).save(tmp_path / "cut")
    with pytest.raises(ModelFileError, match="holds a cutoff, not a calibration"):
        Calibration.load(tmp_path / "cut")
    with pytest.raises(ModelFileError, match="holds a FixedN, not a ExpectedValue"):
        ExpectedValue.load(tmp_path / "cut")


@pytest.mark.parametrize("name", CUTOFFS)
@FEW
@given(world=worlds())
def test_asking_those_who_took_something_changes_nothing(name, world):
    lists, truth, history = world
    cut, plain = CUTOFFS[name].clone(), fitted(CUTOFFS[name], world)
    cut.fit(lists, truth, history=history, asked=truth.users.values)
    assert (cut.lengths(lists, history=history) == plain.lengths(lists, history=history)).all()


@FEW
@given(world=worlds())
def test_users_who_took_nothing_teach_when_asked(world):
    """As if everybody had one row more, of an item that is nobody's candidate."""
    lists, truth, history = world
    everybody = lists.users.values
    rows = truth.to_frame().select("user_id", "item_id").rows()
    more = Interactions.from_tuples([*rows, *((user, 999) for user in everybody)])
    for name in ("value", "guarantee", "guarantee-users", "guarantee-items"):
        here, there = CUTOFFS[name].clone(), fitted(CUTOFFS[name], (lists, more, history))
        here.fit(lists, truth, history=history, asked=everybody)
        assert (here.lengths(lists, history=history) == there.lengths(lists, history=history)).all()
    here, there = Calibration(method="isotonic"), Calibration(method="isotonic").fit(lists, more)
    here.fit(lists, truth, asked=everybody)
    assert (here.probabilities(lists) == there.probabilities(lists)).all()


@pytest.mark.parametrize("name", CUTOFFS)
def test_a_function_is_asked_for_those_who_took_nothing(name):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(40, 6)).astype(np.float32)
    taken = rng.random(scores.shape) < 1 / (1 + np.exp(-scores))
    taken[10:] = False
    truth = Interactions.from_csr(taken)
    history = Interactions.from_csr(np.ones((40, 6)))
    seen = []

    def score(users):
        seen.extend(users.tolist())
        return scores[users]

    try:
        CUTOFFS[name].clone().fit(score, truth, history=history, asked=range(20))
    except InfeasibleError:
        assert name.startswith("guarantee")
    assert sorted(set(seen)) == list(range(20))
