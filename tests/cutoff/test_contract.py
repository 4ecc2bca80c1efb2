"""The contract of every cutoff: one suite over all of them."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from shortlist_extras import FrozenBoundary, PerK

from shortlist.cutoff import (
    Budget,
    Calibration,
    Cutoff,
    ExpectedF1,
    ExpectedNDCG,
    ExpectedValue,
    FixedN,
    Guarantee,
    PromptCutoff,
    Threshold,
    UtilityRegression,
    top_candidates,
)
from shortlist.data.ids import IdMap
from shortlist.data.interactions import Interactions
from shortlist.data.lists import REASON_CODE, REASONS, RankedLists
from shortlist.errors import ConfigError, DataError, InfeasibleError, ModelFileError, NotFittedError

CUTOFFS = {
    "fixed": FixedN(),
    "fixed-3": FixedN(N=3),
    "threshold": Threshold(),
    "threshold-ndcg": Threshold(target="ndcg"),
    "threshold-probability": Threshold(on="probability", calibration="isotonic"),
    "threshold-coverage": Threshold(coverage=0.6),
    "boundary": FrozenBoundary(),
    "boundary-weights": FrozenBoundary(lambda_t=0.5, negatives=2),
    "f1": ExpectedF1(),
    "f1-platt": ExpectedF1(calibration="platt", size="probabilities", floor=0.1),
    "f1-isotonic": ExpectedF1(calibration="isotonic", size="both"),
    "ndcg": ExpectedNDCG(calibration="features", size="history", coverage=0.5),
    "perk": PerK(),
    "perk-ndcg": PerK(target="ndcg", prior=0.3),
    "regression": UtilityRegression(),
    "regression-ndcg": UtilityRegression(target="ndcg_paper"),
    "prompt": PromptCutoff(),
    "prompt-f1": PromptCutoff(cutoff=ExpectedF1(calibration="platt")),
    "value": ExpectedValue(calibration="platt"),
    "budget": Budget(items_per_list=1.5, calibration="platt"),
    "budget-money": Budget(items_per_list=0.7, gain=3.0, cost=0.2, calibration="isotonic"),
    "guarantee": Guarantee(min_precision=0.2, confidence=0.6, fallback="empty"),
    "guarantee-users": Guarantee(min_precision=0.5, over="users", fallback="empty", confidence=0.6),
    "guarantee-probability": Guarantee(
        min_precision=0.1, on="probability", calibration="platt", fallback="empty"
    ),
    "guarantee-empty": Guarantee(max_empty=0.9, confidence=0.5),
    "guarantee-recall": Guarantee(min_recall=0.2, confidence=0.5),
}
# (loose, strict): the strict one never shows more items
STRICTER = {
    "fixed": (FixedN(N=4), FixedN(N=2)),
    "threshold": (Threshold(threshold=0.0), Threshold(threshold=0.5)),
    "threshold-coverage": (Threshold(coverage=0.9), Threshold(coverage=0.4)),
    "boundary": (FrozenBoundary(t=0.0, negatives=2), FrozenBoundary(t=0.7, negatives=2)),
    "f1-floor": (ExpectedF1(calibration="platt", floor=0.1), ExpectedF1(calibration="platt", floor=0.4)),
    "f1-coverage": (
        ExpectedF1(calibration="platt", coverage=0.8),
        ExpectedF1(calibration="platt", coverage=0.3),
    ),
    "ndcg-floor": (ExpectedNDCG(calibration="platt"), ExpectedNDCG(calibration="platt", floor=0.5)),
    "budget": (
        Budget(items_per_list=2.0, calibration="platt"),
        Budget(items_per_list=1.0, calibration="platt"),
    ),
    "value": (ExpectedValue(calibration="platt", cost=0.1), ExpectedValue(calibration="platt", cost=0.6)),
    "guarantee": tuple(
        Guarantee(min_precision=level, confidence=0.6, fallback="empty") for level in (0.1, 0.5)
    ),
    "guarantee-users": tuple(
        Guarantee(min_precision=level, over="users", confidence=0.6, fallback="empty") for level in (0.1, 0.5)
    ),
    "guarantee-confidence": tuple(
        Guarantee(min_precision=0.4, confidence=level, fallback="empty") for level in (0.5, 0.99)
    ),
}
FEW = settings(max_examples=15)
N_ITEMS = 7
score = st.one_of(st.floats(-2, 2, width=32), st.sampled_from([-np.inf, np.inf, np.nan, 0.0, 0.5, 1.0]))


@st.composite
def worlds(draw):
    """(candidates, truth, history) of a few users; at least one user with truth has candidates."""
    n_users = draw(st.integers(1, 7))
    cells = st.lists(st.lists(score, min_size=N_ITEMS, max_size=N_ITEMS), min_size=n_users, max_size=n_users)
    scores = np.array(draw(cells), np.float32)
    users, items = [f"u{u}" for u in range(n_users)], [10 * i for i in range(N_ITEMS)]
    pair = st.tuples(st.sampled_from(users), st.sampled_from(items))
    bought = draw(st.lists(pair, min_size=1, max_size=12))
    earlier = draw(
        st.lists(st.tuples(st.sampled_from(users), st.sampled_from(items), st.integers(0, 3)), min_size=1)
    )
    truth, history = Interactions.from_tuples(bought), Interactions.from_tuples(earlier)
    lists = top_candidates(scores, ids=(IdMap.of(users), IdMap.of(items)))
    ready = {user for user, length in zip(users, lists.lengths, strict=True) if length}
    assume(ready & {user for user, _ in bought})
    return lists, truth, history


def fitted(cutoff, world):
    """A fitted copy; an infeasible guarantee ends the example."""
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
def test_lists_are_prefixes_with_a_reason(name, world):
    lists, _, history = world
    cut = fitted(CUTOFFS[name], world)
    lengths, shown = cut.lengths(lists, history=history), cut.apply(lists, history=history)
    assert (lengths == shown.lengths).all()
    assert ((lengths >= 0) & (lengths <= lists.lengths)).all()
    ranked = cut.with_probabilities(lists, history=history)
    for number in range(len(lists)):
        full, cut_list = ranked.at(number), shown.at(number)
        if cut.reorders:
            assert (np.diff(cut_list.probabilities) <= 0).all()
        else:
            assert full.items == lists.at(number).items
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
def test_stricter_shows_fewer_items_to_some_users(name):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 30)).astype(np.float32)
    truth = Interactions.from_csr(rng.random(scores.shape) < 1 / (1 + np.exp(3 - 2 * scores)))
    loose, strict = (cutoff.clone().fit(scores, truth).lengths(scores) for cutoff in STRICTER[name])
    assert strict.sum() < loose.sum()


def plain_world():
    """Thirty users and forty items; relevance grows with the score."""
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(30, 40)).astype(np.float32)
    bought = rng.random(scores.shape) < 1 / (1 + np.exp(2 - 2 * scores))
    bought[:, 0] = True
    truth = Interactions.from_csr(bought)
    return top_candidates(scores, ids=truth), truth, Interactions.from_csr(rng.random(scores.shape) < 0.2)


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
def test_no_users_give_no_lists(name):
    world = plain_world()
    empty = world[0].take([])
    shown = fitted(CUTOFFS[name], world).apply(empty, history=world[2])
    assert len(shown) == 0
    assert shown.items.size == 0


@pytest.mark.parametrize("name", CUTOFFS)
def test_users_without_candidates_get_an_empty_list_and_the_reason(name):
    lists, truth, history = plain_world()
    bare = lists.head(np.where(np.arange(len(lists)) % 3, 100, 0))
    shown = fitted(CUTOFFS[name], (bare, truth, history)).apply(bare, history=history)
    assert [shown.at(n).reason for n in (0, 3)] == ["no_candidates"] * 2
    assert shown.lengths[1] > 0 or shown.at(1).reason != "no_candidates"


@pytest.mark.filterwarnings("ignore:100% of the rows of truth are also in the data")
@pytest.mark.parametrize("name", CUTOFFS)
def test_equal_scores_and_histories_give_equal_lengths(name):
    lists, truth, _ = plain_world()
    level = replace(lists, scores=np.full_like(lists.scores, 0.25), boundary=None)
    shared = Interactions.from_csr(np.ones((30, 40)))  # the same history for all users
    cut = fitted(CUTOFFS[name], (level, truth, shared))
    if "boundary" in name:  # boundaries differ between users
        assert set(cut.lengths(level, history=shared)) <= {0, 40}
    else:
        assert np.unique(cut.lengths(level, history=shared)).size == 1


@pytest.mark.filterwarnings("ignore:100% of the rows of truth are also in the data")
@pytest.mark.parametrize("name", CUTOFFS)
def test_one_item(name):
    users, items = IdMap.of(range(40)), IdMap.of(["only"])
    one = RankedLists(
        users, items, np.arange(41), np.zeros(40, np.int32), np.linspace(3, -3, 40, dtype=np.float32)
    )
    truth = Interactions.from_tuples([(u, "only" if u < 20 else "other") for u in range(40)])
    assert set(fitted(CUTOFFS[name], (one, truth, truth)).lengths(one, history=truth)) <= {0, 1}


@pytest.mark.parametrize("name", CUTOFFS)
def test_loaded_cutoff_gives_the_same_lists(name, tmp_path):
    world = plain_world()
    cut = fitted(CUTOFFS[name], world)
    cut.save(tmp_path / "cut")
    again = Cutoff.load(tmp_path / "cut")
    assert type(again) is type(cut)
    assert repr(again.get_params()) == repr(cut.get_params())  # a parameter may be a cutoff
    new = world[0].take(np.arange(0, 30, 2))
    before, after = cut.apply(new, history=world[2]), again.apply(new, history=world[2])
    assert before.to_frame().equals(after.to_frame())


@pytest.mark.parametrize("name", [name for name in CUTOFFS if name != "fixed-3"])
def test_unfitted_cutoff_raises(name):
    with pytest.raises(NotFittedError, match=r"call fit\(scores, truth\)"):
        CUTOFFS[name].clone().lengths(plain_world()[0])


@pytest.mark.parametrize("name", CUTOFFS)
def test_parameters_work_as_in_scikit_learn(name):
    cut = fitted(CUTOFFS[name], plain_world())
    assert cut.clone().get_params() == cut.get_params()
    assert cut.clone().fitted() == {}
    assert cut.set_params(n_candidates=7).n_candidates == 7
    assert cut.fitted() == {}
    with pytest.raises(ConfigError, match="no parameter 'n_items'"):
        cut.set_params(n_items=3)


def test_failed_fit_leaves_the_cutoff_unchanged():
    lists, truth, _ = plain_world()
    cut = FixedN().fit(lists, truth)
    with pytest.raises(DataError, match="at least one user who has a list"):
        cut.fit(lists, Interactions.from_tuples([(10**6, 10**6)]))
    assert cut.N_ > 0


def test_truth_of_unknown_users_is_refused():
    with pytest.raises(ValueError, match="at least one user who has a list"):
        FixedN().fit(plain_world()[0], Interactions.from_tuples([(10**6, 10**6)]))


def test_file_of_another_class_is_refused(tmp_path):
    FixedN(N=2).save(tmp_path / "cut")
    with pytest.raises(ModelFileError, match="holds a cutoff, not a calibration"):
        Calibration.load(tmp_path / "cut")
    with pytest.raises(ModelFileError, match="holds a FixedN, not a ExpectedValue"):
        ExpectedValue.load(tmp_path / "cut")


@pytest.mark.parametrize("name", CUTOFFS)
@FEW
@given(world=worlds())
def test_naming_users_with_truth_changes_nothing(name, world):
    lists, truth, history = world
    cut, plain = CUTOFFS[name].clone(), fitted(CUTOFFS[name], world)
    cut.fit(lists, truth, history=history, users=truth.users.values)
    assert (cut.lengths(lists, history=history) == plain.lengths(lists, history=history)).all()


@FEW
@given(world=worlds())
def test_named_users_without_truth_count(world):
    """The same as one more truth row per user, of an item that is not a candidate."""
    lists, truth, history = world
    everyone = lists.users.values
    rows = truth.to_frame().select("user_id", "item_id").rows()
    more = Interactions.from_tuples([*rows, *((user, 999) for user in everyone)])
    for name in ("value", "guarantee", "guarantee-users", "guarantee-probability"):
        here, there = CUTOFFS[name].clone(), fitted(CUTOFFS[name], (lists, more, history))
        here.fit(lists, truth, history=history, users=everyone)
        assert (here.lengths(lists, history=history) == there.lengths(lists, history=history)).all()
    here, there = Calibration(method="isotonic"), Calibration(method="isotonic").fit(lists, more)
    here.fit(lists, truth, users=everyone)
    assert (here.probabilities(lists) == there.probabilities(lists)).all()


@pytest.mark.filterwarnings("ignore:100% of the rows of truth are also in the data")
@pytest.mark.parametrize("name", CUTOFFS)
def test_function_scores_named_users_without_truth(name):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(40, 6)).astype(np.float32)
    bought = rng.random(scores.shape) < 1 / (1 + np.exp(-scores))
    bought[10:] = False
    truth = Interactions.from_csr(bought)
    history = Interactions.from_csr(np.ones((40, 6)))
    scored = []

    def score(users):
        scored.extend(users.tolist())
        return scores[users]

    try:
        CUTOFFS[name].clone().fit(score, truth, history=history, users=range(20))
    except InfeasibleError:
        assert name.startswith("guarantee")
    assert sorted(set(scored)) == list(range(20))


@pytest.mark.parametrize("name", CUTOFFS)
def test_repr_shows_parameters_and_what_was_learned(name):
    cut = CUTOFFS[name].clone()
    kind = type(cut).__name__
    assert repr(cut).startswith(f"{kind}(")
    assert "fitted" not in repr(cut)
    assert "<td>no</td>" in cut._repr_html_()
    cut = fitted(cut, plain_world())
    assert " fitted: " in repr(cut)
    assert len(repr(cut)) < 400
    assert "\n" not in repr(cut)
    assert cut._repr_html_().startswith(f"<table><caption>{kind}</caption>")


def test_repr_of_expected_f1_names_calibration_and_size():
    cut = fitted(ExpectedF1(calibration="platt", size="history"), plain_world())
    assert repr(cut) == (
        "ExpectedF1(calibration='platt', size='history') fitted: probabilities calibrated by platt, "
        "number of relevant items from history"
    )
    odd = FixedN()
    vars(odd)["target"] = "<b>" * 30  # assignment would refuse it
    assert repr(odd).endswith("…)")
    assert "<b>" not in odd._repr_html_()


@pytest.mark.parametrize("scores", ["expected_f1", FixedN, FixedN(), None, object()])
def test_scores_of_the_wrong_kind_are_refused(scores):
    with pytest.raises(DataError, match="scores must be") as caught:
        FixedN(N=2).lengths(scores)
    assert len(str(caught.value)) < 300


def test_users_must_be_a_collection():
    lists, truth, _ = plain_world()
    with pytest.raises(DataError, match="users must be a collection of ids, got the text 'u1'"):
        FixedN().fit(lists, truth, users="u1")


@pytest.mark.parametrize("calibration", [Calibration, 3, None])
def test_calibration_must_be_a_name_or_an_instance(calibration):
    lists, truth, _ = plain_world()
    with pytest.raises(ConfigError, match=r"calibration must be one of platt, .* or a Calibration"):
        ExpectedF1(calibration=calibration).fit(lists, truth)


@pytest.mark.parametrize(
    ("cut", "name", "value", "message"),
    [
        (FixedN(), "N", "3", "N must be a whole number of at least 0, got '3'"),
        (FixedN(), "N", -1, "N must be a whole number of at least 0, got -1"),
        pytest.param(FixedN(), "N", 10**5000, "got int with too many digits", id="digits"),
        (FixedN(), "n_candidates", 2.5, "n_candidates must be a whole number"),
        (FixedN(), "target", np.array(["f1", "f1"]), "target must be one of f1, ndcg"),
        (Threshold(), "threshold", "high", "threshold must be a number"),
        (Threshold(), "coverage", "half", "coverage must be a number between 0 and 1, got 'half'"),
        (Threshold(), "calibration", "magic", "calibration must be one of"),
        (ExpectedF1(), "floor", "high", "floor must be a number"),
        (ExpectedF1(), "floor", 10**400, "floor must be a number"),
        (ExpectedF1(), "size", "huge", "size must be one of"),
        (ExpectedValue(), "gain", "1", "gain must be a number"),
        (Guarantee(min_precision=0.1), "fallback", pl.Series([None]), "fallback must be 'empty'"),
        (Guarantee(min_precision=0.1), "fallback", np.array(["empty", "x"]), "fallback must be 'empty'"),
        (FrozenBoundary(), "scale", 0, "scale must be a number"),
        (FrozenBoundary(), "negatives", "all", "negatives must be a number above 0 or 'uniform'"),
        (Guarantee(min_precision=0.5), "min_precision", "0.5", "min_precision must be a number"),
        (
            Guarantee(min_precision=0.5),
            "max_empty",
            0.5,
            "exactly one of min_precision, max_empty, min_recall",
        ),
        (Guarantee(max_empty=0.5), "fallback", "empty", "fallback must be None, or 'empty' with"),
        (Calibration(), "method", "magic", "method must be one of"),
        (Calibration(), "seed", -1, "seed must be a whole number"),
    ],
)
def test_invalid_parameter_is_refused_wherever_it_is_set(cut, name, value, message):
    before = cut.get_params()
    with pytest.raises(ConfigError, match=message) as constructed:
        type(cut)(**before | {name: value})
    for change in (lambda: setattr(cut, name, value), lambda: cut.set_params(**{name: value})):
        with pytest.raises(ConfigError) as caught:
            change()
        assert str(caught.value) == str(constructed.value)
        assert cut.get_params() == before


def test_parameters_that_depend_on_each_other_are_set_together():
    cut = Guarantee(min_precision=0.5, fallback="empty")
    with pytest.raises(ConfigError, match="exactly one"):
        cut.set_params(max_empty=0.1, confidence=0.5)
    assert (cut.max_empty, cut.confidence) == (None, 0.95)
    cut.set_params(min_precision=None, max_empty=0.1, fallback=None)
    assert (cut.min_precision, cut.max_empty) == (None, 0.1)


def test_assigned_parameter_makes_the_cutoff_unfitted():
    lists, truth, _ = plain_world()
    cut = FixedN().fit(lists, truth)
    with pytest.raises(ConfigError, match="target must be one of"):
        cut.target = "recall"
    assert cut.N_ > 0
    cut.target = "ndcg"
    assert cut.fitted() == {}
    assert cut.get_params()["target"] == "ndcg"


@pytest.mark.parametrize("name", CUTOFFS)
@FEW
@given(world=worlds())
def test_a_list_of_all_candidates_does_not_claim_that_the_next_one_is_worse(name, world):
    lists, _, history = world
    shown = fitted(CUTOFFS[name], world).apply(lists, history=history)
    whole = (shown.lengths == lists.lengths) & (shown.lengths > 0)
    named = np.isin(shown.reason, [REASON_CODE["all_candidates"], REASON_CODE["top_n"]])
    assert named[whole].all()
    assert not (shown.reason == REASON_CODE["all_candidates"])[~whole].any()


def test_classes_are_found_by_name():
    own = {
        "Boundary",
        "ExpectedF1",
        "ExpectedNDCG",
        "ExpectedValue",
        "FixedN",
        "Guarantee",
        "Threshold",
    }
    classes = Cutoff.classes()
    assert own <= classes.keys()
    assert not {"Cutoff", "CalibratedCutoff", "ExpectedUtility"} & classes.keys()
    for name in own:
        assert classes[name].rule.endswith(".")
        cutoff = classes[name](**classes[name].warmup_params)
        assert set(classes[name].flags) <= cutoff.get_params().keys()


def test_cutoffs_of_other_libraries_are_found():
    class Shortest(FixedN):
        """Not part of this library."""

    try:
        assert Cutoff.classes()["Shortest"] is Shortest
        assert Cutoff.classes()["FixedN"] is FixedN
    finally:
        del Cutoff.registry["Shortest"]


@pytest.mark.parametrize("name", [name for name in CUTOFFS if not name.startswith("boundary")])
def test_prepared_cutoff_shows_what_apply_shows(name):
    lists, truth, _ = plain_world()
    cut = CUTOFFS[name].clone()
    try:
        cut.fit(lists, truth)
    except InfeasibleError:
        pytest.skip("no level can be guaranteed on a few users")
    show = cut.prepare()
    if isinstance(cut, PerK):  # it has calibrations of its users; a list without a user gets the common one
        lists = replace(lists, users=IdMap.of([f"new {k}" for k in range(len(lists))]))
    expected, rng = cut.apply(lists), np.random.default_rng(0)
    for number in range(len(lists)):
        scores = lists.scores[lists.indptr[number] : lists.indptr[number + 1]]
        items = lists.item_ids.to_ids(lists.items[lists.indptr[number] : lists.indptr[number + 1]])
        order = rng.permutation(scores.size)
        assert items.gather(order[show(scores[order])]).to_list() == expected.at(number).items
    assert show([]).size == 0
    assert show([np.nan, -np.inf]).size == 0


def test_cutoff_that_needs_more_than_scores_is_not_prepared():
    lists, truth, history = plain_world()
    with pytest.raises(DataError, match="history"):
        ExpectedF1(calibration="features").fit(lists, truth, history=history).prepare()
    with pytest.raises(DataError, match="probabilities"):
        ExpectedValue(calibration="none").prepare()
    with pytest.raises(NotFittedError):
        FixedN().prepare()
