"""Make new models and cutoffs public: in src/shortlist/__init__.pyi and in `shortlist.cutoff`.

A class is public if its docstring has examples. `make fix` then sorts the added lines with ruff.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import shortlist
from shortlist import cutoff, models
from shortlist.cutoff import Cutoff
from shortlist.models.base import Recommender


def add_line(path: Path, before: str, line: str) -> None:
    """Insert a line before the first occurrence of a text."""
    head, first, rest = path.read_text(encoding="utf-8").partition(before)
    path.write_text(head + line + first + rest, encoding="utf-8")


if __name__ == "__main__":
    for package in (models, cutoff):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    public = {*shortlist.MODEL_MODULES, *cutoff.__all__}
    for name, kind in {**Recommender.classes, **Cutoff.classes()}.items():
        if name in public or not kind.__module__.startswith("shortlist.") or "Examples\n" not in kind.__doc__:
            continue
        line = f"from {kind.__module__} import {name}"
        if issubclass(kind, Recommender):
            stub = Path(shortlist.__file__).with_name("__init__.pyi")
            add_line(stub, "from shortlist.models.", f"{line} as {name}\n")
        else:
            add_line(Path(cutoff.__file__), "from shortlist.cutoff.", f"{line}\n")
            add_line(Path(cutoff.__file__), '    "Boundary",\n', f'    "{name}",\n')
