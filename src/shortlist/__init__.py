"""Recommendations that know when to stop.

The public names are below and nowhere else. They are imported on first use, so `import shortlist`
costs milliseconds and a command line that only prints its help never loads a compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist import errors as errors
    from shortlist import split as split
    from shortlist.data.datasets import load as load
    from shortlist.data.ids import Ids as Ids
    from shortlist.data.interactions import Interactions as Interactions
    from shortlist.data.lists import RankedLists as RankedLists

# public name -> the module that defines it; where the module bears the name, the module itself is meant
_HOMES = {
    "Ids": "shortlist.data.ids",
    "Interactions": "shortlist.data.interactions",
    "RankedLists": "shortlist.data.lists",
    "errors": "shortlist.errors",
    "load": "shortlist.data.datasets",
    "split": "shortlist.split",
}

__all__ = ["Ids", "Interactions", "RankedLists", "__version__", "errors", "load", "split"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shortlist")
    if name not in _HOMES:
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value = home if home.__name__ == f"shortlist.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
