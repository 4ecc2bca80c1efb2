"""Users and models as the answers show them."""

from typing import Any

import numpy as np

from shortlist.core.serialization import library_version
from shortlist.errors import UnknownIdError
from shortlist.serve.deployment import Served
from shortlist.serve.ids import check_id
from shortlist.serve.service import Service
from shortlist.types import Longs

HISTORY_ROWS = 200  # latest events of a user that are shown


def describe_user(served: Served, text: str) -> dict[str, Any]:
    """The latest events of a user, newest first."""
    model = served.model
    user_id = check_id(text, model.users_, "user_id")
    if user_id not in model.users_:
        raise UnknownIdError(f"there is no user {text[:80]!r}; check the id.")
    history = model.build_request([user_id]).history  # of this user alone
    items = history.item[::-1][:HISTORY_ROWS]
    ids = history.items.to_ids(items).to_list()
    names = [None] * len(ids) if history.item_names is None else [history.item_names[int(i)] for i in items]
    times = [None] * len(ids) if history.time is None else _iso(history.time[::-1][:HISTORY_ROWS])
    return {
        "user_id": user_id,
        "n_events": history.n_rows,
        "n_baskets": history.n_baskets,
        "events": [
            {"item_id": one, "name": name, "time": time_of}
            for one, name, time_of in zip(ids, names, times, strict=True)
        ],
    }


def _iso(times: Longs) -> list[str]:
    """Microseconds since 1970 as texts, such as 2026-05-01T12:30:00Z."""
    seconds = bool((times % 1_000_000 == 0).all())
    texts = np.datetime_as_string(times.astype("M8[us]"), unit="s" if seconds else "us").tolist()
    return [f"{text}Z" for text in texts]


def describe_models(service: Service) -> dict[str, Any]:
    """The model in service, the available ones and the latest activations."""
    served = service.deployment.served
    model = served.model
    return {
        "name": served.name,
        "class": type(model).__name__,
        "cutoff": served.cutoff_name,
        "cutoff_description": None if model.cutoff_ is None else repr(model.cutoff_),
        "has_boundary": model.has_boundary,
        "n_users": len(model.users_),
        "n_items": len(model.items_),
        "loaded": served.loaded,
        "can_change": bool(service.config.token_file),
        "available": service.deployment.model_names(),
        "activations": [
            {"number": one.number, "model": one.model, "activated": one.activated, "note": one.note}
            for one in service.store.activations(20)
        ],
        "error": service.deployment.error,
        "report": None if model.selection_ is None else str(model.selection_),
        "version": library_version(),
    }
