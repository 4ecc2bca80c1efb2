"""Recommendations that know when to stop.

The public names are below and nowhere else. They are imported on first use, so `import shortlist`
costs milliseconds and a command line that only prints its help never loads a compiler.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist import errors as errors

# public name -> the module that defines it; a name that is its module's last part is the module itself
_HOMES: dict[str, str] = {
    "errors": "shortlist.errors",
}

__all__ = ["__version__", "errors"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shortlist")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"shortlist.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
