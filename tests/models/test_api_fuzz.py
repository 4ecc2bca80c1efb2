"""Random calls of the public API with hostile arguments: a valid result, or one sentence.

Bounded and seeded. SHORTLIST_FUZZ=20 runs twenty times as many calls, SHORTLIST_FUZZ_SEED=3 other ones.
Only a ShortlistError, or a TypeError for a wrong Python type, may be raised; lists are checked item by item.
"""

import datetime as dt
import os
import random
import signal
import warnings
from functools import cache

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import shortlist as sl
from shortlist.errors import ShortlistError
from tests.models.cases import ALL_MODELS, JOINT, checkerboard, fit, model

TIMES = int(os.environ.get("SHORTLIST_FUZZ", "1"))
SEED = int(os.environ.get("SHORTLIST_FUZZ_SEED", "0"))
SECONDS = 60  # a call that takes longer counts as a hang
pytestmark = pytest.mark.fuzz

SCALARS = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2.0, 0.5, -0.5, 1e300, 10**30, float("nan"), float("inf"),
    -float("inf"),
    "", " ", "u00", "i00", "auto", "boundary", "popular", "nobody", "5", "é\u202e", "x" * 300,
    "2024-01-01", "\x00",
    b"u00", 1 + 2j, object(), Ellipsis, NotImplemented, print, len, lambda user: ["i00"], lambda: None, int,
    np.int64(3), np.float32(2), np.float64("nan"), np.bool_(True), np.str_("u01"), np.array("u00"),
    np.array(3),
    np.datetime64("2024-01-01"), np.datetime64("NaT"), np.timedelta64(1, "D"), dt.date(2024, 1, 1),
    dt.time(3),
    dt.datetime(2024, 1, 1), dt.datetime.max, dt.datetime.min, dt.timedelta(1), range(3), slice(3), pl.lit(1),
    sl.BPRMF, sl.cutoff.ExpectedF1, sl, sl.cutoff,
]  # fmt: skip
COLLECTIONS = [
    [], [None], ["u00"], ["u00", "u01"], ["i00", "i02", "i01"], ["u00", "u00"], ["nobody"], ["u00", 3],
    [1, 2], [1.5],
    [True], [b"u00"], [["i00"]], [["i00"], ["i01"]], [[], []], ["i00", ["i01"]], [{}], [{"i00": 1}],
    [float("nan")],
    [10**30], [object()], (), ("u00",), set(), {"u00"}, frozenset(["i00"]), {}, {"u00": ["i00"]}, {"u00": []},
    {"u00": "i00"}, {"u00": None}, {"u00": {"i00": 1}}, {"u00": [["i00"]]}, {"new": ["i00", "i01"]},
    {3: ["i00"]},
    {None: ["i00"]}, {("a",): ["i00"]}, {"new": ["zz"]}, {"new": [None]}, {"a": ["i00"], 3: ["i00"]},
    np.array([]), np.array(["u00", "u01"]), np.array(["i00"]), np.array([1, 2]), np.array([["u00"]]),
    np.array([1.5, np.nan]), np.array([None, "u00"], object), np.zeros((30, 20)), np.zeros((30, 20),
    np.float32),
    np.zeros((2, 2, 2)), np.full((30, 20), np.nan), np.array([True, False]), np.zeros((0, 20)),
    np.zeros((30, 0)),
    csr_array(np.eye(3)), csr_array((30, 20)), csr_array((0, 0)),
    pl.Series(["u00"]), pl.Series([], dtype=pl.String), pl.Series([["i00"]]), pl.Series([1.5]),
    pl.Series([None]),
    pl.DataFrame(), pl.DataFrame({"user_id": ["u00"], "item_id": ["i00"]}),
    pl.DataFrame({"user_id": [1, 2], "item_id": ["i00", "i01"]}), pl.DataFrame({"user_id": [],
    "item_id": []}),
    pl.DataFrame({"user_id": ["u00", None], "item_id": ["i00", "i01"]}),
    pl.DataFrame({"user_id": ["u00"], "item_id": ["i00"], "timestamp": ["never"]}),
    pl.DataFrame({"user_id": ["u00"], "item_id": ["i00"], "rank": [1], "score": [float("nan")]}),
    pl.DataFrame({"user_id": ["u00", "u00"], "item_id": ["i00", "i00"], "rank": [1, 2]}),
    pl.DataFrame({"user_id": [["u00"]], "item_id": [["i00"]]}), pl.DataFrame({"a": [1]}).lazy(),
    [("u00", "i00")], [("u00", "i00", 3)], [("u00", "i00", 3, 1.0)], [("u00",)], [("u00", "i00"), ("u01",)],
    [("u00", "i00", "x")], [("u00", "i00", 3, "w")], [(None, "i00")], [("", "i00")], [(True, False)],
    [("u00", 3)],
    [(1.5, 2.5)], [(1, "i00"), ("u00", "i01")], [(10**30, "i00")], [("u00", "i00", 10**30)], [["u00", "i00"]],
]  # fmt: skip
GOOD = {
    "users": [None, "u00", ["u00", "u03"], ["u01", "nobody"], np.array(["u05", "u02"]),
    pl.Series(["u07"]), []],
    "N": [None, 1, 3, 5, 20, 100],
    "candidates": [None, ["i00", "i03", "i04"], {"u00": ["i01", "i02"]}, np.array(["i05", "i06"])],
    "exclude": [None, ["i00", "i03"], {"u00": ["i01"]}],
    "filter_seen": [None, True, False],
    "min_items": [0, 1, 2],
    "max_items": [None, 1, 4],
    "at": [None, "1970-01-01T00:03:20", 200, np.datetime64("2024-01-01")],
    "fallback": [None, "popular", lambda user: ["i00", "i01"]],
    "n_contributions": [0, 1, 3],
    "history": [None, None, {"new": ["i00", "i01"]}, {"new": []}],
}  # fmt: skip


