"""The README and the pages: code blocks run, links resolve, figures match the benchmarks."""

import inspect
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import shortlist as sl
from shortlist import evaluation
from shortlist.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = ROOT / "examples"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NOT_RUN = ("make ", "pip ", "git ")  # the test environment is already set up


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of the blocks that a reader can paste."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")  # implicit's advice to its users
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = sl.load_dataset("sample")
    table = data.to_frame()
    table.write_parquet("events.parquet")
    table.rename({"user_id": "buyer", "item_id": "ean"}).write_csv("shop.csv")
    names = {
        "__name__": "page",
        "table": table,
        "csr": data.to_csr(),
    }  # what the pages assume that a reader has
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
            continue
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and not line.startswith(NOT_RUN):
                assert words[0] == "shortlist", f"{page.name} shows a command that no test can run: {line}"
                assert main(words[1:]) == 0, line


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as MkDocs and GitHub name them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", words))
    return found


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda p: p.name
)
def test_links_resolve(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {page.name for page in PAGES[1:]}


def run_example(name: str, capsys, monkeypatch, *flags: str) -> str:
    """Return the output of a script."""
    monkeypatch.setattr(sys, "argv", [name, *flags])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("next_basket.py", False),
        ("daily_papers.py", True),
        ("push_with_cost.py", True),
        pytest.param("weekly_offers.py", True, marks=pytest.mark.real),
    ],
)
def test_example_prints_what_its_page_shows(name, exact, capsys, monkeypatch):
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    shown = runpy.run_path(str(ROOT / "docs/tables.py"))["find_output"](page, name)[1].splitlines()
    printed = run_example(name, capsys, monkeypatch).splitlines()
    advice = "run python docs/tables.py --examples"
    assert [line.split()[0] for line in printed] == [line.split()[0] for line in shown], advice
    if not exact:  # trees differ in the last bits between processors, which can change a close choice
        return
    ours, theirs = "\n".join(printed), "\n".join(shown)
    assert NUMBER.split(ours) == NUMBER.split(theirs), advice
    expected = [float(number) for number in NUMBER.findall(theirs)]
    assert [float(number) for number in NUMBER.findall(ours)] == pytest.approx(expected, rel=0.02), advice


@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")  # implicit's advice to its users
def test_cutoffs_work_on_rankers_of_other_libraries(capsys, monkeypatch):
    printed = run_example("bring_your_own_ranker.py", capsys, monkeypatch, "--dataset", "sample")
    lines = [line.split() for line in printed.splitlines() if "expected F1" in line]
    assert [line[0] for line in lines] == ["ALS", "BPR", "counts"]
    assert all(float(line[3]) > 0.15 for line in lines)


def test_tour_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    notebook, names = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8")), {}
    for cell in (one for one in notebook["cells"] if one["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), "tour.ipynb", "exec"), names)
        shown = [line.strip() for output in cell["outputs"] for line in output.get("text", ())]
        assert set(capsys.readouterr().out.splitlines()) <= set(shown)
    assert names["lists"].lengths.size == 300


def test_every_example_is_on_the_page():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for script in EXAMPLES.glob("*.py"):
        assert f"python examples/{script.name}" in page
    assert "examples/tour.ipynb" in page


@pytest.mark.parametrize(
    "page",
    [
        "results.md",
        "scale.md",
        "evaluation.md",
        "experiments.md",
        "guarantees.md",
        "models.md",
        "production.md",
        "rankers.md",
        "../README.md",
    ],
)
def test_tables_match_the_benchmarks(page):
    tables = runpy.run_path(str(ROOT / "docs/tables.py"))
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert tables["fill"](page) == text, "run python docs/tables.py"


def test_picture_matches_the_reproduction():
    picture = runpy.run_path(str(ROOT / "docs/picture.py"))
    for path, draw in (
        ("PICTURE", "draw"),
        ("ALLOCATION_PICTURE", "draw_allocation"),
        ("PRODUCT", "draw_product"),
    ):
        assert picture[path].read_text(encoding="utf-8") == picture[draw](), "run python docs/picture.py"


def test_formulas_become_mathml():
    render = runpy.run_path(str(ROOT / "docs/formulas.py"))["on_page_content"]
    page = r'<p>if <span class="arithmatex">\(p &lt; x_i\)</span></p><div class="arithmatex">\[a\]</div>'
    html = render(page)
    assert "arithmatex" not in html
    assert html.count("<math") == 2
    assert html.count('display="block"') == 1
    assert "<msub><mi>x</mi><mi>i</mi></msub>" in html
    assert render("<p>no formula</p>") == "<p>no formula</p>"


def public_names() -> set[str]:
    """Return every public name below `shortlist`, those of its public modules included."""
    found = set(sl.__all__) - {"__version__"}
    modules = {name: getattr(sl, name) for name in found if inspect.ismodule(getattr(sl, name))}
    members = {f"{name}.{member}" for name, module in modules.items() for member in module.__all__}
    return (found - modules.keys()) | members


def test_reference_lists_every_public_name():
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: shortlist\.(\S+)$", page, re.MULTILINE))
    assert public_names() - listed == set()
    more = {f"evaluation.{name}" for name in evaluation.__all__}
    more |= {
        "models.base.Recommender",
        "data.columns.DataSource",
        "auto.cut.CutResult",
        "data.arrow.ArrowFunction",
    }
    more |= {f"testing.check_{what}" for what in ("model", "cutoff", "metric")}
    more |= {"evaluation.experiment.ExperimentPlan", "evaluation.experiment.ExperimentReport"}
    assert listed - public_names() <= more


def test_stable_names_stay():
    """A name leaves tests/stable_names.txt only with a release that says so in the change log."""
    stable, is_stable = set(), False
    for line in (ROOT / "docs/api.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            is_stable = "(provisional)" not in line
        elif is_stable and line.startswith("::: shortlist."):
            stable.add(line.removeprefix("::: shortlist."))
    assert sorted(stable) == (ROOT / "tests/stable_names.txt").read_text().split()
