"""The places that are mutated, the sample, and the result that is kept."""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.sites import Mutant, draw, excluded_spans, function_spans

HERE = Path(__file__).parent
KINDS = {"equivalent", "performance", "constant", "message"}
SOURCE = '''
from shortlist.types import Ints

__all__ = ["f" + "g"]
LIMIT: int | None = 3


@kernel(cache=True)
def f(x: int | None = 1, *rest: "a + b") -> int | str:
    """Add 1 + 1."""
    if x is None:
        raise ValueError(f"é {x + 1}" + "no")
    text = f"{x + 2}"
    warnings.warn("a" + "b")
    return x + 3


def h(x, y=5, *, z=7):
    return x * y


class C:
    def _summary(self):
        return 1 + 1

    def g(self):
        return 2 + 2
'''


def excluded(text):
    """Whether the last place of a text in the source is excluded."""
    begin = SOURCE.rindex(text)
    line, column = SOURCE.count("\n", 0, begin) + 1, begin - (SOURCE.rfind("\n", 0, begin) + 1)
    spans = excluded_spans(SOURCE, ["_summary"])
    return any(low <= (line, column) < high for low, high in spans)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('+ "g"', True),
        ("| None = 3", True),
        ("3\n\n\n@", False),
        ("True", True),
        ("| None = 1", True),
        ("1, *rest", False),
        ('+ b"', True),
        ("| str", True),
        ("is None", False),
        ('+ 1}"', True),
        ('+ "no"', True),
        ("+ 2}", True),
        ('+ "b"', True),
        ("+ 3", False),
        ("5, *", False),
        ("*, z", True),
        ("7)", False),
        ("* y", False),
        ("+ 1\n", True),
        ("+ 2\n", False),
    ],
)
def test_texts_annotations_and_settings_are_not_mutated(text, expected):
    assert excluded(text) is expected


def test_functions_are_named_with_their_class():
    assert [name for _, _, name in function_spans(SOURCE)] == ["f", "h", "C", "C._summary", "C.g"]


def mutants(package, n):
    return [Mutant(f"{package}.py", "op", i, i, "f", "code", f"{package}{i}") for i in range(n)]


def test_sample_is_proportional_seeded_and_stable():
    packages = {"big": mutants("big", 800), "small": mutants("small", 195), "tiny": mutants("tiny", 5)}
    sample = draw(packages, 100, 3, seed=1)
    assert Counter(one.path for one in sample) == {"big.py": 80, "small.py": 20, "tiny.py": 3}
    assert sample == draw(packages, 100, 3, seed=1)
    assert sample != draw(packages, 100, 3, seed=2)
    removed = sample[0]
    fewer = packages | {"big": [one for one in packages["big"] if one != removed]}
    assert len(set(draw(fewer, 100, 3, seed=1)) - set(sample)) <= 1


def test_kept_result_has_the_required_size_and_score():
    result = json.loads((HERE / "result.json").read_text())
    assert result["mutants"] == sum(one["mutants"] for one in result["packages"].values()) >= 500
    assert all(one["mutants"] >= 20 for one in result["packages"].values())
    assert result["survived"] == len(result["survivors"])
    assert result["score"] == pytest.approx(1 - result["survived"] / result["mutants"], abs=1e-4)
    assert result["score"] >= 0.9
    assert set(result["planted"].values()) <= {"killed", "timeout"}


def test_every_named_file_exists():
    for package, settings in tomllib.loads((HERE / "mutants.toml").read_text())["packages"].items():
        for name in [*settings.get("skip", []), *settings.get("only", []), *settings.get("files", {})]:
            assert (HERE.parents[1] / "src/shortlist" / package / name).exists(), name
        for test in [test for file in settings.get("files", {}).values() for test in file["tests"]]:
            assert (HERE.parents[1] / test).exists(), test


def test_every_planted_fault_fits_the_current_code():
    for fault in tomllib.loads((HERE / "planted.toml").read_text())["fault"]:
        source = (HERE.parents[1] / fault["path"]).read_text()
        assert source.count(fault["find"]) == 1, fault["name"]
        assert fault["plant"] != fault["find"]


def test_every_survivor_is_explained():
    result = json.loads((HERE / "result.json").read_text())
    explained = tomllib.loads((HERE / "survivors.toml").read_text())
    for survivor in result["survivors"]:
        assert explained[survivor["key"]]["kind"] == survivor["kind"]
        assert survivor["kind"] in KINDS
        assert len(survivor["why"]) > 20
