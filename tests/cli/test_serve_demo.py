"""`shortlist serve --demo` on the generated sample: files, and the traffic that fills the page."""

import time

import pytest

import shortlist as sl
from shortlist.cli import serve_demo
from shortlist.errors import DataError
from tests.serve.server import Server


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo where Online Retail cannot be loaded, prepared twice; and how often models were fitted."""
    notes, load = [], sl.load_dataset

    def offline(name, **options):
        if name == "online-retail":
            raise DataError("online-retail could not be downloaded; check the connection.")
        return load(name, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(sl, "load_dataset", offline)
        serve_demo.prepare_demo(notes.append)
        prepared = serve_demo.prepare_demo(notes.append)
    return prepared, notes


def test_models_are_fitted_once_and_baskets_follow_them(demo):
    prepared, notes = demo
    assert sum(note.startswith("fitting two models") for note in notes) == 1
    assert any("sample is used instead" in note for note in notes)
    model = sl.load_model(prepared.model)
    assert model.selection_ is not None
    assert 0 < (model.recommend().lengths == 0).mean() < 0.3
    days = (time.time() * 1e6 - model.history_.end_time) / serve_demo.DAY
    assert 0 <= days < 2  # the history ends yesterday
    assert prepared.model.with_name(serve_demo.EARLIER).exists()
    assert len(prepared.baskets) > 20


def test_traffic_fills_the_page(demo):
    prepared, _ = demo
    server = Server(prepared.model.parent, "", prepared.tokens, prepared.token)
    try:
        serve_demo.start_traffic(prepared, "127.0.0.1", server.port)
        end = time.monotonic() + 120
        status = {"minutes": []}
        while sum(one["lists"] for one in status["minutes"]) < 50 and time.monotonic() < end:
            time.sleep(0.2)
            status = server.call("/v1/status", timeout=60)[1] or status
        assert sum(one["events"] for one in status["minutes"]) >= 50
        assert sum(one["lists"] for one in status["minutes"]) >= 50
        assert {one["state"] for one in status["checks"] if one["name"] == "Failed requests"} == {"ok"}
        assert server.call("/v1/users")[1]["examples"]
    finally:
        server.stop()
