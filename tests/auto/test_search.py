"""The settings search: spaces, draws, and trials that diverge."""

import pytest

import shortlist as sl
from shortlist import MODEL_MODULES
from shortlist.auto.choice import default_space
from shortlist.models.base import find_model_class
from shortlist.models.search_space import Range, draw
from tests.auto.test_fit import shoppers


@pytest.mark.parametrize("model", [name for name in MODEL_MODULES if find_model_class(name).search_space])
def test_every_space_draws_valid_parameters(model):
    space = default_space(model, timed=True)
    for number in range(20):
        params = draw(space, 0, number)
        assert params == draw(space, 0, number)
        getattr(sl, model)().set_params(**params)
        for name, values in space.items():
            if isinstance(values, Range):
                assert values.low <= params[name] <= values.high
            else:
                assert params[name] in values


def test_logarithmic_ranges_are_even_in_orders_of_magnitude():
    assert Range(0.01, 1).at(0.5) == pytest.approx(0.1)
    assert Range(0, 1, log=False).at(0.25) == 0.25


def test_time_parameters_are_searched_only_with_timestamps():
    assert default_space("DKHRM", timed=True).keys() - default_space("DKHRM", timed=False) == {
        "trend_half_life"
    }
    tried = sl.fit(sl.load_dataset("sample"), models="PersonalFrequency", budget=4).selection_.models[0]
    assert tried["params"].keys() == {"decay", "half_life", "popularity"}


def test_divergence_is_a_bad_trial_not_an_error(monkeypatch):
    monkeypatch.setattr(sl.CRRMF, "search_space", {"lr": (10.0,), "init": (1e5,)})
    model = sl.fit(shoppers(), models="CRRMF", budget=2)
    assert model.get_params()["init"] != 1e5
