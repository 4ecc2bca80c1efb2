"""Every code block of the README and the pages runs as printed, page by page, in a folder of its own."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import shortlist as sl
from shortlist.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = ROOT / "examples"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SHELL_ONLY = ("make ", "pip ", "git ")  # they set up what the tests already stand on


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of the blocks a reader may paste."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")  # the user's business
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_blocks_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = sl.load_dataset("sample")
    table = data.to_frame()
    table.write_parquet("events.parquet")
    table.rename({"user_id": "buyer", "item_id": "ean"}).write_csv("shop.csv")
    names = {"__name__": "page", "table": table, "csr": data.to_csr()}  # what a reader has at hand
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
            continue
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and not line.startswith(SHELL_ONLY):
                assert words[0] == "shortlist", f"{page.name} shows a command that no test can run: {line}"
                assert main(words[1:]) == 0, line


def test_links_inside_the_house_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def run_example(name: str, capsys, monkeypatch, *flags: str) -> str:
    """What the script prints."""
    monkeypatch.setattr(sys, "argv", [name, *flags])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("name", "exact"), [("next_basket.py", False), ("daily_papers.py", True), ("push_with_cost.py", True)]
)
def test_an_example_prints_what_its_page_shows(name, exact, capsys, monkeypatch):
    page = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    shown = runpy.run_path(str(ROOT / "docs/tables.py"))["shown"](page, name)[1].splitlines()
    printed = run_example(name, capsys, monkeypatch).splitlines()
    advice = "run python docs/tables.py --examples"
    assert [line.split()[0] for line in printed] == [line.split()[0] for line in shown], advice
    if not exact:  # trees tip over in the last bits between processors, and with them a close choice
        return
    ours, theirs = "\n".join(printed), "\n".join(shown)
    assert NUMBER.split(ours) == NUMBER.split(theirs), advice
    promised = [float(number) for number in NUMBER.findall(theirs)]
    assert [float(number) for number in NUMBER.findall(ours)] == pytest.approx(promised, rel=0.02), advice


@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")  # the user's business
def test_a_strangers_ranker_gets_lists_that_end(capsys, monkeypatch):
    printed = run_example("bring_your_own_ranker.py", capsys, monkeypatch, "--dataset", "sample")
    assert printed.count("expected F1") == 3


def test_every_example_is_on_its_page():
    page = (ROOT / "docs/examples.md").read_text(encoding="utf-8")
    for script in EXAMPLES.glob("*.py"):
        assert f"python examples/{script.name}" in page


@pytest.mark.parametrize("page", ["performance.md", "story.md"])
def test_quoted_figures_are_those_the_benchmarks_kept(page):
    tables = runpy.run_path(str(ROOT / "docs/tables.py"))
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert tables["filled"](page) == text, "run python docs/tables.py"


def test_the_picture_shows_what_the_reproduction_found():
    picture = runpy.run_path(str(ROOT / "docs/picture.py"))
    assert picture["PICTURE"].read_text(encoding="utf-8") == picture["drawn"](), "run python docs/picture.py"
