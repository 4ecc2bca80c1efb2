"""One word for one concept: words that the glossary replaced do not appear in the sources or on the pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    file
    for folder in ("src", "docs", "examples", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.suffix in {".py", ".md", ".html", ".j2", ".jinja", ".svg", ".css", ".json"}
] + sorted(ROOT.glob("*.md"))
REPLACED = (  # the words that docs/glossary.md replaced, without those that are also ordinary English
    r"decider\w*|foretell\w*|foretold|foresee\w*|rehears\w*|wish|wishes|wished|desks?|barred|shelf|shelves|tastes?|"
    r"(?<!method of )moments?|habits?|sway|surge|heat|judge|judges|judged|judging|judgement|courts?|leash|"
    r"unhurried|taught|told|asked|nobody|whoever|strangers?|newcomers?|mend|mended|quotas?|heads\(|"
    r"fault of ours|worked off|(?<!nearest_)neighbours?|neighbourhoods?|outside ?scores|chosen_|past_|finder"
)
CLASSES = "Ids|Linear|Value|Wishes|Shop|Pairs|Bench|Marks|Brief|Units|Goal|Meter|Chosen|Choice|Parts"
OLD_WORD = re.compile(rf"(?<![A-Za-z])(?:{REPLACED})(?![A-Za-z])", re.IGNORECASE)
OLD_CLASS = re.compile(rf"\bclass (?:{CLASSES})\b|\bsl\.(?:load|read|Ids|Linear|Neighbours|Value)\b")


def old_words(text: str) -> list[str]:
    """Return the replaced words in a text."""
    return [match[0] for pattern in (OLD_WORD, OLD_CLASS) for match in pattern.finditer(text)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_file_uses_the_words_of_the_glossary(file):
    assert old_words(file.read_text(encoding="utf-8")) == []


def test_old_words_are_detected():
    assert old_words("The decider is asked; n_moments, Foretold, sl.read(x), class Bench:") == [
        "decider",
        "asked",
        "moments",
        "Foretold",
        "sl.read",
        "class Bench",
    ]
    ordinary = (
        "the method of moments, SIMD lanes, headset, mending, sl.read_interactions(x), class Benchmark:"
    )
    assert old_words(ordinary) == []
