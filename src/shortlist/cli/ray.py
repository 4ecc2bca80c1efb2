"""The flag --ray: run on a cluster."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import shortlist as sl

if TYPE_CHECKING:
    from shortlist.core.engine import Engine

LOCAL = "local"
Ray = Annotated[
    str | None,
    Parameter(
        help="Run on a Ray cluster: auto, ray://host:10001, or local to start one on this machine.",
        show_default=False,
    ),
]


def build_engine(address: str | None) -> "Engine | None":
    """The engine that the flag names; None: threads."""
    return None if address is None else sl.RayEngine(None if address == LOCAL else address)
