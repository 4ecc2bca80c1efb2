"""shortlist.testing: what keeps the contracts passes, what breaks one is named."""

from dataclasses import dataclass

import numpy as np
import pytest

import shortlist as sl
from shortlist.core.metrics import Metric
from shortlist.cutoff import Cutoff, FixedN
from shortlist.cutoff.base import CutLists
from shortlist.data.history import History
from shortlist.models.base import ModelState, Recommender
from shortlist.testing import check_cutoff, check_metric, check_model


@pytest.fixture(scope="module")
def split():
    return sl.split.last_basket(sl.load_dataset("sample"))


@pytest.fixture(scope="module")
def lists(split):
    return sl.Popularity().fit(split.train).recommend(N=20)


def test_own_models_cutoffs_and_metrics_pass(split, lists):
    check_model(sl.PersonalFrequency(), split.train)
    check_cutoff(FixedN(), lists, split.valid)
    check_cutoff(sl.cutoff.ExpectedF1(calibration="platt", size="probabilities"), lists, split.valid)
    for name, metric in Metric.registry.items():
        if not metric.needs_money:
            check_metric(name, lists, split.valid)


def test_a_model_whose_seed_is_ignored_is_named(split):
    @dataclass(kw_only=True, eq=False, repr=False)
    class Moody(sl.Popularity):
        def score(self, request):
            scores = super().score(request)
            noise = np.random.default_rng().random(scores.values.shape, np.float32)
            return type(scores)(values=scores.values + 99 * noise)

    try:
        with pytest.raises(AssertionError, match="two fits with the same seed"):
            check_model(Moody(), split.train)
    finally:
        Recommender.classes.pop("Moody", None)


def test_a_cutoff_that_depends_on_the_order_of_users_is_named(split, lists):
    class First(FixedN):
        def lengths(self, scores, *, history=None):
            lengths = super().lengths(scores, history=history)
            lengths[0] = 0
            return lengths

    try:
        with pytest.raises(AssertionError, match=r"agree|order of the users"):
            check_cutoff(First(), lists, split.valid)
    finally:
        Cutoff.registry.pop("First", None)


def test_a_metric_that_rewards_empty_lists_is_named(split, lists):
    class Modest(Metric):
        name, title = "modest", "modest"

        @staticmethod
        def values(sums):
            return (sums.lengths == 0).astype(float)

    try:
        with pytest.raises(AssertionError, match="an empty list must count 0"):
            check_metric("modest", lists, split.valid)
    finally:
        Metric.registry.pop("modest")
    with pytest.raises(AssertionError, match="there is no metric 'modest'"):
        check_metric("modest", lists, split.valid)


def test_a_subclass_that_lacks_something_says_what(split, lists):
    class Forgets(Recommender):
        def _learn(self, train, options):
            return None

        def score(self, request):
            return np.ones((len(request), request.state.history.n_items))

    class Plain(Forgets):
        power: int = 3

        def _learn(self, train, options):
            return ModelState(history=History.of(train))

    class Endless(Cutoff):
        pass

    class Whole(Cutoff):
        def _cut(self, lists, history):
            return CutLists(lists.lengths)

    try:
        with pytest.raises(TypeError, match=r"Forgets\._learn must return a ModelState, got NoneType"):
            Forgets().fit(split.train)
        with pytest.raises(TypeError, match=r"Plain\.score must return Scores, got ndarray"):
            Plain().fit(split.train).recommend(["u1"], N=5)
        with pytest.raises(
            TypeError, match=r"'power'. It has none; a class with parameters needs @dataclass"
        ):
            Plain(power=2)
        with pytest.raises(TypeError, match="_cut"):
            Endless()
        assert Whole().fit(lists, split.valid).apply(lists).lengths.max() == 20
    finally:
        for name in ("Forgets", "Plain"):
            Recommender.classes.pop(name, None)
        for name in ("Endless", "Whole"):
            Cutoff.registry.pop(name, None)
    with pytest.raises(
        TypeError, match=r"metric Nameless needs a name, a title and values.* got no name, title"
    ):
        type("Nameless", (Metric,), {"values": staticmethod(lambda sums: sums.hits)})
    with pytest.raises(TypeError, match="got no values"):
        type("Empty", (Metric,), {"name": "empty", "title": "empty"})
