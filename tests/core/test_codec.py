"""Declarations: what a class says about its fields is what its files must keep."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import shortlist as sl
from shortlist.core.codec import (
    Ascending,
    Contents,
    DistinctIds,
    MayBeInfinite,
    MayBeMissing,
    MayBeNaN,
    NotStored,
    Scope,
    Shape,
    Sparse,
    Starts,
    Texts,
    When,
    Within,
    form_of,
    load_estimator,
    save_estimator,
)
from shortlist.core.options import FITTED, AtLeast, AtMost, Count, Estimator
from shortlist.data.history import History
from shortlist.errors import DataError, ModelFileError
from shortlist.models.base import ModelState, Recommender, load_model
from shortlist.recommend.request import Scores
from shortlist.types import Doubles, Floats, Ints, Longs
from tests.models.crafted import read_parts, write_parts

F4, F8, I4, I8 = np.float32, np.float64, np.int32, np.int64


def reload(annotation, value, scope=None):
    """The value as a file gives it back."""
    contents = Contents({}, {})
    packed = json.loads(json.dumps(form_of(annotation).write(value, "x", contents)))
    read = form_of(annotation).read(packed, "x", contents, scope or Scope())
    assert not contents.arrays
    assert not contents.series
    return read


def read_array(annotation, array, scope=None):
    """An array of a file, whatever it is."""
    contents = Contents({"x": array}, {})
    return form_of(annotation).read({"array": "x"}, "x", contents, scope or Scope())


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, csr_array):
        return a.dtype == b.dtype and a.shape == b.shape and (a != b).nnz == 0
    if isinstance(a, pl.Series):
        return a.equals(b)
    return type(a) is type(b) and a == b


class Pair(NamedTuple):
    """A record."""

    first: Count
    second: Annotated[Floats, Shape("first")]


VALUES = [
    (int, 3),
    (float, 0.5),
    (float | None, None),
    (bool, True),
    (str, "ü"),
    (Literal["a", "b"], "b"),
    (tuple[float, ...], (1.0, 2.0)),
    (tuple[float | None, ...], (None, 2.0)),
    (dict[str, str], {"a": "b"}),
    (list[dict[str, int]], [{"a": 1}]),
    (Annotated[float, MayBeInfinite()], -np.inf),
    (Annotated[float, AtLeast(0), MayBeInfinite()], np.inf),
    (Annotated[Floats, Shape(2, "n")], np.ones((2, 3), F4)),
    (Annotated[Doubles, Shape("n"), MayBeNaN()], np.array([np.nan, np.inf])),
    (Annotated[Longs, Starts("n", "end")], np.array([0, 2, 2, 5])),
    (Annotated[Ints, Shape("n"), Ascending(strict=True)], np.array([1, 5], I4)),
    (Annotated[Floats, Shape("n")] | None, None),
    (Annotated[Floats, Shape("n")] | None, np.ones(2, F4)),
    (Annotated[csr_array, Shape(2, 3)], csr_array(np.array([[0, 1, 2], [0, 0, 0]], F4))),
    (Annotated[csr_array, Sparse(F8), Shape(1, "n")], csr_array(np.array([[0, 0.5]]))),
    (Annotated[Floats, Shape(2, 3)] | Annotated[csr_array, Shape(2, 3)], csr_array(np.eye(2, 3, dtype=F4))),
    (Annotated[pl.Series, DistinctIds()], pl.Series([3, 1])),
    (Annotated[pl.Series, Texts(), Shape("n")], pl.Series(["a", "a", ""])),
    (tuple[Annotated[Floats, Shape("n")], ...], (np.ones(2, F4), np.zeros(2, F4))),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_values_come_back(annotation, value):
    back = reload(annotation, value)
    assert all(map(same, value, back)) if isinstance(value, tuple) else same(value, back)


def test_markers_of_different_classes_differ():
    names = pl.Series(["a", "a"])
    form_of(Annotated[pl.Series, DistinctIds(), Shape("n")])
    assert same(reload(Annotated[pl.Series, Texts(), Shape("n")], names), names)
    assert len({DistinctIds(), Texts(), MayBeInfinite(), MayBeNaN(), MayBeMissing(), NotStored()}) == 6


def test_records_come_back():
    back = reload(Pair, Pair(2, np.ones(2, F4)))
    assert back.first == 2
    assert same(back.second, np.ones(2, F4))


REFUSED = [
    (int, 1.5, "a whole number"),
    (Count, 0, "at least 1"),
    (Annotated[int, AtMost(3)], 4, "at most 3"),
    (float, "high", "a number"),
    (float, {"float": "inf"}, "a number"),
    (Annotated[float, MayBeInfinite()], {"float": "nan"}, "a number"),
    (Annotated[float, AtLeast(0), MayBeInfinite()], {"float": "-inf"}, "at least 0"),
    (bool, 1, "True or False"),
    (Literal["a", "b"], "c", "one of a, b"),
    (tuple[float, ...], [1, "x"], "a list"),
    (Annotated[Floats, Shape(2)], 3, "is missing"),
    (Annotated[csr_array, Shape(2, 2)], {"matrix": [2, 10**12]}, "rows and columns"),
    (Annotated[csr_array, Shape(2, 2)], {"matrix": [2]}, "a sparse matrix"),
    (Annotated[pl.Series, DistinctIds()], None, "is missing"),
    (Pair, {"first": 2}, "'x.second' is missing"),
    (Pair, {"first": 2, "second": {"array": "x.second"}, "third": 1}, "'x.third' is unknown"),
    (Pair, [1], "must be an object"),
    (Estimator, {"class": "Missing", "params": {}, "fitted": {}}, "must be a Estimator, got 'Missing'"),
]


@pytest.mark.parametrize(("annotation", "packed", "rule"), REFUSED)
def test_json_that_breaks_a_rule_is_refused(annotation, packed, rule):
    with pytest.raises(ModelFileError, match=rule):
        form_of(annotation).read(packed, "x", Contents({}, {}), Scope())


ARRAYS = [
    (Annotated[Floats, Shape("n")], np.ones(2), "must have type float32, got float64"),
    (Annotated[Floats, Shape(2)], np.ones(3, F4), "must have shape 2, got 3"),
    (Annotated[Floats, Shape(2, 3)], np.ones(2, F4), "must have shape of 2 dimensions, got 2"),
    (Annotated[Floats, Shape("known + 1")], np.ones(7, F4), "must have shape 8, got 7"),
    (Annotated[Floats, Shape("n", "n")], np.ones((2, 3), F4), "must have shape 2 × 2, got 2 × 3"),
    (Annotated[Floats, Shape("n")], np.array([np.nan], F4), "must be finite"),
    (Annotated[Floats, Shape("n"), MayBeInfinite()], np.array([np.nan], F4), "must be finite"),
    (Annotated[Floats, Shape("n"), Within(5)], np.array([-6], F4), "must be at most 5 in size, got 6"),
    (Annotated[Ints, AtLeast(0)], np.array([0, -1], I4), "must be at least 0, got -1"),
    (Annotated[Ints, AtMost(3)], np.array([4], I4), "must be at most 3, got 4"),
    (Annotated[Ints, Ascending()], np.array([2, 1], I4), "must ascend"),
    (Annotated[Ints, Ascending(strict=True)], np.array([1, 1], I4), "must ascend"),
    (Annotated[Longs, Starts("n", "end")], np.array([1, 2]), "must lead from 0"),
    (Annotated[Longs, Starts("n", "known")], np.array([0, 2]), "must lead from 0 to 7, got 0 to 2"),
    (Annotated[Longs, Starts("n", "end")], np.array([0, 3, 2]), "must ascend"),
]


@pytest.mark.parametrize(("annotation", "array", "rule"), ARRAYS)
def test_array_that_breaks_a_rule_is_refused(annotation, array, rule):
    scope = Scope()
    scope.values["known"] = 7
    with pytest.raises(ModelFileError, match=rule):
        read_array(annotation, array, scope)


def test_names_stand_for_fields_attributes_and_first_sizes():
    outer = Scope(owner=sl.BPRMF(n_factors=4))
    inner = Scope(outer=outer)
    inner.values["history"] = History.of(sl.load_dataset("sample"))
    n_items = sl.load_dataset("sample").n_items
    read_array(Annotated[Floats, Shape("history.n_items", "n_factors")], np.ones((n_items, 4), F4), inner)
    read_array(Annotated[Floats, Shape("other", "other + n_factors")], np.ones((2, 6), F4), inner)
    assert inner.find("other") == 2
    assert outer.find("other") is None


@dataclass(kw_only=True, eq=False)
class Scale(Estimator):
    """An estimator with attributes of all kinds."""

    kind = "scale"
    detailed: bool = False

    mean_: float = FITTED
    deciles_: Annotated[Doubles, Shape(9), When("detailed")] = FITTED
    note_: Annotated[str, MayBeMissing()] = FITTED


def fitted_scale(**attributes):
    scale = Scale(detailed="deciles_" in attributes)
    vars(scale).update(attributes)
    return scale


def test_estimators_come_back(tmp_path):
    for scale in (
        Scale(),
        fitted_scale(mean_=1.0),
        fitted_scale(mean_=1.0, note_="x", deciles_=np.arange(9.0)),
    ):
        back = load_estimator(save_estimator(tmp_path / "s", scale), Scale)
        assert back.get_params() == scale.get_params()
        assert back.fitted().keys() == scale.fitted().keys()


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        ({"note_": "x"}, "'mean_' is missing"),
        ({"mean_": "x"}, "'mean_' must be a number"),
        ({"mean_": 1.0, "deciles_": np.arange(8.0)}, "'deciles_' must have shape 9, got 8"),
    ],
)
def test_attributes_that_are_not_as_declared_are_refused(tmp_path, attributes, rule):
    path = save_estimator(tmp_path / "s", fitted_scale(**attributes))
    with pytest.raises(ModelFileError, match=rule):
        load_estimator(path, Scale)


def test_an_attribute_is_there_only_when_it_is_declared_to_be(tmp_path):
    parts = read_parts(save_estimator(tmp_path / "s", fitted_scale(mean_=1.0, deciles_=np.arange(9.0))))
    del parts.description["notes"]["deciles_"], parts.arrays["deciles_"]
    write_parts(tmp_path / "s", parts)
    with pytest.raises(ModelFileError, match="'deciles_' is missing"):
        load_estimator(tmp_path / "s", Scale)


def test_an_array_that_nothing_declares_is_refused(tmp_path):
    path = save_estimator(tmp_path / "s", fitted_scale(mean_=1.0, deciles_=np.arange(9.0)))
    parts = read_parts(path)
    parts.arrays["other"] = np.ones(1)
    write_parts(path, parts)
    with pytest.raises(ModelFileError, match="'other' is unknown"):
        load_estimator(path, Scale)


def test_what_is_not_as_declared_is_not_saved():
    for annotation, value in (
        (Annotated[Floats, Shape("n")], np.ones(2)),
        (Annotated[csr_array, Shape(2, 2)], np.eye(2)),
        (Annotated[pl.Series, DistinctIds()], ["a"]),
        (Pair, (1, 2)),
        (Estimator, 3),
    ):
        with pytest.raises(DataError, match="x must be"):
            form_of(annotation).write(value, "x", Contents({}, {}))
    with pytest.raises(TypeError, match="cannot be saved; declare"):
        form_of(set[int])


@pytest.fixture
def means():
    """A model as somebody writes it who reads the docs: fields of the state, `_learn`, `score`."""

    @dataclass(frozen=True, eq=False, kw_only=True)
    class MeansState(ModelState):
        counts: Annotated[Floats, Shape("history.n_items"), AtLeast(0)]
        label: Literal["mean", "sum"] = "mean"
        cache: Annotated[object, NotStored()] = None

    @dataclass(kw_only=True, eq=False, repr=False)
    class Means(Recommender):
        scale: float = 1.0

        def _learn(self, train, options) -> MeansState:
            return MeansState(history=History.of(train), counts=train.item_counts.astype(F4))

        def score(self, request):
            return Scores(values=np.tile(self.scale * request.state.counts, (len(request), 1)))

    yield Means
    Recommender.classes.pop("Means", None)


def test_a_model_declares_its_state_and_nothing_else(means, tmp_path):
    model = means(scale=2.0).fit(sl.load_dataset("sample")).set_cutoff(sl.cutoff.FixedN(N=3))
    path = model.save(tmp_path / "m")
    loaded = load_model(path)
    assert np.array_equal(loaded.recommend().items, model.recommend().items)
    assert loaded.fingerprint_ == model.fingerprint_
    parts = read_parts(path)
    parts.arrays["counts"][0] = -1
    write_parts(path, parts)
    with pytest.raises(ModelFileError, match="'counts' must be at least 0, got -1"):
        load_model(path)


@pytest.mark.parametrize("half_life", [2**62, 10**12, 3])
def test_a_whole_half_life_of_a_file_is_refused_or_works(half_life, tmp_path):
    path = sl.PersonalFrequency(half_life=3.0).fit(sl.load_dataset("sample")).save(tmp_path / "m")
    parts = read_parts(path)
    parts.description["params"]["half_life"] = half_life
    parts.description["notes"]["counts"]["half_life"] = half_life
    write_parts(path, parts)
    if half_life > 10**12:
        with pytest.raises(ModelFileError, match="half_life"):
            load_model(path)
    else:
        model = load_model(path).observe([("u1", "i1", "2030-01-01")])
        assert model.recommend("u1", N=3, at="2024-06-01").items.size == 3
        whole = sl.PersonalFrequency(half_life=half_life).fit(sl.load_dataset("sample"))
        assert whole.recommend("u1", N=3).items.size == 3
