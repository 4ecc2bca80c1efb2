"""Recommendations that know when to stop.

The public names are below and nowhere else. They are imported on first use, so `import shortlist`
costs milliseconds and a command line that only prints its help never loads a compiler.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist import cutoff as cutoff
    from shortlist import errors as errors
    from shortlist import split as split
    from shortlist.data import filters as filters
    from shortlist.data.datasets import load as load
    from shortlist.data.ids import Ids as Ids
    from shortlist.data.interactions import Interactions as Interactions
    from shortlist.data.lists import RankedLists as RankedLists
    from shortlist.data.readers import read as read
    from shortlist.evaluate import compare as compare
    from shortlist.evaluate import evaluate as evaluate
    from shortlist.experiment.default import fit as fit
    from shortlist.models.base import load_model as load_model
    from shortlist.models.counting import PersonalFrequency as PersonalFrequency
    from shortlist.models.counting import Popularity as Popularity
    from shortlist.models.hrm import DKHRM as DKHRM
    from shortlist.models.hrm import HRM as HRM
    from shortlist.models.linear import Linear as Linear
    from shortlist.models.mf import BPRMF as BPRMF
    from shortlist.models.mf import CRRMF as CRRMF
    from shortlist.models.mf import DKBPRMF as DKBPRMF
    from shortlist.models.mf import LogMF as LogMF
    from shortlist.models.neighbours import Neighbours as Neighbours
    from shortlist.models.outside import OutsideScores as OutsideScores
    from shortlist.models.outside import from_implicit as from_implicit
    from shortlist.models.two_stage import TwoStage as TwoStage

# public name -> the module that defines it; where the module bears the name, the module itself is meant
_HOMES = {
    "BPRMF": "shortlist.models.mf",
    "CRRMF": "shortlist.models.mf",
    "DKBPRMF": "shortlist.models.mf",
    "DKHRM": "shortlist.models.hrm",
    "HRM": "shortlist.models.hrm",
    "Ids": "shortlist.data.ids",
    "Interactions": "shortlist.data.interactions",
    "Linear": "shortlist.models.linear",
    "LogMF": "shortlist.models.mf",
    "Neighbours": "shortlist.models.neighbours",
    "OutsideScores": "shortlist.models.outside",
    "PersonalFrequency": "shortlist.models.counting",
    "Popularity": "shortlist.models.counting",
    "RankedLists": "shortlist.data.lists",
    "TwoStage": "shortlist.models.two_stage",
    "compare": "shortlist.evaluate.comparison",
    "cutoff": "shortlist.cutoff",
    "errors": "shortlist.errors",
    "evaluate": "shortlist.evaluate.judge",
    "filters": "shortlist.data.filters",
    "fit": "shortlist.experiment.default",
    "from_implicit": "shortlist.models.outside",
    "load": "shortlist.data.datasets",
    "load_model": "shortlist.models.base",
    "read": "shortlist.data.readers",
    "split": "shortlist.split",
}

__all__ = [
    "BPRMF",
    "CRRMF",
    "DKBPRMF",
    "DKHRM",
    "HRM",
    "Ids",
    "Interactions",
    "Linear",
    "LogMF",
    "Neighbours",
    "OutsideScores",
    "PersonalFrequency",
    "Popularity",
    "RankedLists",
    "TwoStage",
    "__version__",
    "compare",
    "cutoff",
    "errors",
    "evaluate",
    "filters",
    "fit",
    "from_implicit",
    "load",
    "load_model",
    "read",
    "split",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shortlist")
    if name not in _HOMES:
        module = sys.modules[__name__]  # so that Python can say what was meant
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}", name=name, obj=module)
    home = import_module(_HOMES[name])
    value = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    """`evaluate` is a room and the function that stands for it; to users it is always the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        room = isinstance(value, ModuleType) and value.__name__ != _HOMES.get(name, value.__name__)
        if not room:  # the import system binds every room it has loaded to its name here
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
