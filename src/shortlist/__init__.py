"""Recommendations that know when to stop.

Public names are imported on first use: `import shortlist` takes milliseconds, and a command line that only
prints its help never loads a compiler.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist import cutoff as cutoff
    from shortlist import errors as errors
    from shortlist import split as split
    from shortlist.auto.cutoff_choice import choose_cutoff as choose_cutoff
    from shortlist.auto.cutoff_choice import default_cutoffs as default_cutoffs
    from shortlist.auto.fit import fit as fit
    from shortlist.auto.tune import tune as tune
    from shortlist.core.engine import ThreadEngine as ThreadEngine
    from shortlist.cutoff.monitor import GuaranteeMonitor as GuaranteeMonitor
    from shortlist.data import filters as filters
    from shortlist.data.datasets import load_dataset as load_dataset
    from shortlist.data.files import read_interactions as read_interactions
    from shortlist.data.ids import IdMap as IdMap
    from shortlist.data.interactions import Interactions as Interactions
    from shortlist.data.items import Items as Items
    from shortlist.data.items import read_items as read_items
    from shortlist.data.lists import RankedLists as RankedLists
    from shortlist.evaluation.evaluate import compare as compare
    from shortlist.evaluation.evaluate import evaluate as evaluate
    from shortlist.evaluation.evaluate import evaluate_alerts as evaluate_alerts
    from shortlist.models.base import load_model as load_model
    from shortlist.models.content import ContentProfile as ContentProfile
    from shortlist.models.counting import PersonalFrequency as PersonalFrequency
    from shortlist.models.counting import Popularity as Popularity
    from shortlist.models.ease import EASE as EASE
    from shortlist.models.factorization.hrm import DKHRM as DKHRM
    from shortlist.models.factorization.hrm import HRM as HRM
    from shortlist.models.factorization.mf import BPRMF as BPRMF
    from shortlist.models.factorization.mf import CRRMF as CRRMF
    from shortlist.models.factorization.mf import DKBPRMF as DKBPRMF
    from shortlist.models.factorization.mf import LogMF as LogMF
    from shortlist.models.folders import fit_to_folder as fit_to_folder
    from shortlist.models.folders import recommend_to_folder as recommend_to_folder
    from shortlist.models.precomputed import PrecomputedScores as PrecomputedScores
    from shortlist.models.precomputed import from_implicit as from_implicit
    from shortlist.models.strict_time import evaluate_over_time as evaluate_over_time
    from shortlist.models.tifuknn import TIFUKNN as TIFUKNN
    from shortlist.models.two_stage.two_stage import TwoStage as TwoStage
    from shortlist.models.upcf import UPCF as UPCF
    from shortlist.recommend.request import Exploration as Exploration
    from shortlist.scale.engine import RayEngine as RayEngine

# public name -> module that defines it; a module that is itself public maps to its own path
_MODULES = {
    "BPRMF": "shortlist.models.factorization.mf",
    "CRRMF": "shortlist.models.factorization.mf",
    "ContentProfile": "shortlist.models.content",
    "DKBPRMF": "shortlist.models.factorization.mf",
    "DKHRM": "shortlist.models.factorization.hrm",
    "EASE": "shortlist.models.ease",
    "Exploration": "shortlist.recommend.request",
    "HRM": "shortlist.models.factorization.hrm",
    "IdMap": "shortlist.data.ids",
    "Interactions": "shortlist.data.interactions",
    "Items": "shortlist.data.items",
    "LogMF": "shortlist.models.factorization.mf",
    "PersonalFrequency": "shortlist.models.counting",
    "Popularity": "shortlist.models.counting",
    "PrecomputedScores": "shortlist.models.precomputed",
    "GuaranteeMonitor": "shortlist.cutoff.monitor",
    "RankedLists": "shortlist.data.lists",
    "RayEngine": "shortlist.scale.engine",
    "TIFUKNN": "shortlist.models.tifuknn",
    "ThreadEngine": "shortlist.core.engine",
    "TwoStage": "shortlist.models.two_stage.two_stage",
    "UPCF": "shortlist.models.upcf",
    "choose_cutoff": "shortlist.auto.cutoff_choice",
    "compare": "shortlist.evaluation.evaluate",
    "cutoff": "shortlist.cutoff",
    "default_cutoffs": "shortlist.auto.cutoff_choice",
    "errors": "shortlist.errors",
    "evaluate": "shortlist.evaluation.evaluate",
    "evaluate_alerts": "shortlist.evaluation.evaluate",
    "evaluate_over_time": "shortlist.models.strict_time",
    "filters": "shortlist.data.filters",
    "fit": "shortlist.auto.fit",
    "fit_to_folder": "shortlist.models.folders",
    "from_implicit": "shortlist.models.precomputed",
    "load_dataset": "shortlist.data.datasets",
    "load_model": "shortlist.models.base",
    "read_interactions": "shortlist.data.files",
    "read_items": "shortlist.data.items",
    "recommend_to_folder": "shortlist.models.folders",
    "split": "shortlist.split",
    "tune": "shortlist.auto.tune",
}

__all__ = sorted(["__version__", *_MODULES])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shortlist")
    if name not in _MODULES:
        module = sys.modules[__name__]  # lets Python suggest the nearest name
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}", name=name, obj=module)
    module = import_module(_MODULES[name])
    value = getattr(module, name, module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
