"""`shortlist service refit` beside a running service: the new model is served without a restart."""

import json

import shortlist as sl
from shortlist.cli import main
from shortlist.serve.deployment import kept_path
from shortlist.serve.projections import find_activations
from shortlist.serve.store import EventStore
from tests.serve.conftest import start, usual_items
from tests.serve.test_app import wait_for

USERS = [f"u{n}" for n in range(1, 60)]


def test_refit_learns_the_stored_events_and_is_activated(folder, capsys):
    path = folder / "shop.shortlist"
    known = sl.load_model(path).history_
    with start(folder) as client:
        events = [
            {"user_id": user, "item_id": item, "time": "2025-01-02"}
            for user, item in usual_items(path, USERS).items()
        ]
        assert client.post("/v1/events", json={"events": events}).json()["accepted"] == 59
        assert main(["service", "refit", str(path), "--json"]) == 0
        about = json.loads(capsys.readouterr().out)
        assert about["lists"] == about["users"] == 59
        assert about["users_needed"] <= 59
        assert 0 < about["smallest_loss"] <= 1 / 3
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
    row = {"time": 1_735_776_000_000_000, "weight": None, "list_id": None, "received": 0.0}
    usual = usual_items(path, USERS).items()
    store.add_events([[row | {"event_id": user, "user_id": user, "item_id": item} for user, item in usual]])
    monkeypatch.setenv("SHORTLIST_SERVE_DB", address)
    assert main(["service", "refit", str(path)]) == 0, capsys.readouterr().err
    [activation] = find_activations(store, 2)
    assert activation.note == "refit"
    assert kept_path(folder, activation.checksum).is_file()
    store.close()


def test_a_refit_with_too_few_users_changes_nothing_and_says_what_is_missing(folder, capsys):
    """One event of an unknown item on a new day: both F1 are 0, which is no evidence."""
    path = folder / "shop.shortlist"
    with start(folder) as client:
        event = {"user_id": "u1", "item_id": "unknown", "time": "2025-01-02"}
        assert client.post("/v1/events", json={"events": [event]}).json()["accepted"] == 1
        assert main(["service", "refit", str(path)]) == 0
        said = capsys.readouterr().out
        assert "kept the model in service: too few users to compare" in said
        assert client.get("/v1/model").json()["name"] == "shop"
        checks = {check["name"]: check for check in client.get("/v1/status").json()["checks"]}
        assert checks["Refit"]["state"] == "warning"
        assert "too few users to compare" in checks["Refit"]["sentence"]
        events = [
            {"user_id": user, "item_id": item, "time": "2025-01-03"}
            for user, item in usual_items(path, USERS).items()
        ]
        client.post("/v1/events", json={"events": events})
        assert main(["service", "refit", str(path)]) == 0
        assert "activated shop-" in capsys.readouterr().out
        assert "Refit" not in {check["name"] for check in client.get("/v1/status").json()["checks"]}
