"""Lists on Spark, with the results of one machine.

Names are imported on first use: a worker imports `tasks` before it has set the environment of what computes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist.spark.lists import SparkAllocation, allocate, cut, recommend

__all__ = ["SparkAllocation", "allocate", "cut", "recommend"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'shortlist.spark' has no attribute {name!r}")
    from shortlist.spark import lists

    return getattr(lists, name)
