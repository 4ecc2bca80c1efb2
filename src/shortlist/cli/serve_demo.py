"""`shortlist serve --demo`: a model of an online shop, with the latest weeks as events."""

import json
from collections.abc import Callable
from pathlib import Path

import shortlist as sl
from shortlist.data.datasets import cache_home
from shortlist.errors import DataError
from shortlist.serve.store import EventStore
from shortlist.serve.tokens import create_token

WEEKS = 2  # of events that are not in the model but in the store
WEEK = 7 * 86_400_000_000  # microseconds
VERSION = 1  # a folder of another version is built again
MODEL, TOKENS, NOTE = "demo.shortlist", "tokens", "demo.json"


def prepare_demo(report: Callable[[str], None]) -> Path:
    """The folder of the demo; the model is fitted once and kept in the cache."""
    folder = cache_home() / "serve-demo"
    note = folder / NOTE
    try:
        known = json.loads(note.read_text())
    except (OSError, ValueError):
        known = {}
    if known.get("version") != VERSION or not (folder / MODEL).exists():
        _build(folder, report)
        note.write_text(json.dumps({"version": VERSION}))
    if (folder / TOKENS).exists():
        (folder / TOKENS).unlink()
    token = create_token(folder / TOKENS, "demo", ["read", "events", "admin"])
    report(f"token for this run (enter it on the page): {token}")
    return folder


def _build(folder: Path, report: Callable[[str], None]) -> None:
    """Fit a model on all but the last weeks, and put those into the event store."""
    try:
        data, name = sl.load_dataset("online-retail", progress=report), "online-retail"
    except DataError as error:
        report(f"{error} The generated sample is used instead.")
        data, name = sl.load_dataset("sample"), "sample"
    assert data.time is not None
    cut = int(data.time.max()) - WEEKS * WEEK
    report(f"fitting a model on {name}; this takes about a minute")
    model = sl.fit(data.where(data.time < cut), models=sl.TwoStage(n_snapshots=4_000), progress=report)
    folder.mkdir(parents=True, exist_ok=True)
    store_file = folder / "demo.events.sqlite"
    for old in folder.glob("demo.events.sqlite*"):
        old.unlink()
    model.save(folder / MODEL)
    store = EventStore(f"sqlite:///{store_file}")
    store.create()
    later = data.where(data.time >= cut).to_frame()
    rows = [
        {
            "event_id": f"demo-{number}",
            "user_id": str(row["user_id"]),
            "item_id": str(row["item_id"]),
            "time": int(row["timestamp"].timestamp() * 1_000_000),
            "weight": None,
            "list_id": None,
            "received": row["timestamp"].timestamp(),
        }
        for number, row in enumerate(later.iter_rows(named=True))
    ]
    store.add_events([rows])
    store.close()
