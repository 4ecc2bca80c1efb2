"""Recommendations that know when to stop.

Public names are imported on first use: `import shortlist` takes milliseconds, and a command line that only
prints its help never loads a compiler. The names are those of `__init__.pyi`, which type checkers read, too;
`make fix` adds new models to it.
"""

from importlib import import_module
from typing import Any

with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123  # pathlib takes longer than all of this
    _lines = [line.split() for line in _stub if line.startswith("from ")]
# public name -> module that defines it, or package that contains it as a module
_MODULES = {name: module for _, module, _, name, *_ in _lines}
MODEL_MODULES = {  # the built-in models
    name: module
    for name, module in _MODULES.items()
    if module.startswith("shortlist.models.") and name[0].isupper()
}

__all__ = sorted(["__version__", *_MODULES])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shortlist")
    if name not in _MODULES:
        message = f"module 'shortlist' has no attribute {name!r}"
        if not name.startswith("__"):  # which Python itself asks for
            from shortlist.core.options import nearest_name

            near = nearest_name(name, __all__)
            message += f". Did you mean {near!r}?" if near else ""
        raise AttributeError(message)
    module = import_module(_MODULES[name])
    value = vars(module).get(name) or import_module(f"{module.__name__}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
