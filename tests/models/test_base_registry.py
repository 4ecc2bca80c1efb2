"""What models declare: search spaces, suitability, warm-up; models that other packages define."""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pytest

import shortlist as sl
from shortlist.data.history import History
from shortlist.errors import ModelFileError
from shortlist.models.base import FitOptions, ModelState, Recommender, find_model_class, load_model
from shortlist.models.search_space import Range, Space
from shortlist.recommend.request import Scores

CLASSES = [find_model_class(name) for name in sl.MODEL_MODULES]


@pytest.fixture
def constant():
    """A model of another package: the same score for every item."""

    @dataclass(kw_only=True, eq=False, repr=False)
    class Constant(Recommender):
        search_space: ClassVar[Space] = {"value": Range(1, 9)}
        value: float = 2.0

        def _learn(self, train, options: FitOptions) -> ModelState:
            return ModelState(history=History.of(train))

        def score(self, request) -> Scores:
            return Scores(values=np.full((len(request), request.state.history.n_items), self.value, "f4"))

    yield Constant
    Recommender.classes.pop("Constant", None)


def test_a_model_of_another_package_is_found_saved_and_loaded(constant, tmp_path):
    assert find_model_class("Constant") is constant
    model = constant(value=3.0).fit(sl.load_dataset("sample"))
    loaded = load_model(model.save(tmp_path / "m.shortlist"))
    assert loaded.value == 3.0
    assert np.array_equal(loaded.recommend(N=4).items, model.recommend(N=4).items)
    assert set(model.recommend(N=4).scores.tolist()) == {3.0}


def test_a_file_of_an_unknown_model_is_refused(constant, tmp_path):
    path = constant().fit(sl.load_dataset("sample")).save(tmp_path / "m.shortlist")
    del Recommender.classes["Constant"]
    with pytest.raises(ModelFileError, match="holds a Constant, unknown to this version"):
        load_model(path)


@pytest.mark.parametrize("kind", CLASSES)
def test_declarations_name_parameters(kind):
    names = {field.name for field in fields(kind)}
    for declared in (kind.search_space, kind.timed_params, kind.not_searched):
        assert set(declared) <= names
    if kind.__name__ != "PrecomputedScores":
        kind(**kind.warmup_params)


def test_models_that_fit_tries_and_why_it_leaves_some_out():
    tried = {kind.__name__ for kind in CLASSES if kind.is_tried_by_fit}
    assert tried == {
        "Popularity",
        "PersonalFrequency",
        "DKHRM",
        "TIFUKNN",
        "EASE",
        "ALS",
        "GFCF",
        "MatrixBlend",
        "TwoStage",
    }
    once = sl.Interactions.from_tuples([(user, user % 3) for user in range(9)])
    assert "twice" in sl.PersonalFrequency.why_unsuitable(once)
    assert "more than one basket" in sl.HRM.why_unsuitable(once)
    assert "more than one basket" in sl.TwoStage.why_unsuitable(once)
    many = [(0, item) for item in range(6001)]
    assert sl.EASE.why_unsuitable(sl.Interactions.from_tuples(many)) is None
    reason = sl.EASE.why_unsuitable(sl.Interactions.from_tuples([(*row, row[1] % 2) for row in many]))
    assert "6,001 items are more than 6,000" in reason
    data = sl.load_dataset("sample")
    left_out = ("TwoStage", "ALS", "GFCF", "MatrixBlend")  # by LightGBM, or because the data has baskets
    assert all(kind.why_unsuitable(data) is None for kind in CLASSES if kind.__name__ not in left_out)
    for repeats, terms in ((True, (0.9, 3.0)), (False, (None, None))):
        hybrid = sl.HRM()
        hybrid.choose_params(has_times=True, has_repeats=repeats)
        assert (hybrid.repeat_decay, hybrid.trend_half_life) == terms