class Slow(BaseException):
    """A call did not end in time."""


def alarm(*_):
    raise Slow


@cache
def known(name):
    """A fitted model; factor models are trained for a moment."""
    return fit(name, checkerboard(), **({"n_epochs": 3} if name in JOINT else {}))


@cache
def cutoffs():
    """Fitted cutoffs, unfitted ones, and cutoffs that need no fit."""
    split = sl.split.last_basket(checkerboard())
    lists = sl.PersonalFrequency().fit(split.train).recommend(N=20)
    classes = (sl.cutoff.ExpectedF1, sl.cutoff.ExpectedNDCG, sl.cutoff.ExpectedValue, sl.cutoff.Threshold)
    found = [cls(calibration="platt").fit(lists, split.valid) for cls in classes]
    return [
        *found,
        sl.cutoff.Boundary(t=0.5),
        sl.cutoff.FixedN(N=3),
        sl.cutoff.ExpectedF1(),
    ]


class Fuzz:
    """Draws arguments and makes one call at a time."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.counts = {"result": 0, "sentence": 0, "TypeError": 0}
        split = sl.split.last_basket(checkerboard())
        lists = sl.PersonalFrequency().fit(split.train).recommend(N=10)
        self.objects = [checkerboard(), split.train, split.test, split, lists, lists[:3], lists.to_frame()]

    def wild(self):
        pool = self.rng.choice([SCALARS, COLLECTIONS, self.objects, cutoffs()])
        return self.rng.choice(pool)

    def value(self, name, risk=0.3):
        if self.rng.random() < risk or name not in GOOD:
            return self.wild()
        return self.rng.choice(GOOD[name])

    def keywords(self, names, most=3, risk=0.4):
        chosen = self.rng.sample(names, self.rng.randrange(min(most, len(names)) + 1))
        return {name: self.value(name, risk) for name in chosen}

    def call(self, function, *args, **kwargs):
        """The result, or None for a sentence; anything else is a failure."""
        text = f"{getattr(function, '__qualname__', function)}(*{args!r:.400}, **{kwargs!r:.600})"
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = function(*args, **kwargs)
            self.counts["result"] += 1
            return found
        except ShortlistError as error:
            self.counts["sentence"] += 1
            if len(str(error)) > 700:
                raise AssertionError(f"{len(str(error))} characters from {text}") from error
            return None
        except TypeError:
            self.counts["TypeError"] += 1
            return None
        except Slow:
            raise AssertionError(f"no end after {SECONDS} s: {text}") from None
        except (Exception, pl.exceptions.PanicException) as error:
            raise AssertionError(f"{type(error).__name__}: {error!s:.200} from {text}") from error
        finally:
            signal.alarm(0)


def check_lists(lists, request, items):
    """Known items, none twice, within the candidates and limits, finite scores."""
    assert lists.indptr[0] == 0
    assert (np.diff(lists.indptr) >= 0).all()
    assert np.isfinite(lists.scores).all()
    assert lists.items.size == 0 or 0 <= lists.items.min() <= lists.items.max() < len(items)
    p = lists.probabilities
    assert p is None or ((p >= 0) & (p <= 1)).all()
    limits = [request.get(name) for name in ("N", "max_items")]
    limit = min((int(one) for one in limits if one is not None), default=len(items))
    shared, excluded = request.get("candidates"), request.get("exclude")
    for one in lists:
        assert len(set(one.items)) == len(one.items) <= limit
        if shared is not None and not isinstance(shared, dict) and np.ndim(list(shared)) == 1:
            assert set(one.items) <= set(map(str, shared))
        if isinstance(excluded, list) and all(isinstance(item, str) for item in excluded):
            assert not set(one.items) & set(excluded)


# ------------------------------------------------------------------ operations
REQUEST = [name for name in GOOD if name not in ("users", "n_contributions")]
CLASSES = [sl.cutoff.ExpectedF1, sl.cutoff.ExpectedNDCG, sl.cutoff.ExpectedValue, sl.cutoff.Threshold,
           sl.cutoff.Boundary, sl.cutoff.FixedN, sl.cutoff.Guarantee, sl.cutoff.Calibration]  # fmt: skip
SLOW = {"n_epochs", "n_rounds", "n_bags", "n_factors", "n_thresholds", "max_history"}


def a_recommend(fuzz):
    one = known(fuzz.rng.choice(ALL_MODELS))
    request = fuzz.keywords(REQUEST)
    if fuzz.rng.random() < 0.3:
        request["cutoff"] = fuzz.rng.choice([*cutoffs(), "auto", "boundary", fuzz.wild()])
    else:
        request.setdefault("N", 5)
    lists = fuzz.call(one.recommend, fuzz.value("users"), **request)
    if lists is not None and request.get("fallback") is None:
        check_lists(lists, request, one.items_)


def a_file(fuzz, folder):
    one = known(fuzz.rng.choice(ALL_MODELS))
    path = fuzz.rng.choice(
        [folder / "lists.parquet", folder / "lists.txt", folder / "no" / "x.parquet", fuzz.wild()]
    )
    request = {"N": 3} | fuzz.keywords(REQUEST)
    found = fuzz.call(one.recommend_to_file, path, fuzz.value("users"), **request)
    if found is not None:
        assert sl.RankedLists.read(found).lengths.max(initial=0) <= 20


def an_explanation(fuzz):
    one = known(fuzz.rng.choice(ALL_MODELS))
    user = fuzz.rng.choice(["u00", "u03", "u07", "nobody", fuzz.wild()])
    request = fuzz.keywords(
        ["N", "n_contributions", "cutoff", "candidates", "exclude", "history", "filter_seen", "at"]
    )
    if fuzz.rng.random() < 0.5:
        request = {"N": 3} | fuzz.keywords(["candidates", "exclude", "filter_seen", "at"], 2, 0.2)
    table = fuzz.call(one.explain, user, **request)
    if table is not None:
        assert table["rank"].to_list() == list(range(1, table.height + 1))
        assert table["item_id"].n_unique() == table.height


def similar(fuzz):
    one = known(fuzz.rng.choice(ALL_MODELS))
    table = fuzz.call(one.similar_items, fuzz.rng.choice(["i00", "zz", fuzz.wild()]), **fuzz.keywords(["N"]))
    if table is not None:
        assert table["similarity"].is_finite().all()
    fuzz.call(one.boundaries, fuzz.value("users"))


def a_model(fuzz):
    """Constructors, fit and observe of a new model."""
    name = fuzz.rng.choice(ALL_MODELS)
    one = model(name, **({"n_epochs": 2} if name in JOINT else {"n_rounds": 3} if name == "TwoStage" else {}))
    names = [field for field in one.get_params() if field not in SLOW]
    if fuzz.rng.random() < 0.6 and names:
        params = {name: fuzz.wild() for name in fuzz.rng.sample(names, 1)}
        if fuzz.call(lambda: one.set_params(**params)) is None:
            return
    good = fuzz.rng.random() < 0.6
    request = {} if fuzz.rng.random() < 0.7 else {"valid": fuzz.wild()}
    if fuzz.call(one.fit, checkerboard() if good else fuzz.wild(), **request) is None:
        return
    for step in (one.observe, one.set_cutoff):
        fuzz.call(step, fuzz.wild())
    lists = fuzz.call(one.recommend, N=3)
    if lists is not None:
        check_lists(lists, {"N": 3}, one.items_)


def a_cutoff(fuzz):
    cls = fuzz.rng.choice(CLASSES)
    split = sl.split.last_basket(checkerboard())
    base = {"min_precision": 0.1, "fallback": "empty"} if cls is sl.cutoff.Guarantee else {}
    names = [name for name in cls(**base).get_params() if name not in SLOW]
    params = {name: fuzz.wild() for name in fuzz.rng.sample(names, fuzz.rng.randrange(2))}
    one = fuzz.call(cls, **base | params)
    if one is None:
        return
    lists, truth, history = fuzz.objects[4], split.valid, None
    if fuzz.rng.random() < 0.5:
        lists, truth, history = fuzz.rng.choice(
            [(fuzz.wild(), truth, history), (lists, fuzz.wild(), history), (lists, truth, fuzz.wild())]
        )
    if fuzz.call(one.fit, lists, truth, history=history, **fuzz.keywords(["users"])) is None:
        return
    cut = fuzz.call(one.apply, fuzz.rng.choice([lists, fuzz.wild()]), history=history)
    if isinstance(cut, sl.RankedLists):
        assert np.isfinite(cut.scores).all()
        assert cut.lengths.max(initial=0) <= 100


def an_evaluation(fuzz):
    lists = fuzz.rng.choice([fuzz.objects[4], {"u00": ["i00"]}, fuzz.wild()])
    truth = fuzz.rng.choice([fuzz.objects[2], fuzz.wild()])
    report = fuzz.call(sl.evaluate, lists, truth, **fuzz.keywords(["history", "users", "max_items"]))
    if report is not None:
        assert 0 <= report.mean("f1") <= 1
    results = fuzz.rng.choice([{"a": lists, "b": fuzz.objects[4]}, {"a": fuzz.wild()}, fuzz.wild()])
    fuzz.call(
        sl.compare,
        results,
        truth,
        resamples=10,
        **fuzz.keywords(["baseline", "metrics", "max_items", "level"]),
    )


def a_split(fuzz):
    data = fuzz.rng.choice([checkerboard(), fuzz.wild()])
    fuzz.call(sl.split.last_basket, data)
    fuzz.call(sl.split.last_items, data, **fuzz.keywords(["n"]))
    fuzz.call(sl.split.by_time, data, fuzz.wild())
    names = ["users_per_item", "items_per_user", "count", "core"]
    left = fuzz.call(checkerboard().keep_frequent, **fuzz.keywords(names))
    assert left is None or left.n_rows <= 10**6


def some_data(fuzz):
    for build in (sl.Interactions.from_frame, sl.Interactions.from_tuples, sl.Interactions.from_csr):
        names = {"from_frame": ["user_id", "item_id", "timestamp", "weight", "basket_id", "time_format"],
                 "from_csr": ["user_ids", "item_ids"]}.get(build.__name__, [])  # fmt: skip
        data = fuzz.call(build, fuzz.wild(), **(fuzz.keywords(names, 1) if names else {}))
        if data is not None:
            assert data.indptr[-1] == data.n_rows
    for build in (sl.RankedLists.from_frame, sl.IdMap.of):
        fuzz.call(build, fuzz.wild())


def a_choice(fuzz):
    names = ["metric", "cutoff", "filter_seen", "seed", "progress"]
    data = fuzz.rng.choice([checkerboard(), fuzz.wild()])
    request = {"models": "Popularity", "budget": 1} | fuzz.keywords(names)
    if fuzz.rng.random() < 0.3:
        request["models"] = fuzz.wild()
    if fuzz.rng.random() < 0.2:
        request["budget"] = fuzz.rng.choice(["quick", 0, -1, 1.5, "x", None, True, [], object()])
    fuzz.call(sl.fit, data, **request)
    split = fuzz.objects[3]
    fuzz.call(sl.choose_cutoff, fuzz.rng.choice([fuzz.objects[4], fuzz.wild()]), split.valid,
              **fuzz.keywords(["history", "cutoffs", "metric"]))  # fmt: skip


OPERATIONS = {
    "recommend": (a_recommend, 60),
    "explain": (an_explanation, 20),
    "similar": (similar, 10),
    "fit": (a_model, 25),
    "cutoff": (a_cutoff, 25),
    "evaluate": (an_evaluation, 15),
    "split": (a_split, 15),
    "data": (some_data, 15),
    "choose": (a_choice, 8),
}


@pytest.mark.parametrize("name", [*OPERATIONS, "file"])
def test_hostile_arguments(name, tmp_path):
    fuzz = Fuzz(f"{SEED}-{name}")
    usual = signal.signal(signal.SIGALRM, alarm)
    operation, n = OPERATIONS.get(name, (lambda one: a_file(one, tmp_path), 10))
    try:
        for number in range(n * TIMES):
            try:
                operation(fuzz)
            except AssertionError as error:
                raise AssertionError(f"case {number} of seed {SEED}: {error}") from error
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert min(fuzz.counts["sentence"], fuzz.counts["result"]) > 0
