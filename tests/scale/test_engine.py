"""Engines: arguments, errors, and what is not imported."""

import time

import pytest

import shortlist as sl
from shortlist.errors import ConfigError
from shortlist.scale import engine as module
from tests.models.cases import bits, checkerboard, fit, model
from tests.test_public import loaded_by


def test_nothing_imports_ray_before_it_is_used():
    code = "import shortlist as sl; sl.BPRMF(n_epochs=1); sl.ThreadEngine(); import shortlist.scale.engine"
    assert loaded_by(code, ("ray",)) == set()


def test_threads_are_the_default():
    one = model("BPRMF", n_epochs=2).fit(checkerboard(), engine=sl.ThreadEngine())
    assert bits(one) == bits(fit("BPRMF", checkerboard(), n_epochs=2))
    assert list(sl.ThreadEngine().map(str, [3, 1])) == ["3", "1"]


@pytest.mark.parametrize("name", ["EASE", "Popularity", "TIFUKNN"])
def test_other_models_refuse_a_cluster(name, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: True)
    with pytest.raises(
        ConfigError, match=rf"engine must be None or ThreadEngine\(\) for {name}, got RayEngine"
    ):
        model(name).fit(checkerboard(), engine=sl.RayEngine())


def test_missing_ray_is_explained(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"RayEngine needs ray; run pip install ray"):
        sl.RayEngine()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": ""}, "address must be"),
        ({"n_workers": 0}, "n_workers must be"),
        ({"threads_per_worker": 1.5}, "threads_per_worker must be"),
    ],
)
def test_invalid_arguments(arguments, message, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: True)
    with pytest.raises(ConfigError, match=message):
        sl.RayEngine(**arguments)


def test_only_engines_are_engines():
    with pytest.raises(ConfigError, match="engine must be ThreadEngine"):
        model("BPRMF").fit(checkerboard(), engine="ray")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port"])
def test_an_address_that_nobody_listens_on_is_an_error_within_seconds(address, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed; pip install ray")
    from shortlist.scale.cluster import connect

    monkeypatch.setattr("ray.is_initialized", lambda: False)  # other tests may have a cluster in this process
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"address '.*' of the Ray cluster cannot be reached"):
        connect(address)
    assert time.monotonic() - began < 30
