"""`shortlist service refit` beside a running service: the new model is served without a restart."""

import json

import shortlist as sl
from shortlist.cli import main
from shortlist.serve.model_files import kept_path
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
        name = about["model"]
        wait_for(lambda: client.get("/v1/model").json()["name"] == name)
        assert client.get("/v1/model").json()["available"] == ["shop", name]
        answer = client.post("/v1/recommend", json={"users": ["u1"]}).json()
        assert answer["model"] == name
    assert sl.load_model(folder / about["file"]).history_.n_rows == known.n_rows + 59


def test_a_refit_reads_the_settings_of_the_service(folder, monkeypatch, capsys):
    """It uses their database."""
    path, address = folder / "shop.shortlist", f"sqlite:///{folder / 'elsewhere.sqlite'}"
    store = EventStore(address)
    store.create()
    row = {"item_id": "i1", "time": 1_735_776_000_000_000, "weight": None, "list_id": None, "received": 0.0}
    store.add_events([[row | {"event_id": f"e{n}", "user_id": f"u{n}"} for n in range(1, 60)]])
    monkeypatch.setenv("SHORTLIST_SERVE_DB", address)
    assert main(["service", "refit", str(path)]) == 0, capsys.readouterr().err
    [activation] = store.activations(2)
    assert activation.note == "refit"
    assert kept_path(folder, activation.checksum).is_file()
    store.close()
