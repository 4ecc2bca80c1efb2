"""Tables of guarantees.md from benchmarks/results/guarantees.json."""

from collections.abc import Iterator
from typing import Any

Rows = Iterator[tuple[str, ...]]
BASKETS = {"one": "one basket", "four": "four baskets", "next": "four and a margin"}


def outcome(row: dict[str, Any]) -> str:
    """Broken among the guarantees that were made, and the share of users with a list."""
    return f"{row['broken']} of {row['guaranteed']}, {row['coverage']:.0%}"


def drift(found: dict[str, Any]) -> Rows:
    """Guarantees of precision on generated streams."""
    titles = BASKETS | {"moving": "moving threshold"}
    yield ("relevance", *titles.values())
    for name, variants in found["drift"].items():
        yield (name, *(outcome(variants[each]) for each in titles))
