"""Recommendations that know when to stop.

Public names are imported on first use: `import shortlist` takes milliseconds, and a command line that only
prints its help never loads a compiler. Type checkers read `__init__.pyi`, which `make fix` writes from the
tables below.
"""

import sys
from importlib import import_module
from typing import Any

# name of a built-in model -> module that defines it, in the order of the command line's help
MODEL_MODULES = {
    "DKHRM": "shortlist.models.factorization.hrm",
    "DKBPRMF": "shortlist.models.factorization.mf",
    "HRM": "shortlist.models.factorization.hrm",
    "BPRMF": "shortlist.models.factorization.mf",
    "LogMF": "shortlist.models.factorization.mf",
    "CRRMF": "shortlist.models.factorization.mf",
    "ContentProfile": "shortlist.models.content",
    "TwoStage": "shortlist.models.two_stage.two_stage",
    "TIFUKNN": "shortlist.models.tifuknn",
    "UPCF": "shortlist.models.upcf",
    "EASE": "shortlist.models.ease",
    "ALS": "shortlist.models.als",
    "GFCF": "shortlist.models.gfcf",
    "PersonalFrequency": "shortlist.models.counting",
    "Popularity": "shortlist.models.counting",
    "PrecomputedScores": "shortlist.models.precomputed",
}
# module -> its other public names; a module without names is itself public
_NAMES: dict[str, tuple[str, ...]] = {
    "shortlist.auto.cut": ("cut",),
    "shortlist.auto.cutoff_choice": ("choose_cutoff", "default_cutoffs"),
    "shortlist.auto.fit": ("fit",),
    "shortlist.auto.tune": ("tune",),
    "shortlist.core.engine": ("ThreadEngine",),
    "shortlist.cutoff": (),
    "shortlist.cutoff.allocation": ("Allocation", "allocate"),
    "shortlist.cutoff.monitor": ("GuaranteeMonitor",),
    "shortlist.data.check": ("check_data",),
    "shortlist.data.datasets": ("load_dataset",),
    "shortlist.data.files": ("read_interactions",),
    "shortlist.data.filters": (),
    "shortlist.data.ids": ("IdMap",),
    "shortlist.data.interactions": ("Interactions",),
    "shortlist.data.items": ("Items", "read_items"),
    "shortlist.data.lists": ("RankedLists",),
    "shortlist.errors": (),
    "shortlist.evaluation.evaluate": ("compare", "evaluate", "evaluate_alerts"),
    "shortlist.evaluation.exposure": ("evaluate_shown", "evaluate_tails"),
    "shortlist.evaluation.experiment": ("evaluate_experiment", "plan_experiment"),
    "shortlist.models.base": ("load_model",),
    "shortlist.models.folders": ("fit_to_folder", "recommend_to_folder"),
    "shortlist.models.precomputed": ("from_implicit",),
    "shortlist.models.strict_time": ("evaluate_over_time",),
    "shortlist.recommend.request": ("Exploration",),
    "shortlist.scale.engine": ("RayEngine",),
    "shortlist.scale.spark": (),
    "shortlist.split": (),
}
_MODULES = MODEL_MODULES | {
    name: module for module, names in _NAMES.items() for name in names or [module.rpartition(".")[2]]
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
