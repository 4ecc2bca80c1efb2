"""Fit on a sample of users, and make lists for everybody where the data lies, on Spark.

Names are imported on first use: a worker imports `task` before it has set the environment of what computes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist.spark.allocation import SparkAllocation, allocate
    from shortlist.spark.lists import cut, evaluate, recommend
    from shortlist.spark.sample import fit

__all__ = ["SparkAllocation", "allocate", "cut", "evaluate", "fit", "recommend"]
MODULES = {"SparkAllocation": "allocation", "allocate": "allocation", "fit": "sample"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'shortlist.spark' has no attribute {name!r}")
    return getattr(import_module(f"shortlist.spark.{MODULES.get(name, 'lists')}"), name)
