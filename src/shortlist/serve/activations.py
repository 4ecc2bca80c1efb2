"""Which model was served when, with which cutoff; every worker follows the latest activation."""

import base64
import hashlib
from typing import NamedTuple

from shortlist.serve.store import EventStore

ACTIVATION, CUTOFF = "activation", "cutoff"  # kinds of changes
MAX_ACTIVATIONS = 1_000  # that are looked at


class ModelVersion(NamedTuple):
    """A model as it is, whatever becomes of the file with its name."""

    model: str
    checksum: str  # of the model file
    cutoff: str | None = None  # id of a cutoff that replaces the one of the file


class Activation(NamedTuple):
    """A model file that was put into service."""

    number: int
    model: str
    checksum: str  # of the model file
    events_until: int  # events up to this one are in the file
    cutoff: str | None  # id of a cutoff that replaces the one of the file
    erased_until: int  # users who were erased up to this change are not in the file
    activated: float
    note: str

    @property
    def version(self) -> ModelVersion:
        """What is served."""
        return ModelVersion(self.model, self.checksum, self.cutoff)


def add_activation(
    store: EventStore,
    model: str,
    checksum: str,
    events_until: int,
    note: str,
    cutoff: str | None = None,
    erased_until: int = 0,
) -> int:
    """Record which model is served from now on; the number of the activation."""
    content = {"checksum": checksum, "events_until": events_until, "cutoff": cutoff}
    return store.add_change(ACTIVATION, model, content | {"erased_until": erased_until, "note": note})


def find_activations(
    store: EventStore,
    limit: int = MAX_ACTIVATIONS,
    *,
    model: str | None = None,
    checksum: str | None = None,
    number: int | None = None,
) -> list[Activation]:
    """The latest activations, newest first; of one model, file or number if it is given."""
    some = limit if checksum is None and number is None else MAX_ACTIVATIONS
    activations = (
        Activation(number=change.number, model=change.name, activated=change.at, **change.content)
        for change in store.latest_changes((ACTIVATION,), some, model)
    )
    matching = [
        activation
        for activation in activations
        if checksum in (None, activation.checksum) and number in (None, activation.number)
    ]
    return matching[:limit]


def add_cutoff(store: EventStore, content: bytes) -> str:
    """Store the file of a fitted cutoff; its id."""
    cutoff_id = hashlib.sha256(content).hexdigest()[:24]
    if read_cutoff(store, cutoff_id) is None:
        store.add_change(CUTOFF, cutoff_id, {"content": base64.b64encode(content).decode()})
    return cutoff_id


def read_cutoff(store: EventStore, cutoff_id: str) -> bytes | None:
    """The file of a stored cutoff."""
    changes = store.latest_changes((CUTOFF,), 1, cutoff_id)
    return base64.b64decode(changes[0].content["content"]) if changes else None
