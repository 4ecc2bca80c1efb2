"""Tables of guarantees.md from benchmarks/results/guarantees.json."""

from collections.abc import Iterator
from typing import Any

Rows = Iterator[tuple[str, ...]]
DATASETS = {
    "ta-feng": "Ta-Feng",
    "complete-journey": "Complete Journey",
    "online-retail": "Online Retail",
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
}
BASKETS = {"one": "one basket", "four": "four baskets", "next": "four and a margin"}


def outcome(row: dict[str, Any]) -> str:
    """Broken among the guarantees that were made, and the share of users with a list."""
    return f"{row['broken']} of {row['guaranteed']}, {row['coverage']:.0%}"


def next_baskets(found: dict[str, Any]) -> Rows:
    """Guarantees of precision and recall on the next baskets."""
    yield (
        "data, model",
        *(f"{kind}, {name}" for kind in ("precision", "recall") for name in BASKETS.values()),
    )
    for key, models in found["next_baskets"].items():
        for model, kinds in models.items():
            cells = (outcome(kinds[kind][name]) for kind in ("precision", "recall") for name in BASKETS)
            yield (f"{DATASETS[key]}, `{model}`", *cells)


def next_lists(found: dict[str, Any]) -> Rows:
    """Guarantees of max_empty over the lists of everyone."""
    yield ("data, model", "tested on buyers", "on everyone, one time", "on everyone, four times")
    for key, models in found["next_baskets"].items():
        for model, kinds in models.items():
            cells = (outcome(kinds["empty"][name]) for name in ("buyers", "one", "four"))
            yield (f"{DATASETS[key]}, `{model}`", *cells)


def drift(found: dict[str, Any]) -> Rows:
    """Guarantees of precision on generated streams."""
    titles = BASKETS | {"moving": "moving threshold"}
    yield ("relevance", *titles.values())
    for name, variants in found["drift"].items():
        yield (name, *(outcome(variants[each]) for each in titles))
