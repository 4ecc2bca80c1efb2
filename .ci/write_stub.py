"""Add the models of `shortlist.models` that src/shortlist/__init__.pyi, the list of public names, lacks."""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import shortlist
from shortlist import models
from shortlist.models.base import Recommender

STUB = Path(shortlist.__file__).with_name("__init__.pyi")


def missing_lines() -> str:
    """An import for every model that is not public yet; the docstring of a public model has examples."""
    for module in walk_packages(models.__path__, "shortlist.models."):
        import_module(module.name)
    kinds = Recommender.classes.items()
    new = [
        kind
        for name, kind in kinds
        if "Examples\n" in str(kind.__doc__) and name not in shortlist.MODEL_MODULES
    ]
    return "".join(f"from {kind.__module__} import {kind.__name__} as {kind.__name__}\n" for kind in new)


if __name__ == "__main__":
    lines = missing_lines()
    if lines:
        head, first, rest = STUB.read_text(encoding="utf-8").partition("from shortlist.models.")
        STUB.write_text(head + lines + first + rest, encoding="utf-8")
