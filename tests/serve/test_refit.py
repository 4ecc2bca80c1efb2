"""`shortlist service refit` beside a running service: the new model is served without a restart."""

import json

import pytest

import shortlist as sl
from shortlist.cli import main
from shortlist.serve.deployment import remove_old_models
from shortlist.serve.store import EventStore
from tests.serve.conftest import start
from tests.serve.test_app import wait_for


def test_refit_learns_the_stored_events_and_is_activated(folder, capsys):
    path = folder / "shop.shortlist"
    known = sl.load_model(path).history_
    with start(folder) as client:
        items = known.items.values.to_list()
        events = [
            {"user_id": f"u{user}", "item_id": items[user % 40], "time": "2025-01-02"}
            for user in range(1, 60)
        ]
        assert client.post("/v1/events", json={"events": events}).json()["accepted"] == 59
        assert main(["service", "refit", str(path), "--json"]) == 0
        about = json.loads(capsys.readouterr().out)
        assert about["lists"] == 59
        assert about["model"].startswith("shop-")
        name = about["model"].removesuffix(".shortlist")
        wait_for(lambda: client.get("/v1/model").json()["name"] == name)
        answer = client.post("/v1/recommend", json={"users": ["u1"]}).json()
        assert answer["model"] == name
    assert sl.load_model(folder / about["model"]).history_.n_rows == known.n_rows + 59


def test_only_the_latest_refits_are_kept(tmp_path):
    store = EventStore(f"sqlite:///{tmp_path / 'e.sqlite'}")
    store.create()
    names = [f"shop-2026050{day}-030000.shortlist" for day in range(1, 7)]
    others = ["shop.shortlist", "shop-old.shortlist", "other-20260501-030000.shortlist"]
    for name in names + others:
        (tmp_path / name).touch()
    store.add_activation(names[0].removesuffix(".shortlist"), "x", 0, "in service")
    remove_old_models(store, tmp_path, "shop", 3)
    left = {path.name for path in tmp_path.glob("*.shortlist")}
    assert left == {names[0], *names[3:], *others}
    store.close()


@pytest.mark.parametrize("keep", [3, 10])
def test_a_refit_has_the_settings_of_the_service(folder, monkeypatch, capsys, keep):
    """It keeps as many models as they say, and uses their database."""
    path, address = folder / "shop.shortlist", f"sqlite:///{folder / 'elsewhere.sqlite'}"
    store = EventStore(address)
    store.create()
    earlier = [folder / f"shop-2025010{day}-030000.shortlist" for day in range(1, 6)]
    for copy in earlier:
        copy.write_bytes(path.read_bytes())
    row = {"item_id": "i1", "time": 1_735_776_000_000_000, "weight": None, "list_id": None, "received": 0.0}
    store.add_events([[row | {"event_id": f"e{n}", "user_id": f"u{n}"} for n in range(1, 60)]])

    monkeypatch.setenv("SHORTLIST_SERVE_DB", address)
    monkeypatch.setenv("SHORTLIST_SERVE_KEEP_MODELS", str(keep))
    assert main(["service", "refit", str(path)]) == 0, capsys.readouterr().err
    assert store.activations(1)[0].note == "refit"
    assert [copy.exists() for copy in earlier] == [keep == 10] * 3 + [True] * 2
    store.close()
